"""Outages: where probes look from and what they see, and what hosts pay for it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, AUDITOR, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    Page,
    decode_cursor,
    page,
    render_all,
)
from ledger.services import outages
from ledger.services.ledger import Unit
from ledger.services.outages import ProbeResult
from ledger.services.questions import operations as ask

OnlyOpen = Annotated[bool, QueryParameter(name="open", description="Only what is not over.")]


class NewProbeLocation(Body):
    """A place from which the platform looks at machines; each is one independent voice."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"location": "fra1", "region": "DE"}

    location: str
    region: str


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a location found one machine just now."""

    machine_id: Id
    result: ProbeResult


class NewProbeResults(Body):
    """What a location saw in its last round; every location looks once a minute."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "location": "fra1",
        "results": [{"machine_id": 4, "result": "up"}, {"machine_id": 5, "result": "down"}],
    }

    location: str
    results: Annotated[list[Look], Meta(min_length=1, max_length=1_000)]


class ProbeLocation(msgspec.Struct, frozen=True, kw_only=True):
    """A place from which machines are looked at."""

    location: str
    region: str
    registered_at: Instant


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a place."""

    location: str


class ProbeResultsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines the results were about; `unknown` are ids of none."""

    location: str
    machines: int
    unknown: list[int]


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A quorum of probe locations found the machine down; `credited` is what its host paid."""

    outage_id: int
    machine_id: int
    witnesses: list[str]
    detected_at: Instant
    ended_at: Instant | None
    credited: Dollars
    settled_at: Instant | None


class CompensationCredit(msgspec.Struct, frozen=True, kw_only=True):
    """What a host paid a renter for one instance and one outage, or one lost disk.

    `claim` is what the formula gives, `spent` what the renter was charged on the machine in the
    month before; `amount` is never more than that.
    """

    account_id: int
    instance_id: int
    machine_id: int
    host_id: int
    outage_id: int | None
    lost_at: Instant | None
    policy: str
    policy_version: int
    multiplier: int
    seconds: int
    claim: Dollars
    spent: Dollars
    cap_applied: bool
    amount: Dollars
    credited_at: Instant
    position: int


@post("/v1/probe-locations", opt=allowed(*ADMIN), summary="Register a probe location")
async def register_location(call: Caller, data: JSONBody[NewProbeLocation]) -> Response[Location]:
    """Look at machines from one more place."""

    def do(unit: Unit) -> Location:
        outages.register_location(unit, data.location, data.region)
        return Location(location=data.location)

    return await call.command(do, 201)


@get("/v1/probe-locations", opt=allowed(*AUDITOR), summary="List probe locations")
async def list_locations(call: Caller) -> list[ProbeLocation]:
    """List the places whose word counts."""
    return render_all(ProbeLocation, await call.question(ask.locations))


@delete(
    "/v1/probe-locations/{location:str}",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Remove a probe location",
)
async def remove_location(call: Caller, location: FromPath[str]) -> Response[Location]:
    """Forget a place and what it last saw."""

    def do(unit: Unit) -> Location:
        outages.remove_location(unit, location)
        return Location(location=location)

    return await call.command(do)


@post("/v1/probe-results", opt=allowed(*ADMIN), status_code=200, summary="Report what a probe saw")
async def report_results(
    call: Caller, data: JSONBody[NewProbeResults]
) -> Response[ProbeResultsTaken]:
    """Take a location's last look at many machines.

    A machine is down when 4 locations agree (3 where only 3 exist); a look counts for 180 s.
    """
    results = {one.machine_id: one.result for one in data.results}

    def do(unit: Unit) -> ProbeResultsTaken:
        taken = outages.report(unit, data.location, results)
        return ProbeResultsTaken(
            location=data.location, machines=taken.machines, unknown=taken.unknown
        )

    return await call.command(do)


@get("/v1/outages", opt=allowed(*ANYONE), summary="List outages")
async def list_outages(
    call: Caller,
    machine_id: FromQuery[int | None] = None,
    only_open: OnlyOpen = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Outage]:
    """List when machines were down by the word of a quorum."""
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.outages(
            connection, machine_id=machine_id, only_open=only_open, after=after, limit=limit + 1
        )
    )
    return page(Outage, found, limit, lambda one: one.outage_id)


@get("/v1/compensations", opt=allowed(*ANYONE), summary="List compensations")
async def list_compensations(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[CompensationCredit]:
    """List what an account was paid for outages and lost disks; with a host's key, what it paid."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.compensations(
            connection, account_id=account, host_id=host, after=after, limit=limit + 1
        )
    )
    return page(CompensationCredit, found, limit, lambda one: one.position)


HANDLERS = [
    register_location,
    list_locations,
    remove_location,
    report_results,
    list_outages,
    list_compensations,
]
