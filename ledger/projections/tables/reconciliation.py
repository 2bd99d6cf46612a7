"""What was reconciled, and what was found."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, Text, UniqueConstraint, text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

reconciliations = table(
    "reconciliations",
    FACTS,
    string("job"),
    big("period_from"),
    big("period_until"),
    Column("found", Integer, nullable=False),
    Column("opened", Integer, nullable=False),
    string("note"),
    big("completed_at"),
    big("position"),
    PrimaryKeyConstraint("job", "period_from"),
)
"""The last comparison of each job and period."""

findings = table(
    "findings",
    FACTS,
    big("finding_id", primary_key=True, autoincrement=False),
    string("job"),
    string("kind"),
    string("about"),
    big("period_from"),
    money("expected"),
    money("actual"),
    string("unit"),
    string("detail"),
    string("state"),
    Column("reason", Text, nullable=True),
    Column("correction", Text, nullable=True),
    Column("actor", Text, nullable=True),
    big("opened_at"),
    maybe("closed_at"),
    big("position"),
    UniqueConstraint("job", "kind", "about", "period_from", name="findings_once"),
    Index("findings_open", "job", postgresql_where=text("state = 'open'")),
)
"""One row per thing: the database itself refuses a second."""
