"""Accounts, their credit and documents."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    text,
)

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

policies = table(
    "policies",
    FACTS,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fee_bp", Integer, nullable=False),
    big("late_usage_seconds"),
    Column("admission", Boolean, nullable=False),
    maybe("offline_after_seconds"),
    Column("admit_waiting_bids", Boolean, nullable=False),
    money("displacement_margin"),
    string("compensation"),
    Column("secure_requires_iso", Boolean, nullable=False),
    big("adopted_at"),
)

id_counters = table(
    "id_counters",
    FACTS,
    Column("kind", Text, primary_key=True),
    big("last"),
    fillfactor=50,
)

accounts = table(
    "accounts",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    string("subject"),
    Column("name_hash", Text, nullable=False, unique=True),
    big("opened_at"),
    maybe("erased_at"),
    big("closed_until"),
    Column("invoices", Integer, nullable=False, server_default=text("0")),
)

api_keys = table(
    "api_keys",
    FACTS,
    Column("key_id", Text, primary_key=True),
    big("account_id"),
    string("role"),
    maybe("expires_at"),
    big("created_at"),
    maybe("revoked_at"),
    Index("api_keys_account", "account_id"),
)

account_credit = table(
    "account_credit",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    money("posted"),
    money("payable"),
    money("gpu_rate"),
    money("storage_product"),
    maybe("dry_at"),
    maybe("exhausted_at"),
    money("debt_limit"),
    Column("debt_notices", SmallInteger, nullable=False, server_default=text("0")),
    maybe("debt_since"),
    fillfactor=50,
)
"""Own money movements of an account, and the rates that burn its credit: nanos per hour of GPUs it
holds and does not have prepaid, and nanos per GB-month times bytes of the disks it keeps. `payable`
is what moved to it as a host outside the meters."""

holds = table(
    "holds",
    FACTS,
    big("account_id"),
    string("hold_id"),
    money("amount"),
    string("status"),
    money("captured"),
    big("expires_at"),
    big("placed_at"),
    maybe("closed_at"),
    PrimaryKeyConstraint("account_id", "hold_id"),
    Index("holds_pending", "expires_at", postgresql_where=text("status = 'pending'")),
)

deposits = table(
    "deposits",
    FACTS,
    big("account_id"),
    string("deposit_id"),
    money("amount"),
    money("refunded"),
    string("source"),
    big("settled_at"),
    PrimaryKeyConstraint("account_id", "deposit_id"),
)

grants = table(
    "grants",
    FACTS,
    big("account_id"),
    string("grant_id"),
    money("amount"),
    string("reason"),
    big("granted_at"),
    big("expires_at"),
    maybe("revoked_at"),
    big("position"),
    maybe("revoked_position"),
    Column("unspent", Numeric(38, 0), nullable=True),
    maybe("closed_at"),
    maybe("closed_position"),
    PrimaryKeyConstraint("account_id", "grant_id"),
    Index("grants_open", "expires_at", postgresql_where=text("closed_at IS NULL")),
)
"""Promotional credit; `unspent` is what went back when nothing could draw on it any more."""

movements = table(
    "movements",
    FACTS,
    big("position"),
    Column("leg", SmallInteger, nullable=False),
    string("kind"),
    string("reference"),
    string("debit"),
    maybe("debit_account"),
    string("credit"),
    maybe("credit_account"),
    money("amount"),
    big("occurred_at"),
    PrimaryKeyConstraint("position", "leg"),
    Index("movements_debit", "debit_account", "position"),
    Index("movements_credit", "credit_account", "position"),
)
"""Money that moved outside the meters: one balanced row each, debit and credit of one amount."""

notices = table(
    "notices",
    FACTS,
    big("position", primary_key=True, autoincrement=False),
    big("account_id"),
    string("code"),
    string("about"),
    big("issued_at"),
    Index("notices_account", "account_id", "position"),
    # Asked every second: was this contract's coming end noticed?
    Index("notices_expiring", "about", "issued_at", postgresql_where=text("code = 'expiring'")),
)

invoices = table(
    "invoices",
    FACTS,
    Column("number", Text, primary_key=True),
    big("account_id"),
    big("period_from"),
    big("period_until"),
    money("opening"),
    money("movements"),
    money("total"),
    money("closing"),
    money("paid"),
    money("due"),
    Column("voided", Boolean, nullable=False),
    money("promotional"),
    big("issued_at"),
    big("position"),
    Index("invoices_account", "account_id", "position"),
    Index("invoices_due", "account_id", "position", postgresql_where=text("due > 0")),
)
"""Usage invoices: `paid` was covered when it was issued, `due` is what nothing has paid yet."""

invoice_lines = table(
    "invoice_lines",
    FACTS,
    string("number"),
    Column("line", Integer, nullable=False),
    big("instance_id"),
    string("meter"),
    big("segment_from"),
    string("kind"),
    money("rate"),
    money("quantity"),
    money("amount"),
    Column("late", Boolean, nullable=False),
    big("period_from"),
    big("used_from"),
    big("used_until"),
    PrimaryKeyConstraint("number", "line"),
)

closed_periods = table(
    "closed_periods",
    FACTS,
    big("account_id"),
    big("period_from"),
    big("period_until"),
    big("position"),
    Column("number", Text, nullable=True),
    PrimaryKeyConstraint("account_id", "period_from"),
)
