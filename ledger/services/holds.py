"""Credit set aside under an id: pending, then captured or released, or expired by itself."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import HoldCaptured, HoldExpired, HoldPlaced, HoldReleased
from ledger.domain.ids import account_stream
from ledger.errors import NotFoundError, RejectedError
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.services.movements import (
    check_amount,
    check_reference,
    require_available,
    require_same,
)

HOLD_SECONDS: Final = 7 * 86_400


def place_hold(
    unit: Unit, account_id: int, amount: int, hold_id: str, *, seconds: int = HOLD_SECONDS
) -> None:
    """Set credit aside under an id; the same id and amount again is the same hold.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another amount.
        DeclinedError: `insufficient_credit`.
    """
    require_account(unit.connection, account_id)
    check_reference(hold_id)
    check_amount(amount)
    row = unit.connection.execute(
        "SELECT amount FROM holds WHERE account_id = %s AND hold_id = %s", [account_id, hold_id]
    ).fetchone()
    if row is not None:
        require_same(int(row[0]) == amount, "hold", hold_id)
        return
    require_available(unit, account_id, amount)
    unit.append(
        account_stream(account_id),
        HoldPlaced(
            account_id=account_id,
            hold_id=hold_id,
            amount=amount,
            expires_at=unit.now + seconds,
            placed_at=unit.now,
        ),
    )


def capture_hold(unit: Unit, account_id: int, hold_id: str, amount: int | None = None) -> None:
    """Spend a hold. Less than it holds releases the rest; more is booked in full, even below zero.

    Raises:
        NotFoundError: `no_such_hold`.
        RejectedError: `hold_closed` when it was released, has expired, or was captured otherwise.
    """
    held, status, captured = _hold(unit, account_id, hold_id)
    wanted = held if amount is None else amount
    check_amount(wanted)
    if status == "captured" and captured == wanted:
        return
    _require_pending(status, hold_id)
    unit.append(
        account_stream(account_id),
        HoldCaptured(account_id=account_id, hold_id=hold_id, amount=wanted, captured_at=unit.now),
    )


def release_hold(unit: Unit, account_id: int, hold_id: str) -> None:
    """Give a hold back unspent; releasing it again changes nothing.

    Raises:
        NotFoundError: `no_such_hold`.
        RejectedError: `hold_closed` when it was captured or has expired.
    """
    _, status, _ = _hold(unit, account_id, hold_id)
    if status == "released":
        return
    _require_pending(status, hold_id)
    unit.append(
        account_stream(account_id),
        HoldReleased(account_id=account_id, hold_id=hold_id, released_at=unit.now),
    )


def expire_holds(unit: Unit) -> int:
    """Record the end of every hold whose instant has come; returns how many."""
    rows = unit.connection.execute(
        "SELECT account_id, hold_id, expires_at FROM holds"
        " WHERE status = 'pending' AND expires_at <= %s ORDER BY expires_at, account_id, hold_id",
        [unit.now],
    ).fetchall()
    unit.append_all(
        [
            (
                account_stream(account_id),
                HoldExpired(account_id=account_id, hold_id=hold_id, expired_at=expires_at),
            )
            for account_id, hold_id, expires_at in rows
        ]
    )
    return len(rows)


def _hold(unit: Unit, account_id: int, hold_id: str) -> tuple[int, str, int]:
    row = unit.connection.execute(
        "SELECT amount, status, captured, expires_at FROM holds"
        " WHERE account_id = %s AND hold_id = %s",
        [account_id, hold_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_hold", f"there is no hold {hold_id!r}")
    status = "expired" if row[1] == "pending" and row[3] <= unit.now else row[1]
    return int(row[0]), status, int(row[2])


def _require_pending(status: str, hold_id: str) -> None:
    if status != "pending":
        raise RejectedError("hold_closed", f"hold {hold_id!r} is {status}, and that is final")
