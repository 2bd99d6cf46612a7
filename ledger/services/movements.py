"""What every movement of money has: an amount, an id that its maker chose, credit to cover it."""

from __future__ import annotations

import re
from typing import Final

from ledger.domain.money import MAX_POSTING_NANOS, format_dollars
from ledger.errors import DeclinedError, IdempotencyError, RejectedError
from ledger.services.credit import lock_credit
from ledger.services.ledger import Unit

_REFERENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def check_amount(amount: int) -> None:
    """Money moves forwards, and one posting has a bound.

    Raises:
        RejectedError: `invalid_amount`.
    """
    if not 1 <= amount <= MAX_POSTING_NANOS:
        message = f"an amount is between 0.000000001 and {format_dollars(MAX_POSTING_NANOS)}"
        raise RejectedError("invalid_amount", message)


def check_reference(reference: str) -> None:
    """An id can be written into a path, a file name and a line of a journal as it is.

    Raises:
        RejectedError: `invalid_args`.
    """
    if not _REFERENCE.fullmatch(reference):
        message = "an id is 1 to 128 letters, digits, dots, colons, dashes or underscores"
        raise RejectedError("invalid_args", message)


def require_same(equal: bool, what: str, reference: str) -> None:
    """Let an id come again only for the very thing that it stands for.

    Raises:
        IdempotencyError: `idempotency_conflict`.
    """
    if not equal:
        message = f"the {what} id {reference!r} already stands for another {what}"
        raise IdempotencyError("idempotency_conflict", message)


def was_made(
    unit: Unit,
    account_id: int,
    kind: str,
    reference: str,
    amount: int,
    recipient: int | None = None,
) -> bool:
    """True when this very movement was made before.

    Raises:
        IdempotencyError: `idempotency_conflict` when the reference stands for another one.
    """
    row = unit.connection.execute(
        "SELECT amount, credit_account FROM movements"
        " WHERE debit_account = %s AND kind = %s AND reference = %s",
        [account_id, kind, reference],
    ).fetchone()
    if row is None:
        return False
    require_same(int(row[0]) == amount and row[1] == recipient, kind, reference)
    return True


def require_available(unit: Unit, account_id: int, amount: int) -> None:
    """Credit that is spent or set aside must be there, promotional or not.

    Raises:
        DeclinedError: `insufficient_credit`.
    """
    credit = lock_credit(unit.connection, [account_id])[account_id]
    available = credit.available(unit.now, unit.policy)
    if available < amount:
        raise _short("insufficient_credit", amount, available)


def require_own(unit: Unit, account_id: int, amount: int) -> None:
    """Credit that leaves the account must be its own: promotional credit can only be spent.

    Raises:
        DeclinedError: `insufficient_balance`.
    """
    credit = lock_credit(unit.connection, [account_id])[account_id]
    own = credit.own(unit.now, unit.policy)
    if own < amount:
        promotional = credit.promotional(unit.now, unit.policy)
        raise _short("insufficient_balance", amount, own, promotional)


def _short(code: str, needed: int, available: int, promotional: int = 0) -> DeclinedError:
    message = f"{format_dollars(needed)} is needed and {format_dollars(available)} is available"
    if promotional:
        message += f"; {format_dollars(promotional)} is promotional credit, which can only be spent"
    return DeclinedError(
        code, message, needed=format_dollars(needed), available=format_dollars(available)
    )
