"""Movements by hand: adjustments, and debt that will not be paid."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

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
from ledger.domain.dispute import Authority
from ledger.domain.events import AdjustedAgainst, AdjustedBook, DebtBook
from ledger.domain.money import parse_amount
from ledger.services import adjustments as use_cases
from ledger.services.disputes import account_actor
from ledger.services.ledger import Unit
from ledger.services.questions import adjustments as ask
from ledger.store.database import Connection


class NewAdjustment(Body):
    """Credit (or, for a host, `payable`) given, or taken with an amount below zero.

    Above $100 another admin first approves `adjust account-<id>.<amount>`. `effective_at`: since
    when it applies; it posts now, and names the month that was meant.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "id": "ticket-1881",
        "account_id": 2,
        "amount": "12.50",
        "reason": "goodwill after an outage",
    }

    id: Reference
    account_id: Id
    amount: Dollars
    reason: str
    book: AdjustedBook = "credit"
    against: AdjustedAgainst = "compensation"
    effective_at: str | None = None


class NewWriteOff(Body):
    """All that an account owes, or `amount` of it, will not be paid.

    Above $100 another admin first approves `write-off account-<id>`. `receivable`: what a host
    owes.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "id": "ticket-1882",
        "account_id": 2,
        "reason": "insolvent",
    }

    id: Reference
    account_id: Id
    reason: str
    amount: Dollars | None = None
    book: DebtBook = "credit"


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """A movement by hand; `amount` is what came to the account, below zero what left it."""

    adjustment_id: str
    kind: str
    account_id: int
    book: str
    against: str
    amount: Dollars
    reason: str
    period_from: Instant
    approved_by: str | None
    policy_version: int
    actor: str
    effective_at: Instant
    adjusted_at: Instant
    position: int


@post("/v1/adjustments", opt=allowed(*ADMIN), summary="Adjust an account")
async def adjust(call: Caller, data: JSONBody[NewAdjustment]) -> Response[Adjustment]:
    """Move money to an account, or from it, by hand; the same `id` again changes nothing."""
    sign = -1 if data.amount.startswith("-") else 1
    amount = sign * parse_amount(data.amount.removeprefix("-"))
    since = instant(data.effective_at, "effective_at")

    def do(unit: Unit) -> Adjustment:
        wanted = use_cases.Adjustment(
            adjustment_id=data.id,
            account_id=data.account_id,
            book=data.book,
            against=data.against,
            amount=amount,
            reason=data.reason,
            effective_at=since,
        )
        by = Authority(account_actor(call.principal.account_id), unit.policy.version)
        use_cases.adjust(unit, wanted, by)
        return _found(unit.connection, "adjustment", data.account_id, data.id)

    return await call.command(do, 201)


@post("/v1/write-offs", opt=allowed(*ADMIN), summary="Write off a debt")
async def write_off(call: Caller, data: JSONBody[NewWriteOff]) -> Response[Adjustment]:
    """Give up what an account owes, once its instances and volumes are gone."""
    amount = None if data.amount is None else parse_amount(data.amount)

    def do(unit: Unit) -> Adjustment:
        wanted = use_cases.WriteOff(
            write_off_id=data.id,
            account_id=data.account_id,
            book=data.book,
            amount=amount,
            reason=data.reason,
        )
        by = Authority(account_actor(call.principal.account_id), unit.policy.version)
        use_cases.write_off(unit, wanted, by)
        return _found(unit.connection, "write_off", data.account_id, data.id)

    return await call.command(do, 201)


@get("/v1/adjustments", opt=allowed(*ANYONE), summary="List movements by hand")
async def list_adjustments(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Adjustment]:
    """List adjustments and write-offs in the order of the log."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.adjustments(
            connection, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Adjustment, found, limit, lambda one: one.position)


def _found(connection: Connection, kind: str, account_id: int, adjustment_id: str) -> Adjustment:
    row = connection.execute(
        "SELECT position FROM adjustments WHERE kind = %s AND adjustment_id = %s",
        [kind, adjustment_id],
    ).fetchone()
    assert row is not None
    (found,) = ask.adjustments(connection, account_id=account_id, after=row[0] - 1, limit=1)
    return render(Adjustment, found)


HANDLERS = [adjust, write_off, list_adjustments]
