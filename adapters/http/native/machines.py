"""Machines: registration, enrolment, listings, and what the server wants of them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import partial
from typing import Annotated, Any, ClassVar, Final

import anyio.to_thread
import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, HOST, Caller, allowed
from adapters.http.native.accounts import Cursor, Limit, Revoked
from adapters.http.native.own import own_machine, seen_machine
from adapters.http.once import carry_out
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
from ledger.domain.acknowledgement import Desired
from ledger.domain.events import MachineSpec
from ledger.domain.hardware import Inventory
from ledger.domain.money import parse_dollars, parse_fee
from ledger.services import listings
from ledger.services import machines as use_cases
from ledger.services.ledger import Ledger, Unit
from ledger.services.questions import accounts
from ledger.services.questions import machines as ask
from ledger.services.usage import UsageService
from ledger.store.database import Connection

MAX_WAIT_SECONDS: Final = 55
"""Below what proxies on the way usually cut."""

Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class NewMachine(Body):
    """A whole computer: sizes in GB, links in Mbit/s."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "gpus": 4,
        "gpu_name": "RTX 4090",
        "gpu_ram_gb": 24,
        "cpu_cores": 64,
        "ram_gb": 256,
        "disk_gb": 4000,
        "up_mbps": 1000,
        "down_mbps": 1000,
    }

    gpus: Size
    gpu_name: Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
    gpu_ram_gb: Size
    cpu_cores: Size
    ram_gb: Size
    disk_gb: Size
    up_mbps: Size
    down_mbps: Size
    host_id: Id | None = None


class NewListing(Body):
    """Prices in dollars: per GPU and hour, per GB and month of 720 h, per GB of traffic."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "gpu_hour": "0.40",
        "storage_gb_month": "0.15",
        "up_gb": "0.003",
        "down_gb": "0.002",
        "min_bid": "0.16",
        "min_gpus": 1,
        "until": "2026-12-31T00:00:00Z",
    }

    gpu_hour: Dollars
    storage_gb_month: Dollars
    up_gb: Dollars = "0"
    down_gb: Dollars = "0"
    min_bid: Dollars | None = None
    """The floor: lowest bid per GPU and hour. Without it the machine takes no bids."""
    min_gpus: Annotated[int, Meta(ge=1, le=16)] = 1
    until: str | None = None
    reserved_discount_max: str = "0.4"
    """The largest discount for prepaid terms, from 0 to below 1."""


class NewEnrolment(Body):
    """What the agent presents once: the token, its public key, its GPUs in slot order."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "token": "gle_…",
        "public_key": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "gpu_uuids": ["GPU-4f0c1f7e-1d2b-4a55-9a0e-6f2f6a1c0001"],
    }

    token: str
    public_key: str
    gpu_uuids: Annotated[list[str], Meta(min_length=1, max_length=16)]
    inventory: Inventory | None = None


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine is enrolled under this key."""

    machine_id: int
    key_id: str


class EnrolmentToken(msgspec.Struct, frozen=True, kw_only=True):
    """A one-time token, valid for an hour, shown this once."""

    machine_id: int
    token: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is offered at; `slices` are the numbers of GPUs that can be rented.

    `slices_free` are those of them that are free now.
    """

    listing_id: int
    gpu_rate_per_gpu: Dollars
    storage_rate: Dollars
    up_rate: Dollars
    down_rate: Dollars
    min_bid_per_gpu: Dollars | None
    min_gpus: int
    slices: list[int]
    slices_free: list[int]
    until: Instant | None
    listed_at: Instant


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as registered, and how it is now."""

    machine_id: int
    host_id: int
    gpus: int
    gpu_name: str
    gpu_ram_gb: int
    cpu_cores: int
    ram_gb: int
    disk_gb: int
    up_mbps: int
    down_mbps: int
    registered_at: Instant
    enrolled_at: Instant | None
    online: bool
    last_report_at: Instant | None
    free_gpus: int
    free_disk_gb: int
    instances: int
    listing: Listing | None


def _shown(unit: Unit, machine_id: int) -> Machine:
    return render(Machine, ask.machine(unit.connection, machine_id, unit.now))


@post("/v1/machines", opt=allowed(*HOST), summary="Register a machine")
async def register(call: Caller, data: JSONBody[NewMachine]) -> Response[Machine]:
    """Announce a machine; it can be listed once its agent has enrolled."""
    host = call.account(data.host_id)
    spec = MachineSpec(
        gpus=data.gpus,
        gpu_name=data.gpu_name,
        gpu_ram_gb=data.gpu_ram_gb,
        cpu_cores=data.cpu_cores,
        ram_gb=data.ram_gb,
        disk_gb=data.disk_gb,
        up_mbps=data.up_mbps,
        down_mbps=data.down_mbps,
    )

    def do(unit: Unit) -> Machine:
        accounts.account(unit.connection, unit.vault, host)
        return _shown(unit, use_cases.register(unit, host, spec))

    return await call.command(do, 201)


@get("/v1/machines", opt=allowed(*ANYONE), summary="List machines")
async def list_machines(
    call: Caller,
    offered: Annotated[
        bool, QueryParameter(description="The market: only what can be rented now.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Machine]:
    """List the market for renters, one's own machines for hosts, all for auditors and admins.

    The market is what is listed, online, and has a free slice.
    """
    after = decode_cursor(cursor, int, 0)
    now = call.ledger.clock()
    host = call.principal.account_id if call.principal.role == "host" else None

    def run(connection: Connection) -> list[ask.MachineView]:
        if offered or call.principal.role == "renter":
            return ask.market(connection, now, after=after, limit=limit + 1)
        return ask.machines(connection, now, host_id=host, after=after, limit=limit + 1)

    found = await call.question(run)
    return page(Machine, found, limit, lambda one: one.machine_id)


@get("/v1/machines/{machine_id:int}", opt=allowed(*ANYONE), summary="Show a machine")
async def show_machine(call: Caller, machine_id: FromPath[int]) -> Machine:
    """Show a machine that is offered, or one's own."""
    found = await call.question(lambda connection: seen_machine(call, connection, machine_id))
    return render(Machine, found)


@post(
    "/v1/machines/{machine_id:int}/enrolment-tokens",
    opt=allowed(*HOST),
    summary="Make an enrolment token",
)
async def offer_enrolment(call: Caller, machine_id: FromPath[int]) -> Response[EnrolmentToken]:
    """Make the one-time token with which the machine's agent enrols."""

    def do(unit: Unit) -> EnrolmentToken:
        own_machine(call, unit.connection, machine_id)
        token = use_cases.offer_enrolment(unit, machine_id)
        return EnrolmentToken(machine_id=machine_id, token=token)

    return await call.command(do, 201, secret=True)


@post(
    "/v1/enrolments",
    dependencies={},
    summary="Enrol a machine's agent",
    security=[{}],
    opt={"errors": (400, 401, 404, 409, 413, 422, 503)},
)
async def enrol(
    request: Request[Any, Any, State], data: JSONBody[NewEnrolment]
) -> Response[Enrolment]:
    """Bind the agent's Ed25519 public key to the machine; the token is the credential."""
    ledger: Ledger = request.app.state.ledger

    def do(unit: Unit) -> Enrolment:
        done = use_cases.enrol(unit, data.token, data.public_key, data.gpu_uuids, data.inventory)
        return Enrolment(machine_id=done.machine_id, key_id=done.key_id)

    scope = f"enrolment/{hashlib.sha256(data.token.encode()).hexdigest()}"
    return await carry_out(ledger, request, do, 201, scope=scope)


@delete(
    "/v1/machines/{machine_id:int}/keys/{key_id:str}",
    opt=allowed(*HOST),
    status_code=200,
    summary="Revoke a machine's key",
)
async def revoke_key(
    call: Caller,
    machine_id: FromPath[int],
    key_id: FromPath[str],
    reason: Annotated[
        str, QueryParameter(max_length=256, description="Why; kept in the log.")
    ] = "revoked",
) -> Response[Revoked]:
    """Refuse everything that arrives under this key from now on."""

    def do(unit: Unit) -> Revoked:
        own_machine(call, unit.connection, machine_id)
        use_cases.revoke_key(unit, machine_id, key_id, reason)
        return Revoked(key_id=key_id)

    return await call.command(do)


@put("/v1/machines/{machine_id:int}/listing", opt=allowed(*HOST), summary="List a machine")
async def list_machine(
    call: Caller, machine_id: FromPath[int], data: JSONBody[NewListing]
) -> Response[Machine]:
    """Offer a machine at these prices; contracts that exist keep theirs."""
    prices = listings.Prices(
        parse_dollars(data.gpu_hour),
        parse_dollars(data.storage_gb_month),
        parse_dollars(data.up_gb),
        parse_dollars(data.down_gb),
        None if data.min_bid is None else parse_dollars(data.min_bid),
    )
    until = instant(data.until, "until")

    def do(unit: Unit) -> Machine:
        own_machine(call, unit.connection, machine_id)
        listings.list_machine(
            unit,
            machine_id,
            prices,
            min_gpus=data.min_gpus,
            until=until,
            reserved_discount_max_bp=parse_fee(data.reserved_discount_max),
        )
        return _shown(unit, machine_id)

    return await call.command(do)


@delete(
    "/v1/machines/{machine_id:int}/listing",
    opt=allowed(*HOST),
    status_code=200,
    summary="Unlist a machine",
)
async def unlist_machine(call: Caller, machine_id: FromPath[int]) -> Response[Machine]:
    """Take a machine off the market; contracts go on."""

    def do(unit: Unit) -> Machine:
        own_machine(call, unit.connection, machine_id)
        listings.unlist_machine(unit, machine_id)
        return _shown(unit, machine_id)

    return await call.command(do)


@get(
    "/v1/machines/{machine_id:int}/desired",
    opt=allowed(*HOST, machine=True),
    summary="What a machine should do now",
)
async def desired(
    request: Request[Any, Any, State],
    call: Caller,
    machine_id: FromPath[int],
    after: Annotated[
        int | None,
        QueryParameter(
            ge=0,
            le=2**63 - 1,
            description="Wait until the version is above this one.",
        ),
    ] = None,
    after_log: Annotated[
        int | None,
        QueryParameter(
            ge=0,
            le=2**63 - 1,
            description="And no longer than until a log request above this one waits.",
        ),
    ] = None,
    wait: Annotated[
        int,
        QueryParameter(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait at most."),
    ] = 25,
) -> Desired:
    """Show the state that the machine's agent should move towards.

    With `after` it answers as soon as something newer is wanted, or unchanged after `wait` seconds.
    What an instance is started from is shown only to the machine itself: to a request that its key
    signed. It also says the number of the newest log request that waits for the machine, and with
    `after_log` it answers as soon as a newer one does.
    """
    usage: UsageService = request.app.state.usage
    if call.machine_id is None:
        await call.question(lambda connection: own_machine(call, connection, machine_id))
    is_machine = call.machine_id == machine_id
    if after is not None and wait:
        logs = after_log if is_machine else None
        await asyncio.wrap_future(usage.watch.changed(machine_id, after, wait, after_log=logs))
    found = await anyio.to_thread.run_sync(partial(usage.desired, machine_id, specs=is_machine))
    return msgspec.structs.replace(found, server_time_ms=time.time_ns() // 1_000_000)


HANDLERS = [
    register,
    list_machines,
    show_machine,
    offer_enrolment,
    enrol,
    revoke_key,
    list_machine,
    unlist_machine,
    desired,
]
