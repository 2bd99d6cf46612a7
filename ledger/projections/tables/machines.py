"""Machines, their GPUs and listings."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    PrimaryKeyConstraint,
    Text,
    text,
)

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

machines = table(
    "machines",
    FACTS,
    big("machine_id", primary_key=True, autoincrement=False),
    big("host_id"),
    Column("gpus", Integer, nullable=False),
    string("gpu_name"),
    Column("gpu_ram_gb", Integer, nullable=False),
    Column("cpu_cores", Integer, nullable=False),
    Column("ram_gb", Integer, nullable=False),
    Column("disk_gb", Integer, nullable=False),
    Column("up_mbps", Integer, nullable=False),
    Column("down_mbps", Integer, nullable=False),
    big("registered_at"),
    maybe("enrolled_at"),
    string("boot_id", nullable=True),
    maybe("offline_since"),
    maybe("listing_id"),
    Column("floor", Numeric(38, 0), nullable=True),
    Column("committed_gpus", Integer, nullable=False, server_default=text("0")),
    big("desired_version"),
    Index("machines_host", "host_id"),
    fillfactor=70,
)

machine_keys = table(
    "machine_keys",
    FACTS,
    big("machine_id"),
    string("key_id"),
    Column("public_key", LargeBinary, nullable=False),
    big("enrolled_at"),
    maybe("revoked_at"),
    PrimaryKeyConstraint("machine_id", "key_id"),
)

machine_epochs = table(
    "machine_epochs",
    FACTS,
    big("machine_id"),
    string("epoch"),
    big("opened_at"),
    big("position"),
    PrimaryKeyConstraint("machine_id", "epoch"),
)

gpus = table(
    "gpus",
    FACTS,
    big("gpu_no", primary_key=True, autoincrement=False),
    Column("gpu_uuid", Text, nullable=False, unique=True),
    big("machine_id"),
    Column("slot", Integer, nullable=False),
    Column("healthy", Boolean, nullable=False, server_default=text("true")),
    string("health_reason", nullable=True),
    maybe("health_changed_at"),
    Index("gpus_machine", "machine_id", "slot"),
)

listings = table(
    "listings",
    FACTS,
    big("listing_id", primary_key=True, autoincrement=False),
    big("machine_id"),
    money("gpu_rate_per_gpu"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    Column("min_bid_per_gpu", Numeric(38, 0), nullable=True),
    Column("min_gpus", Integer, nullable=False),
    maybe("until"),
    Column("reserved_discount_max_bp", Integer, nullable=False),
    big("listed_at"),
    maybe("unlisted_at"),
    Index("listings_machine", "machine_id"),
)
