"""Money that accounts move: deposits, refunds, transfers, holds; and what they were charged."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, PAYER, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
)
from ledger.domain.money import parse_amount
from ledger.services import deposits, holds, transfers
from ledger.services.ledger import Unit
from ledger.services.questions import balances, usage
from ledger.services.questions import transfers as ask

Reference = Annotated[
    str, Meta(description="An id of your own; the same id again is the same movement.")
]


class NewDeposit(Body):
    """A settled payment."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"account_id": 2, "amount": "100", "id": "bank-17"}

    account_id: Id
    amount: Dollars
    id: Reference


class NewRefund(Body):
    """Unspent credit of a deposit, back to its payer."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "account_id": 2,
        "deposit_id": "bank-17",
        "amount": "12.50",
        "id": "refund-3",
    }

    account_id: Id
    deposit_id: str
    amount: Dollars
    id: Reference


class NewTransfer(Body):
    """Credit to another account; irreversible."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"to_account_id": 3, "amount": "5", "id": "lunch-9"}

    to_account_id: Id
    amount: Dollars
    id: Reference


class NewHold(Body):
    """Credit set aside for `seconds` (7 days by default)."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"amount": "20", "id": "job-41", "seconds": 86400}

    amount: Dollars
    id: Reference
    seconds: Annotated[int, Meta(ge=1, le=365 * 86_400)] = holds.HOLD_SECONDS
    account_id: Id | None = None


class Capture(Body):
    """All of it by default; more than it holds is booked in full."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"amount": "18.75"}

    amount: Dollars | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The movement stands under this id."""

    id: str
    amount: Dollars | None
    account_id: int


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Credit set aside. `captured`, `released` and `expired` are final."""

    hold_id: str
    amount: Dollars
    status: str
    captured: Dollars
    placed_at: Instant
    expires_at: Instant
    closed_at: Instant | None


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """A balanced movement: `amount` from `debit` to `credit`."""

    kind: str
    reference: str
    debit: str
    debit_account: int | None
    credit: str
    credit_account: int | None
    amount: Dollars
    occurred_at: Instant
    position: int


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """Consumption of one item; `quantity` is seconds (gpu, disk) or bytes (bwu, bwd)."""

    instance_id: int
    item: str
    kind: str
    rate: Dollars
    quantity: int
    amount: Dollars
    fee: Dollars
    segment_from: Instant
    used_from: Instant
    used_until: Instant
    hour: Instant | None
    late: bool
    position: int


@post("/v1/deposits", opt=allowed(*ADMIN), summary="Book a deposit")
async def deposit(call: Caller, data: JSONBody[NewDeposit]) -> Response[Moved]:
    """Book a settled payment; the same id and amount again is the same payment."""
    amount = parse_amount(data.amount)

    def do(unit: Unit) -> Moved:
        deposits.deposit(unit, data.account_id, amount, data.id)
        return Moved(id=data.id, amount=data.amount, account_id=data.account_id)

    return await call.command(do, 201)


@post("/v1/refunds", opt=allowed(*ADMIN), summary="Refund unspent credit")
async def refund(call: Caller, data: JSONBody[NewRefund]) -> Response[Moved]:
    """Give unspent credit of one deposit back to its payer."""
    amount = parse_amount(data.amount)

    def do(unit: Unit) -> Moved:
        deposits.refund(unit, data.account_id, data.deposit_id, amount, data.id)
        return Moved(id=data.id, amount=data.amount, account_id=data.account_id)

    return await call.command(do, 201)


@post("/v1/transfers", opt=allowed(*PAYER), summary="Transfer credit")
async def transfer(call: Caller, data: JSONBody[NewTransfer]) -> Response[Moved]:
    """Move credit to another account, at least 0.01."""
    amount = parse_amount(data.amount)
    sender = call.principal.account_id

    def do(unit: Unit) -> Moved:
        transfers.transfer(unit, sender, data.to_account_id, amount, data.id)
        return Moved(id=data.id, amount=data.amount, account_id=sender)

    return await call.command(do, 201)


@get("/v1/transfers", opt=allowed(*ANYONE), summary="List transfers")
async def list_transfers(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Transfer]:
    """List every movement of money, usage included, in the order of the log."""
    account = call.view(account_id)
    after = decode_cursor(cursor, str, "")
    found = await call.question(
        lambda connection: ask.transfers(
            connection, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Transfer, found, limit, lambda one: one.key)


@post("/v1/holds", opt=allowed(*RENTER), summary="Place a hold")
async def place_hold(call: Caller, data: JSONBody[NewHold]) -> Response[Moved]:
    """Set available credit aside."""
    amount = parse_amount(data.amount)
    account = call.account(data.account_id)

    def do(unit: Unit) -> Moved:
        holds.place_hold(unit, account, amount, data.id, seconds=data.seconds)
        return Moved(id=data.id, amount=data.amount, account_id=account)

    return await call.command(do, 201)


@get("/v1/holds", opt=allowed(*ANYONE), summary="List holds")
async def list_holds(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Hold]:
    """List the holds of an account by id."""
    account = call.view(account_id) or call.principal.account_id
    after = decode_cursor(cursor, str, "")
    found = await call.question(
        lambda connection: balances.holds(connection, account, after=after, limit=limit + 1)
    )
    return page(Hold, found, limit, lambda one: one.hold_id)


@post(
    "/v1/holds/{hold_id:str}/capture",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Capture a hold",
)
async def capture_hold(
    call: Caller, hold_id: FromPath[str], data: JSONBody[Capture], account_id: AccountFilter = None
) -> Response[Moved]:
    """Spend a hold, all of it or another amount; the rest is free again."""
    account = call.account(account_id)
    amount = None if data.amount is None else parse_amount(data.amount)

    def do(unit: Unit) -> Moved:
        holds.capture_hold(unit, account, hold_id, amount)
        return Moved(id=hold_id, amount=data.amount, account_id=account)

    return await call.command(do)


@post(
    "/v1/holds/{hold_id:str}/release",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Release a hold",
)
async def release_hold(
    call: Caller, hold_id: FromPath[str], account_id: AccountFilter = None
) -> Response[Moved]:
    """Give a hold back unspent."""
    account = call.account(account_id)

    def do(unit: Unit) -> Moved:
        holds.release_hold(unit, account, hold_id)
        return Moved(id=hold_id, amount=None, account_id=account)

    return await call.command(do)


@get("/v1/charges", opt=allowed(*ANYONE), summary="List charges")
async def list_charges(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
    by: Annotated[str, QueryParameter(pattern="^(segment|hour)$")] = "segment",
    start: Annotated[str | None, QueryParameter(name="from")] = None,
    until: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Charge]:
    """List consumption per rate segment, or per UTC hour in a window; no zero lines.

    A host's key lists what instances on its machines consumed.
    """
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, str, "")
    first, end = instant(start, "from"), instant(until, "until")
    found = await call.question(
        lambda connection: usage.charges(
            connection,
            account_id=account,
            host_id=host,
            instance_id=instance_id,
            by_hour=by == "hour",
            start=first or 0,
            until=end,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Charge, found, limit, lambda one: one.key)


HANDLERS = [
    deposit,
    refund,
    transfer,
    list_transfers,
    place_hold,
    list_holds,
    capture_hold,
    release_hold,
    list_charges,
]
