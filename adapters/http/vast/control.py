"""Commands on instances: start, stop, label, reboot, bids, deposits, and their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, RENTER, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal, refused, translated
from adapters.http.vast.launches import config_of, template_of
from adapters.http.vast.permissions import of_body
from adapters.http.vast.renting import read_bid, read_label
from adapters.http.vast.wire import (
    Json,
    answer,
    dollars,
    ids,
    money,
    per_hour,
    ratio,
)
from ledger.domain.launch import LaunchChange, overlaid
from ledger.domain.money import BYTES_PER_GB, SECONDS_PER_RATE_MONTH, format_dollars
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import rentals, repeats
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import market
from ledger.services.templates import find_version
from ledger.store.database import Connection

_HIGHEST_BID_PER_GPU: Final = 32 * 10**9
_STATES: Final[dict[str, Callable[[Unit, int], None]]] = {
    "running": rentals.start,
    "stopped": rentals.stop,
}


def own(call: Call, unit: Unit, instance_id: int) -> int:
    """The id of an instance, if it is the caller's.

    Raises:
        NotFoundError: `no_such_instance`, also for somebody else's.
    """
    return rentals.owned(unit, instance_id, call.account_id).instance_id


def _changes(body: Json) -> tuple[str, ...]:
    """Which native commands a change is."""
    state = {"running": "api.instance.start", "stopped": "api.instance.stop"}
    wanted = body.get("state")
    found = [state[wanted]] if isinstance(wanted, str) and wanted in state else []
    return (*found, "api.instance.label") if "label" in body or not found else tuple(found)


@endpoint("PUT", "/v0/instances/{instance_id:int}", roles=RENTER, needs=_changes)
async def change(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Start, stop or label an instance."""
    wanted = _state(call.body) if "state" in call.body else None
    is_named = "label" in call.body
    if wanted is None and not is_named:
        raise RejectedError("invalid_args", "name a `state` or a `label`")
    label = read_label(call.body.get("label")) if is_named else None

    def do(unit: Unit) -> Json:
        one = own(call, unit, instance_id)
        if wanted is not None:
            _STATES[wanted](unit, one)
        if is_named:
            rentals.label(unit, one, label)
        return _told(unit, one)

    return await call.command(do)


def _state(body: Json) -> str:
    wanted = body.get("state")
    if not isinstance(wanted, str) or wanted not in _STATES:
        raise RejectedError("invalid_args", "`state` is running or stopped")
    return wanted


def _told(unit: Unit, instance_id: int) -> Json:
    """What became of it, and what goes on costing."""
    view = ask.instance(unit.connection, instance_id)
    storage = per_hour(view.storage_rate, view.disk_bytes // BYTES_PER_GB)
    notes = {
        "stopped": f"GPU billing has ended; the disk costs ${storage:f} per hour until it is"
        " destroyed.",
        "scheduling": f"It waits for GPUs; meanwhile the disk is billed, ${storage:f} per hour.",
        "destroyed": "Every meter has ended.",
    }
    return {
        "success": True,
        "id": instance_id,
        "state": view.status,
        "label": view.label,
        "storage_cost": money(view.storage_rate),
        "storage_total_cost": storage,
        "msg": notes.get(view.status, f"It is {view.status}."),
    }


@endpoint(
    "PUT", "/v0/instances", roles=RENTER, needs=_changes, naming=of_body("ids", "instance_id")
)
async def change_several(call: Caller) -> Response[Any]:
    """Start or stop several instances, each by itself."""
    wanted = _state(call.body)
    return await _each(call, ids(call.body.get("ids"), "ids"), _STATES[wanted])


@endpoint(
    "DELETE",
    "/v0/instances",
    roles=RENTER,
    needs="api.instance.destroy",
    naming=of_body("instance_ids", "instance_id"),
)
async def destroy_several(call: Caller) -> Response[Any]:
    """Destroy several instances, each by itself; those that are destroyed already are."""
    return await _each(call, ids(call.body.get("instance_ids"), "instance_ids"), rentals.destroy)


async def _each(
    call: Call, instance_ids: Sequence[int], do: Callable[[Unit, int], None]
) -> Response[Any]:
    """Carry out a command on each; the first refusal is the answer, after all have been tried."""
    results: dict[str, Any] = {}
    first: tuple[int, str, str] | None = None
    for instance_id in instance_ids:

        def one(unit: Unit, named: int = instance_id) -> Json:
            do(unit, own(call, unit, named))
            return _told(unit, named)

        try:
            results[str(instance_id)] = await call.carry_out(one)
        except LedgerError as error:
            status, code, msg, _ = translated(error)
            results[str(instance_id)] = {"success": False, "error": code, "msg": msg}
            first = first or (status, code, msg)
    if first is not None:
        return refused(*first, results=results)
    return answer({"success": True, "results": results})


@endpoint("DELETE", "/v0/instances/{instance_id:int}", roles=RENTER, needs="api.instance.destroy")
async def destroy(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """End every meter now; destroying again changes nothing."""

    def do(unit: Unit) -> Json:
        rentals.destroy(unit, own(call, unit, instance_id))
        return _told(unit, instance_id)

    return await call.command(do)


@endpoint(
    "PUT", "/v0/instances/reboot/{instance_id:int}", roles=RENTER, needs="api.instance.reboot"
)
async def reboot(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Restart the container in place; GPUs and priority are kept."""

    def do(unit: Unit) -> Json:
        rentals.reboot(unit, own(call, unit, instance_id))
        return _told(unit, instance_id)

    return await call.command(do)


@endpoint(
    "PUT", "/v0/instances/recycle/{instance_id:int}", roles=RENTER, needs="api.instance.reboot"
)
async def recycle(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Make the container anew in place: for the books the same as a restart."""

    def do(unit: Unit) -> Json:
        rentals.reboot(unit, own(call, unit, instance_id))
        return _told(unit, instance_id)

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/instances/update_template/{instance_id:int}",
    roles=RENTER,
    needs="api.instance.change_launch",
)
async def update(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Give it another image, environment, start text or arguments, from its next start on.

    A template's values come first, those of the body over them; what neither names stays.
    """
    template = template_of(call.body)
    config = config_of(call.body)
    if config.ports or config.hostname:
        message = "ports and a host name are an instance's from its creation: rent another"
        raise RejectedError("invalid_args", message)
    if template is not None:
        vault, account = call.ledger.vault, call.account_id
        version = await call.question(
            lambda connection: find_version(connection, vault, account, template)
        )
        config = overlaid(version.config, config)
    given = {
        name: value
        for name in ("image", "env", "onstart", "args")
        if (value := getattr(config, name))
    }
    if not given:
        message = "name what to change: image, env, onstart, args or a template"
        raise RejectedError("invalid_args", message)
    resolved = await call.resolved(config)

    def do(unit: Unit) -> Json:
        one = own(call, unit, instance_id)
        rentals.change_launch(unit, one, LaunchChange(**given), resolved)
        digest = ask.image_digest(unit.connection, one)
        return {
            **_told(unit, one),
            "updated_instance": {"id": one, "image_uuid": config.image, "image_digest": digest},
            "msg": "It has this from its next start on, also by a reboot; what it costs stays.",
        }

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/instances/bid_price/{instance_id:int}",
    roles=RENTER,
    needs="api.instance.change_bid",
)
async def change_bid(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Bid another amount for the whole offer; without one, the smallest that would run."""
    price = call.body.get("price")

    def do(unit: Unit) -> Json:
        instance = rentals.owned(unit, instance_id, call.account_id)
        highest = _HIGHEST_BID_PER_GPU * instance.gpus
        wanted = None if price is None else read_bid(price, highest)
        bid = rentals.change_bid(unit, instance_id, wanted)
        return {
            **_told(unit, instance_id),
            "price": money(bid),
            "msg": f"The bid for the whole offer is ${format_dollars(bid)} per hour from the next"
            " second on; it is the price paid.",
        }

    try:
        return await call.command(do)
    except LedgerError as error:
        if error.code == "no_capacity":
            raise Refusal(400, "no_capacity", error.message) from error
        raise


@endpoint(
    "PUT", "/v0/instances/prepay/{instance_id:int}", roles=RENTER, needs="api.instance.reserve"
)
async def prepay(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Lock credit to an on-demand instance for a discounted term."""
    amount = dollars(call.body.get("amount"), "amount")

    def do(unit: Unit) -> Json:
        instance = rentals.owned(unit, instance_id, call.account_id)
        found = repeats.reserve_once(unit, call.account_id, instance_id, amount)
        bought = found.bought
        return {
            "success": True,
            "timescale": ratio(bought.term_until - found.bought_at, SECONDS_PER_RATE_MONTH),
            "discount_rate": ratio(instance.base_rate - bought.rate, instance.base_rate),
            "replayed": found.replayed,
            "deposit": money(bought.deposit),
            "discounted_hourly": money(bought.rate),
            "term_end": bought.term_until,
            "discount_fell": bought.discount_fell,
        }

    try:
        return await call.command(do)
    except LedgerError as error:
        if error.code == "insufficient_credit":
            raise Refusal(411, "insufficient_credit", error.message) from error
        raise


@endpoint(
    "GET",
    "/v0/instances/balance/{instance_id:int}",
    roles=ANYONE,
    needs="api.instance.list_reservations",
)
async def deposit(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """What cancelling a prepaid term now would give back."""

    def find(connection: Connection) -> Json:
        view = ask.instance(connection, instance_id)
        if view.account_id != call.account_id:
            raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
        terms = market.reservations(connection, instance_id)
        last = terms[-1] if terms and terms[-1].status == "running" else None
        if last is None:
            nothing: Json = {"refundable_deposit": 0, "total_discount": 0, "discount_months": 0}
            return {"success": True, **nothing}
        return {
            "success": True,
            "refundable_deposit": money(last.refund),
            "total_discount": money(last.discount_received),
            "discount_months": ratio(last.term_until - last.term_from, SECONDS_PER_RATE_MONTH),
            "remaining": money(last.remaining),
            "term_end": last.term_until,
        }

    return answer(await call.question(find))


ENDPOINTS: Sequence[Any] = [
    change,
    change_several,
    destroy_several,
    destroy,
    reboot,
    recycle,
    update,
    change_bid,
    prepay,
    deposit,
]
