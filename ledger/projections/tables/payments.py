"""Payers, payments, what went back of them; how hosts are paid; the processor's own entries."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, PrimaryKeyConstraint, Text, text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

payers = table(
    "payers",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("customer"),
    big("registered_at"),
)
card_setups = table(
    "card_setups",
    FACTS,
    Column("setup_id", Text, primary_key=True),
    big("account_id"),
    string("terms"),
    string("session", nullable=True),
    string("status"),
    string("reason", nullable=True),
    big("begun_at"),
    maybe("closed_at"),
    Index("card_setups_open", "setup_id", postgresql_where=text("status IN ('begun', 'open')")),
)
"""Consents to save a card: `begun`, `open` (a page waits for the renter), `saved` or `ended`."""
cards = table(
    "cards",
    FACTS,
    Column("card", Text, primary_key=True),
    big("account_id"),
    string("setup_id"),
    string("status"),
    big("saved_at"),
    maybe("removed_at"),
    Index("cards_account", "account_id"),
)
"""Saved cards: `saved`, `removed` (the processor still has to forget it) or `detached`."""
payments = table(
    "payments",
    FACTS,
    Column("payment_id", Text, primary_key=True),
    big("account_id"),
    string("method"),
    string("card", nullable=True),
    money("credit"),
    money("tax"),
    string("status"),
    string("session", nullable=True),
    string("payment", nullable=True),
    money("returned_credit"),
    money("returned_tax"),
    money("difference"),
    string("reason", nullable=True),
    big("ordered_at"),
    maybe("closed_at"),
    big("position"),
    Index("payments_account", "account_id", "position"),
    Index("payments_position", "position"),
    Index("payments_open", "position", postgresql_where=text("status IN ('ordered', 'open')")),
    Index("payments_processor", "payment"),
    fillfactor=70,
)
"""Money in: `ordered`, `open` (a page waits for the payer), `settled` or `failed`. `payment_id` is
the id of the deposit as well. `returned_…` is what refunds and chargebacks took back of it and
keep, `difference` what they took beyond it."""
refunds = table(
    "refunds",
    FACTS,
    Column("refund_id", Text, primary_key=True),
    big("account_id"),
    string("payment_id"),
    string("origin"),
    money("credit"),
    money("tax"),
    money("difference"),
    string("status"),
    string("refund", nullable=True),
    string("reason", nullable=True),
    big("begun_at"),
    maybe("closed_at"),
    Index("refunds_payment", "payment_id"),
    Index("refunds_open", "refund_id", postgresql_where=text("status = 'begun'")),
    Index("refunds_processor", "refund"),
)
"""Money back on purpose: `begun`, `settled` or `failed`."""
chargebacks = table(
    "chargebacks",
    FACTS,
    Column("chargeback_id", Text, primary_key=True),
    big("account_id"),
    string("payment_id"),
    money("claimed"),
    money("withdrawn"),
    money("credit"),
    money("tax"),
    money("difference"),
    string("reason"),
    string("status"),
    big("opened_at"),
    maybe("closed_at"),
    Index("chargebacks_payment", "payment_id"),
)
"""Money that payers' banks took: `open`, `won`, `lost` or `withdrawn`; the parts are what is taken
now."""
payout_accounts = table(
    "payout_accounts",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("country"),
    string("payout_account", nullable=True),
    Column("is_enabled", Boolean, nullable=False),
    big("ordered_at"),
    maybe("enabled_at"),
    Index("payout_accounts_processor", "payout_account"),
)
payout_runs = table(
    "payout_runs",
    FACTS,
    big("friday", primary_key=True, autoincrement=False),
    big("held_at"),
)
payouts = table(
    "payouts",
    FACTS,
    big("payout_id", primary_key=True, autoincrement=False),
    big("host_id"),
    money("amount"),
    string("status"),
    string("transfer", nullable=True),
    string("bank_payout", nullable=True),
    string("reversal", nullable=True),
    string("reason", nullable=True),
    big("due_at"),
    big("scheduled_at"),
    maybe("begun_at"),
    maybe("closed_at"),
    Index("payouts_host", "host_id", "payout_id"),
    Index(
        "payouts_open",
        "payout_id",
        postgresql_where=text("status IN ('pending', 'begun', 'transferred', 'returning')"),
    ),
    fillfactor=70,
)
"""Money to hosts: `pending`, `begun`, `transferred`, `sent`, `paid`; `returning`, `failed`,
`cancelled`."""
processor_entries = table(
    "processor_entries",
    FACTS,
    string("entry"),
    string("kind"),
    string("source"),
    money("amount"),
    money("fee"),
    string("clearing"),
    string("reference", nullable=True),
    maybe("account_id"),
    big("created_at"),
    big("booked_at"),
    big("position"),
    PrimaryKeyConstraint("entry"),
    Index("processor_entries_created", "created_at", "entry"),
    Index("processor_entries_reference", "reference"),
)
"""What the processor says it holds for the platform, line by line."""
