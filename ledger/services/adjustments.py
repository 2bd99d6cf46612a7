"""Money that an admin moves by hand: adjustments, and debt that will not be paid.

Each has an id of its own, a reason and, above a limit, the approval of a second person for exactly
this account and amount. It posts now: a month that is closed takes nothing, and is named instead.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.domain.dispute import Authority
from ledger.domain.events import (
    AccountAdjusted,
    AdjustedAgainst,
    AdjustedBook,
    DebtBook,
    DebtWrittenOff,
)
from ledger.domain.ids import account_stream, month_start
from ledger.domain.money import MAX_POSTING_NANOS, NANOS_PER_DOLLAR, format_dollars
from ledger.errors import DeclinedError, IdempotencyError, RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services.accounts import require_account
from ledger.services.approvals import approval
from ledger.services.corrections import check_reason, period_of
from ledger.services.ledger import Unit
from ledger.services.movements import check_reference

ALONE_MAX_NANOS: Final = 100 * NANOS_PER_DOLLAR
"""What one admin may move alone; above it a second one has to agree."""


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """*amount* nanos to an account, or from it (below zero), against an account of the platform."""

    adjustment_id: str
    account_id: int
    book: AdjustedBook = "credit"
    against: AdjustedAgainst = "compensation"
    amount: int
    reason: str
    effective_at: int | None = None


class WriteOff(msgspec.Struct, frozen=True, kw_only=True):
    """All that an account owes (*amount* none), or part of it."""

    write_off_id: str
    account_id: int
    book: DebtBook = "credit"
    amount: int | None = None
    reason: str


def adjust_subject(account_id: int, amount: int) -> str:
    """What a second person approves for an adjustment."""
    return f"adjust account-{account_id}.{format_dollars(amount)}"


def write_off_subject(account_id: int) -> str:
    """What a second person approves for a write-off."""
    return f"write-off account-{account_id}"


def adjust(unit: Unit, wanted: Adjustment, by: Authority) -> None:
    """Move money by hand; the same id and content again changes nothing.

    Taking away is not bounded by what is there: a deposit booked by mistake may have been spent.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`, `invalid_amount`, `second_approval_required`.
        IdempotencyError: `idempotency_conflict`, the id was used for something else.
    """
    check_reference(wanted.adjustment_id)
    check_reason(wanted.reason)
    effective_at = unit.now if wanted.effective_at is None else wanted.effective_at
    if not 0 < abs(wanted.amount) <= MAX_POSTING_NANOS:
        message = "an adjustment is of at least one nano, and at most 10^9 dollars"
        raise RejectedError("invalid_amount", message)
    if effective_at > unit.now:
        raise RejectedError("invalid_args", "an adjustment cannot apply before its time has come")
    require_account(unit.connection, wanted.account_id)
    content = (
        wanted.account_id, wanted.book, wanted.against, wanted.amount, wanted.reason
    )  # fmt: skip
    if _is_known(unit, "adjustment", wanted.adjustment_id, content):
        return
    subject = adjust_subject(wanted.account_id, wanted.amount)
    approved_by = _approved(unit, wanted.account_id, wanted.amount, subject, by.actor)
    unit.append(
        account_stream(wanted.account_id),
        AccountAdjusted(
            adjustment_id=wanted.adjustment_id,
            account_id=wanted.account_id,
            book=wanted.book,
            against=wanted.against,
            amount=wanted.amount,
            reason=wanted.reason,
            period_from=period_of(unit.connection, wanted.account_id, effective_at),
            approved_by=approved_by,
            cause=by.cause,
            policy_version=by.policy_version,
            actor=by.actor,
            effective_at=effective_at,
            adjusted_at=unit.now,
        ),
    )


def write_off(unit: Unit, wanted: WriteOff, by: Authority) -> int:
    """Give up what an account owes; returns how much. The same id again changes nothing.

    A renter's debt can be given up when nothing of it grows any more: its contracts are gone.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`, `invalid_amount`, `no_debt`, `second_approval_required`.
        DeclinedError: `has_contracts`.
        IdempotencyError: `idempotency_conflict`, the id was used for something else.
    """
    check_reference(wanted.write_off_id)
    check_reason(wanted.reason)
    require_account(unit.connection, wanted.account_id)
    known = unit.connection.execute(
        "SELECT account_id, book, amount, reason FROM adjustments"
        " WHERE kind = 'write_off' AND adjustment_id = %s",
        [wanted.write_off_id],
    ).fetchone()
    if known is not None:
        amount = int(known[2])
        same = (wanted.account_id, wanted.book, wanted.amount or amount, wanted.reason)
        if (*known[:2], amount, known[3]) != same:
            raise _conflict(wanted.write_off_id)
        return amount
    debt = _debt(unit, wanted.account_id, wanted.book)
    amount = debt if wanted.amount is None else wanted.amount
    if not debt:
        raise RejectedError("no_debt", f"account {wanted.account_id} owes nothing")
    if not 1 <= amount <= debt:
        message = f"what is given up is between one nano and {format_dollars(debt)}"
        raise RejectedError("invalid_amount", message, debt=format_dollars(debt))
    subject = write_off_subject(wanted.account_id)
    approved_by = _approved(unit, wanted.account_id, amount, subject, by.actor)
    unit.append(
        account_stream(wanted.account_id),
        DebtWrittenOff(
            write_off_id=wanted.write_off_id,
            account_id=wanted.account_id,
            book=wanted.book,
            amount=amount,
            reason=wanted.reason,
            period_from=month_start(unit.now),
            approved_by=approved_by,
            cause=by.cause,
            policy_version=by.policy_version,
            actor=by.actor,
            effective_at=unit.now,
            written_off_at=unit.now,
        ),
    )
    return amount


def _debt(unit: Unit, account_id: int, book: DebtBook) -> int:
    if book == "receivable":
        row = unit.connection.execute(
            "SELECT amount FROM host_receivables WHERE host_id = %s", [account_id]
        ).fetchone()
        return 0 if row is None else max(int(row[0]), 0)
    alive = unit.connection.execute(
        f"SELECT 1 FROM {CONTRACTS} c WHERE account_id = %s AND destroyed_at IS NULL LIMIT 1",  # noqa: S608 - a constant
        [account_id],
    ).fetchone()
    if alive is not None:
        message = "the account still has instances or volumes: its debt is not final"
        raise DeclinedError("has_contracts", message)
    row = unit.connection.execute(
        "SELECT coalesce(u.charged, 0) - c.posted FROM account_credit c"
        " LEFT JOIN account_usage u USING (account_id) WHERE c.account_id = %s",
        [account_id],
    ).fetchone()
    return 0 if row is None else max(int(row[0]), 0)


def _approved(unit: Unit, account_id: int, amount: int, subject: str, actor: str) -> str | None:
    """Who else agreed, since the last movement by hand; none where one may act alone.

    Raises:
        RejectedError: `second_approval_required`.
    """
    row = unit.connection.execute(
        "SELECT coalesce(max(position), 0) FROM adjustments WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    agreed = approval(unit, subject, actor, row[0])
    if abs(amount) > ALONE_MAX_NANOS and agreed is None:
        message = (
            f"above {format_dollars(ALONE_MAX_NANOS)} dollars a second admin has to agree to"
            f" `{subject}` first (POST /v1/approvals)"
        )
        raise RejectedError("second_approval_required", message, subject=subject)
    return agreed


def _is_known(unit: Unit, kind: str, adjustment_id: str, content: tuple[object, ...]) -> bool:
    row = unit.connection.execute(
        "SELECT account_id, book, against, amount, reason FROM adjustments"
        " WHERE kind = %s AND adjustment_id = %s",
        [kind, adjustment_id],
    ).fetchone()
    if row is None:
        return False
    if (*row[:3], int(row[3]), row[4]) != content:
        raise _conflict(adjustment_id)
    return True


def _conflict(adjustment_id: str) -> IdempotencyError:
    message = f"the id {adjustment_id!r} stands for another movement; use a new one"
    return IdempotencyError("idempotency_conflict", message)
