"""Volumes: what hosts offer of their disks, and disks that renters keep apart from instances."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, HOST, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.own import own_machine, require_own_volume
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
from ledger.domain.money import parse_dollars
from ledger.errors import NotFoundError, RejectedError
from ledger.services import volume_offers, volumes
from ledger.services.ledger import Unit
from ledger.services.questions import volumes as ask

Gigabytes = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Status = Literal["active", "expired", "destroyed"]


class NewVolumeOffer(Body):
    """So much of the machine's disk for volumes, sold or not; dollars per GB and month of 720 h."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "disk_gb": 500,
        "storage_gb_month": "0.10",
        "until": "2026-12-31T00:00:00Z",
    }

    disk_gb: Gigabytes
    storage_gb_month: Dollars
    until: str | None = None
    """The end of the offer and of the volumes made from it; without it there is none."""


class NewVolume(Body):
    """A volume from an offer; its rate, fee and end date stand from then on."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"volume_offer_id": 3, "disk_gb": 30, "name": "datasets"}

    volume_offer_id: Id
    disk_gb: Gigabytes
    name: str | None = None
    account_id: Id | None = None


class NewClone(Body):
    """A volume with another's contents, from any offer; as large as the source, or larger."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"volume_offer_id": 4, "disk_gb": 40, "name": "copy"}

    volume_offer_id: Id
    disk_gb: Gigabytes | None = None
    name: str | None = None


class VolumeOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An open volume offer; `available`: a volume of `left_gb` could be made now."""

    volume_offer_id: int
    machine_id: int
    host_id: int
    disk_gb: int
    left_gb: int
    storage_rate: Dollars
    until: Instant | None
    verification: str
    country: str | None
    disk_name: str | None
    disk_mb_s: int | None
    up_mbps: int
    down_mbps: int
    reliability: float | None
    available: bool
    offered_at: Instant


class WithdrawnVolumeOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The machine sells no more volumes; those that exist go on."""

    machine_id: int


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that has the volume, and where."""

    instance_id: int
    mount_path: str


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume, what it costs, and the living instances that have it.

    `storage_rate_per_hour` is what it goes on costing until it is deleted, used or not. Its charges
    are listed under its id, with the kind `volume`. While `offline_since` says that its machine is
    silent, nothing is billed.
    """

    volume_id: int
    account_id: int
    machine_id: int
    volume_offer_id: int
    name: str | None
    disk_bytes: int
    storage_rate: Dollars
    storage_rate_per_hour: Dollars
    until: Instant | None
    status: str
    cloned_from: int | None
    offline_since: Instant | None
    instances: list[Mount]
    created_at: Instant
    destroyed_at: Instant | None
    storage_seconds: int
    storage_charge: Dollars


# --- what hosts offer ----------------------------------------------------------------------------


@put(
    "/v1/machines/{machine_id:int}/volume-offer",
    opt=allowed(*HOST),
    summary="Offer disk for volumes",
)
async def offer_volumes(
    call: Caller, machine_id: FromPath[int], data: JSONBody[NewVolumeOffer]
) -> Response[VolumeOffer]:
    """Give a part of the disk to volumes, instead of what was offered before.

    Slices of the machine cannot have it; `no_capacity` where instances leave less.
    """
    rate = parse_dollars(data.storage_gb_month)
    until = instant(data.until, "until")

    def do(unit: Unit) -> VolumeOffer:
        own_machine(call, unit.connection, machine_id)
        volume_offers.offer(unit, machine_id, disk_gb=data.disk_gb, storage_rate=rate, until=until)
        found = ask.volume_offers(
            unit.connection, unit.now, machine_id=machine_id, only_available=False
        )
        return render(VolumeOffer, found[0])

    return await call.command(do)


@delete(
    "/v1/machines/{machine_id:int}/volume-offer",
    opt=allowed(*HOST),
    status_code=200,
    summary="Withdraw a volume offer",
)
async def withdraw_volumes(
    call: Caller, machine_id: FromPath[int]
) -> Response[WithdrawnVolumeOffer]:
    """Sell no more volumes of the machine; those that exist go on."""

    def do(unit: Unit) -> WithdrawnVolumeOffer:
        own_machine(call, unit.connection, machine_id)
        volume_offers.withdraw(unit, machine_id)
        return WithdrawnVolumeOffer(machine_id=machine_id)

    return await call.command(do)


@get("/v1/volume-offers", opt=allowed(*ANYONE), summary="Search volume offers")
async def search_volume_offers(
    call: Caller,
    machine_id: FromQuery[int | None] = None,
    disk_gb: Annotated[
        int | None, QueryParameter(description="Only with so many GB left.", ge=1, le=2**31 - 1)
    ] = None,
    storage_gb_month_max: Annotated[
        str | None, QueryParameter(description="Only at this rate or below, dollars.")
    ] = None,
    verified: Annotated[
        bool | None,
        QueryParameter(description="Only of verified machines; true unless a host asks."),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[VolumeOffer]:
    """List what can be had now, the cheapest first; a host's key lists that host's, all of it."""
    after = decode_cursor(cursor, tuple[int, int], (-1, 0))
    most = None if storage_gb_month_max is None else parse_dollars(storage_gb_month_max)
    now = call.ledger.clock()
    is_host = call.principal.role == "host"
    found = await call.question(
        lambda connection: ask.volume_offers(
            connection,
            now,
            machine_id=machine_id,
            host_id=call.principal.account_id if is_host else None,
            disk_gb=disk_gb,
            storage_rate_max=most,
            verified=not is_host if verified is None else verified,
            only_available=not is_host,
            after=after,
            limit=limit + 1,
        )
    )
    return page(VolumeOffer, found, limit, lambda one: (one.storage_rate, one.volume_offer_id))


# --- what renters keep ---------------------------------------------------------------------------


def _shown(unit: Unit, volume_id: int) -> Volume:
    return render(Volume, ask.volume(unit.connection, volume_id))


@post("/v1/volumes", opt=allowed(*RENTER), summary="Create a volume")
async def create_volume(call: Caller, data: JSONBody[NewVolume]) -> Response[Volume]:
    """Take a disk from a volume offer; it is billed from now until it is deleted."""
    account = call.account(data.account_id)
    wanted = volumes.NewVolume(data.volume_offer_id, data.disk_gb, data.name)
    return await call.command(lambda unit: _shown(unit, volumes.create(unit, account, wanted)), 201)


@post("/v1/volumes/{volume_id:int}/clone", opt=allowed(*RENTER), summary="Clone a volume")
async def clone_volume(
    call: Caller, volume_id: FromPath[int], data: JSONBody[NewClone]
) -> Response[Volume]:
    """Make a volume that begins with this one's contents, on this machine or another."""

    def do(unit: Unit) -> Volume:
        require_own_volume(call, unit, volume_id)
        made = volumes.clone(
            unit, volume_id, data.volume_offer_id, disk_gb=data.disk_gb, name=data.name
        )
        return _shown(unit, made)

    return await call.command(do, 201)


@get("/v1/volumes", opt=allowed(*ANYONE), summary="List volumes")
async def list_volumes(
    call: Caller,
    account_id: AccountFilter = None,
    machine_id: FromQuery[int | None] = None,
    status: FromQuery[Status | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Volume]:
    """List one's volumes; a host's key lists those on its machines."""
    after = decode_cursor(cursor, int, 0)
    account, host = call.sides(account_id)
    found = await call.question(
        lambda connection: ask.volumes(
            connection,
            account_id=account,
            host_id=host,
            machine_id=machine_id,
            status=status,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Volume, found, limit, lambda one: one.volume_id)


@get("/v1/volumes/{volume_id:int}", opt=allowed(*ANYONE), summary="Show a volume")
async def show_volume(call: Caller, volume_id: FromPath[int]) -> Volume:
    """Show a volume, also after it was deleted."""
    found = await call.question(lambda connection: ask.volume(connection, volume_id))
    owner = found.host_id if call.principal.role == "host" else found.account_id
    if not (call.sees_all or call.principal.account_id == owner):
        raise NotFoundError("no_such_volume", f"there is no volume {volume_id}")
    return render(Volume, found)


@delete(
    "/v1/volumes/{volume_id:int}", opt=allowed(*RENTER), status_code=200, summary="Delete a volume"
)
async def delete_volume(
    call: Caller,
    volume_id: FromPath[int],
    reason: Annotated[str | None, QueryParameter(description="Required of admins.")] = None,
) -> Response[Volume]:
    """End the meter now; `volume_in_use` while an instance that is not destroyed has it."""
    if call.is_admin and not reason:
        message = "an admin deletes with a reason: ?reason=…"
        raise RejectedError("invalid_args", message, status=400)

    def do(unit: Unit) -> Volume:
        require_own_volume(call, unit, volume_id)
        volumes.delete(unit, volume_id, by_admin=call.is_admin, reason=reason)
        return _shown(unit, volume_id)

    return await call.command(do)


HANDLERS = [
    offer_volumes,
    withdraw_volumes,
    search_volume_offers,
    create_volume,
    clone_volume,
    list_volumes,
    show_volume,
    delete_volume,
]
