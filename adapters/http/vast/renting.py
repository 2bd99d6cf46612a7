"""Renting: one offer, several, or the first that a search finds; and what the answer says of it.

The client repeats a request whose answer was lost, without a key: an offer that this account rented
gives its instance again as long as it lives, and the same launch within ten minutes too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import RENTER, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal, translated
from adapters.http.vast.instance_rows import RENTAL_TYPES
from adapters.http.vast.launches import Wanted, wanted_of
from adapters.http.vast.permissions import Sent
from adapters.http.vast.search import disk_gb, inner_query, read_search
from adapters.http.vast.wire import (
    Json,
    answer,
    encode,
    flag,
    ids,
    maybe_money,
    money,
    per_hour,
    text,
)
from adapters.http.vast.wire import dollars as read_dollars
from ledger.domain.launch import overlaid
from ledger.domain.money import BYTES_PER_GB, format_dollars
from ledger.errors import LedgerError, RejectedError
from ledger.services import rentals, repeats
from ledger.services.images import Resolved
from ledger.services.instance_keys import key_of
from ledger.services.launches import config_of, launch_warnings
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import offers
from ledger.services.templates import find_version

_DEFAULT_DISK_GB: Final = 10
_LOWEST_BID: Final = 1_000_000
_HIGHEST_BID: Final = 128 * 10**9
_LAUNCH_OFFERS: Final = 3
_GONE: Final = frozenset({"no_such_ask", "no_capacity"})


class Wishes(NamedTuple):
    """What a create request asks for, whichever offer it gets."""

    disk_gb: int
    bid: int | None
    label: str | None
    wait: bool
    what: Wanted
    is_stopped: bool

    def kwargs(self) -> dict[str, Any]:
        """The same as `rentals.rent` takes it."""
        return {
            "disk_gb": self.disk_gb,
            "bid": self.bid,
            "label": self.label,
            "wait": self.wait,
            "launch": self.what.launch,
            "template": self.what.template,
            "mounts": self.what.mounts,
        }


def read_wishes(body: Json) -> Wishes:
    """The wishes of a create request.

    Raises:
        RejectedError: `invalid_args`, `invalid_price`.
        Refusal: `unsupported`.
    """
    bid = None if body.get("price") is None else read_bid(body["price"], _HIGHEST_BID)
    state = text(body.get("target_state"), "target_state") or "running"
    if state not in {"running", "stopped"}:
        raise RejectedError("invalid_args", "`target_state` is running or stopped")
    fails = body.get("cancel_unavail")
    if fails is None:
        is_wanted_now = body.get("target_state") == "running"
        must_run = bid is None and is_wanted_now
    else:
        must_run = flag(fails, "cancel_unavail")
    return Wishes(
        disk_gb=disk_gb(body.get("disk"), _DEFAULT_DISK_GB),
        bid=bid,
        label=read_label(body.get("label")),
        wait=not must_run,
        what=wanted_of(body),
        is_stopped=state == "stopped",
    )


def read_bid(value: Any, highest: int) -> int:
    """Dollars per hour for the whole offer, in nanos.

    Raises:
        RejectedError: `invalid_price` outside of what these clients may bid.
    """
    bid = read_dollars(value, "price")
    if not _LOWEST_BID <= bid <= highest:
        message = (
            f"a bid is {format_dollars(_LOWEST_BID)} to {format_dollars(highest)} dollars per hour"
            " for the whole offer, not per GPU"
        )
        raise RejectedError("invalid_price", message)
    return bid


def read_label(value: Any) -> str | None:
    """A label; an empty one is none.

    Raises:
        RejectedError: `invalid_args`.
    """
    return text(value, "label") or None


async def resolve(call: Call, what: Wanted) -> Resolved:
    """What the image means now, asked of its registry before the rental begins.

    Raises:
        NotFoundError: `no_such_template`.
    """
    config, template = what.launch, what.template
    if template is not None and config.image is None:
        vault, account = call.ledger.vault, call.account_id
        version = await call.question(
            lambda connection: find_version(connection, vault, account, template)
        )
        config = overlaid(version.config, config)
    return await call.resolved(config)


# --- what a request names, for permissions --------------------------------------------------------


def _terms(body: Json) -> Json:
    label = body.get("label")
    return {"disk_gb": disk_gb(body.get("disk"), _DEFAULT_DISK_GB), "label": label}


def _order(sent: Sent) -> Sequence[Json]:
    return [{"offer_id": sent.path["offer_id"], **_terms(sent.body)}]


def _orders(sent: Sent) -> Sequence[Json]:
    return [{"offer_id": one, **_terms(sent.body)} for one in ids(sent.body.get("ids"), "ids")]


def _launch(sent: Sent) -> Sequence[Json]:
    """A launch names no offer: whoever may rent certain offers only must name one."""
    return [_terms(sent.body)]


# --- one offer ------------------------------------------------------------------------------------


@endpoint("PUT", "/v0/asks/{offer_id:int}", roles=RENTER, needs="api.instance.rent", naming=_order)
async def create(call: Caller, offer_id: FromPath[int]) -> Response[Any]:
    """Rent an offer: with a price interruptibly at that bid, without one on demand."""
    return answer(await _create(call, offer_id, read_wishes(call.body)))


async def _create(call: Call, offer_id: int, wishes: Wishes) -> Json:
    def do(unit: Unit) -> Json:
        made = rentals.rent_once(
            unit, call.account_id, offer_id, **wishes.kwargs(), resolved=resolved
        )
        if wishes.is_stopped and not made.replayed:
            rentals.stop(unit, made.instance_id)
        return made_answer(unit, made.instance_id, offer_id, replayed=made.replayed)

    try:
        resolved = await resolve(call, wishes.what)
        return await call.carry_out(do)
    except LedgerError as error:
        raise _refused(error, offer_id, wishes) from error


def _refused(error: LedgerError, offer_id: int, wishes: Wishes) -> Refusal:
    """The refusal of a create, which names the offer."""
    status, code, msg, more = translated(error)
    if error.code == "no_such_ask":
        msg = f"error 404/3603: no_such_ask Instance type by id {offer_id} is not available."
        if not wishes.wait:
            status, code = 410, "no_such_ask"
    return Refusal(status, code, msg, ask_id=offer_id, **more)


def made_answer(unit: Unit, instance_id: int, offer_id: int | None, *, replayed: bool) -> Json:
    """What a renter must not learn from the first bill: how it is rented, and what is paid."""
    view = ask.instance(unit.connection, instance_id)
    storage = per_hour(view.storage_rate, view.disk_bytes // BYTES_PER_GB)
    same = () if view.label is None else ask.living(unit.connection, view.account_id, view.label)
    digest = ask.image_digest(unit.connection, instance_id)
    launch = config_of(unit.connection, unit.vault, unit.instance(instance_id).launch)
    warnings = [] if launch is None else launch_warnings(unit, view.machine_id, launch, digest)
    return {
        "success": True,
        "new_contract": instance_id,
        "instance_api_key": key_of(unit, instance_id),
        "ask_id": offer_id,
        "replayed": replayed,
        "is_bid": view.bid is not None,
        "rental_type": RENTAL_TYPES[view.kind],
        "price": maybe_money(view.bid),
        "dph_base": money(view.dph_base),
        "storage_total_cost": storage,
        "dph_total": money(view.dph_base) + storage,
        "inet_up_cost": money(view.up_rate),
        "inet_down_cost": money(view.down_rate),
        "label": view.label,
        "same_label": [one for one in same if one != instance_id],
        "state": view.status,
        "image_digest": digest,
        "volumes": [one.volume_id for one in view.volumes],
        "warnings": [{"code": one.code, "message": one.message} for one in warnings],
        "msg": " ".join([_note(view, storage), *(f"Note: {one.message}." for one in warnings)]),
    }


def _note(view: ask.InstanceView, storage: Decimal) -> str:
    rate = format_dollars(view.gpu_rate)
    if view.bid is None:
        note = f"Rented on demand at ${rate} per hour; it is never displaced."
    else:
        note = (
            f"Rented interruptibly at a bid of ${format_dollars(view.bid)} per hour for the whole"
            " offer; the bid is the price paid, and it can be displaced at any second."
        )
    if view.status == "scheduling":
        note += " It waits for GPUs now; only its disk is billed meanwhile."
    return f"{note} Its disk costs ${storage:f} per hour until it is destroyed."


# --- several --------------------------------------------------------------------------------------


@endpoint("POST", "/v0/asks/bulk", roles=RENTER, needs="api.instance.rent", naming=_orders)
async def create_several(call: Caller) -> Response[Any]:
    """Rent several offers with one configuration; each of them is made or refused by itself."""
    wishes = read_wishes(call.body)
    made: list[int] = []
    replayed: list[int] = []
    failed: list[Json] = []
    for offer_id in ids(call.body.get("ids"), "ids"):
        try:
            one = await _create(call, offer_id, wishes)
        except Refusal as error:
            failed.append({"ask_id": offer_id, "error": error.error, "msg": error.msg})
        else:
            made.append(one["new_contract"])
            replayed += [one["new_contract"]] if one["replayed"] else []
    found: Json = {
        "success": not failed,
        "new_contracts": made,
        "replayed": replayed,
        "failed": failed,
    }
    if failed:
        found |= {"error": failed[0]["error"], "msg": failed[0]["msg"]}
    return answer(found)


# --- the first that a search finds ----------------------------------------------------------------


@endpoint(
    "PUT",
    "/v0/launch_instance",
    roles=RENTER,
    needs=("api.misc.search_offers", "api.instance.rent"),
    naming=_launch,
)
async def launch(call: Caller) -> Response[Any]:
    """Search, and rent the first offer that can be had."""
    wishes = read_wishes(call.body)
    query = inner_query(call.body)
    asked = read_search({"limit": _LAUNCH_OFFERS, **query}, call.account_id)
    digest = hashlib.sha256(encode(call.body)).hexdigest()
    resolved = await resolve(call, wishes.what)

    def do(unit: Unit) -> Json:
        def rent() -> bytes:
            found = []
            if asked.search is not None:
                found = offers.search(unit.connection, asked.search, unit.now).offers
            return str(
                _first(unit, call.account_id, [one.offer_id for one in found], wishes, resolved)
            ).encode()

        def lives(kept: bytes) -> bool:
            return ask.instance(unit.connection, int(kept)).destroyed_at is None

        kept, replayed = repeats.once(unit, call.account_id, f"launch/{digest}", rent, holds=lives)
        view = ask.instance(unit.connection, int(kept))
        if wishes.is_stopped and not replayed:
            rentals.stop(unit, view.instance_id)
        found = made_answer(unit, view.instance_id, view.offer_id, replayed=replayed)
        if replayed:
            found["msg"] += " This launch was repeated: give another label to launch one more."
        return found

    return await call.command(do)


def _first(
    unit: Unit, account_id: int, offer_ids: Sequence[int], wishes: Wishes, resolved: Resolved
) -> int:
    """Rent the first of these offers that is not gone; nothing of the others is left.

    Raises:
        Refusal: `no_such_ask` when all of them are gone.
        LedgerError: What every offer would be refused for.
    """
    last = "no offer matches this search"
    for offer_id in offer_ids:
        try:
            return rentals.rent(
                unit, account_id, offer_id=offer_id, **wishes.kwargs(), resolved=resolved
            )
        except LedgerError as error:
            if error.code not in _GONE:
                raise
            last = error.message
    raise Refusal(404, "no_such_ask", last, message=last)


ENDPOINTS: Sequence[Any] = [create, create_several, launch]
