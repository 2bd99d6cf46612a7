"""Volumes of renters: made, cloned, listed, deleted.

The client repeats a request whose answer was lost: the same volume from the same offer within ten
minutes is the first one, as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, RENTER, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal, translated
from adapters.http.vast.launches import DEFAULT_VOLUME_GB
from adapters.http.vast.permissions import Sent
from adapters.http.vast.places import place
from adapters.http.vast.search import disk_gb
from adapters.http.vast.wire import Json, answer, flag, money, per_hour, text, whole
from ledger.domain.money import BYTES_PER_GB
from ledger.errors import LedgerError, RejectedError
from ledger.services import repeats
from ledger.services import volumes as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import volumes as ask
from ledger.services.questions.volumes import Place, VolumeView
from ledger.store.database import Connection

_PAGE: Final = 1_000


@endpoint(
    "PUT",
    "/v0/volumes",
    roles=RENTER,
    needs="api.volume.create_volume",
    naming=lambda sent: [{"volume_offer_id": sent.body.get("id"), "disk_gb": _size(sent.body)}],
)
async def create(call: Caller) -> Response[Any]:
    """Make a volume; it is billed until it is deleted, used or not."""
    offer_id, size = whole(call.body.get("id"), "id"), _size(call.body)
    name = text(call.body.get("name"), "name") or None

    def make(unit: Unit) -> int:
        wanted = use_cases.NewVolume(offer_id, size, name)
        return use_cases.create(unit, call.account_id, wanted)

    return await _made(call, f"volume/{offer_id}/{size}/{name}", make)


def _size(body: Json) -> int:
    return disk_gb(body.get("size"), DEFAULT_VOLUME_GB)


def _cloned(sent: Sent) -> Sequence[Json]:
    body = sent.body
    number = whole(body.get("src_id"), "src_id")
    size = None if body.get("size") is None else disk_gb(body["size"], 0)
    return [
        {
            "volume_id": number,
            "id": number,
            "volume_offer_id": body.get("dst_id"),
            **({} if size is None else {"disk_gb": size}),
        }
    ]


@endpoint("POST", "/v0/volumes/copy", roles=RENTER, needs="api.volume.clone_volume", naming=_cloned)
async def clone(call: Caller) -> Response[Any]:
    """Make a volume that begins with another's contents; a contract of its own."""
    body = call.body
    source, offer_id = whole(body.get("src_id"), "src_id"), whole(body.get("dst_id"), "dst_id")
    size = None if body.get("size") is None else disk_gb(body["size"], 0)
    name = text(body.get("name"), "name") or None
    flag(body.get("disable_compression") or False, "disable_compression")

    def make(unit: Unit) -> int:
        use_cases.owned(unit, source, call.account_id)
        return use_cases.clone(unit, source, offer_id, disk_gb=size, name=name)

    return await _made(call, f"clone/{source}/{offer_id}/{size}/{name}", make)


async def _made(call: Call, key: str, make: Callable[[Unit], int]) -> Response[Any]:
    def do(unit: Unit) -> Json:
        def lives(kept: bytes) -> bool:
            return use_cases.load(unit, int(kept)).status != "destroyed"

        kept, replayed = repeats.once(
            unit, call.account_id, key, lambda: str(make(unit)).encode(), holds=lives
        )
        view = ask.volume(unit.connection, int(kept))
        gigabytes = view.disk_bytes // BYTES_PER_GB
        hourly = per_hour(view.storage_rate, gigabytes)
        note = f"{gigabytes} GB at ${hourly:f} per hour until it is deleted, used or not."
        if replayed:
            note += " This was repeated: give another name to make one more."
        return {
            "success": True,
            "volume_name": f"V.{view.volume_id}",
            "id": view.volume_id,
            "replayed": replayed,
            "machine_id": view.machine_id,
            "storage_cost": money(view.storage_rate),
            "storage_total_cost": hourly,
            "msg": note,
        }

    try:
        return await call.command(do)
    except LedgerError as error:
        raise _refused(error) from error


def _refused(error: LedgerError) -> Refusal:
    """A refusal of a volume; an offer of volumes is no offer of instances."""
    status, code, msg, more = translated(error)
    if error.code == "no_such_ask":
        status, code = 404, "no_such_ask"
    return Refusal(status, code, msg, **more)


# --- reading --------------------------------------------------------------------------------------


@endpoint("GET", "/v0/volumes", roles=ANYONE, needs="api.volume.list_volumes")
async def listed(call: Caller) -> Response[Any]:
    """One's volumes that were not deleted; there are none of a network."""
    kind = call.query_text("type") or "all_volume"
    if kind not in {"all_volume", "local_volume", "network_volume"}:
        raise RejectedError("invalid_args", "`type` is local_volume, network_volume or all_volume")

    def find(connection: Connection) -> list[Json]:
        living = _living(connection, call)
        places = ask.places(connection, list({one.machine_id for one in living}))
        return [_row(one, places[one.machine_id]) for one in living]

    found = [] if kind == "network_volume" else await call.question(find)
    return answer({"success": True, "volumes": found})


def _living(connection: Connection, call: Call) -> list[VolumeView]:
    """One's volumes; those on one's machines for a host's key, as at the native API."""
    found: list[VolumeView] = []
    is_host = call.role == "host"
    after = 0
    while True:
        page = ask.volumes(
            connection,
            account_id=None if is_host else call.account_id,
            host_id=call.account_id if is_host else None,
            after=after,
            limit=_PAGE,
        )
        found += [one for one in page if one.destroyed_at is None]
        if len(page) < _PAGE:
            return found
        after = page[-1].volume_id


def _row(view: VolumeView, machine: Place) -> Json:
    gigabytes = view.disk_bytes // BYTES_PER_GB
    return {
        "id": view.volume_id,
        "volume_name": f"V.{view.volume_id}",
        "label": view.name,
        "disk_space": gigabytes,
        "size": gigabytes,
        "status": view.status,
        "instances": [one.instance_id for one in view.instances],
        "mounts": {str(one.instance_id): one.mount_path for one in view.instances},
        "storage_cost": money(view.storage_rate),
        "storage_total_cost": per_hour(view.storage_rate, gigabytes),
        "start_date": view.created_at,
        "end_date": view.until,
        "offline_since": view.offline_since,
        "cluster_id": None,
        "machine_id": view.machine_id,
        "host_id": view.host_id,
        "disk_name": machine.disk_name or "",
        "driver_version": machine.driver or "",
        "inet_up": machine.up_mbps,
        "inet_down": machine.down_mbps,
        "reliability2": machine.reliability,
        "verification": machine.verification,
        "geolocation": place(machine.country),
    }


# --- ends -----------------------------------------------------------------------------------------


def _named(sent: Sent) -> Sequence[Json]:
    number = _number(sent.query.get("id"), sent.body)
    return [{"volume_id": number, "id": number}]


def _number(query: str | None, body: Json) -> int:
    """The volume that a deletion names: in the query, or in the body as older clients do.

    Raises:
        RejectedError: `invalid_args` when it names none, or two.
    """
    given = {whole(one, "id") for one in (query, body.get("id")) if one is not None}
    if len(given) != 1:
        raise RejectedError("invalid_args", "name one volume by its `id`")
    return given.pop()


@endpoint("DELETE", "/v0/volumes", roles=RENTER, needs="api.volume.delete_volume", naming=_named)
async def delete(call: Caller) -> Response[Any]:
    """End the meter now; refused while an instance has it, and again changes nothing."""
    number = _number(call.query_text("id"), call.body)

    def do(unit: Unit) -> Json:
        use_cases.owned(unit, number, call.account_id)
        use_cases.delete(unit, number)
        return {"success": True, "id": number, "msg": f"volume {number} is deleted"}

    return await call.command(do)


ENDPOINTS: Sequence[Any] = [create, clone, listed, delete]
