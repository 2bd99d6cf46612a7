"""Timelines: what happened when, as data or as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import anyio.to_thread
import msgspec
from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from adapters.http.call import ANYONE, HOST, Call, Caller, allowed
from adapters.http.native.own import require_insight, visible
from adapters.http.wire import Dollars, Instant, instant, render
from adapters.pictures.forms import MEDIA_TYPES, Timeline, picture
from ledger.services.ledger import encode
from ledger.services.questions import timelines as ask
from ledger.store.database import Connection

Start = Annotated[str | None, QueryParameter(name="from", description="Begin here.")]
Form = Annotated[
    str,
    QueryParameter(
        pattern=f"^(json|{'|'.join(MEDIA_TYPES)})$",
        description="`svg`, `png` or `pdf`: a picture of it.",
    ),
]
_HOST_OR_AUDITOR: Final = (*HOST, "auditor")


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds from `start` up to, and without, `until`."""

    start: Instant
    until: Instant


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the hour or day from `start` on cost, by item."""

    start: Instant
    gpu_charge: Dollars
    storage_charge: Dollars
    up_charge: Dollars
    down_charge: Dollars
    reserved_idle_charge: Dollars


class InstanceTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One instance. A GPU second costs where `running` (the server) and `attested` (the host) meet.

    Storage costs where it `existed` and the machine was heard.
    """

    instance_id: int
    kind: str
    gpus: int
    label: str | None
    start: Instant
    until: Instant
    existed: list[Stretch]
    held: list[Stretch]
    running: list[Stretch]
    attested: list[Stretch]
    cost_seconds: int
    costs: list[Cost]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, held by an instance."""

    slot: int
    instance_id: int
    kind: str
    start: Instant
    until: Instant


class MachineTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Who held which GPU of a machine, and the seconds that the machine attested."""

    machine_id: int
    gpus: int
    gpu_name: str
    start: Instant
    until: Instant
    held: list[Held]
    attested: list[Stretch]


class SpendTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """What an account's instances and volumes cost, hour by hour or day by day."""

    account_id: int
    start: Instant
    until: Instant
    cost_seconds: int
    costs: list[Cost]


@get(
    "/v1/instances/{instance_id:int}/timeline",
    opt=allowed(*ANYONE),
    summary="The timeline of an instance",
)
async def show_instance_timeline(
    call: Caller,
    instance_id: FromPath[int],
    start: Start = None,
    until: FromQuery[str | None] = None,
    form: Form = "json",
) -> Response[bytes]:
    """Show when an instance existed, ran and was attested, and what each hour cost.

    Its whole life, unless `from` and `until` cut it.
    """
    await visible(call, instance_id)
    now, first, end = call.ledger.clock(), instant(start, "from"), instant(until, "until")

    def find(connection: Connection) -> ask.InstanceTimeline:
        return ask.instance_timeline(connection, instance_id, now, start=first, until=end)

    return await _answer(call, form, find, InstanceTimeline)


@get(
    "/v1/machines/{machine_id:int}/timeline",
    opt=allowed(*_HOST_OR_AUDITOR),
    summary="The timeline of a machine",
)
async def show_machine_timeline(
    call: Caller,
    machine_id: FromPath[int],
    start: Start = None,
    until: FromQuery[str | None] = None,
    form: Form = "json",
) -> Response[bytes]:
    """Show who held which GPU of one's machine, and when it was heard: the last 24 hours."""
    now, first, end = call.ledger.clock(), instant(start, "from"), instant(until, "until")

    def find(connection: Connection) -> ask.MachineTimeline:
        require_insight(call, connection, machine_id)
        return ask.machine_timeline(connection, machine_id, now, start=first, until=end)

    return await _answer(call, form, find, MachineTimeline)


@get("/v1/spend/timeline", opt=allowed(*ANYONE), summary="The timeline of an account")
async def show_spend_timeline(
    call: Caller,
    account_id: FromQuery[int | None] = None,
    start: Start = None,
    until: FromQuery[str | None] = None,
    form: Form = "json",
) -> Response[bytes]:
    """Show what instances and volumes cost per hour or day: the last 30 days."""
    account = call.view(account_id) or call.principal.account_id
    now, first, end = call.ledger.clock(), instant(start, "from"), instant(until, "until")

    def find(connection: Connection) -> ask.SpendTimeline:
        return ask.spend_timeline(connection, account, now, start=first, until=end)

    return await _answer(call, form, find, SpendTimeline)


async def _answer(
    call: Call,
    form: str,
    find: Callable[[Connection], Timeline],
    shown: type[msgspec.Struct],
) -> Response[bytes]:
    found = await call.question(find)
    if form == "json":
        return Response(encode(render(shown, found)), media_type="application/json")
    made = await anyio.to_thread.run_sync(picture, found, form)
    headers = {
        # A label may say anything; a picture that is opened as a page runs nothing of it.
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options": "nosniff",
    }
    return Response(made, media_type=MEDIA_TYPES[form], headers=headers)


HANDLERS = [show_instance_timeline, show_machine_timeline, show_spend_timeline]
