"""Caps, alerts, automatic top-ups, leases, idleness and cleanup."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, Numeric, PrimaryKeyConstraint, text

from ledger.projections.groups import FACTS, USAGE
from ledger.projections.tables.base import big, maybe, money, string, table

spend_caps = table(
    "spend_caps",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    Column("per_hour", Numeric(38, 0), nullable=True),
    Column("per_day", Numeric(38, 0), nullable=True),
    Column("hard", Boolean, nullable=False),
    maybe("reached_day"),
    Column("reached_cap", Numeric(38, 0), nullable=True),
    big("set_at"),
)
"""`reached_day` is the first second of the last UTC day whose cap, `reached_cap`, was reached."""
balance_alerts = table(
    "balance_alerts",
    FACTS,
    big("account_id"),
    string("alert"),
    big("raised_at"),
    maybe("cleared_at"),
    PrimaryKeyConstraint("account_id", "alert"),
    Index("balance_alerts_open", "account_id", postgresql_where=text("cleared_at IS NULL")),
    fillfactor=70,
)
"""The last notice of each kind; `cleared_at`: credit was seen above its limit since."""
top_up_consents = table(
    "top_up_consents",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    Column("consent_no", Integer, nullable=False),
    string("reference"),
    money("below"),
    money("amount"),
    money("max_per_day"),
    string("status"),
    Column("failures", Integer, nullable=False),
    maybe("failed_at"),
    big("armed_position"),
    big("consented_at"),
    fillfactor=70,
)
"""The last consent of an account: `on`, `revoked`, or `off` after failures. `armed_position` is the
fact that the next charge would answer."""
top_ups = table(
    "top_ups",
    FACTS,
    big("account_id"),
    big("trigger"),
    Column("consent_no", Integer, nullable=False),
    money("amount"),
    money("tax"),
    string("status"),
    string("reason", nullable=True),
    string("payment", nullable=True),
    big("requested_at"),
    maybe("closed_at"),
    PrimaryKeyConstraint("account_id", "trigger"),
    Index("top_ups_open", "account_id", postgresql_where=text("status = 'requested'")),
)
"""Automatic charges: `requested`, `settled` or `failed`."""
instance_leases = table(
    "instance_leases",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    big("account_id"),
    maybe("until"),
    Column("spend_limit", Numeric(38, 0), nullable=True),
    big("set_at"),
    maybe("ended_at"),
    Index("instance_leases_open", "account_id", postgresql_where=text("ended_at IS NULL")),
)
idle_policies = table(
    "idle_policies",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    big("notice_seconds"),
    maybe("stop_seconds"),
    big("set_at"),
)
idle_notices = table(
    "idle_notices",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    big("idle_from"),
    Column("number", Integer, nullable=False),
    big("noticed_at"),
)
"""The last notice about an instance, and the run of idleness that it was about."""
cleanup_policies = table(
    "cleanup_policies",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("scope"),
    Column("days", Integer, nullable=False),
    string("label"),
    big("set_at"),
)
cleanup_announcements = table(
    "cleanup_announcements",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("destroy_at"),
    big("announced_at"),
)
idle_spans = table(
    "idle_spans",
    USAGE,
    big("instance_id", primary_key=True, autoincrement=False),
    big("start"),
    big("until"),
    fillfactor=50,
)
"""The present unbroken run of ticks of an instance that show nothing at work."""
metered_gpus = table(
    "metered_gpus",
    USAGE,
    big("machine_id"),
    string("gpu_uuid"),
    maybe("max_power_mw"),
    maybe("instance_id"),
    PrimaryKeyConstraint("machine_id", "gpu_uuid"),
)
"""Whose GPU it is, as the meters see it: samples of GPUs name no instance. A GPU that changes its
machine has a row in each."""
