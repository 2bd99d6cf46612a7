"""Who gets notices by mail, and which messages were given up.

What waits to be sent is operational and no read model: `mail_messages`, made by migration 0006.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, PrimaryKeyConstraint, Text
from sqlalchemy.dialects.postgresql import ARRAY

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, string, table

mail_settings = table(
    "mail_settings",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("address"),
    string("address_hash"),
    Column("codes", ARRAY(Text), nullable=True),
    big("set_at"),
    big("position"),
)
"""`address` refers to the vault; `codes` is null for all, empty for none. What was noticed before
`position`, that of the first setting, is not sent."""

mail_dead_letters = table(
    "mail_dead_letters",
    FACTS,
    big("account_id"),
    big("event"),
    Column("attempts", Integer, nullable=False),
    string("reason"),
    big("dead_at"),
    maybe("requeued_at"),
    PrimaryKeyConstraint("account_id", "event"),
)
