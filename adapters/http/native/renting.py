"""Renting: from an offer or a slice of a machine to an instance, in one request."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import anyio.to_thread
import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State
from litestar.params import JSONBody
from msgspec import Meta

from adapters.http.call import RENTER, Call, Caller, allowed
from adapters.http.native.instances import Instance
from adapters.http.once import HEADER
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    render,
)
from ledger.domain.launch import LaunchConfig, overlaid, parse_launch
from ledger.domain.money import format_dollars, parse_dollars
from ledger.errors import RejectedError
from ledger.services import rentals
from ledger.services.images import ImageResolver, Resolved
from ledger.services.instance_keys import key_of
from ledger.services.launches import config_of, launch_warnings
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.templates import find_version
from ledger.services.volumes import Mount, NewVolume


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


HANDLERS = [rent]
