"""What hosts offer of their disks as volumes, and the search for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import HOST, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.matching import matching, ordered
from adapters.http.vast.permissions import Sent, of_body
from adapters.http.vast.places import place
from adapters.http.vast.search import disk_gb
from adapters.http.vast.wire import (
    Json,
    answer,
    dollars,
    ids,
    money,
    number,
    per_hour,
    whole,
)
from ledger.errors import NotFoundError, RejectedError
from ledger.services import volume_offers as use_cases
from ledger.services.ledger import Unit
from ledger.services.machines import owned
from ledger.services.questions import volumes as ask
from ledger.services.questions.offer_fields import LASTING_SECONDS
from ledger.services.questions.volumes import VolumeOfferView
from ledger.store.database import Connection

_PAGE: Final = 1_000
_DEFAULT_GB: Final = 15
_NOT_FILTERS: Final = frozenset({"order", "type", "limit", "allocated_storage"})
_COUNTRY: Final = "geolocation"


# --- search ---------------------------------------------------------------------------------------


@endpoint("POST", "/v0/volumes/search", roles=None, needs="api.volume.search_volume_offers")
async def search(call: Caller) -> Response[Any]:
    """Search what can be had as volumes; no key is needed, as for offers."""
    body = call.body
    filters = {name: _country(name, one) for name, one in body.items() if name not in _NOT_FILTERS}
    allocated = disk_gb(body.get("allocated_storage"), 1)
    limit = None if body.get("limit") is None else max(whole(body["limit"], "limit"), 1)

    def find(connection: Connection) -> list[Json]:
        return [_row(one, allocated, call.now) for one in _all(connection, call.now)]

    found = ordered(matching(await call.question(find), filters), body.get("order"))
    return answer({"offers": [_shown(one) for one in found[:limit]]})


def _country(name: str, asked: Any) -> Any:
    """Places are compared by the code at their end, in capitals."""
    if name != _COUNTRY or not isinstance(asked, Mapping):
        return asked
    return {
        operator: [_code(one) for one in value] if isinstance(value, list) else _code(value)
        for operator, value in asked.items()
    }


def _code(value: Any) -> str:
    return str(value).rpartition(",")[2].strip().upper()


def _all(connection: Connection, now: int) -> list[VolumeOfferView]:
    found: list[VolumeOfferView] = []
    after = (-1, 0)
    while True:
        page = ask.volume_offers(connection, now, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found
        after = (page[-1].storage_rate, page[-1].volume_offer_id)


def _row(view: VolumeOfferView, allocated_gb: int, now: int) -> Json:
    until = now + LASTING_SECONDS if view.until is None else view.until
    return {
        "id": view.volume_offer_id,
        "ask_contract_id": view.volume_offer_id,
        "machine_id": view.machine_id,
        "host_id": view.host_id,
        "disk_space": view.left_gb,
        "disk_bw": view.disk_mb_s or 0,
        "disk_name": view.disk_name or "",
        "storage_cost": money(view.storage_rate),
        "storage_total_cost": per_hour(view.storage_rate, allocated_gb),
        "inet_up": view.up_mbps,
        "inet_down": view.down_mbps,
        "cuda_max_good": view.cuda or 0,
        "cpu_ghz": view.cpu_ghz or 0,
        "driver_version": view.driver or "",
        "reliability": view.reliability,
        "reliability2": view.reliability,
        "reliability_mult": view.reliability_lower_bound,
        "score": view.reliability_lower_bound,
        "verified": view.verification == "verified",
        "verification": view.verification,
        "external": False,
        "rentable": view.available,
        "geolocation": view.country,
        "start_date": view.offered_at,
        "end_date": until,
        "duration": until - now,
    }


def _shown(row: Json) -> Json:
    return {**row, _COUNTRY: place(row[_COUNTRY])}


# --- hosts ----------------------------------------------------------------------------------------


def offer_volumes(unit: Unit, machine_id: int, *, size: Any, price: Any, until: int | None) -> int:
    """Offer a part of a machine's disk; what is left out stays as it was offered before.

    Raises:
        RejectedError: `invalid_args`, `invalid_price` without any price, `not_enrolled`.
        DeclinedError: `no_capacity`.
    """
    before = use_cases.open_offer_of(unit, machine_id)
    if price is None and before is None:
        raise RejectedError("invalid_price", "name what volumes cost: dollars per GB and month")
    rate = before.storage_rate if price is None and before else dollars(price, "price_disk")
    gigabytes = _DEFAULT_GB if before is None else before.disk_gb
    return use_cases.offer(
        unit,
        machine_id,
        disk_gb=gigabytes if size is None else whole(size, "size"),
        storage_rate=rate,
        until=until,
    )


@endpoint(
    "POST",
    "/v0/volumes",
    roles=HOST,
    needs="api.volume.offer_volumes",
    naming=of_body("machine", "machine_id"),
)
async def listed(call: Caller) -> Response[Any]:
    """Offer disk of one's machines as volumes; volumes that exist keep their terms."""
    body = call.body
    wanted = ids(body.get("machine"), "machine")
    end = None if body.get("end_date") is None else int(number(body["end_date"], "end_date"))

    def do(unit: Unit) -> Json:
        made = {}
        for machine_id in wanted:
            owned(unit.connection, machine_id, call.account_id)
            made[machine_id] = offer_volumes(
                unit, machine_id, size=body.get("size"), price=body.get("price_disk"), until=end
            )
        shown = ", ".join(f"{offer} on machine {one}" for one, offer in made.items())
        return {
            "success": True,
            "ids": list(made.values()),
            "msg": f"volume offers: {shown}; volumes keep the terms that they have",
        }

    return await call.command(do)


def _unlisted(sent: Sent) -> Sequence[Json]:
    """An offer is named, where the native API names its machine: only an unlimited key may."""
    return [{"volume_offer_id": whole(sent.body.get("id"), "id")}]


@endpoint(
    "POST",
    "/v0/volumes/unlist",
    roles=HOST,
    needs="api.volume.withdraw_volumes",
    naming=_unlisted,
)
async def unlist(call: Caller) -> Response[Any]:
    """Sell no more volumes from an offer; those that exist go on."""
    offer_id = whole(call.body.get("id"), "id")

    def do(unit: Unit) -> Json:
        try:
            offered = use_cases.require_volume_offer(unit, offer_id)
        except RejectedError:
            return {"success": True, "msg": f"volume offer {offer_id} is not offered any more"}
        if offered.host_id != call.account_id:
            raise NotFoundError("no_such_ask", f"there is no volume offer {offer_id}")
        use_cases.withdraw(unit, offered.machine_id)
        return {"success": True, "msg": f"volume offer {offer_id} is withdrawn; volumes go on"}

    try:
        return await call.command(do)
    except NotFoundError as error:
        raise Refusal(404, "no_such_volume", error.message) from error


ENDPOINTS: Sequence[Any] = [search, listed, unlist]
