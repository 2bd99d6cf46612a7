"""Asks: what hosts list their machines for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import HOST, Caller, endpoint
from adapters.http.vast.permissions import of_body
from adapters.http.vast.volume_offers import offer_volumes
from adapters.http.vast.wire import (
    Json,
    dollars,
    money,
    number,
    whole,
)
from ledger.domain.money import BASIS_POINTS, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.errors import RejectedError
from ledger.services import listings
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, owned
from ledger.services.offers import Listing, require_listing
from ledger.services.questions import hosted

_UNITS: Final = {
    "second": 1,
    "minute": 60,
    "hour": SECONDS_PER_HOUR,
    "day": SECONDS_PER_DAY,
    "week": 7 * SECONDS_PER_DAY,
    "month": 30 * SECONDS_PER_DAY,
    "year": 365 * SECONDS_PER_DAY,
}
_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


class _Wanted(NamedTuple):
    """A listing as it was asked for."""

    prices: listings.Prices
    min_gpus: int
    until: int | None
    discount_bp: int


def _sells_volumes(body: Json) -> bool:
    return bool(body.get("vol_size") or body.get("vol_price"))


def _listing(body: Json) -> tuple[str, ...]:
    """Listing, and offering volumes where the same request does."""
    more = ("api.volume.offer_volumes",) if _sells_volumes(body) else ()
    return ("api.machine.list_machine", *more)


@endpoint(
    "PUT",
    "/v0/machines/create_asks",
    roles=HOST,
    needs=_listing,
    naming=of_body("machine", "machine_id"),
)
async def create_asks(call: Caller) -> Response[Any]:
    """List a machine; what is left out stays as it was listed before.

    Contracts keep their price. A later end extends them, or proposes a price increase.
    """
    machine_id = whole(call.body.get("machine"), "machine")

    def do(unit: Unit) -> Json:
        wanted = _wanted(
            call.body, _present(unit, owned(unit.connection, machine_id, call.account_id)), unit.now
        )
        before = hosted.contract_ends(unit.connection, machine_id)
        listings.list_machine(
            unit,
            machine_id,
            wanted.prices,
            min_gpus=wanted.min_gpus,
            until=wanted.until,
            reserved_discount_max_bp=wanted.discount_bp,
        )
        after = hosted.contract_ends(unit.connection, machine_id)
        if _sells_volumes(call.body):
            offer_volumes(
                unit,
                machine_id,
                size=call.body.get("vol_size"),
                price=call.body.get("vol_price"),
                until=wanted.until,
            )
        return {
            "success": True,
            "machine": machine_id,
            "extended": sum(after[one] != end for one, end in before.items()),
            "end_date": wanted.until,
            "msg": f"machine {machine_id} is listed; contracts keep the prices that they have",
        }

    return await call.command(do)


def _present(unit: Unit, machine: Machine) -> tuple[Listing, int | None] | None:
    """The listing in force and its floor; none where there is none."""
    try:
        return require_listing(unit, machine), machine.floor
    except RejectedError:
        return None


def _wanted(body: Json, present: tuple[Listing, int | None] | None, now: int) -> _Wanted:
    listing, floor = present or (None, None)

    def price(name: str, before: int | None) -> int | None:
        return before if body.get(name) is None else dollars(body[name], name)

    gpu = price("price_gpu", None if listing is None else listing.gpu_rate_per_gpu)
    if gpu is None:
        raise RejectedError("invalid_price", "`price_gpu`: name a price per GPU and hour")
    discount = 4_000 if listing is None else listing.reserved_discount_max_bp
    if body.get("credit_discount_max") is not None:
        discount = _basis_points(body["credit_discount_max"])
    return _Wanted(
        prices=listings.Prices(
            gpu,
            price("price_disk", listing.storage_rate if listing else 0) or 0,
            price("price_inetu", listing.up_rate if listing else 0) or 0,
            price("price_inetd", listing.down_rate if listing else 0) or 0,
            price("price_min_bid", floor),
        ),
        min_gpus=1 if body.get("min_chunk") is None else whole(body["min_chunk"], "min_chunk"),
        until=_end(body, None if listing is None else listing.until, now),
        discount_bp=discount,
    )


def _basis_points(value: Any) -> int:
    points = number(value, "credit_discount_max") * BASIS_POINTS
    if points != points.to_integral_value():
        message = "`credit_discount_max` is from 0 to below 1 in steps of 0.0001"
        raise RejectedError("invalid_args", message)
    return int(points)


def _end(body: Json, before: int | None, now: int) -> int | None:
    """When the listing ends: `end_date` wins over `duration`."""
    if body.get("end_date") is not None:
        return int(number(body["end_date"], "end_date"))
    if body.get("duration") is None:
        return before
    shown = str(body["duration"])
    found = _DURATION.fullmatch(shown)
    if found is None or found[2].lower() not in _UNITS:
        message = f"`duration` reads like `30 days`, not {shown[:40]!r}"
        raise RejectedError("invalid_args", message)
    return now + int(number(found[1], "duration") * _UNITS[found[2].lower()])


@endpoint(
    "DELETE", "/v0/machines/{machine_id:int}/asks", roles=HOST, needs="api.machine.unlist_machine"
)
async def unlist(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Take a machine off the market; contracts go on."""

    def do(unit: Unit) -> Json:
        owned(unit.connection, machine_id, call.account_id)
        listings.unlist_machine(unit, machine_id)
        return {"success": True, "msg": f"machine {machine_id} is not offered; contracts go on"}

    return await call.command(do)


@endpoint(
    "PUT", "/v0/machines/{machine_id:int}/minbid", roles=HOST, needs="api.machine.list_machine"
)
async def min_bid(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Set the lowest bid per GPU and hour; running bids keep running."""
    floor = dollars(call.body.get("price"), "price")

    def do(unit: Unit) -> Json:
        machine = owned(unit.connection, machine_id, call.account_id)
        listing = require_listing(unit, machine)
        if floor != machine.floor:
            listings.list_machine(
                unit,
                machine_id,
                listings.Prices(
                    listing.gpu_rate_per_gpu,
                    listing.storage_rate,
                    listing.up_rate,
                    listing.down_rate,
                    floor,
                ),
                min_gpus=listing.min_gpus,
                until=listing.until,
                reserved_discount_max_bp=listing.reserved_discount_max_bp,
            )
        return {"success": True, "min_bid": money(floor)}

    return await call.command(do)


ENDPOINTS: Sequence[Any] = [create_asks, unlist, min_bid]
