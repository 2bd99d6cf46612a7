"""What the meters counted: folded behind the log."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
)

from ledger.meters.pricing import METERS
from ledger.projections.groups import USAGE
from ledger.projections.tables.base import big, maybe, money, string, table

metered_instances = table(
    "metered_instances",
    USAGE,
    big("instance_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("host_id"),
    big("machine_id"),
    big("disk_bytes"),
    big("created_at"),
    maybe("assigned_at"),
    maybe("released_at"),
    maybe("destroyed_at"),
    Index("metered_instances_machine", "machine_id"),
    Index("metered_instances_account", "account_id"),
    fillfactor=80,
)

metered_machines = table(
    "metered_machines",
    USAGE,
    big("machine_id", primary_key=True, autoincrement=False),
    big("up_link"),
    big("down_link"),
)

metered_accounts = table(
    "metered_accounts",
    USAGE,
    big("account_id", primary_key=True, autoincrement=False),
    big("closed_until"),
    maybe("dry_at"),
)

metered_periods = table(
    "metered_periods",
    USAGE,
    big("account_id"),
    big("boundary"),
    PrimaryKeyConstraint("account_id", "boundary"),
)
"""The instants at which periods begin, of accounts that chose their own."""

metered_platform = table(
    "metered_platform",
    USAGE,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    big("late_usage_seconds"),
)

gpu_intervals = table(
    "gpu_intervals",
    USAGE,
    big("instance_id"),
    big("start"),
    maybe("until"),
    Column("assignment_no", Integer, nullable=False),
    big("position"),
    PrimaryKeyConstraint("instance_id", "start"),
)

reserved_holds = table(
    "reserved_holds",
    USAGE,
    big("instance_id"),
    big("start"),
    maybe("until"),
    PrimaryKeyConstraint("instance_id", "start"),
)
"""When an instance that was ever reserved held GPUs: the other seconds of a term are idle ones."""
lost_disks = table(
    "lost_disks",
    USAGE,
    big("instance_id"),
    big("start"),
    maybe("until"),
    PrimaryKeyConstraint("instance_id", "start"),
)

rate_segments = table(
    "rate_segments",
    USAGE,
    big("instance_id"),
    Column("terms_no", Integer, nullable=False),
    big("since"),
    string("kind"),
    Column("fee_bp", Integer, nullable=False),
    money("gpu_rate"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    *(money(f"{meter}_{part}") for meter in METERS for part in ("quantity", "charge", "fee")),
    PrimaryKeyConstraint("instance_id", "terms_no"),
    fillfactor=50,
)
"""Cumulative quantity, charge and fee per meter under one set of terms."""

coverage = table(
    "coverage",
    USAGE,
    big("instance_id"),
    big("start"),
    big("until"),
    big("position"),
    PrimaryKeyConstraint("instance_id", "start"),
    fillfactor=50,
)
"""Seconds of an instance that have their first accepted tick; neighbours merged."""

machine_coverage = table(
    "machine_coverage",
    USAGE,
    big("machine_id"),
    big("start"),
    big("until"),
    big("position"),
    PrimaryKeyConstraint("machine_id", "start"),
    fillfactor=50,
)

usage_hours = table(
    "usage_hours",
    USAGE,
    big("instance_id"),
    big("hour"),
    Column("terms_no", Integer, nullable=False),
    big("booked"),
    big("account_id"),
    big("host_id"),
    *(
        Column(
            f"{meter}_{part}",
            Numeric(38, 0) if part == "quantity" and meter in ("up", "down") else BigInteger,
            nullable=False,
        )
        for meter in METERS
        for part in ("quantity", "charge", "fee")
    ),
    big("first_second"),
    big("until"),
    big("position"),
    PrimaryKeyConstraint("instance_id", "hour", "terms_no", "booked"),
    Index("usage_hours_account", "account_id", "booked"),
    Index("usage_hours_position", "position"),
    fillfactor=50,
)
"""What was accepted for one instance in one UTC hour under one set of terms, booked in one invoice
period (`booked`: its first second; later than the hour's own period where that was closed)."""

account_usage = table(
    "account_usage",
    USAGE,
    big("account_id", primary_key=True, autoincrement=False),
    money("charged"),
    money("earned"),
    money("fees"),
    fillfactor=50,
)
"""Usage charged to an account as renter, earned by it as host, and the fees kept of that."""

promotion_usage = table(
    "promotion_usage",
    USAGE,
    big("account_id"),
    big("since"),
    money("charged"),
    Column("is_cut", Boolean, nullable=False),
    PrimaryKeyConstraint("account_id", "since"),
    fillfactor=50,
)
"""Usage charged to an account that was given promotional credit, by the second in which it was
used: per stretch that begins where a grant begins or ends (`is_cut`) or with an invoice period."""

anomalies = table(
    "anomalies",
    USAGE,
    big("machine_id"),
    big("instance_id"),
    string("code"),
    big("start"),
    big("until"),
    money("amount"),
    big("position"),
    PrimaryKeyConstraint("machine_id", "instance_id", "code", "start"),
    Index("anomalies_instance", "instance_id"),
)
"""What was attested, stored and not billed. `instance_id` 0: the machine as a whole."""
