"""Ticks one by one, charges line by line, and what was attested and not billed."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ledger.domain.events import USAGE_REPORTED
from ledger.domain.ids import usage_stream
from ledger.domain.usage import UsageReport, decode_stored, ticks_of
from ledger.errors import NotFoundError, RejectedError
from ledger.meters.pricing import METERS, Meter
from ledger.projections.runner import position_of
from ledger.store.database import Connection
from ledger.store.log import Stored, read_stream

_CHUNK = 64


class TickView(msgspec.Struct, frozen=True, kw_only=True):
    """One second of one instance, with its address in the log and the report that attests it."""

    instance_id: int
    second: int
    state: str
    up_bytes: int
    down_bytes: int
    utilisation: int
    position: int
    machine_id: int
    epoch: str
    seq: int
    received_at: int
    first: bool
    """True when this is the first accepted tick of its second: the only one that can count."""
    counted: bool
    """True when everything it attests went into the meters."""
    why_not: str | None
    """The code of the anomaly that kept it, or part of it, out; `outside_life` where the instance
    did not exist; `not_folded` while the projection has not come to it."""


class ChargeLine(msgspec.Struct, frozen=True, kw_only=True):
    """Consumption of one item in one UTC hour or in one rate segment."""

    instance_id: int
    item: str
    """`gpu`, `disk`, `bwu` or `bwd`."""
    kind: str
    rate: int
    quantity: int
    amount: int
    fee: int
    segment_from: int
    used_from: int
    used_until: int
    hour: int | None
    late: bool
    position: int
    key: str
    """Orders the list and pages it; lines of different items of one row share it."""


class AnomalyView(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that were attested, stored and not billed, and why."""

    machine_id: int
    instance_id: int | None
    code: str
    severity: str
    start: int
    until: int
    amount: int
    position: int


_ITEMS: dict[Meter, str] = {
    "gpu": "gpu",
    "storage": "disk",
    "up": "bwu",
    "down": "bwd",
    "reserved_idle": "reserved_idle",
}
_AFTER_STOP_INFO_SECONDS = 30
_NOT_FOLDED = "not_folded"
_NOT_OF_A_FIRST_TICK = ["duplicate_second", "gap", "late_exhaustion", "observation_ignored"]
"""Anomalies that say nothing about the first tick of a second."""


# --- ticks ---------------------------------------------------------------------------------------


def ticks(
    connection: Connection,
    instance_id: int,
    *,
    start: int = 0,
    until: int | None = None,
    after: tuple[int, int] = (0, 0),
    limit: int = 1_000,
) -> list[TickView]:
    """Up to *limit* ticks of an instance from second *start* on, by (second, position).

    *after* is (second, position) of the last tick of the page before.

    No index of ticks exists: windows of an epoch rise with its sequence numbers, so the first
    report is found by halving, and the reports after it are read in order. Reports before and after
    everything that was ever attested of the instance are not read.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    life = _life(connection, instance_id)
    first = max(start, life.first, after[0])
    end = min(2**62 if until is None else until, life.end)
    found: list[TickView] = []
    epochs = connection.execute(
        "SELECT epoch FROM machine_epochs WHERE machine_id = %s ORDER BY position",
        [life.machine_id],
    ).fetchall()
    for (epoch,) in epochs:
        count = 0
        for stored, report in _reports(connection, life.machine_id, epoch, first):
            if report.start >= end or count >= limit:
                break
            is_folded = stored.position <= life.folded
            for tick in _ticks(stored, report, instance_id, first, end, is_folded=is_folded):
                found.append(tick)
                count += (tick.second, tick.position) > after
    found.sort(key=lambda tick: (tick.second, tick.position))
    judged = _judged(connection, life, found)
    return [one for one in judged if (one.second, one.position) > after][:limit]


class _Life(NamedTuple):
    instance_id: int
    machine_id: int
    created_at: int
    destroyed_at: int
    first: int
    """No tick of the instance is older than this second."""
    end: int
    """No folded tick of the instance is as young as this second."""
    folded: int
    """The position of the last event that is folded."""


def _life(connection: Connection, instance_id: int) -> _Life:
    row = connection.execute(
        "SELECT i.machine_id, i.created_at, coalesce(i.destroyed_at, %(ever)s),"
        " least(i.created_at, c.first, a.first),"
        " coalesce(greatest(i.destroyed_at, c.last, a.last), 0)"
        " FROM instances i CROSS JOIN LATERAL (SELECT min(start) AS first, max(until) AS last"
        "  FROM coverage c WHERE c.instance_id = i.instance_id) c"
        " CROSS JOIN LATERAL (SELECT min(start) AS first, max(until) AS last"
        "  FROM anomalies a WHERE a.instance_id = i.instance_id) a"
        " WHERE i.instance_id = %(id)s",
        {"id": instance_id, "ever": 2**62},
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    machine_id, created_at, destroyed_at, first, last = row
    end = 2**62 if destroyed_at == 2**62 else last
    folded = position_of(connection)
    return _Life(instance_id, machine_id, created_at, destroyed_at, first, end, folded)


def _judged(connection: Connection, life: _Life, ticks: list[TickView]) -> list[TickView]:
    """*ticks*, ordered, with what became of each; they begin with the first one of a second."""
    if not ticks:
        return []
    seconds = [tick.second for tick in ticks]
    reasons: dict[int, str] = {}
    for code, start, until in connection.execute(
        "SELECT code, start, until FROM anomalies WHERE instance_id = %s AND machine_id = %s"
        " AND until > %s AND start <= %s AND code <> ALL(%s) ORDER BY start, code",
        [life.instance_id, life.machine_id, seconds[0], seconds[-1], _NOT_OF_A_FIRST_TICK],
    ):
        for index in range(bisect_left(seconds, start), bisect_left(seconds, until)):
            reasons.setdefault(seconds[index], code)
    result = []
    before = None
    for tick in ticks:
        why_not = tick.why_not
        if why_not is None:
            if tick.second == before:
                why_not = "duplicate_second"
            elif tick.second in reasons:
                why_not = reasons[tick.second]
            elif not life.created_at <= tick.second < life.destroyed_at:
                why_not = "outside_life"
        result.append(
            msgspec.structs.replace(
                tick, first=tick.second != before, counted=why_not is None, why_not=why_not
            )
        )
        before = tick.second
    return result


def _ticks(
    stored: Stored,
    report: UsageReport,
    instance_id: int,
    start: int,
    until: int,
    *,
    is_folded: bool,
) -> Iterator[TickView]:
    for tick in ticks_of(report, stored.position):
        if tick.instance == instance_id and start <= tick.second < until:
            yield TickView(
                instance_id=instance_id,
                second=tick.second,
                state=tick.state,
                up_bytes=tick.up_bytes,
                down_bytes=tick.down_bytes,
                utilisation=tick.utilisation,
                position=tick.position,
                machine_id=report.machine,
                epoch=report.epoch,
                seq=report.seq,
                received_at=stored.recorded_at,
                first=False,
                counted=False,
                why_not=None if is_folded else _NOT_FOLDED,
            )


def _reports(
    connection: Connection, machine_id: int, epoch: str, second: int
) -> Iterator[tuple[Stored, UsageReport]]:
    """Reports of an epoch, from the first whose window ends after *second*."""
    stream = usage_stream(machine_id, epoch)
    version = _first_version(connection, stream, second)
    while True:
        page = read_stream(connection, stream, above=version, limit=_CHUNK)
        for stored in page:
            if stored.topic == USAGE_REPORTED:
                yield stored, decode_stored(stored.state)
        if len(page) < _CHUNK:
            return
        version = page[-1].version


def report_at(
    connection: Connection, machine_id: int, second: int, instance_id: int | None = None
) -> tuple[Stored, UsageReport] | None:
    """The first accepted report of a machine that attests *second*, of one instance if named."""
    found = None
    for (epoch,) in connection.execute(
        "SELECT epoch FROM machine_epochs WHERE machine_id = %s ORDER BY position", [machine_id]
    ).fetchall():
        for stored, report in _reports(connection, machine_id, epoch, second):
            if report.start > second:
                break
            if not _attests(report, second, instance_id):
                continue
            if found is None or stored.position < found[0].position:
                found = (stored, report)
            break
    return found


def _attests(report: UsageReport, second: int, instance_id: int | None) -> bool:
    if instance_id is None:
        return report.start <= second < report.until
    return any(
        block.instance == instance_id and block.start <= second < block.start + block.count
        for block in report.instances
    )


def _first_version(connection: Connection, stream: str, second: int) -> int:
    """The last version known to end at or before *second*; found in log2(n) reads."""
    row = connection.execute(
        "SELECT version FROM stream_heads WHERE stream_id = %s", [stream]
    ).fetchone()
    low, high = 0, 0 if row is None else int(row[0])
    while low < high:
        middle = (low + high + 1) // 2
        probe = next(
            (
                stored
                for stored in read_stream(
                    connection, stream, above=low, through=middle, descending=True, limit=_CHUNK
                )
                if stored.topic == USAGE_REPORTED
            ),
            None,
        )
        if probe is None:
            break
        if decode_stored(probe.state).until <= second:
            low = middle
        else:
            high = probe.version - 1
    return low


# --- charges -------------------------------------------------------------------------------------

_HOURS = """
SELECT h.instance_id, h.hour, s.since, s.kind, s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate,
       s.gpu_rate,
       h.first_second, h.until, h.position, h.booked > h.first_second,
       h.gpu_quantity, h.gpu_charge, h.gpu_fee, h.storage_quantity, h.storage_charge, h.storage_fee,
       h.up_quantity, h.up_charge, h.up_fee, h.down_quantity, h.down_charge, h.down_fee,
       h.reserved_idle_quantity, h.reserved_idle_charge, h.reserved_idle_fee,
       h.hour, h.terms_no, h.booked
FROM usage_hours h JOIN rate_segments s USING (instance_id, terms_no)
WHERE (h.instance_id, h.hour, h.terms_no, h.booked) >= (%(i)s, %(h)s, %(t)s, %(b)s)
  AND (h.gpu_charge > 0 OR h.storage_charge > 0 OR h.up_charge > 0 OR h.down_charge > 0
       OR h.reserved_idle_charge > 0)
  AND (%(only)s::bigint IS NULL OR h.instance_id = %(only)s)
  AND (%(account)s::bigint IS NULL OR h.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR h.host_id = %(host)s)
  AND h.hour >= %(start)s AND h.hour < %(until)s
ORDER BY h.instance_id, h.hour, h.terms_no, h.booked LIMIT %(limit)s
"""
_SEGMENTS = """
SELECT s.instance_id, NULL, s.since, s.kind, s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate,
       s.gpu_rate,
       h.first_second, h.until, h.position, false,
       s.gpu_quantity, s.gpu_charge, s.gpu_fee, s.storage_quantity, s.storage_charge, s.storage_fee,
       s.up_quantity, s.up_charge, s.up_fee, s.down_quantity, s.down_charge, s.down_fee,
       s.reserved_idle_quantity, s.reserved_idle_charge, s.reserved_idle_fee,
       0, s.terms_no, 0
FROM rate_segments s JOIN metered_instances m USING (instance_id) JOIN LATERAL (
    SELECT min(first_second) AS first_second, max(until) AS until, min(position) AS position
    FROM usage_hours h WHERE h.instance_id = s.instance_id AND h.terms_no = s.terms_no) h ON true
WHERE (s.instance_id, s.terms_no) >= (%(i)s, %(t)s)
  AND (s.gpu_charge > 0 OR s.storage_charge > 0 OR s.up_charge > 0 OR s.down_charge > 0
       OR s.reserved_idle_charge > 0)
  AND (%(only)s::bigint IS NULL OR s.instance_id = %(only)s)
  AND (%(account)s::bigint IS NULL OR m.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR m.host_id = %(host)s)
  AND h.position IS NOT NULL
ORDER BY s.instance_id, s.terms_no LIMIT %(limit)s
"""


def charges(
    connection: Connection,
    *,
    instance_id: int | None = None,
    account_id: int | None = None,
    host_id: int | None = None,
    by_hour: bool = False,
    start: int = 0,
    until: int | None = None,
    after: str = "",
    limit: int = 100,
) -> list[ChargeLine]:
    """What instances consumed, per rate segment or per UTC hour; nothing that costs nothing.

    Args:
        connection: An open connection.
        instance_id: Only this instance.
        account_id: Only this renter.
        host_id: Only instances on this host's machines.
        by_hour: One set of lines per UTC hour, from *start* to *until* (Unix seconds).
        start: First second of the hours.
        until: End of the hours.
        after: The `key` of the last line of the page before.
        limit: Lines at most.

    Raises:
        RejectedError: `invalid_args` for a key that this list never gave.
    """
    key = _charge_key(after)
    begun = (key["i"], key["h"], key["t"], key["b"])
    rows = connection.execute(
        _HOURS if by_hour else _SEGMENTS,
        {
            **key,
            "only": instance_id,
            "account": account_id,
            "host": host_id,
            "start": start // 3_600,
            "until": 2**60 if until is None else -(-until // 3_600),
            # Every row has a line; the first may have had all of its own on the page before.
            "limit": limit + 1,
        },
    )
    lines = []
    for row in rows:
        place = (row[0], *row[28:31])
        for index, meter in enumerate(METERS):
            quantity, amount, fee = (int(value) for value in row[13 + 3 * index : 16 + 3 * index])
            if amount and (place != begun or index > key["m"]):
                lines.append(
                    ChargeLine(
                        instance_id=row[0],
                        item=_ITEMS[meter],
                        kind=row[3],
                        rate=int(row[4 + index]),
                        quantity=quantity,
                        amount=amount,
                        fee=fee,
                        segment_from=row[2],
                        used_from=row[9],
                        used_until=row[10],
                        hour=None if row[1] is None else row[1] * 3_600,
                        late=row[12],
                        position=row[11],
                        key=":".join(map(str, (*place, index))),
                    )
                )
    return lines[:limit]


def _charge_key(after: str) -> dict[str, int]:
    parts = after.split(":") if after else ["0", "0", "0", "0", "-1"]
    if len(parts) != 5 or not all(re.fullmatch(r"-?[0-9]{1,18}", part) for part in parts):  # noqa: PLR2004 - instance, hour, terms, booked, meter
        message = f"{after!r} is no key of a charge: take it from the last line of a page"
        raise RejectedError("invalid_args", message)
    return dict(zip("ihtbm", map(int, parts), strict=True))


# --- anomalies -----------------------------------------------------------------------------------


def anomalies(
    connection: Connection,
    *,
    machine_id: int | None = None,
    host_id: int | None = None,
    instance_id: int | None = None,
    account_id: int | None = None,
    after: tuple[int, int, str, int] = (0, -1, "", 0),
    limit: int = 100,
) -> list[AnomalyView]:
    """Anomalies by (machine, instance, code, first second)."""
    rows = connection.execute(
        "SELECT a.machine_id, a.instance_id, a.code, a.start, a.until, a.amount, a.position"
        " FROM anomalies a LEFT JOIN machines m USING (machine_id)"
        " LEFT JOIN instances i ON i.instance_id = a.instance_id"
        " WHERE (a.machine_id, a.instance_id, a.code, a.start) > (%(m)s, %(i)s, %(c)s, %(s)s)"
        " AND (%(machine)s::bigint IS NULL OR a.machine_id = %(machine)s)"
        " AND (%(host)s::bigint IS NULL OR m.host_id = %(host)s)"
        " AND (%(instance)s::bigint IS NULL OR a.instance_id = %(instance)s)"
        " AND (%(account)s::bigint IS NULL OR i.account_id = %(account)s)"
        " ORDER BY a.machine_id, a.instance_id, a.code, a.start LIMIT %(limit)s",
        {
            **dict(zip("mics", after, strict=True)),
            "machine": machine_id,
            "host": host_id,
            "instance": instance_id,
            "account": account_id,
            "limit": limit,
        },
    )
    return [
        AnomalyView(
            machine_id=row[0],
            instance_id=row[1] or None,
            code=row[2],
            severity=_severity(row[2], row[4] - row[3]),
            start=row[3],
            until=row[4],
            amount=int(row[5]),
            position=row[6],
        )
        for row in rows
    ]


def _severity(code: str, seconds: int) -> str:
    if code in {"equivocation", "chain_fork"}:
        return "critical"
    if code == "duplicate_second":
        return "info"
    if code == "after_stop" and seconds <= _AFTER_STOP_INFO_SECONDS:
        return "info"
    return "warning"
