"""Budgets by label, and what was told of them."""

from __future__ import annotations

from sqlalchemy import Column, Integer, PrimaryKeyConstraint, text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, money, string, table

budgets = table(
    "budgets",
    FACTS,
    big("account_id"),
    string("label"),
    money("amount"),
    big("set_at"),
    big("month_from", server_default=text("0")),
    Column("percent", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("account_id", "label"),
)
"""`percent` is the last that was told, in the month that began at `month_from`."""
