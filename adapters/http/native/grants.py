"""Promotional credit: given, listed, revoked."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from adapters.http.call import ADMIN, ANYONE, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.money import Reference
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
)
from ledger.domain.money import parse_amount
from ledger.errors import NotFoundError
from ledger.services import grants as use_cases
from ledger.services.ledger import Unit


class NewGrant(Body):
    """Credit that is spent first, before `expires_at`, and never refunded or transferred."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "account_id": 2,
        "amount": "5",
        "expires_at": "2030-01-01T00:00:00Z",
        "id": "welcome-2",
        "reason": "welcome",
    }

    account_id: Id
    amount: Dollars
    expires_at: str
    id: Reference
    reason: str


class Revocation(Body):
    """Why a grant ends before its time."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"account_id": 2, "reason": "abuse"}

    account_id: Id
    reason: str


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Promotional credit. amount = spent + unspent; an ended grant's unspent part is nobody's.

    `status` is active, expired or revoked; `closed_at` is when what was unspent went back.
    """

    account_id: int
    grant_id: str
    amount: Dollars
    spent: Dollars
    unspent: Dollars
    reason: str
    status: str
    granted_at: Instant
    expires_at: Instant
    revoked_at: Instant | None
    closed_at: Instant | None


@post("/v1/grants", opt=allowed(*ADMIN), summary="Grant promotional credit")
async def grant(call: Caller, data: JSONBody[NewGrant]) -> Response[Grant]:
    """Give promotional credit; the same id, amount and expiry again is the same grant."""
    amount = parse_amount(data.amount)
    expires_at = instant(data.expires_at, "expires_at")
    assert expires_at is not None

    def do(unit: Unit) -> Grant:
        use_cases.grant(unit, data.account_id, amount, expires_at, data.id, data.reason)
        return _one(unit, data.account_id, data.id)

    return await call.command(do, 201)


@post(
    "/v1/grants/{grant_id:str}/revoke",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Revoke promotional credit",
)
async def revoke_grant(
    call: Caller, grant_id: FromPath[str], data: JSONBody[Revocation]
) -> Response[Grant]:
    """End a grant now: only what is unspent of it is lost."""

    def do(unit: Unit) -> Grant:
        use_cases.revoke(unit, data.account_id, grant_id, data.reason)
        return _one(unit, data.account_id, grant_id)

    return await call.command(do)


@get("/v1/grants", opt=allowed(*ANYONE), summary="List promotional credit")
async def list_grants(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Grant]:
    """List grants in the order in which they were made, with what is left of each."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    now = call.ledger.clock()
    found = await call.question(
        lambda connection: use_cases.grants(
            connection, now, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Grant, found, limit, lambda one: one.position)


def _one(unit: Unit, account_id: int, grant_id: str) -> Grant:
    row = unit.connection.execute(
        "SELECT position FROM grants WHERE account_id = %s AND grant_id = %s",
        [account_id, grant_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_grant", f"there is no grant {grant_id!r}")
    (found,) = use_cases.grants(
        unit.connection, unit.now, account_id=account_id, after=row[0] - 1, limit=1
    )
    return render(Grant, found)


HANDLERS = [grant, revoke_grant, list_grants]
