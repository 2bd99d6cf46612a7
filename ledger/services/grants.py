"""Promotional credit: granted, revoked, and given back unspent (`marketplace.md` §13.7).

What a grant has paid follows from the log alone (`ledger.domain.promotion`). So a grant is closed,
and what is unspent of it given back, only when no late usage of its seconds can arrive any more and
all that did is folded; until then nobody can spend what is left of it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.domain.events import Fact, PromotionClosed, PromotionGranted, PromotionRevoked
from ledger.domain.ids import account_stream, rfc3339
from ledger.errors import NotFoundError, RejectedError
from ledger.services.accounts import require_account
from ledger.services.credit import read_credit
from ledger.services.ledger import Unit
from ledger.services.movements import check_amount, check_reference, require_same
from ledger.services.promotions import read_promotions
from ledger.store.database import Connection

_REASON_MAX: Final = 256


def grant(
    unit: Unit, account_id: int, amount: int, expires_at: int, grant_id: str, reason: str
) -> None:
    """Give promotional credit; the same id, amount and expiry again is the same grant.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_amount`; `invalid_args` for an id, reason or expiry that is none.
        IdempotencyError: `idempotency_conflict` when the id stands for another grant.
    """
    require_account(unit.connection, account_id)
    check_reference(grant_id)
    _check_reason(reason)
    check_amount(amount)
    known = unit.connection.execute(
        "SELECT amount, expires_at FROM grants WHERE account_id = %s AND grant_id = %s",
        [account_id, grant_id],
    ).fetchone()
    if known is not None:
        require_same((int(known[0]), known[1]) == (amount, expires_at), "grant", grant_id)
        return
    if expires_at <= unit.now:
        message = f"a grant must expire in the future, and it is {rfc3339(unit.now)}"
        raise RejectedError("invalid_args", message)
    unit.append(
        account_stream(account_id),
        PromotionGranted(
            account_id=account_id,
            grant_id=grant_id,
            amount=amount,
            reason=reason,
            expires_at=expires_at,
            granted_at=unit.now,
        ),
    )


def revoke(unit: Unit, account_id: int, grant_id: str, reason: str) -> None:
    """End a grant now: only what is unspent of it is lost. Revoking again changes nothing.

    Raises:
        NotFoundError: `no_such_grant`.
        RejectedError: `grant_closed` when it has expired.
    """
    _check_reason(reason)
    row = unit.connection.execute(
        "SELECT expires_at, revoked_at FROM grants WHERE account_id = %s AND grant_id = %s",
        [account_id, grant_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_grant", f"there is no grant {grant_id!r}")
    if row[1] is not None:
        return
    if row[0] <= unit.now:
        message = f"grant {grant_id!r} expired at {rfc3339(row[0])}, and that is final"
        raise RejectedError("grant_closed", message)
    unit.append(
        account_stream(account_id),
        PromotionRevoked(
            account_id=account_id, grant_id=grant_id, reason=reason, revoked_at=unit.now
        ),
    )


def close_due(unit: Unit) -> int:
    """Give back what is unspent of every grant that nothing can draw on any more; how many."""
    due = unit.connection.execute(
        DUE, {"now": unit.now, "late": unit.policy.late_usage_seconds}
    ).fetchall()
    promotions = read_promotions(unit.connection, {row[0] for row in due})
    new: list[tuple[str, Fact]] = []
    for account_id, grant_id, amount, expires_at, revoked_at in due:
        paid = promotions[account_id].paid()[grant_id]
        fact = PromotionClosed(
            account_id=account_id,
            grant_id=grant_id,
            unspent=int(amount) - paid,
            cause="expired" if revoked_at is None else "revoked",
            valid_until=expires_at if revoked_at is None else revoked_at,
            closed_at=unit.now,
        )
        new.append((account_stream(account_id), fact))
    unit.append_all(new)
    return len(new)


ENDS: Final = "least(expires_at, coalesce(revoked_at, expires_at))"
DUE: Final = (
    "SELECT account_id, grant_id, amount, expires_at, revoked_at FROM grants"  # noqa: S608 - a constant
    f" WHERE closed_at IS NULL AND {ENDS} <= %(now)s - %(late)s ORDER BY account_id, position"
)
"""Grants of whose seconds no usage can be `late` any more, and that are not closed."""


class GrantView(msgspec.Struct, frozen=True, kw_only=True):
    """A grant: `amount` = `spent` + `unspent`, by what is known now.

    `status`: `active`, `expired`, `revoked`; `closed_at` is when what was unspent went back.
    """

    account_id: int
    grant_id: str
    amount: int
    spent: int
    unspent: int
    reason: str
    status: str
    granted_at: int
    expires_at: int
    revoked_at: int | None
    closed_at: int | None
    position: int


def grants(
    connection: Connection,
    now: int,
    *,
    account_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[GrantView]:
    """Grants in the order in which they were made; *after* is a position."""
    rows = connection.execute(
        "SELECT account_id, grant_id, amount, reason, granted_at, expires_at, revoked_at,"
        " closed_at, unspent, position FROM grants WHERE position > %s"
        " AND (%s::bigint IS NULL OR account_id = %s) ORDER BY position LIMIT %s",
        [after, account_id, account_id, limit],
    ).fetchall()
    credits = read_credit(connection, {row[0] for row in rows})
    found = []
    for account, grant_id, amount, reason, since, expires_at, revoked_at, closed_at, *rest in rows:
        back, position = rest
        promotions = credits[account].promotions
        assert promotions is not None
        spent = int(amount - back) if closed_at else promotions.paid()[grant_id]
        over = "active" if expires_at > now else "expired"
        found.append(
            GrantView(
                account_id=account,
                grant_id=grant_id,
                amount=int(amount),
                spent=spent,
                unspent=int(amount) - spent,
                reason=reason,
                status="revoked" if revoked_at is not None else over,
                granted_at=since,
                expires_at=expires_at,
                revoked_at=revoked_at,
                closed_at=closed_at,
                position=position,
            )
        )
    return found


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason) <= _REASON_MAX or not reason.isprintable():
        message = f"a reason is 1 to {_REASON_MAX} printable characters"
        raise RejectedError("invalid_args", message)
