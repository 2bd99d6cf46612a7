"""What happened when, ready to be drawn: an instance, a machine, what an account spent."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ledger.errors import NotFoundError, RejectedError
from ledger.meters.pricing import METERS
from ledger.store.database import Connection

_HOUR: Final = 3_600
_DAY: Final = 86_400
_HOURLY_SECONDS: Final = 4 * _DAY
"""A longer window has a bar per day."""
WINDOW_MAX: Final = 400 * _DAY
_STRETCHES_MAX: Final = 5_000


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds `[start, until)`."""

    start: int
    until: int


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a machine, held by an instance in `[start, until)`."""

    slot: int
    instance_id: int
    kind: str
    start: int
    until: int


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one hour or day cost, by item; nanos."""

    start: int
    gpu_charge: int
    storage_charge: int
    up_charge: int
    down_charge: int
    reserved_idle_charge: int

    @property
    def total(self) -> int:
        """Of all items."""
        return (
            self.gpu_charge
            + self.storage_charge
            + self.up_charge
            + self.down_charge
            + self.reserved_idle_charge
        )


class InstanceTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One instance, as far as it falls into `[start, until)`.

    A second of GPU time costs where the server's interval (`running`) and the machine's word
    (`attested`) meet; storage costs wherever it `existed` on a machine that attested the second.
    """

    instance_id: int
    kind: str
    gpus: int
    label: str | None
    start: int
    until: int
    existed: list[Stretch]
    held: list[Stretch]
    running: list[Stretch]
    attested: list[Stretch]
    cost_seconds: int
    """How long each of `costs` is."""
    costs: list[Cost]


class MachineTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One machine in `[start, until)`: who held which GPU, and the seconds that it attested."""

    machine_id: int
    gpus: int
    gpu_name: str
    start: int
    until: int
    held: list[Held]
    attested: list[Stretch]


class SpendTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """What an account's instances and volumes cost in `[start, until)`."""

    account_id: int
    start: int
    until: int
    cost_seconds: int
    costs: list[Cost]


def instance_timeline(
    connection: Connection,
    instance_id: int,
    now: int,
    *,
    start: int | None = None,
    until: int | None = None,
) -> InstanceTimeline:
    """An instance's life so far, or the part of it in `[start, until)`.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `invalid_args`, the window is empty, or longer than 400 days.
    """
    row = connection.execute(
        "SELECT kind, gpus, label, created_at, destroyed_at, disk_lost_at FROM instances"
        " WHERE instance_id = %s",
        [instance_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    kind, gpus, label, created_at, destroyed_at, disk_lost_at = row
    ended_at = now if destroyed_at is None else destroyed_at
    window = _window(
        created_at if start is None else start,
        max(ended_at, created_at + 1) if until is None else until,
    )
    values = {"id": instance_id, "start": window.start, "until": window.until, "now": now}
    disk_ended_at = ended_at if disk_lost_at is None else min(ended_at, disk_lost_at)
    existed = Stretch(start=max(created_at, window.start), until=min(disk_ended_at, window.until))
    seconds = _bar_seconds(window)
    return InstanceTimeline(
        instance_id=instance_id,
        kind=kind,
        gpus=gpus,
        label=label,
        start=window.start,
        until=window.until,
        existed=[existed] if existed.start < existed.until else [],
        held=_stretches(connection, _HELD_BY_INSTANCE, values),
        running=_stretches(connection, _RUNNING, values),
        attested=_stretches(connection, _ATTESTED, values),
        cost_seconds=seconds,
        costs=_costs(connection, "instance_id = %(id)s", values, seconds),
    )


def machine_timeline(
    connection: Connection,
    machine_id: int,
    now: int,
    *,
    start: int | None = None,
    until: int | None = None,
) -> MachineTimeline:
    """The last 24 hours of a machine, or what happened on it in `[start, until)`.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args`, the window is empty, too long, or holds too much to be drawn.
    """
    row = connection.execute(
        "SELECT gpus, gpu_name FROM machines WHERE machine_id = %s", [machine_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    end = now if until is None else until
    window = _window(end - _DAY if start is None else start, end)
    values = {"id": machine_id, "start": window.start, "until": window.until, "now": now}
    return MachineTimeline(
        machine_id=machine_id,
        gpus=row[0],
        gpu_name=row[1],
        start=window.start,
        until=window.until,
        held=[
            Held(slot=one[0], instance_id=one[1], kind=one[2], start=one[3], until=one[4])
            for one in _rows(connection, _HELD_ON_MACHINE, values)
        ],
        attested=_stretches(connection, _HEARD, values),
    )


def spend_timeline(
    connection: Connection,
    account_id: int,
    now: int,
    *,
    start: int | None = None,
    until: int | None = None,
) -> SpendTimeline:
    """What an account spent on usage in the last 30 days, or in `[start, until)`.

    Raises:
        RejectedError: `invalid_args`, the window is empty, or longer than 400 days.
    """
    end = now if until is None else until
    window = _window(end - 30 * _DAY if start is None else start, end)
    seconds = _bar_seconds(window)
    values = {"id": account_id, "start": window.start, "until": window.until}
    return SpendTimeline(
        account_id=account_id,
        start=window.start,
        until=window.until,
        cost_seconds=seconds,
        costs=_costs(connection, "account_id = %(id)s", values, seconds),
    )


def _window(start: int, until: int) -> Stretch:
    if not 0 < until - start <= WINDOW_MAX:
        message = "a window has at least one second and at most 400 days"
        raise RejectedError("invalid_args", message)
    return Stretch(start=start, until=until)


def _bar_seconds(window: Stretch) -> int:
    return _HOUR if window.until - window.start <= _HOURLY_SECONDS else _DAY


# A stretch that is open is drawn up to now, and none beyond the window.

_CUT: Final = """
SELECT greatest({start}, %(start)s), least(coalesce({until}, %(now)s), %(until)s) FROM {table}
WHERE {which} = %(id)s AND {start} < %(until)s
  AND coalesce({until}, %(now)s) > greatest({start}, %(start)s)
GROUP BY 1, 2 ORDER BY 1 LIMIT %(most)s
"""
_HELD_BY_INSTANCE: Final = _CUT.format(
    start="lower(during)", until="upper(during)", table="gpu_assignments", which="instance_id"
)
_RUNNING: Final = _CUT.format(
    start="start", until="until", table="gpu_intervals", which="instance_id"
)
_ATTESTED: Final = _CUT.format(start="start", until="until", table="coverage", which="instance_id")
_HEARD: Final = _CUT.format(
    start="start", until="until", table="machine_coverage", which="machine_id"
)
_HELD_ON_MACHINE: Final = """
SELECT a.slot, a.instance_id, i.kind, greatest(lower(a.during), %(start)s),
       least(coalesce(upper(a.during), %(now)s), %(until)s)
FROM gpus g JOIN gpu_assignments a ON a.gpu && int8range(g.gpu_no, g.gpu_no, '[]')
  AND a.during && int8range(%(start)s, %(until)s)
JOIN instances i USING (instance_id)
WHERE g.machine_id = %(id)s
  AND coalesce(upper(a.during), %(now)s) > greatest(lower(a.during), %(start)s)
ORDER BY a.slot, 4 LIMIT %(most)s
"""
_SUMS: Final = ", ".join(f"sum({meter}_charge)::bigint" for meter in METERS)


def _stretches(connection: Connection, query: str, values: dict[str, Any]) -> list[Stretch]:
    rows = _rows(connection, query, values)
    return [Stretch(start=row[0], until=row[1]) for row in rows]


def _rows(connection: Connection, query: str, values: dict[str, Any]) -> list[Any]:
    rows = connection.execute(query, {**values, "most": _STRETCHES_MAX + 1}).fetchall()
    if len(rows) > _STRETCHES_MAX:
        message = f"more than {_STRETCHES_MAX} stretches cannot be told apart: ask for less time"
        raise RejectedError("invalid_args", message)
    return rows


def _costs(connection: Connection, which: str, values: dict[str, Any], seconds: int) -> list[Cost]:
    """Sums of the hours that touch the window, in bars of *seconds*."""
    rows = connection.execute(
        f"SELECT hour / %(hours)s * %(hours)s * {_HOUR}, {_SUMS} FROM usage_hours"  # noqa: S608 - constants
        f" WHERE {which} AND hour >= %(start)s / {_HOUR} AND hour * {_HOUR} < %(until)s"
        " GROUP BY 1 ORDER BY 1",
        {**values, "hours": seconds // _HOUR},
    )
    return [
        Cost(
            start=row[0],
            gpu_charge=row[1],
            storage_charge=row[2],
            up_charge=row[3],
            down_charge=row[4],
            reserved_idle_charge=row[5],
        )
        for row in rows
    ]
