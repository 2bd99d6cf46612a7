"""Hosts: their machines, listings, maintenance, and the market by GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, HOST, Call, Caller, endpoint
from adapters.http.vast.permissions import of_body
from adapters.http.vast.places import place
from adapters.http.vast.volume_offers import offer_volumes
from adapters.http.vast.wire import (
    Json,
    answer,
    dollars,
    ids,
    maybe_money,
    money,
    number,
    ratio,
    whole,
)
from ledger.domain.events import MaintenanceCategory
from ledger.domain.money import BASIS_POINTS, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.errors import NotFoundError, RejectedError
from ledger.services import cleanup_expired, listings, maintenance
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, require_machine
from ledger.services.offers import Listing, require_listing
from ledger.services.questions import hosted, operations
from ledger.services.questions.hosted import GpuSupply, HostedMachine
from ledger.store.database import Connection

_CATEGORIES: Final[dict[str, MaintenanceCategory]] = {
    "power": "power",
    "internet": "internet",
    "disk": "disk",
    "gpu": "gpu",
    "software": "software",
}
_HOLDERS: Final = {"on_demand": "D", "reserved": "R", "interruptible": "I", None: "x"}
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
_WINDOWS: Final = 1_000


def _own(call: Call, unit: Unit, machine_id: int) -> Machine:
    machine = require_machine(unit.connection, machine_id)
    if machine.host_id != call.account_id:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return machine


# --- machines -------------------------------------------------------------------------------------


@endpoint("GET", "/v0/machines", roles=ANYONE, needs="api.machine.list_machines")
async def machines(call: Caller) -> Response[Any]:
    """One's machines."""
    found = await call.question(
        lambda connection: hosted.hosted(connection, call.account_id, call.now)
    )
    return answer({"success": True, "machines": [_machine(one) for one in found]})


@endpoint("GET", "/v0/machines/{machine_id:int}", roles=ANYONE, needs="api.machine.show_machine")
async def machine(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """One of one's machines, as a list of one."""
    found = await call.question(
        lambda connection: hosted.hosted(connection, call.account_id, call.now, machine_id)
    )
    if not found:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return answer([_machine(one) for one in found])


def _machine(view: HostedMachine) -> Json:
    machine, listing = view.machine, view.machine.listing
    discount = view.reserved_discount_max_bp
    return {
        "id": machine.machine_id,
        "machine_id": machine.machine_id,
        "host_id": machine.host_id,
        "num_gpus": machine.gpus,
        "gpu_name": machine.gpu_name,
        "gpu_ram": machine.gpu_ram_gb * 1_000,
        "gpu_total_ram": machine.gpu_ram_gb * 1_000 * machine.gpus,
        "cpu_cores": machine.cpu_cores,
        "cpu_ram": machine.ram_gb * 1_000,
        "disk_space": machine.disk_gb,
        "hostname": f"machine-{machine.machine_id}",
        "driver_version": view.driver or "",
        "cuda_max_good": view.cuda or 0,
        "inet_up": machine.up_mbps,
        "inet_down": machine.down_mbps,
        "reliability2": view.reliability,
        "reliability_mult": view.reliability_lower_bound,
        "verification": view.verification,
        "hosting_type": int(view.secure),
        "public_ipaddr": "",
        "geolocation": place(view.country),
        "num_reports": view.reports,
        "listed": listing is not None,
        "listed_gpu_cost": None if listing is None else money(listing.gpu_rate_per_gpu),
        "listed_storage_cost": None if listing is None else money(listing.storage_rate),
        "listed_inet_up_cost": money(listing.up_rate if listing else 0),
        "listed_inet_down_cost": money(listing.down_rate if listing else 0),
        "min_bid_price": None if listing is None else maybe_money(listing.min_bid_per_gpu),
        "listed_min_gpu_count": None if listing is None else listing.min_gpus,
        "credit_discount_max": None if discount is None else ratio(discount, BASIS_POINTS),
        "end_date": None if listing is None else listing.until,
        "gpu_occupancy": " ".join(_HOLDERS[one] for one in view.occupancy),
        "current_rentals_running": sum(one is not None for one in view.occupancy),
        "num_instances": machine.instances,
        "online": machine.online,
        "timeout": 0,
        "error_description": None,
    }


# --- listings -------------------------------------------------------------------------------------


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
        wanted = _wanted(call.body, _present(unit, _own(call, unit, machine_id)), unit.now)
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
        _own(call, unit, machine_id)
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
        machine = _own(call, unit, machine_id)
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


# --- maintenance ----------------------------------------------------------------------------------


@endpoint(
    "PUT",
    "/v0/machines/{machine_id:int}/dnotify",
    roles=HOST,
    needs="api.machine.schedule_maintenance",
)
async def schedule(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Say when a machine will be worked on; its renters are told, and contracts stay in force."""
    start = int(number(call.body.get("sdate"), "sdate"))
    seconds = int(number(call.body.get("duration"), "duration") * SECONDS_PER_HOUR)
    category = _CATEGORIES.get(str(call.body.get("maintenance_category")).lower(), "other")

    def do(unit: Unit) -> Json:
        _own(call, unit, machine_id)
        for window in maintenance.open_windows(unit, machine_id):
            if (window.start, window.until) == (start, start + seconds):
                return {"success": True, "id": window.maintenance_id, "replayed": True}
        made = maintenance.schedule(unit, machine_id, start, seconds, category)
        return {"success": True, "id": made, "replayed": False, "maintenance_category": category}

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/machines/{machine_id:int}/cancel_maint",
    roles=HOST,
    needs="api.machine.cancel_maintenance",
)
async def cancel_maintenance(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Call every planned window of a machine off."""

    def do(unit: Unit) -> Json:
        _own(call, unit, machine_id)
        found = maintenance.open_windows(unit, machine_id)
        for window in found:
            maintenance.cancel(unit, machine_id, window.maintenance_id)
        return {"success": True, "cancelled": len(found)}

    return await call.command(do)


@endpoint("GET", "/v0/machines/maintenances", roles=ANYONE, needs="api.machine.list_maintenance")
async def maintenances(call: Caller) -> Response[Any]:
    """The planned windows of one's machines, or of some of them."""
    asked = call.query("machine_ids")
    wanted = None if asked is None or asked == [] else set(ids(asked, "machine_ids"))
    found = await call.question(
        lambda connection: operations.windows(
            connection, host_id=call.account_id, only_open=True, limit=_WINDOWS
        )
    )
    return answer(
        [
            {
                "machine_id": one.machine_id,
                "start_time": one.start,
                "end_time": one.until,
                "duration_hours": ratio(one.until - one.start, SECONDS_PER_HOUR),
                "maintenance_category": one.category,
                "id": one.maintenance_id,
            }
            for one in found
            if wanted is None or one.machine_id in wanted
        ]
    )


# --- ends -----------------------------------------------------------------------------------------


@endpoint("PUT", "/v0/machines/{machine_id:int}/cleanup", roles=HOST, needs="api.machine.clean_up")
async def cleanup(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Destroy what is left of contracts that ended two days ago or earlier."""

    def do(unit: Unit) -> Json:
        _own(call, unit, machine_id)
        ended = cleanup_expired.clean_up(unit, machine_id)
        return {
            "success": True,
            "num_deleted": len(ended),
            "deleted": ended,
            "msg": f"{len(ended)} expired contracts were removed",
        }

    return await call.command(do)


@endpoint(
    "POST",
    "/v0/machines/{machine_id:int}/force_delete",
    roles=HOST,
    needs="api.machine.remove_machine",
)
async def delete(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Take a machine without contracts out of the marketplace."""

    def do(unit: Unit) -> Json:
        _own(call, unit, machine_id)
        cleanup_expired.remove_machine(unit, machine_id)
        return {"success": True, "msg": f"machine {machine_id} is removed"}

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/machines/defrag_offers",
    roles=HOST,
    needs="api.machine.show_machine",
    naming=of_body("machine_ids", "machine_id"),
)
async def defrag(call: Caller) -> Response[Any]:
    """Nothing needs moving: every slice size is on offer at any time."""
    wanted = ids(call.body.get("machine_ids"), "machine_ids")

    def do(unit: Unit) -> Json:
        for one in wanted:
            _own(call, unit, one)
        return {"success": True, "moved": 0, "machine_ids": wanted}

    return await call.command(do)


@endpoint(
    "GET", "/v0/machines/{machine_id:int}/reports", roles=ANYONE, needs="api.machine.list_checks"
)
async def reports(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """What went wrong on a machine: upheld disputes and failed checks."""

    def find(connection: Connection) -> list[Json]:
        require_machine(connection, machine_id)
        return [
            {"problem": one.problem, "message": one.about, "created_at": one.at}
            for one in hosted.reports(connection, machine_id)
        ]

    return answer(await call.question(find))


# --- the market by GPU ----------------------------------------------------------------------------


@endpoint("GET", "/v0/metrics/gpu/current", roles=ANYONE, needs="api.misc.list_offers")
async def gpu_metrics(call: Caller) -> Response[Any]:
    """What the market has of each GPU now, and what it asks for it."""
    verified = _choice(call.query("verified"), {"verified": True, "unverified": False})
    secure = _choice(call.query("hosting_type"), {"datacenter": True, "secure": True})
    gpus = call.query("num_gpus")
    found = await call.question(
        lambda connection: hosted.supply(
            connection,
            call.now,
            verified=verified,
            secure=secure,
            gpus=None if gpus in {None, "all", ""} else whole(gpus, "num_gpus"),
        )
    )
    return answer({"success": True, "gpus": [_supply(one) for one in found]})


def _choice(asked: Any, named: dict[str, bool]) -> bool | None:
    if asked in {None, "all", "any", ""}:
        return None
    shown = str(asked).lower()
    return named.get(shown, shown in {"true", "1"})


def _supply(view: GpuSupply) -> Json:
    unverified = view.total - view.total_verified
    rented_unverified = view.rented - view.rented_verified
    return {
        "gpu_name": view.gpu_name,
        "total": view.total,
        "available": view.total - view.rented,
        "unavailable": view.rented,
        "usage": ratio(100 * view.rented, view.total, 3),
        "rented_verified": view.rented_verified,
        "avail_verified": view.total_verified - view.rented_verified,
        "rented_unverified": rented_unverified,
        "avail_unverified": unverified - rented_unverified,
        "dlperf": view.score,
        "tflops": 0,
        "tflops_per_dollar": 0,
        "price_p10": money(view.price_low),
        "price_median": money(view.price_median),
        "price_p90": money(view.price_high),
    }


ENDPOINTS: Sequence[Any] = [
    machines,
    machine,
    create_asks,
    unlist,
    min_bid,
    schedule,
    cancel_maintenance,
    maintenances,
    cleanup,
    delete,
    defrag,
    reports,
    gpu_metrics,
]
