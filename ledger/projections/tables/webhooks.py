"""Webhooks, and the deliveries that were given up.

What waits to be sent is operational and no read model: `webhook_deliveries`, made by migration
0002, can be lost and is then made again from a replay.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, string, table

webhooks = table(
    "webhooks",
    FACTS,
    big("webhook_id", primary_key=True, autoincrement=False),
    big("account_id"),
    string("url"),
    string("url_hash"),
    Column("codes", ARRAY(Text), nullable=True),
    maybe("overlap_until"),
    big("registered_at"),
    maybe("removed_at"),
    big("position"),
    Index("webhooks_account", "account_id", postgresql_where=text("removed_at IS NULL")),
)
"""`url` refers to the vault; `codes` is null for all. `position` is that of the registration: what
was noticed before it is not sent."""

webhook_dead_letters = table(
    "webhook_dead_letters",
    FACTS,
    big("webhook_id"),
    big("event"),
    big("account_id"),
    Column("attempts", Integer, nullable=False),
    string("reason"),
    big("dead_at"),
    maybe("replayed_at"),
    PrimaryKeyConstraint("webhook_id", "event"),
)
"""`event` is the position of a notice; `replayed_at` is null until somebody asked for it again."""
