"""What the usage group's tables hold of machines and contracts, taken into memory, set by set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ledger.projections.usage.state import (
    FAR_FUTURE,
    Covered,
    Gpu,
    MachineMeter,
    Meter,
    Segment,
)

if TYPE_CHECKING:
    from ledger.store.database import Connection

_METERS = (
    "SELECT instance_id, account_id, host_id, machine_id, disk_bytes, created_at, assigned_at,"
    " released_at, destroyed_at FROM metered_instances WHERE "
)


def load_machines(
    connection: Connection, machine_ids: Collection[int], destroyed_after: int
) -> dict[int, MachineMeter]:
    """The stored state of *machine_ids* with their contracts not destroyed before a second."""
    ids = list(machine_ids)
    machines: dict[int, MachineMeter] = {}
    for machine_id, up_link, down_link in connection.execute(
        "SELECT machine_id, up_link, down_link FROM metered_machines WHERE machine_id = ANY(%s)",
        [ids],
    ):
        machines[machine_id] = machine = MachineMeter(machine_id, up_link, down_link)
        machine.dirty = False
    for machine_id, start, until, position in connection.execute(
        "SELECT machine_id, start, until, position FROM machine_coverage"
        " WHERE machine_id = ANY(%s) ORDER BY machine_id, start",
        [ids],
    ):
        machines[machine_id].covered.restore(start, until, position)
    for gpu_uuid, machine_id, max_power_mw, instance_id in connection.execute(
        "SELECT gpu_uuid, machine_id, max_power_mw, instance_id FROM metered_gpus"
        " WHERE machine_id = ANY(%s)",
        [ids],
    ):
        machines[machine_id].gpus[gpu_uuid] = Gpu(max_power_mw, instance_id)
    rows = connection.execute(
        f"{_METERS} machine_id = ANY(%s) AND (destroyed_at IS NULL OR destroyed_at > %s)"
        " ORDER BY instance_id",
        [ids, destroyed_after],
    ).fetchall()
    for meter in _meters(connection, rows).values():
        machines[meter.machine_id].adopt(meter)
    return machines


def load_instances(connection: Connection, instance_ids: Collection[int]) -> dict[int, Meter]:
    """The stored state of *instance_ids*, those that exist."""
    rows = connection.execute(
        f"{_METERS} instance_id = ANY(%s) ORDER BY instance_id", [list(instance_ids)]
    ).fetchall()
    return _meters(connection, rows)


def _meters(connection: Connection, rows: Sequence[Any]) -> dict[int, Meter]:
    meters: dict[int, Meter] = {}
    for row in rows:
        meter = Meter(*row[:6])
        meter.assigned_at = row[6]
        meter.released_at = row[7]
        meter.destroyed = FAR_FUTURE if row[8] is None else row[8]
        meter.dirty = False
        meters[row[0]] = meter
    if not meters:
        return meters
    ids = list(meters)
    for row in connection.execute(
        "SELECT instance_id, terms_no, since, kind, fee_bp, gpu_rate, storage_rate, up_rate,"
        " down_rate, gpu_quantity, gpu_charge, gpu_fee, storage_quantity, storage_charge,"
        " storage_fee, up_quantity, up_charge, up_fee, down_quantity, down_charge, down_fee,"
        " reserved_idle_quantity, reserved_idle_charge, reserved_idle_fee"
        " FROM rate_segments WHERE instance_id = ANY(%s) ORDER BY instance_id, terms_no",
        [ids],
    ):
        meter = meters[row[0]]
        numbers = [int(value) for value in row[5:]]
        segment = Segment(row[1], row[2], row[3], row[4]).price(numbers[:4], meter.disk_bytes)
        (
            segment.q_gpu, segment.c_gpu, segment.f_gpu,
            segment.q_storage, segment.c_storage, segment.f_storage,
            segment.q_up, segment.c_up, segment.f_up,
            segment.q_down, segment.c_down, segment.f_down,
            segment.q_idle, segment.c_idle, segment.f_idle,
        ) = numbers[4:]  # fmt: skip
        segment.dirty = False
        meter.add_segment(segment)
        if segment.kind == "reserved" and meter.holds is None:
            meter.holds = []
    for instance_id, start, until, position in connection.execute(
        "SELECT instance_id, start, until, position FROM coverage WHERE instance_id = ANY(%s)"
        " ORDER BY instance_id, start",
        [ids],
    ):
        meters[instance_id].covered.restore(start, until, position)
    for instance_id, start, until, number, position in connection.execute(
        "SELECT instance_id, start, until, assignment_no, position FROM gpu_intervals"
        " WHERE instance_id = ANY(%s) ORDER BY instance_id, start",
        [ids],
    ):
        end = FAR_FUTURE if until is None else until
        meters[instance_id].intervals.append([start, end, number, position])
    for meter in meters.values():
        meter.segment = meter.segment_at(meter.covered.until)
    for instance_id, start, until in connection.execute(
        "SELECT instance_id, start, until FROM reserved_holds WHERE instance_id = ANY(%s)"
        " ORDER BY instance_id, start",
        [ids],
    ):
        held = meters[instance_id].holds
        assert held is not None, instance_id
        held.append([start, FAR_FUTURE if until is None else until])
    for instance_id, start, until in connection.execute(
        "SELECT instance_id, start, until FROM idle_spans WHERE instance_id = ANY(%s)", [ids]
    ):
        meters[instance_id].idle_from, meters[instance_id].idle_until = start, until
    for instance_id, start, until in connection.execute(
        "SELECT instance_id, start, until FROM lost_disks WHERE instance_id = ANY(%s)"
        " ORDER BY instance_id, start",
        [ids],
    ):
        meters[instance_id].lost.append([start, FAR_FUTURE if until is None else until])
    return meters


def reload_trimmed(
    connection: Connection, covered: Covered, table: str, key: str, value: int
) -> None:
    """Take the ranges that were trimmed from memory back from their table."""
    before = covered.ranges[0].start if covered.ranges else FAR_FUTURE
    rows = connection.execute(
        f"SELECT start, until, position FROM {table} WHERE {key} = %s"  # noqa: S608 - constants
        " AND start < %s ORDER BY start",
        [value, before],
    ).fetchall()
    kept, covered.ranges = covered.ranges, []
    for start, until, position in rows:
        covered.restore(start, until, position)
    covered.ranges.extend(kept)
    covered.trimmed = 0
