"""Instances: renting on demand or by a bid, their commands, and their ticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import anyio.to_thread
import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, RENTER, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.once import HEADER
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
from ledger.domain.ids import rfc3339
from ledger.domain.launch import LaunchConfig, overlaid, parse_launch
from ledger.domain.money import format_dollars, parse_dollars
from ledger.errors import NotFoundError, RejectedError
from ledger.services import rentals
from ledger.services.connections import Addresses, WayIn, way_into
from ledger.services.images import ImageResolver, Resolved
from ledger.services.instance_keys import key_of
from ledger.services.launches import config_of, launch_warnings
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import usage
from ledger.services.templates import find_version
from ledger.services.volumes import Mount, NewVolume
from ledger.store.database import Connection


class NewMount(Body):
    """Where the instance is to have a volume: one's own (`volume_id`), or one made with it."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"mount_path": "/data", "volume_id": 9}

    mount_path: str
    volume_id: Id | None = None
    volume_offer_id: Id | None = None
    """Make a volume from this offer, of `disk_gb`; it is there only if the instance is."""
    disk_gb: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    name: str | None = None


class NewInstance(Body):
    """What to rent: an offer, or a slice of a machine; with a `bid`, interruptibly.

    `launch` (image, env, onstart …) is kept encrypted and never in the log; the account's secrets
    and the template's values lie under it. Without an Idempotency-Key, the same offer again is the
    same instance as long as it lives.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "offer_id": 12,
        "disk_gb": 100,
        "bid": "0.30",
        "label": "train-7",
        "launch": {"image": "pytorch/pytorch:2.9"},
        "volumes": [{"mount_path": "/data", "volume_id": 9}],
    }

    disk_gb: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    offer_id: Id | None = None
    """An open offer; it closes, and another one of its size opens."""
    machine_id: Id | None = None
    gpus: Annotated[int, Meta(ge=1, le=16)] | None = None
    bid: Dollars | None = None
    """Dollars per hour for the whole slice, never per GPU. Without it the rental is on demand."""
    label: str | None = None
    cancel_unavail: bool = True
    """Refuse with `no_capacity` when the GPUs are taken; otherwise the instance waits."""
    launch: LaunchConfig | None = None
    template: Id | Annotated[str, Meta(max_length=64)] | None = None
    """A template's id (its newest version) or a version's hash id; `launch` overrides it."""
    volumes: Annotated[list[NewMount], Meta(max_length=16)] | None = None
    """Volumes of the same machine, that exist or are made with the instance."""
    account_id: Id | None = None


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


class LaunchWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the launch that is probably not meant; it was carried out all the same."""

    code: str
    message: str


class Rented(Instance, frozen=True, kw_only=True):
    """The new instance; `note` says in words which rental kind it is and what is paid.

    `same_label` are one's other living instances with the label of this one. `replayed`: the create
    was repeated without a key, and this is the instance that the first one made.
    `instance_api_key` is good for this instance alone, dead when it is destroyed, and shown by its
    create only, also by a repeated one.
    """

    note: str
    same_label: list[int]
    replayed: bool
    image_digest: str | None
    instance_api_key: str
    warnings: list[LaunchWarning]


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


@post("/v1/instances", opt=allowed(*RENTER), summary="Rent")
async def rent(
    request: Request[Any, Any, State], call: Caller, data: JSONBody[NewInstance]
) -> Response[Rented]:
    """Rent an offer or a slice of a machine; storage runs from now until it is destroyed.

    With a `bid` the rental is interruptible and the bid is the price paid; without one it is on
    demand, whatever was searched for. A bid that would not run is refused, and nothing exists then.
    """
    account = call.account(data.account_id)
    if data.offer_id is None and data.machine_id is None:
        message = "name an offer (`offer_id`) or a machine (`machine_id`)"
        raise RejectedError("invalid_args", message, status=400)
    bid = None if data.bid is None else parse_dollars(data.bid)
    mounts = [_mount(one) for one in data.volumes or ()]
    is_keyed = HEADER in request.headers
    resolved = await ask_registry(request, call, account, data.launch, data.template)

    def do(unit: Unit) -> Rented:
        wishes: dict[str, Any] = {
            "machine_id": data.machine_id,
            "gpus": data.gpus,
            "disk_gb": data.disk_gb,
            "bid": bid,
            "label": data.label,
            "wait": not data.cancel_unavail,
            "launch": data.launch,
            "mounts": mounts,
            "template": data.template,
            "resolved": resolved,
        }
        if data.offer_id is None or is_keyed:
            made = rentals.Rented(rentals.rent(unit, account, offer_id=data.offer_id, **wishes))
        else:
            made = rentals.rent_once(unit, account, data.offer_id, **wishes)
        return _rented(unit, made, key_of(unit, made.instance_id))

    return await call.command(do, 201, secret=True)


def _mount(given: NewMount) -> Mount:
    """What a mount asks for: a volume by its id, or a new one.

    Raises:
        RejectedError: `invalid_args` when it is neither or both.
    """
    makes = given.volume_offer_id is not None and given.disk_gb is not None
    if (given.volume_id is not None) == makes or (
        not makes and (given.volume_offer_id or given.disk_gb or given.name)
    ):
        message = "volumes: name a `volume_id`, or a `volume_offer_id` and `disk_gb` of a new one"
        raise RejectedError("invalid_args", message, status=400)
    if given.volume_id is not None:
        return Mount(given.mount_path, given.volume_id)
    assert given.volume_offer_id is not None
    assert given.disk_gb is not None
    new = NewVolume(given.volume_offer_id, given.disk_gb, given.name)
    return Mount(given.mount_path, new)


async def ask_registry(
    request: Request[Any, Any, State],
    call: Call,
    account_id: int,
    launch: LaunchConfig | None,
    template: str | int | None = None,
) -> Resolved:
    """Ask what the image means now, before any transaction; a registry may take its time.

    Raises:
        NotFoundError: `no_such_template`.
        RejectedError: `invalid_args` for a launch that is none.
    """
    config = parse_launch(launch)
    if template is not None and config.image is None:
        vault = call.ledger.vault
        version = await call.question(
            lambda connection: find_version(connection, vault, account_id, template)
        )
        config = overlaid(version.config, config)
    images: ImageResolver = request.app.state.images
    return await anyio.to_thread.run_sync(Resolved.asked, images, config)


def _rented(unit: Unit, made: rentals.Rented, key: str) -> Rented:
    digest = ask.image_digest(unit.connection, made.instance_id)
    launch = config_of(unit.connection, unit.vault, unit.instance(made.instance_id).launch)
    view = ask.instance(unit.connection, made.instance_id)
    same = () if view.label is None else ask.living(unit.connection, view.account_id, view.label)
    return render(
        Rented,
        view,
        note=_note(view),
        same_label=[one for one in same if one != view.instance_id],
        replayed=made.replayed,
        image_digest=digest,
        instance_api_key=key,
        warnings=[
            LaunchWarning(code=one.code, message=one.message)
            for one in launch_warnings(unit, view.machine_id, launch, digest)
        ]
        if launch is not None
        else [],
    )


def _note(view: ask.InstanceView) -> str:
    """What a renter must not learn from the first bill: how it is rented, and what is paid."""
    rate = format_dollars(view.gpu_rate)
    if view.bid is None:
        note = (
            f"On demand at {rate} per hour for the whole slice; it is never displaced."
            " To rent interruptibly, create with a `bid`."
        )
    else:
        bid = format_dollars(view.bid)
        paid = "the bid is the price paid" if view.bid == view.gpu_rate else f"{rate} is paid"
        note = (
            f"Interruptible at a bid of {bid} per hour for the whole slice; {paid}. It can be"
            " displaced at any second, without warning; its disk is kept."
        )
    if view.status == "scheduling":
        note += " It waits for GPUs now; only storage is billed meanwhile."
    return note


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


async def visible(call: Caller, instance_id: int) -> ask.InstanceView:
    """An instance that the caller may see: one's own, one on one's machine, any for those who may.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    found = await call.question(lambda connection: ask.instance(connection, instance_id))
    mine = call.principal.account_id in {
        found.host_id if call.principal.role == "host" else found.account_id
    }
    if not (call.sees_all or mine):
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return found


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


def require_own(call: Caller, unit: Unit, instance_id: int) -> None:
    """Let a command go on if the instance is the caller's, or the caller an admin.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    if not call.is_admin:
        rentals.owned(unit, instance_id, call.principal.account_id)


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
    rent,
    list_instances,
    show_instance,
    start,
    stop,
    reboot,
    label,
    destroy,
    ticks,
]
