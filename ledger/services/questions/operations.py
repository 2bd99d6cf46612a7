"""Maintenance windows, outages, probe locations and compensations, as lists."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.projections.contracts import CONTRACTS
from ledger.store.database import Connection


class WindowView(msgspec.Struct, frozen=True, kw_only=True):
    """A maintenance window `[start, until)`; `status`: scheduled, started, ended, cancelled."""

    machine_id: int
    maintenance_id: int
    start: int
    until: int
    category: str
    approved: bool
    status: str
    scheduled_at: int
    announced_at: int | None
    rentals_stopped_at: int | None
    closed_at: int | None


class OutageView(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds in which a quorum of probe locations found a machine down."""

    outage_id: int
    machine_id: int
    witnesses: list[str]
    detected_at: int
    ended_at: int | None
    credited: int
    """Nanos that its host paid for it."""
    settled_at: int | None


class LocationView(msgspec.Struct, frozen=True, kw_only=True):
    """A place from which machines are looked at."""

    location: str
    region: str
    registered_at: int


class CompensationView(msgspec.Struct, frozen=True, kw_only=True):
    """What a host paid a renter, in nanos: *claim* by the formula, *amount* after the cap."""

    account_id: int
    instance_id: int
    machine_id: int
    host_id: int
    outage_id: int | None
    lost_at: int | None
    policy: str
    policy_version: int
    multiplier: int
    seconds: int
    claim: int
    spent: int
    cap_applied: bool
    amount: int
    credited_at: int
    position: int


_WINDOW = (
    "SELECT w.machine_id, w.maintenance_id, w.start, w.until, w.category, w.approved, w.status,"
    " w.scheduled_at, w.announced_at, w.rentals_stopped_at, w.closed_at FROM maintenance_windows w"
)


def windows(
    connection: Connection,
    *,
    machine_id: int | None = None,
    host_id: int | None = None,
    renter_id: int | None = None,
    only_open: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[WindowView]:
    """Windows by id: of a machine, of a host's machines, or of those that a renter lives on."""
    rows = connection.execute(
        f"{_WINDOW} WHERE w.maintenance_id > %(after)s"  # noqa: S608 - a constant
        " AND (%(machine)s::bigint IS NULL OR w.machine_id = %(machine)s)"
        " AND (%(host)s::bigint IS NULL OR w.machine_id IN"
        "  (SELECT machine_id FROM machines WHERE host_id = %(host)s))"
        " AND (%(renter)s::bigint IS NULL OR w.machine_id IN (SELECT machine_id"
        f"  FROM {CONTRACTS} c WHERE account_id = %(renter)s AND destroyed_at IS NULL))"
        " AND (NOT %(open)s OR w.status IN ('scheduled', 'started'))"
        " ORDER BY w.maintenance_id LIMIT %(limit)s",
        {
            "after": after,
            "machine": machine_id,
            "host": host_id,
            "renter": renter_id,
            "open": only_open,
            "limit": limit,
        },
    )
    return [_window(row) for row in rows]


def window(connection: Connection, machine_id: int, maintenance_id: int) -> WindowView:
    """One window of a machine.

    Raises:
        NotFoundError: `no_such_maintenance`.
    """
    row = connection.execute(
        f"{_WINDOW} WHERE w.maintenance_id = %s AND w.machine_id = %s",
        [maintenance_id, machine_id],
    ).fetchone()
    if row is None:
        message = f"machine {machine_id} has no maintenance {maintenance_id}"
        raise NotFoundError("no_such_maintenance", message)
    return _window(row)


def outages(
    connection: Connection,
    *,
    machine_id: int | None = None,
    only_open: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[OutageView]:
    """Outages by id, of one machine or of all."""
    rows = connection.execute(
        "SELECT outage_id, machine_id, witnesses, detected_at, ended_at, credited, settled_at"
        " FROM outages WHERE outage_id > %(after)s"
        " AND (%(machine)s::bigint IS NULL OR machine_id = %(machine)s)"
        " AND (NOT %(open)s OR ended_at IS NULL) ORDER BY outage_id LIMIT %(limit)s",
        {"after": after, "machine": machine_id, "open": only_open, "limit": limit},
    )
    return [
        OutageView(
            outage_id=row[0],
            machine_id=row[1],
            witnesses=row[2],
            detected_at=row[3],
            ended_at=row[4],
            credited=int(row[5]),
            settled_at=row[6],
        )
        for row in rows
    ]


def locations(connection: Connection) -> list[LocationView]:
    """The probe locations whose word counts, by name."""
    rows = connection.execute(
        "SELECT location, region, registered_at FROM probe_locations WHERE removed_at IS NULL"
        " ORDER BY location"
    )
    return [LocationView(location=row[0], region=row[1], registered_at=row[2]) for row in rows]


def compensations(
    connection: Connection,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[CompensationView]:
    """Compensations in the order of the log: what a renter got, what a host paid, or all."""
    rows = connection.execute(
        "SELECT account_id, instance_id, machine_id, host_id, outage_id, lost_at, policy,"
        " policy_version, multiplier, seconds, claim, spent, cap_applied, amount, credited_at,"
        " position FROM compensations WHERE position > %(after)s"
        " AND (%(account)s::bigint IS NULL OR account_id = %(account)s)"
        " AND (%(host)s::bigint IS NULL OR host_id = %(host)s)"
        " ORDER BY position LIMIT %(limit)s",
        {"after": after, "account": account_id, "host": host_id, "limit": limit},
    )
    return [
        CompensationView(
            account_id=row[0],
            instance_id=row[1],
            machine_id=row[2],
            host_id=row[3],
            outage_id=row[4],
            lost_at=row[5],
            policy=row[6],
            policy_version=row[7],
            multiplier=row[8],
            seconds=row[9],
            claim=int(row[10]),
            spent=int(row[11]),
            cap_applied=row[12],
            amount=int(row[13]),
            credited_at=row[14],
            position=row[15],
        )
        for row in rows
    ]


def _window(row: tuple[object, ...]) -> WindowView:
    names = WindowView.__struct_fields__
    return msgspec.convert(dict(zip(names, row, strict=True)), WindowView)
