"""The market: offers, what a place costs, and one wide row per open offer for the search."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Text,
    text,
)

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

KINDS = ("on_demand", "interruptible", "reserved")

offers = table(
    "offers",
    FACTS,
    big("offer_id", primary_key=True, autoincrement=False),
    big("machine_id"),
    big("listing_id"),
    Column("gpus", Integer, nullable=False),
    big("opened_at"),
    maybe("closed_at"),
    maybe("instance_id"),
    Index("offers_open", "machine_id", "gpus", postgresql_where=text("closed_at IS NULL")),
)
smallest_bids = table(
    "smallest_bids",
    FACTS,
    big("machine_id"),
    Column("gpus", Integer, nullable=False),
    Column("amount", Numeric(38, 0), nullable=True),
    PrimaryKeyConstraint("machine_id", "gpus"),
    fillfactor=70,
)
_USUAL = {
    "on_demand": "rentable AND verified",
    "interruptible": "bookable AND interruptible_cost IS NOT NULL AND verified",
    "reserved": "rentable AND verified",
}
"""What a search asks for unless told otherwise; unverified offers are many, and often cheap."""
open_offers = table(
    "open_offers",
    FACTS,
    big("offer_id", primary_key=True, autoincrement=False),
    big("machine_id"),
    big("host_id"),
    big("listing_id"),
    big("opened_at"),
    big("disk_gb"),
    Column("on_demand_cost", Double, nullable=False),
    Column("reserved_cost", Double, nullable=False),
    Column("storage_cost", Double, nullable=False),
    Column("lower_bound", Double, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("machine_gpus", Integer, nullable=False),
    Column("gpu_ram_gb", Integer, nullable=False),
    Column("cpu_cores", Integer, nullable=False),
    Column("ram_gb", Integer, nullable=False),
    Column("up_mbps", Integer, nullable=False),
    Column("down_mbps", Integer, nullable=False),
    Column("checks", Integer, nullable=False),
    Column("reserved_discount_max_bp", Integer, nullable=False),
    Column("rentable", Boolean, nullable=False),
    Column("bookable", Boolean, nullable=False),
    Column("verified", Boolean, nullable=False),
    Column("secure", Boolean, nullable=False),
    maybe("until"),
    Column("interruptible_cost", Double, nullable=True),
    *(Column(f"{kind}_worth", Double, nullable=True) for kind in KINDS),
    Column("reliability", Double, nullable=True),
    Column("score", Double, nullable=True),
    Column("cuda", Double, nullable=True),
    Column("nvlink_gb_s", Double, nullable=True),
    Column("ports", Integer, nullable=True),
    Column("static_ip", Boolean, nullable=True),
    string("gpu_name"),
    string("country", nullable=True),
    string("verification"),
    money("gpu_rate"),
    money("reserved_rate"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    Column("floor", Numeric(38, 0), nullable=True),
    Column("min_bid", Numeric(38, 0), nullable=True),
    Index("open_offers_machine", "machine_id"),
    Index("open_offers_gpu", "gpu_name", "gpus"),
    *(
        Index(f"open_offers_{name}", text(f"{name} DESC NULLS LAST"))
        for name in (
            *("gpus", "gpu_ram_gb", "cpu_cores", "ram_gb", "disk_gb", "up_mbps", "down_mbps"),
            *("reliability", "lower_bound", "score", "cuda", "ports", "nvlink_gb_s"),
        )
    ),
    Index("open_offers_storage_cost", "storage_cost"),
    *(
        Index(
            f"open_offers_total_ram_{number}",
            text("(gpu_ram_gb * gpus) DESC NULLS LAST"),
            postgresql_where=text(usual),
        )
        for number, usual in enumerate(dict.fromkeys(_USUAL.values()))
    ),
    *(
        Index(f"open_offers_{kind}_{price}", f"{kind}_{price}")
        for kind in KINDS
        for price in ("cost", "worth")
    ),
    *(
        # With the other half of the price in it, the search need not look at the rows themselves.
        Index(
            f"open_offers_{kind}_{price}_usual",
            f"{kind}_{price}",
            postgresql_where=text(usual),
            postgresql_include=["storage_cost", "until", "offer_id"],
        )
        for kind, usual in _USUAL.items()
        for price in ("cost", "worth")
    ),
    fillfactor=70,
)
"""Sizes in GB of the slice (`gpu_ram_gb` per GPU), links in Mbit/s, rates in nanos for the slice.

Rewritten from the tables around it whenever one of them changes for this machine. `…_cost` are the
rates as floats and `…_worth` the score per dollar without a disk: what the search sorts by, never
what anybody pays. Columns that every search looks at come first, as a row is read from its left.
`bookable`: nothing but its tenants keeps the machine from being rented; `rentable`: an on-demand
renter would get the slice now.
"""
machine_details = table(
    "machine_details",
    FACTS,
    big("machine_id", primary_key=True, autoincrement=False),
    Column("cuda", Double, nullable=True),
    Column("driver", Text, nullable=True),
    Column("driver_number", BigInteger, nullable=True),
    Column("compute_capability", Integer, nullable=True),
    Column("cpu_name", Text, nullable=True),
    Column("cpu_ghz", Double, nullable=True),
    Column("architecture", Text, nullable=True),
    Column("avx", Boolean, nullable=True),
    Column("disk_name", Text, nullable=True),
    Column("disk_mb_s", BigInteger, nullable=True),
    Column("pcie_gen", Integer, nullable=True),
    Column("pcie_gb_s", Double, nullable=True),
    Column("nvlink_gb_s", Double, nullable=True),
    Column("gpu_memory_gb_s", Double, nullable=True),
    Column("gpu_power_w", Integer, nullable=True),
    Column("ports", Integer, nullable=True),
    Column("static_ip", Boolean, nullable=True),
    Column("os_version", Text, nullable=True),
    Column("mainboard", Text, nullable=True),
)
"""What the last inventory of a machine says, as numbers; null: not measured."""
machine_standing = table(
    "machine_standing",
    FACTS,
    big("machine_id", primary_key=True, autoincrement=False),
    string("verification"),
    Column("secure", Boolean, nullable=False, server_default=text("false")),
    Column("stopped_for_maintenance", Boolean, nullable=False, server_default=text("false")),
    Column("below_bars", Boolean, nullable=False, server_default=text("false")),
    Column("reliability", Double, nullable=True),
    Column("checks", Integer, nullable=False, server_default=text("0")),
    Column("lower_bound", Double, nullable=False, server_default=text("0")),
    Column("score", Double, nullable=True),
    string("country", nullable=True),
    maybe("changed_at"),
    Index("machine_standing_secure", "machine_id", postgresql_where=text("secure")),
    fillfactor=70,
)
"""What is thought of a machine: its verification, rating, tier and score (of one GPU)."""
