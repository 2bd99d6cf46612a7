"""How what one page changed is written to the usage group's tables: set by set."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ledger.meters.pricing import METERS
from ledger.projections.usage.state import FAR_FUTURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.projections.usage.page import Hour, Page
    from ledger.projections.usage.state import Covered, Meter, Segment
    from ledger.store.database import Connection

CREDIT_LOCK = 7_415_005
"""Held by a command from its first moment, and by a page of usage while it is written.

So no page becomes visible between what a command reads of an account's credit and its commit. It is
one lock, taken after the log's by commands and alone by pages: there is no order to get wrong.
"""


def write(connection: Connection, page: Page, *, lock_accounts: bool) -> None:
    """Write what *page* changed.

    Args:
        connection: Inside the transaction that also moves the group's position.
        page: From `UsageFold.fold`.
        lock_accounts: Wait for a command that is deciding about credit, and let the next one wait
            for this page; a rebuild beside the live tables has nobody to wait for.
    """
    charged: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in page.hours.values():
        if row.charged or row.kept:
            charged[row.meter.account_id][0] += row.charged
            charged[row.meter.host_id][1] += row.charged
            charged[row.meter.host_id][2] += row.kept
    if lock_accounts and charged:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREDIT_LOCK])
    _write_platform(connection, page)
    _write_gpus(connection, page)
    _write_meters(connection, page)
    _write_coverage(connection, "coverage", "instance_id", page.meters)
    _write_coverage(connection, "machine_coverage", "machine_id", page.machines)
    _write_hours(connection, list(page.hours.values()))
    _write_anomalies(connection, page)
    _write_promotions(connection, page)
    if charged:
        ids = sorted(charged)
        connection.execute(
            "INSERT INTO account_usage AS stored (account_id, charged, earned, fees)"
            " SELECT * FROM unnest(%b::int8[], %s::numeric[], %s::numeric[], %s::numeric[])"
            " ON CONFLICT (account_id) DO UPDATE SET charged = stored.charged + EXCLUDED.charged,"
            " earned = stored.earned + EXCLUDED.earned, fees = stored.fees + EXCLUDED.fees",
            [ids, *([charged[one][part] for one in ids] for part in range(3))],
        )


def _write_platform(connection: Connection, page: Page) -> None:
    if page.late_usage_seconds is not None:
        connection.execute(
            "INSERT INTO metered_platform VALUES (0, %s) ON CONFLICT (id) DO UPDATE"
            " SET late_usage_seconds = EXCLUDED.late_usage_seconds",
            [page.late_usage_seconds],
        )
    if page.accounts:
        connection.execute(
            "INSERT INTO metered_accounts SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[])"
            " ON CONFLICT (account_id) DO UPDATE SET closed_until = EXCLUDED.closed_until,"
            " dry_at = EXCLUDED.dry_at",
            [
                list(page.accounts),
                [closed for closed, _ in page.accounts.values()],
                [dry for _, dry in page.accounts.values()],
            ],
        )
    _write_periods(connection, page)
    fresh = [machine for machine in page.machines.values() if machine.dirty]
    if fresh:
        connection.execute(
            "INSERT INTO metered_machines SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[])",
            [
                [machine.machine_id for machine in fresh],
                [machine.up_link for machine in fresh],
                [machine.down_link for machine in fresh],
            ],
        )
        for machine in fresh:
            machine.dirty = False


def _write_periods(connection: Connection, page: Page) -> None:
    if page.unplanned:
        connection.execute(
            "DELETE FROM metered_periods p USING unnest(%b::int8[], %b::int8[]) AS old (id, after)"
            " WHERE p.account_id = old.id AND p.boundary > old.after",
            [list(page.unplanned), list(page.unplanned.values())],
        )
    rows = [(one, boundary) for one, found in page.planned.items() for boundary in found]
    if rows:
        connection.execute(
            "INSERT INTO metered_periods SELECT * FROM unnest(%b::int8[], %b::int8[])"
            " ON CONFLICT DO NOTHING",
            _columns(rows),
        )


def _write_meters(connection: Connection, page: Page) -> None:
    dirty = [meter for meter in page.meters.values() if meter.dirty]
    if dirty:
        connection.execute(
            "INSERT INTO metered_instances SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[],"
            " %b::int8[], %b::int8[], %b::int8[], %b::int8[], %b::int8[], %b::int8[])"
            " ON CONFLICT (instance_id) DO UPDATE SET assigned_at = EXCLUDED.assigned_at,"
            " released_at = EXCLUDED.released_at, destroyed_at = EXCLUDED.destroyed_at",
            [
                [meter.instance_id for meter in dirty],
                [meter.account_id for meter in dirty],
                [meter.host_id for meter in dirty],
                [meter.machine_id for meter in dirty],
                [meter.disk_bytes for meter in dirty],
                [meter.created for meter in dirty],
                [meter.assigned_at for meter in dirty],
                [meter.released_at for meter in dirty],
                [_end(meter.destroyed) for meter in dirty],
            ],
        )
    intervals = []
    lost = []
    holds = []
    idle = []
    segments = []
    for meter in page.meters.values():
        meter.dirty = False
        if meter.dirty_intervals:
            for start, end, number, position in meter.intervals:
                if start in meter.dirty_intervals:
                    intervals.append((meter.instance_id, start, _end(end), number, position))
            meter.dirty_intervals.clear()
        if meter.dirty_lost:
            for start, end in meter.lost:
                if start in meter.dirty_lost:
                    lost.append((meter.instance_id, start, _end(end)))
            meter.dirty_lost.clear()
        if meter.dirty_holds:
            for start, end in meter.holds or ():
                if start in meter.dirty_holds:
                    holds.append((meter.instance_id, start, _end(end)))
            meter.dirty_holds.clear()
        if meter.dirty_idle:
            idle.append(meter)
            meter.dirty_idle = False
        for segment in meter.segments:
            if segment.dirty:
                segments.append((meter.instance_id, segment))
                segment.dirty = False
    if intervals:
        connection.execute(
            "INSERT INTO gpu_intervals SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[],"
            " %b::int4[], %b::int8[]) ON CONFLICT (instance_id, start)"
            " DO UPDATE SET until = EXCLUDED.until",
            _columns(intervals),
        )
    for table, rows in (("lost_disks", lost), ("reserved_holds", holds)):
        if rows:
            connection.execute(
                f"INSERT INTO {table} SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[])"  # noqa: S608 - constants
                " ON CONFLICT (instance_id, start) DO UPDATE SET until = EXCLUDED.until",
                _columns(rows),
            )
    if idle:
        _write_idle(connection, idle)
    if segments:
        _write_segments(connection, segments)


def _write_idle(connection: Connection, meters: list[Meter]) -> None:
    runs = [(one.instance_id, one.idle_from, one.idle_until) for one in meters if one.idle_until]
    gone = [one.instance_id for one in meters if not one.idle_until]
    if gone:
        connection.execute("DELETE FROM idle_spans WHERE instance_id = ANY(%s)", [gone])
    if runs:
        connection.execute(
            "INSERT INTO idle_spans SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[])"
            " ON CONFLICT (instance_id) DO UPDATE SET start = EXCLUDED.start,"
            " until = EXCLUDED.until",
            _columns(runs),
        )


def _write_gpus(connection: Connection, page: Page) -> None:
    rows = []
    for machine in page.machines.values():
        for gpu_uuid in machine.dirty_gpus:
            gpu = machine.gpus[gpu_uuid]
            rows.append((machine.machine_id, gpu_uuid, gpu.max_power_mw, gpu.instance_id))
        machine.dirty_gpus.clear()
    if rows:
        connection.execute(
            "INSERT INTO metered_gpus SELECT * FROM unnest(%b::int8[], %b::text[], %b::int8[],"
            " %b::int8[]) ON CONFLICT (machine_id, gpu_uuid) DO UPDATE"
            " SET max_power_mw = EXCLUDED.max_power_mw, instance_id = EXCLUDED.instance_id",
            _columns(rows),
        )


_SEGMENT_SUMS = ", ".join(
    f"{meter}_{part} = EXCLUDED.{meter}_{part}"
    for meter in METERS
    for part in ("quantity", "charge", "fee")
)


def _write_segments(connection: Connection, segments: list[tuple[int, Segment]]) -> None:
    rows = [
        (
            instance_id, s.number, s.since, s.kind, s.fee_bp,
            s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate,
            s.q_gpu, s.c_gpu, s.f_gpu, s.q_storage, s.c_storage, s.f_storage,
            s.q_up, s.c_up, s.f_up, s.q_down, s.c_down, s.f_down,
            s.q_idle, s.c_idle, s.f_idle,
        )
        for instance_id, s in segments
    ]  # fmt: skip
    connection.execute(
        "INSERT INTO rate_segments SELECT * FROM unnest(%b::int8[], %b::int4[], %b::int8[],"
        " %b::text[], %b::int4[]" + ", %s::numeric[]" * 19 + ")"
        " ON CONFLICT (instance_id, terms_no) DO UPDATE SET " + _SEGMENT_SUMS,
        _columns(rows),
    )


def _write_coverage(connection: Connection, table: str, key: str, owners: dict[int, Any]) -> None:
    rows = []
    gone: list[tuple[int, int]] = []
    for owner_id, owner in owners.items():
        covered: Covered = owner.covered
        if covered.gone:
            gone.extend((owner_id, start) for start in covered.gone)
            covered.gone.clear()
        if covered.touched:
            if len(covered.touched) == 1 and covered.ranges[-1].start in covered.touched:
                last = covered.ranges[-1]
                rows.append((owner_id, last.start, last.end, covered.positions[last.start]))
            else:
                rows.extend(
                    (owner_id, one.start, one.end, covered.positions[one.start])
                    for one in covered.ranges
                    if one.start in covered.touched
                )
            covered.touched.clear()
    if gone:
        connection.execute(
            f"DELETE FROM {table} USING unnest(%b::int8[], %b::int8[]) AS old (id, first)"  # noqa: S608 - constants
            f" WHERE {key} = old.id AND start = old.first",
            _columns(gone),
        )
    if rows:
        connection.execute(
            f"INSERT INTO {table} SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[],"  # noqa: S608 - constants
            f" %b::int8[]) ON CONFLICT ({key}, start) DO UPDATE SET until = EXCLUDED.until,"
            " position = EXCLUDED.position",
            _columns(rows),
        )


_HOUR_SUMS = ", ".join(
    f"{meter}_{part} = stored.{meter}_{part} + EXCLUDED.{meter}_{part}"
    for meter in METERS
    for part in ("quantity", "charge", "fee")
)


def _write_hours(connection: Connection, hours: list[Hour]) -> None:
    if not hours:
        return
    rows = [
        (
            h.meter.instance_id, h.hour, h.segment.number, h.booked,
            h.meter.account_id, h.meter.host_id,
            h.gpu_quantity, h.gpu_charge, h.gpu_fee,
            h.storage_quantity, h.storage_charge, h.storage_fee,
            h.up_quantity, h.up_charge, h.up_fee,
            h.down_quantity, h.down_charge, h.down_fee,
            h.idle_quantity, h.idle_charge, h.idle_fee,
            h.first_second, h.until, h.position,
        )
        for h in hours
    ]  # fmt: skip
    whole = ", %b::int8[]"
    connection.execute(
        "INSERT INTO usage_hours AS stored SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int4[]"
        + whole * 3
        + whole * 6
        + ", %s::numeric[]"
        + whole * 2
        + ", %s::numeric[]"
        + whole * 2
        + whole * 3
        + whole * 3
        + ") ON CONFLICT (instance_id, hour, terms_no, booked) DO UPDATE SET "
        + _HOUR_SUMS
        + ", first_second = least(stored.first_second, EXCLUDED.first_second),"
        " until = greatest(stored.until, EXCLUDED.until)",
        _columns(rows),
    )


def _write_anomalies(connection: Connection, page: Page) -> None:
    gone: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    for key, ranges in page.anomalies.written():
        starts = {row[0] for row in ranges.rows}
        gone.extend((*key, start) for start in ranges.seen - starts)
        rows.extend((*key, *row) for row in ranges.rows)
    if gone:
        connection.execute(
            "DELETE FROM anomalies USING unnest(%b::int8[], %b::int8[], %b::text[], %b::int8[])"
            " AS old (machine, instance, why, first) WHERE machine_id = old.machine"
            " AND instance_id = old.instance AND code = old.why AND start = old.first",
            _columns(gone),
        )
    if rows:
        connection.execute(
            "INSERT INTO anomalies SELECT * FROM unnest(%b::int8[], %b::int8[], %b::text[],"
            " %b::int8[], %b::int8[], %s::numeric[], %b::int8[])"
            " ON CONFLICT (machine_id, instance_id, code, start) DO UPDATE SET"
            " until = EXCLUDED.until, amount = EXCLUDED.amount, position = EXCLUDED.position",
            _columns(rows),
        )


def _write_promotions(connection: Connection, page: Page) -> None:
    rows = [
        (account_id, since, page.promotions.get((account_id, since), 0), key in page.cuts)
        for key in sorted(page.cuts | page.promotions.keys())
        for account_id, since in [key]
    ]
    if rows:
        connection.execute(
            "INSERT INTO promotion_usage AS stored SELECT * FROM unnest(%b::int8[], %b::int8[],"
            " %s::numeric[], %b::bool[]) ON CONFLICT (account_id, since) DO UPDATE"
            " SET charged = stored.charged + EXCLUDED.charged,"
            " is_cut = stored.is_cut OR EXCLUDED.is_cut",
            _columns(rows),
        )


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _end(second: int) -> int | None:
    return None if second >= FAR_FUTURE else second
