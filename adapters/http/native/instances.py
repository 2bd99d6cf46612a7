"""Instances: what is rented, its state and its ticks, and commands on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.own import require_own, visible
from adapters.http.wire import (
    Body,
    Dollars,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
)
from ledger.domain.ids import rfc3339
from ledger.errors import RejectedError
from ledger.services import rentals
from ledger.services.connections import Addresses, WayIn, way_into
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import usage
from ledger.store.database import Connection


class NewLabel(Body):
    """A name of the renter's own; null removes it."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"label": "train-8"}

    label: str | None


class ComingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that are agreed and apply from a later second on; rates for the slice."""

    effective_at: Instant
    kind: str
    gpu_rate: Dollars
    storage_rate: Dollars
    up_rate: Dollars
    down_rate: Dollars


class MountedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that the instance has while it lives, and where."""

    volume_id: int
    mount_path: str


class RunningTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation that runs: what is locked for it, at which rate, until when."""

    reservation_no: int
    base_rate: Dollars
    rate: Dollars
    deposit: Dollars
    term_from: Instant
    term_until: Instant


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance: the rental kind and all rates for the whole slice, its state, and its cost.

    `storage_rate_per_hour` is what the disk goes on costing until the instance is destroyed;
    `dph_total = dph_base + storage_rate_per_hour` is an hour of running, without traffic. `coming`
    are terms that are agreed and do not apply yet. While `offline_since` says that its machine is
    silent, nothing is billed.
    """

    instance_id: int
    account_id: int
    machine_id: int
    listing_id: int
    offer_id: int | None
    kind: str
    gpus: int
    disk_bytes: int
    gpu_rate: Dollars
    storage_rate: Dollars
    storage_rate_per_hour: Dollars
    up_rate: Dollars
    down_rate: Dollars
    dph_base: Dollars
    dph_total: Dollars
    bid: Dollars | None
    bid_effective_at: Instant | None
    terms_due_at: Instant | None
    coming: list[ComingTerms]
    reservation: RunningTerm | None
    until: Instant | None
    label: str | None
    status: str
    reason: str
    waiting_since: Instant | None
    offline_since: Instant | None
    gpu_uuids: list[str]
    created_at: Instant
    first_run_at: Instant | None
    stopped_at: Instant | None
    destroyed_at: Instant | None
    gpu_seconds: int
    gpu_charge: Dollars
    storage_seconds: int
    storage_charge: Dollars
    up_bytes: int
    up_charge: Dollars
    down_bytes: int
    down_charge: Dollars
    volumes: list[MountedVolume]


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the container, and where its host publishes it."""

    container_port: int
    host_port: int
    protocol: str


class WayIntoInstance(msgspec.Struct, frozen=True, kw_only=True):
    """How one gets into the container, as its host says; addresses are null for auditors."""

    assignment: int
    ports: list[Port]
    public_ip: str | None
    ssh_host: str | None
    ssh_port: int | None
    jupyter_url: str | None
    jupyter_token: str | None
    digest: str | None
    published_at: Instant


class ShownInstance(Instance, frozen=True, kw_only=True):
    """An instance, what its image's name meant, and how one gets in while it runs."""

    image_digest: str | None
    connection: WayIntoInstance | None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One attested second, its place in the log, and whether it went into the meters.

    `first` is true for the first accepted tick of its second. `why_not` is the code of the anomaly
    that kept it or part of it out, `outside_life` where the instance did not exist, `not_folded`
    while nobody has looked.
    """

    second: Instant
    state: str
    up_bytes: int
    down_bytes: int
    utilisation: int
    position: int
    machine_id: int
    epoch: str
    seq: int
    received_at: Instant
    first: bool
    counted: bool
    why_not: str | None


def shown(unit: Unit, instance_id: int) -> Instance:
    """An instance as it is within a command."""
    return render(Instance, ask.instance(unit.connection, instance_id))


@get("/v1/instances", opt=allowed(*ANYONE), summary="List instances")
async def list_instances(
    call: Caller,
    account_id: AccountFilter = None,
    machine_id: FromQuery[int | None] = None,
    status: FromQuery[str | None] = None,
    label: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Instance]:
    """List one's instances; a host's key lists those on its machines."""
    after = decode_cursor(cursor, int, 0)
    account, host = call.sides(account_id)
    found = await call.question(
        lambda connection: ask.instances(
            connection,
            account_id=account,
            host_id=host,
            machine_id=machine_id,
            status=status,
            label=label,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Instance, found, limit, lambda one: one.instance_id)


@get("/v1/instances/{instance_id:int}", opt=allowed(*ANYONE), summary="Show an instance")
async def show_instance(call: Caller, instance_id: FromPath[int]) -> ShownInstance:
    """Show an instance, also after it was destroyed; addresses to its renter and host alone."""
    found = await visible(call, instance_id)
    vault, me = call.ledger.vault, call.principal.account_id

    def run(connection: Connection) -> tuple[WayIn | None, str | None]:
        way = way_into(connection, vault, instance_id)
        return way, ask.image_digest(connection, instance_id)

    way, digest = await call.question(run)
    shows = me in {found.account_id, found.host_id}
    return render(
        ShownInstance,
        found,
        image_digest=digest,
        connection=None if way is None else shown_connection(way, contents=shows),
    )


def shown_connection(way: WayIn, *, contents: bool = True) -> WayIntoInstance:
    """A way in as it travels; without *contents*, ports and digest alone."""
    known = way.addresses if contents and way.addresses is not None else Addresses()
    return WayIntoInstance(
        assignment=way.assignment_no,
        ports=[
            Port(
                container_port=one.container_port,
                host_port=one.host_port,
                protocol=one.protocol,
            )
            for one in way.ports
        ],
        public_ip=known.public_ip,
        ssh_host=known.ssh_host,
        ssh_port=known.ssh_port,
        jupyter_url=known.jupyter_url,
        jupyter_token=known.jupyter_token,
        digest=way.digest,
        published_at=rfc3339(way.published_at),
    )


async def command(
    call: Caller, instance_id: int, do: Callable[[Unit, int], None]
) -> Response[Instance]:
    """Carry out a command on one's instance; the answer shows it as it is then."""

    def run(unit: Unit) -> Instance:
        require_own(call, unit, instance_id)
        do(unit, instance_id)
        return shown(unit, instance_id)

    return await call.command(run)


@post(
    "/v1/instances/{instance_id:int}/start", opt=allowed(*RENTER), status_code=200, summary="Start"
)
async def start(call: Caller, instance_id: FromPath[int]) -> Response[Instance]:
    """Let it run again as soon as its GPUs are free."""
    return await command(call, instance_id, rentals.start)


@post("/v1/instances/{instance_id:int}/stop", opt=allowed(*RENTER), status_code=200, summary="Stop")
async def stop(call: Caller, instance_id: FromPath[int]) -> Response[Instance]:
    """End the GPU meter now; storage goes on at `storage_rate_per_hour` until it is destroyed."""

    def do(unit: Unit, one: int) -> None:
        rentals.stop(unit, one, by_admin=call.is_admin)

    return await command(call, instance_id, do)


@post(
    "/v1/instances/{instance_id:int}/reboot",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Reboot",
)
async def reboot(call: Caller, instance_id: FromPath[int]) -> Response[Instance]:
    """Restart the container in place; GPUs and priority are kept."""
    return await command(call, instance_id, rentals.reboot)


@post(
    "/v1/instances/{instance_id:int}/label", opt=allowed(*RENTER), status_code=200, summary="Label"
)
async def label(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewLabel]
) -> Response[Instance]:
    """Give it another label."""
    return await command(call, instance_id, lambda unit, one: rentals.label(unit, one, data.label))


@delete("/v1/instances/{instance_id:int}", opt=allowed(*RENTER), status_code=200, summary="Destroy")
async def destroy(
    call: Caller,
    instance_id: FromPath[int],
    reason: Annotated[str | None, QueryParameter(description="Required of admins.")] = None,
) -> Response[Instance]:
    """End every meter now; destroying again changes nothing."""
    if call.is_admin and not reason:
        message = "an admin destroys with a reason: ?reason=…"
        raise RejectedError("invalid_args", message, status=400)

    def do(unit: Unit, one: int) -> None:
        rentals.destroy(unit, one, by_admin=call.is_admin, reason=reason)

    return await command(call, instance_id, do)


@get("/v1/instances/{instance_id:int}/ticks", opt=allowed(*ANYONE), summary="List ticks")
async def ticks(
    call: Caller,
    instance_id: FromPath[int],
    start: Annotated[str | None, QueryParameter(name="from")] = None,
    until: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Tick]:
    """List attested seconds one by one, each with its address in the log."""
    await visible(call, instance_id)
    after = decode_cursor(cursor, tuple[int, int], (0, 0))
    first, end = instant(start, "from") or 0, instant(until, "until")
    found = await call.question(
        lambda connection: usage.ticks(
            connection, instance_id, start=first, until=end, after=after, limit=limit + 1
        )
    )
    return page(Tick, found, limit, lambda one: (one.second, one.position))


HANDLERS = [
    list_instances,
    show_instance,
    start,
    stop,
    reboot,
    label,
    destroy,
    ticks,
]
