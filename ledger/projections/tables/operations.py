"""Maintenance windows, outages and what was paid for them, and where probes look from."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, PrimaryKeyConstraint, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

_OPEN = text("status IN ('scheduled', 'started')")

maintenance_windows = table(
    "maintenance_windows",
    FACTS,
    big("machine_id"),
    big("maintenance_id"),
    big("start"),
    big("until"),
    Column("approved", Boolean, nullable=False),
    string("status"),
    string("category"),
    big("scheduled_at"),
    maybe("announced_at"),
    maybe("rentals_stopped_at"),
    maybe("closed_at"),
    big("position"),
    PrimaryKeyConstraint("maintenance_id"),
    Index("maintenance_windows_machine", "machine_id", "maintenance_id"),
    Index("maintenance_windows_open", "start", postgresql_where=_OPEN),
    fillfactor=70,
)
"""`status`: scheduled, started, ended or cancelled. A window that ended early ends there."""

outages = table(
    "outages",
    FACTS,
    big("outage_id", primary_key=True, autoincrement=False),
    big("machine_id"),
    Column("witnesses", ARRAY(Text), nullable=False),
    big("detected_at"),
    maybe("ended_at"),
    maybe("ended_position"),
    money("credited"),
    maybe("settled_at"),
    Index("outages_machine", "machine_id", "outage_id"),
    Index("outages_open", "machine_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("outages_unsettled", "outage_id", postgresql_where=text("settled_at IS NULL")),
    fillfactor=70,
)

probe_locations = table(
    "probe_locations",
    FACTS,
    Column("location", Text, primary_key=True),
    string("region"),
    big("registered_at"),
    maybe("removed_at"),
)

compensations = table(
    "compensations",
    FACTS,
    big("position", primary_key=True, autoincrement=False),
    big("account_id"),
    big("instance_id"),
    big("machine_id"),
    big("host_id"),
    maybe("outage_id"),
    maybe("lost_at"),
    string("policy"),
    Column("policy_version", Integer, nullable=False),
    Column("multiplier", Integer, nullable=False),
    big("seconds"),
    money("claim"),
    money("spent"),
    Column("cap_applied", Boolean, nullable=False),
    money("amount"),
    big("credited_at"),
    Index("compensations_account", "account_id", "position"),
    Index("compensations_host", "host_id", "position"),
    Index("compensations_outage", "instance_id", "outage_id", unique=True),
    Index("compensations_lost_disk", "instance_id", "lost_at", unique=True),
)
"""One row per instance and outage, or instance and lost disk: the database refuses a second."""
