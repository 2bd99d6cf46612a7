"""How accounts are billed, and the documents beside usage invoices."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, PrimaryKeyConstraint, Text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

billing = table(
    "billing",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("zone"),
    string("cycle"),
    Column("anchor", Integer, nullable=False),
    Column("zero_invoices", Boolean, nullable=False),
    big("chosen_at"),
)
"""Accounts that chose their own usage periods; all others have UTC calendar months."""

billing_zones = table(
    "billing_zones",
    FACTS,
    big("account_id"),
    big("position"),
    string("zone"),
    PrimaryKeyConstraint("account_id", "position"),
)
"""In which zone an account's documents tell the time, from a place in the log on."""

planned_boundaries = table(
    "planned_boundaries",
    FACTS,
    big("account_id"),
    big("boundary"),
    PrimaryKeyConstraint("account_id", "boundary"),
)
"""The instants at which periods of these accounts begin."""

tax_profiles = table(
    "tax_profiles",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("country", nullable=True),
    Column("rate_bp", Integer, nullable=False),
    string("treatment"),
    big("set_at"),
)

customer_details = table(
    "customer_details",
    FACTS,
    big("account_id"),
    Column("details_no", Integer, nullable=False),
    string("subject"),
    big("given_at"),
    big("position"),
    maybe("erased_at"),
    PrimaryKeyConstraint("account_id", "details_no"),
)
"""References into the vault: who stood on documents since when."""

issuers = table(
    "issuers",
    FACTS,
    Column("issuer_no", Integer, primary_key=True, autoincrement=False),
    string("name"),
    string("street"),
    string("postcode"),
    string("city"),
    string("country"),
    string("vat_id", nullable=True),
    string("registration", nullable=True),
    string("email", nullable=True),
    big("described_at"),
    big("position"),
)

tax_invoices = table(
    "tax_invoices",
    FACTS,
    Column("number", Text, primary_key=True),
    big("account_id"),
    string("deposit_id"),
    money("net"),
    money("tax"),
    money("credited_net"),
    money("credited_tax"),
    string("country", nullable=True),
    Column("rate_bp", Integer, nullable=False),
    string("treatment"),
    big("issued_at"),
    big("position"),
    Index("tax_invoices_account", "account_id", "position"),
    Index("tax_invoices_deposit", "account_id", "deposit_id"),
)

tax_credits = table(
    "tax_credits",
    FACTS,
    Column("number", Text, primary_key=True),
    big("account_id"),
    string("document"),
    string("refund_id"),
    money("net"),
    money("tax"),
    string("reason"),
    Column("voids", Boolean, nullable=False),
    string("actor"),
    string("approved_by", nullable=True),
    big("issued_at"),
    big("position"),
    Index("tax_credits_refund", "account_id", "refund_id"),
    Index("tax_credits_account", "account_id", "position"),
)
"""Credit notes of tax invoices."""

self_billings = table(
    "self_billings",
    FACTS,
    Column("number", Text, primary_key=True),
    big("account_id"),
    big("period_from"),
    big("period_until"),
    money("adjustments"),
    money("total"),
    big("issued_at"),
    big("position"),
    Index("self_billings_account", "account_id", "period_from", unique=True),
)

self_billing_lines = table(
    "self_billing_lines",
    FACTS,
    string("number"),
    Column("line", Integer, nullable=False),
    big("machine_id"),
    string("meter"),
    money("quantity"),
    money("charged"),
    money("fee"),
    money("amount"),
    PrimaryKeyConstraint("number", "line"),
)
