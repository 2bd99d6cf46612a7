"""What admins moved by hand."""

from __future__ import annotations

from sqlalchemy import Index

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

adjustments = table(
    "adjustments",
    FACTS,
    string("adjustment_id"),
    string("kind"),
    big("account_id"),
    string("book"),
    string("against"),
    money("amount"),
    string("reason"),
    big("period_from"),
    string("approved_by", nullable=True),
    maybe("cause"),
    big("policy_version"),
    string("actor"),
    big("effective_at"),
    big("adjusted_at"),
    big("position", primary_key=True, autoincrement=False),
    Index("adjustments_id", "kind", "adjustment_id", unique=True),
    Index("adjustments_account", "account_id", "position"),
)
"""`kind` is adjustment or write_off; an amount below zero left the account."""
