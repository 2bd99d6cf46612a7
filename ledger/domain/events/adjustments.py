"""Money that an admin moves by hand: adjustments and bad debt.

Both post when they are made, never in a month that is closed: `effective_at` says since when they
apply, and `period_from` names the month that was meant.
"""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

AdjustedBook = Literal["credit", "payable"]
"""`credit`: what an account has as a renter. `payable`: what it is owed as a host."""
AdjustedAgainst = Literal["compensation", "platform_revenue", "bank"]
DebtBook = Literal["credit", "receivable"]
"""`credit`: a renter's balance below zero. `receivable`: what a host owes."""


class AccountAdjusted(Fact, tag="account.adjusted.v1"):
    """*amount* nanos came to an account, or left it (below zero), by an admin's decision."""

    adjustment_id: str
    account_id: int
    book: AdjustedBook
    against: AdjustedAgainst
    amount: int
    reason: str
    period_from: int
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    adjusted_at: int


class DebtWrittenOff(Fact, tag="debt.written_off.v1"):
    """*amount* nanos of what an account owes will not be paid: `bad_debt` bears it."""

    write_off_id: str
    account_id: int
    book: DebtBook
    amount: int
    reason: str
    period_from: int
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    written_off_at: int


AdjustmentFact = AccountAdjusted | DebtWrittenOff
