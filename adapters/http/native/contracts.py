"""Contracts that change: bids, reservations, and the price increases of extensions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.instances import Instance, command
from adapters.http.native.own import require_own, visible
from adapters.http.wire import (
    Body,
    Dollars,
    Instant,
    Page,
    decode_cursor,
    page,
    render,
)
from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars, parse_amount, parse_dollars
from ledger.errors import RejectedError
from ledger.services import contracts, rentals
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import market

_MAX_MONTHS: Final = 1_200


# --- bids -----------------------------------------------------------------------------------------


class NewBid(Body):
    """Dollars per hour for the whole slice; null bids the smallest amount that would run."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"price": "0.30"}

    price: Dollars | None


class Rebid(Instance, frozen=True, kw_only=True):
    """The instance, what it bids now, and since or from when that bid is the price paid."""

    new_bid: Dollars
    effective_at: Instant


@put("/v1/instances/{instance_id:int}/bid", opt=allowed(*RENTER), summary="Change a bid")
async def change_bid(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewBid]
) -> Response[Rebid]:
    """Bid another amount for the slice: it is the price paid from the next second on.

    It may displace others, or be displaced, in that second. The same amount again changes nothing.
    """
    wanted = None if data.price is None else parse_dollars(data.price)

    def do(unit: Unit) -> Rebid:
        require_own(call, unit, instance_id)
        bid = rentals.change_bid(unit, instance_id, wanted)
        view = ask.instance(unit.connection, instance_id)
        since = view.coming[0].effective_at if view.bid != bid else view.bid_effective_at
        return render(Rebid, view, new_bid=format_dollars(bid), effective_at=_second(since))

    return await call.command(do)


def _second(second: int | None) -> str:
    assert second is not None, "a bid has a second from which it applies"
    return rfc3339(second)


# --- reservations ---------------------------------------------------------------------------------


class NewReservation(Body):
    """What to prepay: an `amount` of dollars, or a term in `months` of 720 h or in `seconds`.

    A reservation that runs is topped up by an amount; what it has left buys the new term too.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {"months": 1}

    amount: Dollars | None = None
    months: Annotated[int, Meta(ge=1, le=_MAX_MONTHS)] | None = None
    seconds: Annotated[int, Meta(ge=1, le=_MAX_MONTHS * contracts.SECONDS_PER_MONTH)] | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation, as far as its seconds are metered; rates are for the whole slice.

    `status` is `running`, or why it ended. `refund` went back to credit, or would by cancelling now
    (`no_penalty` ends give all that remains). `ran_seconds` and `idle_seconds` consumed the deposit
    with and without GPUs.
    """

    reservation_no: int
    status: str
    base_rate: Dollars
    rate: Dollars
    discount: float
    added: Dollars
    deposit: Dollars
    term_from: Instant
    term_until: Instant
    ran_seconds: int
    idle_seconds: int
    consumed: Dollars
    remaining: Dollars
    discount_received: Dollars
    kept: Dollars
    refund: Dollars
    ended_at: Instant | None


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """All reservations of an instance, oldest first."""

    reservations: list[Reservation]


class BoughtReservation(Reservation, frozen=True, kw_only=True):
    """The reservation, and what a renter should know of it in words."""

    instance_id: int
    discount_fell: bool
    """The term that is left now is shorter than before, and its discount smaller."""
    note: str


class EndedReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation that was ended: of what remained, `kept` was charged and `refund` came back."""

    instance_id: int
    reservation_no: int
    reason: str
    remaining: Dollars
    discount_received: Dollars
    kept: Dollars
    refund: Dollars


@post(
    "/v1/instances/{instance_id:int}/reservation",
    opt=allowed(*RENTER),
    summary="Prepay GPU time",
)
async def reserve(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewReservation]
) -> Response[BoughtReservation]:
    """Lock credit to an on-demand instance: it pays its GPU time at a discount for the term.

    The term runs by time, not by use; storage and traffic are paid from credit.
    """
    if [data.amount, data.months, data.seconds].count(None) != 2:  # noqa: PLR2004 - of three
        message = "give one of `amount`, `months` and `seconds`"
        raise RejectedError("invalid_args", message, status=400)
    amount = None if data.amount is None else parse_amount(data.amount)
    seconds = data.seconds
    if data.months is not None:
        seconds = data.months * contracts.SECONDS_PER_MONTH

    def do(unit: Unit) -> BoughtReservation:
        require_own(call, unit, instance_id)
        bought = contracts.reserve(unit, instance_id, amount=amount, seconds=seconds)
        view = market.reservations(unit.connection, instance_id)[-1]
        note = (
            f"{format_dollars(bought.deposit)} pays GPU time at {format_dollars(bought.rate)} an"
            f" hour, {100 * view.discount:.1f} % below {format_dollars(view.base_rate)}. The term"
            " runs by time, also while the instance is stopped."
        )
        if bought.discount_fell:
            note += " The discount fell: the term that is left is shorter than before."
        return render(
            BoughtReservation,
            view,
            instance_id=instance_id,
            discount_fell=bought.discount_fell,
            note=note,
        )

    return await call.command(do, 201)


@delete(
    "/v1/instances/{instance_id:int}/reservation",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Cancel a reservation",
)
async def unreserve(call: Caller, instance_id: FromPath[int]) -> Response[EndedReservation]:
    """End a reservation before its term; the instance goes on on demand.

    What its discount was worth, and 5 % of that, is kept; without penalty where the host failed.
    """

    def do(unit: Unit) -> EndedReservation:
        require_own(call, unit, instance_id)
        instance = unit.instance(instance_id)
        remaining = received = 0
        if instance.reservation is not None:
            remaining, received = contracts.standing(unit, instance)
        refund = contracts.unreserve(unit, instance_id)
        last = market.reservations(unit.connection, instance_id)[-1]
        return EndedReservation(
            instance_id=instance_id,
            reservation_no=last.reservation_no,
            reason=last.status,
            remaining=format_dollars(remaining),
            discount_received=format_dollars(received),
            kept=format_dollars(remaining - refund),
            refund=format_dollars(refund),
        )

    return await call.command(do)


@get(
    "/v1/instances/{instance_id:int}/reservations",
    opt=allowed(*ANYONE),
    summary="List reservations",
)
async def list_reservations(call: Caller, instance_id: FromPath[int]) -> Reservations:
    """List all reservations of an instance with what they consumed, oldest first."""
    await visible(call, instance_id)
    found = await call.question(lambda connection: market.reservations(connection, instance_id))
    return Reservations(reservations=[render(Reservation, one) for one in found])


# --- price increases ------------------------------------------------------------------------------


class PriceIncrease(msgspec.Struct, frozen=True, kw_only=True):
    """Higher rates that a host offers for a later end; rates are for the whole slice.

    `…_now` holds to `until_now` in every case. `status` is `pending`, `accepted`, `rejected`,
    `replaced`, or `lapsed` when the contract ended before an answer.
    """

    instance_id: int
    proposal_no: int
    account_id: int
    machine_id: int
    status: str
    gpu_rate_now: Dollars
    gpu_rate: Dollars
    storage_rate_now: Dollars
    storage_rate: Dollars
    up_rate_now: Dollars
    up_rate: Dollars
    down_rate_now: Dollars
    down_rate: Dollars
    until_now: Instant | None
    until: Instant | None
    proposed_at: Instant
    answered_at: Instant | None


@get("/v1/price-increases", opt=allowed(*ANYONE), summary="List price increases")
async def list_price_increases(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: Annotated[
        int | None, QueryParameter(description="Only those of this instance.")
    ] = None,
    pending: Annotated[
        bool, QueryParameter(description="Only those that wait for an answer.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PriceIncrease]:
    """List what hosts asked for; a host's key lists what it asked for on its machines."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, tuple[int, int], (0, 0))
    now = call.ledger.clock()
    found = await call.question(
        lambda connection: market.price_increases(
            connection,
            now,
            account_id=account,
            host_id=host,
            instance_id=instance_id,
            pending=pending,
            after=after,
            limit=limit + 1,
        )
    )
    return page(PriceIncrease, found, limit, lambda one: (one.instance_id, one.proposal_no))


@post(
    "/v1/instances/{instance_id:int}/price-increase/accept",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Accept a price increase",
)
async def accept(call: Caller, instance_id: FromPath[int]) -> Response[Instance]:
    """Agree to the later end and its rates, which apply from the old end on."""
    return await _answer(call, instance_id, is_accepted=True)


@post(
    "/v1/instances/{instance_id:int}/price-increase/reject",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Reject a price increase",
)
async def reject(call: Caller, instance_id: FromPath[int]) -> Response[Instance]:
    """Refuse the later end: the contract ends when it did, at the rates that it has."""
    return await _answer(call, instance_id, is_accepted=False)


async def _answer(call: Caller, instance_id: int, *, is_accepted: bool) -> Response[Instance]:
    return await command(
        call,
        instance_id,
        lambda unit, one: contracts.answer_price_increase(unit, one, accept=is_accepted),
    )


HANDLERS = [
    change_bid,
    reserve,
    unreserve,
    list_reservations,
    list_price_increases,
    accept,
    reject,
]
