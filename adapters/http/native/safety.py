"""What keeps a renter from spending more than it meant: caps, alerts, leases, idleness, cleanup."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, get, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    instant,
    render,
    render_all,
)
from ledger.domain.money import parse_amount
from ledger.errors import NotFoundError
from ledger.services import caps, cleanup, idleness, leases, rentals
from ledger.services.ledger import Unit
from ledger.services.questions import instances
from ledger.services.questions import safety as ask
from ledger.store.database import Connection

_LIMIT = Meta(ge=0, le=2**31 - 1)


class NewCaps(Body):
    """How much may burn in an hour and be charged in a UTC day; null lifts that cap.

    `hard` stops everything when the day's cap is reached; otherwise that is only told.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {"per_hour": "2", "per_day": "20", "hard": True}

    per_hour: Dollars | None
    per_day: Dollars | None
    hard: bool = False
    account_id: Id | None = None


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Caps in force, and what was charged since 00:00 UTC."""

    account_id: int
    per_hour: Dollars | None
    per_day: Dollars | None
    hard: bool
    day_from: Instant
    spent_today: Dollars


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The last notice of one kind; it may come again from `armed_at` on (null: it is still so)."""

    alert: str
    raised_at: Instant
    cleared_at: Instant | None
    armed_at: Instant | None


class Alerts(msgspec.Struct, frozen=True, kw_only=True):
    """Every alert that was ever given."""

    account_id: int
    items: list[Alert]


class NewLease(Body):
    """When the instance stops by itself; null: not by this. Its disk stays, and costs."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"until": "2027-01-01T00:00:00Z", "spend_limit": "25"}

    until: str | None
    spend_limit: Dollars | None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease. Once it ended, a start needs another one."""

    instance_id: int
    until: Instant | None
    spend_limit: Dollars | None
    ended_at: Instant | None


class NewIdlePolicy(Body):
    """Idle seconds until a notice, and until a stop (null: never)."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"notice_seconds": 3600, "stop_seconds": 7200}

    notice_seconds: Annotated[int, _LIMIT]
    stop_seconds: Annotated[int, _LIMIT] | None = None
    account_id: Id | None = None


class IdlePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What happens when an instance of this account does nothing."""

    account_id: int
    notice_seconds: int
    stop_seconds: int | None


class NewCleanupPolicy(Body):
    """Which stopped instances go: `off`, those `labelled` with the word, or `all`."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"scope": "labelled", "days": 7, "label": "finished"}

    scope: Literal["off", "labelled", "all"]
    days: Annotated[int, _LIMIT] = 7
    label: str = "finished"
    account_id: Id | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A stopped instance that the policy takes.

    `due_at`: since when it was stopped for long enough; `destroy_at`: what was announced.
    """

    instance_id: int
    label: str | None
    stopped_at: Instant
    storage_rate_per_hour: Dollars
    due_at: Instant
    destroy_at: Instant | None


class CleanupPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, and what it takes now: each goes at the earliest 24 h after its notice."""

    account_id: int
    scope: str
    days: int
    label: str
    takes: list[Candidate]


# --- caps and alerts ------------------------------------------------------------------------------


@get("/v1/spend-caps", opt=allowed(*ANYONE), summary="Spend caps")
async def show_caps(call: Caller, account_id: AccountFilter = None) -> Caps:
    """Show the caps in force and what they leave of today."""
    account = call.view(account_id) or call.principal.account_id
    now = call.ledger.clock()
    found = await call.question(lambda connection: ask.caps_of(connection, account, now))
    return render(Caps, found)


@put("/v1/spend-caps", opt=allowed(*RENTER), summary="Set spend caps")
async def set_caps(call: Caller, data: JSONBody[NewCaps]) -> Response[Caps]:
    """Put caps in force: starts and bids beyond them are refused with `spend_rate_limit`.

    What runs goes on, except when the day's cap is `hard` and is reached.
    """
    account = call.account(data.account_id)
    wanted = caps.Caps(_amount(data.per_hour), _amount(data.per_day), data.hard)

    def do(unit: Unit) -> Caps:
        caps.set_caps(unit, account, wanted)
        return render(Caps, ask.caps_of(unit.connection, account, unit.now))

    return await call.command(do)


@get("/v1/alerts", opt=allowed(*ANYONE), summary="Low-balance alerts")
async def show_alerts(call: Caller, account_id: AccountFilter = None) -> Alerts:
    """Show which alerts were given, and from when on they may come again."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: ask.alerts_of(connection, account))
    return Alerts(account_id=account, items=render_all(Alert, found))


# --- leases ---------------------------------------------------------------------------------------


@get("/v1/instances/{instance_id:int}/lease", opt=allowed(*ANYONE), summary="Show a lease")
async def show_lease(call: Caller, instance_id: FromPath[int]) -> Lease:
    """Show when an instance stops by itself."""

    def run(connection: Connection) -> ask.LeaseView:
        found = instances.instance(connection, instance_id)
        if not call.sees_all and found.account_id != call.principal.account_id:
            raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
        return ask.lease_of(connection, instance_id)

    return render(Lease, await call.question(run))


@put("/v1/instances/{instance_id:int}/lease", opt=allowed(*RENTER), summary="Set a lease")
async def set_lease(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewLease]
) -> Response[Lease]:
    """Let an instance stop by itself, at a second or when it has cost an amount since its creation.

    A start after that is refused with `lease_ended` or `spend_rate_limit`.
    """
    wanted = leases.Lease(instant(data.until, "until"), _amount(data.spend_limit))

    def do(unit: Unit) -> Lease:
        if not call.is_admin:
            rentals.owned(unit, instance_id, call.principal.account_id)
        leases.set_lease(unit, instance_id, wanted)
        return render(Lease, ask.lease_of(unit.connection, instance_id))

    return await call.command(do)


# --- idleness and cleanup -------------------------------------------------------------------------


@get("/v1/idle-policy", opt=allowed(*ANYONE), summary="Idle policy")
async def show_idle_policy(call: Caller, account_id: AccountFilter = None) -> IdlePolicy:
    """Show after how much idleness a notice comes, and a stop."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: idleness.read_idle_policy(connection, account))
    return IdlePolicy(account_id=account, **found._asdict())


@put("/v1/idle-policy", opt=allowed(*RENTER), summary="Set the idle policy")
async def set_idle_policy(call: Caller, data: JSONBody[NewIdlePolicy]) -> Response[IdlePolicy]:
    """Say what idleness means, and opt in to being stopped for it.

    Idle: every second below 5 % utilisation, and no process or memory to speak of, and no power.
    """
    account = call.account(data.account_id)
    wanted = idleness.IdlePolicy(data.notice_seconds, data.stop_seconds)

    def do(unit: Unit) -> IdlePolicy:
        idleness.set_idle_policy(unit, account, wanted)
        return IdlePolicy(account_id=account, **wanted._asdict())

    return await call.command(do)


def _shown(connection: Connection, account: int, policy: cleanup.CleanupPolicy) -> CleanupPolicy:
    return CleanupPolicy(
        account_id=account,
        scope=policy.scope,
        days=policy.days,
        label=policy.label,
        takes=render_all(Candidate, ask.dry_run(connection, account, policy)),
    )


@get("/v1/cleanup-policy", opt=allowed(*ANYONE), summary="Cleanup policy, or a dry run of one")
async def show_cleanup_policy(
    call: Caller,
    account_id: AccountFilter = None,
    takes: Annotated[Literal["off", "labelled", "all"] | None, QueryParameter(name="scope")] = None,
    days: Annotated[int | None, QueryParameter(ge=1, le=365)] = None,
    label: FromQuery[str | None] = None,
) -> CleanupPolicy:
    """Show the policy and what it takes; with other values, what that policy would take.

    Nothing is changed by looking.
    """
    account = call.view(account_id) or call.principal.account_id

    def run(connection: Connection) -> CleanupPolicy:
        known = cleanup.read_cleanup_policy(connection, account)
        asked = cleanup.CleanupPolicy(
            known.scope if takes is None else takes,
            known.days if days is None else days,
            known.label if label is None else label,
        )
        cleanup.check_policy(asked)
        return _shown(connection, account, asked)

    return await call.question(run)


@put("/v1/cleanup-policy", opt=allowed(*RENTER), summary="Set the cleanup policy")
async def set_cleanup_policy(
    call: Caller, data: JSONBody[NewCleanupPolicy]
) -> Response[CleanupPolicy]:
    """Opt in to the end of instances that were stopped for days; the answer says which those are.

    Each is told of 24 h before. What waits for GPUs or is reserved is never taken.
    """
    account = call.account(data.account_id)
    wanted = cleanup.CleanupPolicy(data.scope, data.days, data.label)

    def do(unit: Unit) -> CleanupPolicy:
        cleanup.set_cleanup_policy(unit, account, wanted)
        return _shown(unit.connection, account, wanted)

    return await call.command(do)


def _amount(text: str | None) -> int | None:
    return None if text is None else parse_amount(text, minimum=0)


HANDLERS = [
    show_caps,
    set_caps,
    show_alerts,
    show_lease,
    set_lease,
    show_idle_policy,
    set_idle_policy,
    show_cleanup_policy,
    set_cleanup_policy,
]
