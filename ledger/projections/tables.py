"""Every read model's tables, in one place: made by the migrations and again by a rebuild.

The order of columns is part of the canonical dump that a rebuild compares. Amounts are nanos,
instants Unix seconds, positions places in the log.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INT8RANGE, ExcludeConstraint

metadata = MetaData()

FACTS: Final = "facts"
USAGE: Final = "usage"
GENERATION: Final = 1
"""Raise it when a fold changes; the program then asks for a rebuild before it serves."""


def _big(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=options.pop("nullable", False), **options)


def _maybe(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def _money(name: str) -> Column[Any]:
    return Column(name, Numeric(38, 0), nullable=False, server_default=text("0"))


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _table(name: str, group: str, *parts: Any, fillfactor: int | None = None) -> Table:
    options: dict[str, Any] = {"info": {"group": group}}
    if fillfactor is not None:
        options["postgresql_with"] = {"fillfactor": fillfactor}
    return Table(name, metadata, *parts, **options)


# --- folded with the command ---------------------------------------------------------------------

policies = _table(
    "policies",
    FACTS,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fee_bp", Integer, nullable=False),
    _big("late_usage_seconds"),
    Column("admission", Boolean, nullable=False),
    _maybe("offline_after_seconds"),
    _big("adopted_at"),
)
id_counters = _table(
    "id_counters",
    FACTS,
    Column("kind", Text, primary_key=True),
    _big("last"),
    fillfactor=50,
)
accounts = _table(
    "accounts",
    FACTS,
    _big("account_id", primary_key=True, autoincrement=False),
    _text("subject"),
    Column("name_hash", Text, nullable=False, unique=True),
    _big("opened_at"),
    _maybe("erased_at"),
    _big("closed_until"),
    Column("invoices", Integer, nullable=False, server_default=text("0")),
)
api_keys = _table(
    "api_keys",
    FACTS,
    Column("key_id", Text, primary_key=True),
    _big("account_id"),
    _text("role"),
    _maybe("expires_at"),
    _big("created_at"),
    _maybe("revoked_at"),
    Index("api_keys_account", "account_id"),
)
account_credit = _table(
    "account_credit",
    FACTS,
    _big("account_id", primary_key=True, autoincrement=False),
    _money("posted"),
    _money("gpu_rate"),
    _money("storage_product"),
    _maybe("dry_at"),
    _maybe("exhausted_at"),
    _money("debt_limit"),
    Column("debt_notices", SmallInteger, nullable=False, server_default=text("0")),
    _maybe("debt_since"),
    fillfactor=50,
)
"""Own money movements of an account, and the rates that burn its credit: nanos per hour of GPUs it
holds, and nanos per GB-month times bytes of the disks it keeps."""
holds = _table(
    "holds",
    FACTS,
    _big("account_id"),
    _text("hold_id"),
    _money("amount"),
    _text("status"),
    _money("captured"),
    _big("expires_at"),
    _big("placed_at"),
    _maybe("closed_at"),
    PrimaryKeyConstraint("account_id", "hold_id"),
    Index("holds_pending", "expires_at", postgresql_where=text("status = 'pending'")),
)
deposits = _table(
    "deposits",
    FACTS,
    _big("account_id"),
    _text("deposit_id"),
    _money("amount"),
    _money("refunded"),
    _text("source"),
    _big("settled_at"),
    PrimaryKeyConstraint("account_id", "deposit_id"),
)
movements = _table(
    "movements",
    FACTS,
    _big("position", primary_key=True, autoincrement=False),
    _text("kind"),
    _text("reference"),
    _text("debit"),
    _maybe("debit_account"),
    _text("credit"),
    _maybe("credit_account"),
    _money("amount"),
    _big("occurred_at"),
    Index("movements_debit", "debit_account", "position"),
    Index("movements_credit", "credit_account", "position"),
)
"""Money that moved outside the meters: one balanced row each, debit and credit of one amount."""
notices = _table(
    "notices",
    FACTS,
    _big("position", primary_key=True, autoincrement=False),
    _big("account_id"),
    _text("code"),
    _text("about"),
    _big("issued_at"),
    Index("notices_account", "account_id", "position"),
)
invoices = _table(
    "invoices",
    FACTS,
    Column("number", Text, primary_key=True),
    _big("account_id"),
    _big("period_from"),
    _big("period_until"),
    _money("opening"),
    _money("movements"),
    _money("total"),
    _money("closing"),
    _money("paid"),
    _big("issued_at"),
    _big("position"),
    Index("invoices_account", "account_id", "position"),
)
invoice_lines = _table(
    "invoice_lines",
    FACTS,
    _text("number"),
    Column("line", Integer, nullable=False),
    _big("instance_id"),
    _text("meter"),
    _big("segment_from"),
    _text("kind"),
    _money("rate"),
    _money("quantity"),
    _money("amount"),
    Column("late", Boolean, nullable=False),
    _big("period_from"),
    _big("used_from"),
    _big("used_until"),
    PrimaryKeyConstraint("number", "line"),
)
closed_periods = _table(
    "closed_periods",
    FACTS,
    _big("account_id"),
    _big("period_from"),
    _big("period_until"),
    _big("position"),
    Column("number", Text, nullable=True),
    PrimaryKeyConstraint("account_id", "period_from"),
)
machines = _table(
    "machines",
    FACTS,
    _big("machine_id", primary_key=True, autoincrement=False),
    _big("host_id"),
    Column("gpus", Integer, nullable=False),
    _text("gpu_name"),
    Column("gpu_ram_gb", Integer, nullable=False),
    Column("cpu_cores", Integer, nullable=False),
    Column("ram_gb", Integer, nullable=False),
    Column("disk_gb", Integer, nullable=False),
    Column("up_mbps", Integer, nullable=False),
    Column("down_mbps", Integer, nullable=False),
    _big("registered_at"),
    _maybe("enrolled_at"),
    _text("boot_id", nullable=True),
    _maybe("offline_since"),
    _maybe("listing_id"),
    _big("desired_version"),
    Index("machines_host", "host_id"),
    fillfactor=70,
)
machine_keys = _table(
    "machine_keys",
    FACTS,
    _big("machine_id"),
    _text("key_id"),
    Column("public_key", LargeBinary, nullable=False),
    _big("enrolled_at"),
    _maybe("revoked_at"),
    PrimaryKeyConstraint("machine_id", "key_id"),
)
machine_epochs = _table(
    "machine_epochs",
    FACTS,
    _big("machine_id"),
    _text("epoch"),
    _big("opened_at"),
    _big("position"),
    PrimaryKeyConstraint("machine_id", "epoch"),
)
gpus = _table(
    "gpus",
    FACTS,
    _big("gpu_no", primary_key=True, autoincrement=False),
    Column("gpu_uuid", Text, nullable=False, unique=True),
    _big("machine_id"),
    Column("slot", Integer, nullable=False),
    Index("gpus_machine", "machine_id", "slot"),
)
listings = _table(
    "listings",
    FACTS,
    _big("listing_id", primary_key=True, autoincrement=False),
    _big("machine_id"),
    _money("gpu_rate_per_gpu"),
    _money("storage_rate"),
    _money("up_rate"),
    _money("down_rate"),
    Column("min_bid_per_gpu", Numeric(38, 0), nullable=True),
    Column("min_gpus", Integer, nullable=False),
    _maybe("until"),
    Column("reserved_discount_max_bp", Integer, nullable=False),
    _big("listed_at"),
    _maybe("unlisted_at"),
    Index("listings_machine", "machine_id"),
)
instances = _table(
    "instances",
    FACTS,
    _big("instance_id", primary_key=True, autoincrement=False),
    _big("account_id"),
    _big("machine_id"),
    _big("host_id"),
    _big("listing_id"),
    _text("kind"),
    Column("gpus", Integer, nullable=False),
    _big("disk_bytes"),
    _money("gpu_rate"),
    _money("storage_rate"),
    _money("up_rate"),
    _money("down_rate"),
    Column("fee_bp", Integer, nullable=False),
    _maybe("until"),
    _text("label", nullable=True),
    _text("launch", nullable=True),
    _text("status"),
    _text("reason"),
    Column("wants_run", Boolean, nullable=False),
    _big("requested_position"),
    Column("assignment_no", Integer, nullable=False),
    _maybe("assigned_at"),
    Column("slots", ARRAY(Integer), nullable=False),
    Column("gpu_uuids", ARRAY(Text), nullable=False),
    _maybe("gpu_from"),
    _maybe("gpu_until"),
    _maybe("first_run_at"),
    _maybe("disk_lost_at"),
    _big("created_at"),
    _maybe("stopped_at"),
    _maybe("destroyed_at"),
    _big("changed_position"),
    Index("instances_account", "account_id", "instance_id"),
    Index("instances_machine", "machine_id", "instance_id"),
    Index("instances_alive", "machine_id", postgresql_where=text("destroyed_at IS NULL")),
    fillfactor=70,
)
gpu_assignments = _table(
    "gpu_assignments",
    FACTS,
    _big("instance_id"),
    Column("assignment_no", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    _big("machine_id"),
    Column("gpu", INT8RANGE, nullable=False),
    Column("during", INT8RANGE, nullable=False),
    PrimaryKeyConstraint("instance_id", "assignment_no", "slot"),
    ExcludeConstraint(("gpu", "&&"), ("during", "&&"), name="gpu_held_once", using="gist"),
    Index("gpu_assignments_open", "machine_id", postgresql_where=text("upper_inf(during)")),
)
"""No GPU is held twice in one second, on any machine: the database itself refuses it."""

# --- folded behind the log -----------------------------------------------------------------------

metered_instances = _table(
    "metered_instances",
    USAGE,
    _big("instance_id", primary_key=True, autoincrement=False),
    _big("account_id"),
    _big("host_id"),
    _big("machine_id"),
    _big("disk_bytes"),
    _big("created_at"),
    _maybe("assigned_at"),
    _maybe("destroyed_at"),
    Index("metered_instances_machine", "machine_id"),
    Index("metered_instances_account", "account_id"),
    fillfactor=80,
)
metered_machines = _table(
    "metered_machines",
    USAGE,
    _big("machine_id", primary_key=True, autoincrement=False),
    _big("up_link"),
    _big("down_link"),
)
metered_accounts = _table(
    "metered_accounts",
    USAGE,
    _big("account_id", primary_key=True, autoincrement=False),
    _big("closed_until"),
    _maybe("dry_at"),
)
metered_platform = _table(
    "metered_platform",
    USAGE,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    _big("late_usage_seconds"),
)
gpu_intervals = _table(
    "gpu_intervals",
    USAGE,
    _big("instance_id"),
    _big("start"),
    _maybe("until"),
    Column("assignment_no", Integer, nullable=False),
    _big("position"),
    PrimaryKeyConstraint("instance_id", "start"),
)
lost_disks = _table(
    "lost_disks",
    USAGE,
    _big("instance_id"),
    _big("start"),
    _maybe("until"),
    PrimaryKeyConstraint("instance_id", "start"),
)
rate_segments = _table(
    "rate_segments",
    USAGE,
    _big("instance_id"),
    Column("terms_no", Integer, nullable=False),
    _big("since"),
    _text("kind"),
    Column("fee_bp", Integer, nullable=False),
    _money("gpu_rate"),
    _money("storage_rate"),
    _money("up_rate"),
    _money("down_rate"),
    *(
        _money(f"{meter}_{part}")
        for meter in ("gpu", "storage", "up", "down")
        for part in ("quantity", "charge", "fee")
    ),
    PrimaryKeyConstraint("instance_id", "terms_no"),
    fillfactor=50,
)
"""Cumulative quantity, charge and fee per meter under one set of terms."""
coverage = _table(
    "coverage",
    USAGE,
    _big("instance_id"),
    _big("start"),
    _big("until"),
    _big("position"),
    PrimaryKeyConstraint("instance_id", "start"),
    fillfactor=50,
)
"""Seconds of an instance that have their first accepted tick; neighbours merged."""
machine_coverage = _table(
    "machine_coverage",
    USAGE,
    _big("machine_id"),
    _big("start"),
    _big("until"),
    _big("position"),
    PrimaryKeyConstraint("machine_id", "start"),
    fillfactor=50,
)
usage_hours = _table(
    "usage_hours",
    USAGE,
    _big("instance_id"),
    _big("hour"),
    Column("terms_no", Integer, nullable=False),
    _big("booked"),
    _big("account_id"),
    _big("host_id"),
    *(
        Column(
            f"{meter}_{part}",
            Numeric(38, 0) if part == "quantity" and meter in ("up", "down") else BigInteger,
            nullable=False,
        )
        for meter in ("gpu", "storage", "up", "down")
        for part in ("quantity", "charge", "fee")
    ),
    _big("first_second"),
    _big("until"),
    _big("position"),
    PrimaryKeyConstraint("instance_id", "hour", "terms_no", "booked"),
    Index("usage_hours_account", "account_id", "booked"),
    Index("usage_hours_position", "position"),
    fillfactor=50,
)
"""What was accepted for one instance in one UTC hour under one set of terms, booked in one invoice
period (`booked`: its first second; later than the hour's own period where that was closed)."""
account_usage = _table(
    "account_usage",
    USAGE,
    _big("account_id", primary_key=True, autoincrement=False),
    _money("charged"),
    _money("earned"),
    _money("fees"),
    fillfactor=50,
)
"""Usage charged to an account as renter, earned by it as host, and the fees kept of that."""
anomalies = _table(
    "anomalies",
    USAGE,
    _big("machine_id"),
    _big("instance_id"),
    _text("code"),
    _big("start"),
    _big("until"),
    _money("amount"),
    _big("position"),
    PrimaryKeyConstraint("machine_id", "instance_id", "code", "start"),
    Index("anomalies_instance", "instance_id"),
)
"""What was attested, stored and not billed. `instance_id` 0: the machine as a whole."""


def tables_of(group: str) -> list[Table]:
    """The tables of one group, in a stable order."""
    return [table for table in metadata.sorted_tables if table.info["group"] == group]
