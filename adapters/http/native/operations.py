"""Maintenance of machines, and what a host may end: expired contracts, a machine without any."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from adapters.http.call import ANYONE, HOST, Caller, allowed
from adapters.http.native.accounts import Cursor, Limit
from adapters.http.native.outages import OnlyOpen
from adapters.http.native.own import own_machine
from adapters.http.wire import (
    Body,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
)
from ledger.domain.events import MaintenanceCategory
from ledger.services import cleanup_expired, maintenance
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.questions import operations as ask
from ledger.store.database import Connection


class NewMaintenance(Body):
    """When a host will work on its machine; 7 days ahead or more makes the window approved."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "start": "2026-04-01T00:00:00Z",
        "duration_seconds": 7200,
        "category": "power",
    }

    start: str
    duration_seconds: Annotated[int, Meta(ge=1, le=maintenance.DURATION_SECONDS_MAX)]
    category: MaintenanceCategory


class Maintenance(msgspec.Struct, frozen=True, kw_only=True):
    """A window `[start, until)`: scheduled, started, ended or cancelled.

    An approved one counts for nothing in the machine's reliability, up to 8 h in 30 days.
    """

    machine_id: int
    maintenance_id: int
    start: Instant
    until: Instant
    category: str
    approved: bool
    status: str
    scheduled_at: Instant
    announced_at: Instant | None
    rentals_stopped_at: Instant | None
    closed_at: Instant | None


class CleanedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The instances that were destroyed."""

    machine_id: int
    destroyed: list[int]


class RemovedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine is gone."""

    machine_id: int


def _shown(unit: Unit, machine_id: int, maintenance_id: int) -> Maintenance:
    return render(Maintenance, ask.window(unit.connection, machine_id, maintenance_id))


# --- maintenance ---------------------------------------------------------------------------------


@post(
    "/v1/machines/{machine_id:int}/maintenance",
    opt=allowed(*HOST),
    summary="Schedule maintenance",
)
async def schedule_maintenance(
    call: Caller, machine_id: FromPath[int], data: JSONBody[NewMaintenance]
) -> Response[Maintenance]:
    """Announce work on a machine: its renters are told now and a day before.

    Four days before an approved window nothing new is rented; contracts go on.
    """
    start = instant(data.start, "start")
    assert start is not None

    def do(unit: Unit) -> Maintenance:
        own_machine(call, unit.connection, machine_id)
        made = maintenance.schedule(unit, machine_id, start, data.duration_seconds, data.category)
        return _shown(unit, machine_id, made)

    return await call.command(do, 201)


@get(
    "/v1/machines/{machine_id:int}/maintenance",
    opt=allowed(*ANYONE),
    summary="List a machine's maintenance",
)
async def list_machine_maintenance(
    call: Caller,
    machine_id: FromPath[int],
    only_open: OnlyOpen = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Maintenance]:
    """List the windows of any machine by id, past ones too."""
    after = decode_cursor(cursor, int, 0)

    def run(connection: Connection) -> list[ask.WindowView]:
        require_machine(connection, machine_id)
        return ask.windows(
            connection, machine_id=machine_id, only_open=only_open, after=after, limit=limit + 1
        )

    return page(Maintenance, await call.question(run), limit, lambda one: one.maintenance_id)


@get("/v1/maintenance", opt=allowed(*ANYONE), summary="List maintenance that concerns you")
async def list_maintenance(
    call: Caller, only_open: OnlyOpen = False, limit: Limit = 100, cursor: Cursor = None
) -> Page[Maintenance]:
    """List the windows of a host's machines, or of the machines that a renter has instances on."""
    after = decode_cursor(cursor, int, 0)
    own = None if call.sees_all else call.principal.account_id
    is_host = call.principal.role == "host"
    found = await call.question(
        lambda connection: ask.windows(
            connection,
            host_id=own if is_host else None,
            renter_id=None if is_host else own,
            only_open=only_open,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Maintenance, found, limit, lambda one: one.maintenance_id)


@delete(
    "/v1/machines/{machine_id:int}/maintenance/{maintenance_id:int}",
    opt=allowed(*HOST),
    status_code=200,
    summary="Cancel maintenance",
)
async def cancel_maintenance(
    call: Caller, machine_id: FromPath[int], maintenance_id: FromPath[int]
) -> Response[Maintenance]:
    """Call a window off, or end it now if it has started."""

    def do(unit: Unit) -> Maintenance:
        own_machine(call, unit.connection, machine_id)
        maintenance.cancel(unit, machine_id, maintenance_id)
        return _shown(unit, machine_id, maintenance_id)

    return await call.command(do)


# --- what a host may end -------------------------------------------------------------------------


@post(
    "/v1/machines/{machine_id:int}/clean-up",
    opt=allowed(*HOST),
    status_code=200,
    summary="Destroy expired contracts",
)
async def clean_up(call: Caller, machine_id: FromPath[int]) -> Response[CleanedUp]:
    """Destroy every instance and volume whose contract ended 48 hours ago or earlier."""

    def do(unit: Unit) -> CleanedUp:
        own_machine(call, unit.connection, machine_id)
        destroyed = cleanup_expired.clean_up(unit, machine_id)
        return CleanedUp(machine_id=machine_id, destroyed=destroyed)

    return await call.command(do)


@delete(
    "/v1/machines/{machine_id:int}/instances/{instance_id:int}",
    opt=allowed(*HOST),
    status_code=200,
    summary="Destroy an expired contract",
)
async def destroy_expired(
    call: Caller, machine_id: FromPath[int], instance_id: FromPath[int]
) -> Response[CleanedUp]:
    """Destroy one instance whose contract ended 48 hours ago or earlier: `not_expired` before."""

    def do(unit: Unit) -> CleanedUp:
        own_machine(call, unit.connection, machine_id)
        cleanup_expired.destroy_expired(unit, machine_id, instance_id)
        return CleanedUp(machine_id=machine_id, destroyed=[instance_id])

    return await call.command(do)


@delete(
    "/v1/machines/{machine_id:int}",
    opt=allowed(*HOST),
    status_code=200,
    summary="Remove a machine",
)
async def remove_machine(call: Caller, machine_id: FromPath[int]) -> Response[RemovedMachine]:
    """Take a machine without contracts out of the marketplace: `has_contracts` otherwise."""

    def do(unit: Unit) -> RemovedMachine:
        own_machine(call, unit.connection, machine_id)
        cleanup_expired.remove_machine(unit, machine_id)
        return RemovedMachine(machine_id=machine_id)

    return await call.command(do)


HANDLERS = [
    schedule_maintenance,
    list_machine_maintenance,
    list_maintenance,
    cancel_maintenance,
    clean_up,
    destroy_expired,
    remove_machine,
]
