"""Usage periods that end, and seconds that no tick can cover any more."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import Fact, PeriodClosed, UsageGapRecorded
from ledger.domain.ids import account_stream, instance_stream, month_start, next_month_start
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.meters.intervals import Range, overlap, subtract
from ledger.projections.runner import position_of
from ledger.services.ledger import Ledger, read_policy
from ledger.store.database import Connection

ISSUE_AFTER_SECONDS: Final = 3_600


_OPEN_PERIODS = (
    "SELECT a.account_id, greatest(a.closed_until, min(i.created_at)), a.closed_until"
    " FROM accounts a JOIN instances i USING (account_id)"
    " WHERE a.closed_until <= %s GROUP BY a.account_id ORDER BY a.account_id"
)


def close_periods(ledger: Ledger) -> None:
    """Close usage periods (UTC months) an hour after they ended, for accounts that ever rented."""
    boundary = month_start(ledger.clock() - ISSUE_AFTER_SECONDS)
    with ledger.reading() as connection:
        row = connection.execute(f"{_OPEN_PERIODS} LIMIT 1", [boundary - 1]).fetchone()
    if row is None:
        return
    with ledger.unit() as unit:
        new: list[tuple[str, Fact]] = []
        for account_id, used_from, closed_until in unit.connection.execute(
            _OPEN_PERIODS, [boundary - 1]
        ).fetchall():
            start = max(closed_until, month_start(used_from))
            while next_month_start(start) <= boundary:
                end = next_month_start(start)
                fact = PeriodClosed(
                    account_id=account_id, period_from=start, period_until=end, closed_at=unit.now
                )
                new.append((account_stream(account_id), fact))
                start = end
        unit.append_all(new)


def record_gaps(ledger: Ledger) -> None:
    """Record seconds of GPU intervals that no timely tick can cover any more; once an hour."""
    with ledger.reading() as connection:
        policy = read_policy(connection)
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = 'gaps'"
        ).fetchone()
    checked = 0 if row is None else int(row[0])
    until = (ledger.clock() - policy.late_usage_seconds) // SECONDS_PER_HOUR * SECONDS_PER_HOUR
    if until <= checked:
        return
    with ledger.unit() as unit:
        if not folded_through(unit.connection, until + policy.late_usage_seconds):
            return  # A tick that came in time may wait to be folded; a later second will do.
        new: list[tuple[str, Fact]] = []
        for instance_id, machine_id, gap in _gaps(unit.connection, checked, until):
            fact = UsageGapRecorded(
                instance_id=instance_id,
                machine_id=machine_id,
                gap_from=gap.start,
                gap_until=gap.end,
                recorded_at=unit.now,
            )
            new.append((instance_stream(instance_id), fact))
        unit.append_all(new)
        unit.connection.execute(
            "INSERT INTO projection_positions VALUES ('gaps', 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [until],
        )


def folded_through(connection: Connection, second: int) -> bool:
    """True when everything recorded up to *second* is folded."""
    row = connection.execute(
        "SELECT recorded_at FROM events WHERE position > %s ORDER BY position LIMIT 1",
        [position_of(connection)],
    ).fetchone()
    return row is None or row[0] > second


def _gaps(connection: Connection, start: int, until: int) -> list[tuple[int, int, Range]]:
    """Seconds of `[start, until)` that lie in a GPU interval and have no tick."""
    intervals = connection.execute(
        "SELECT g.instance_id, i.machine_id, g.start, g.until FROM gpu_intervals g"
        " JOIN metered_instances i USING (instance_id)"
        " WHERE g.start < %s AND (g.until IS NULL OR g.until > %s) ORDER BY g.instance_id, g.start",
        [until, start],
    ).fetchall()
    covered: dict[int, list[Range]] = {}
    for instance_id, low, high in connection.execute(
        "SELECT instance_id, start, until FROM coverage WHERE instance_id = ANY(%s)"
        " AND start < %s AND until > %s ORDER BY instance_id, start",
        [[row[0] for row in intervals], until, start],
    ):
        covered.setdefault(instance_id, []).append(Range(low, high))
    found = []
    for instance_id, machine_id, low, high in intervals:
        first, last = max(low, start), until if high is None else min(high, until)
        taken = overlap(covered.get(instance_id, []), first, last)
        found += [(instance_id, machine_id, gap) for gap in subtract(first, last, taken)]
    return found


def next_due(connection: Connection, now: int) -> int | None:
    """The next issue of invoices; none while nobody ever rented."""
    row = connection.execute(
        "SELECT 1 FROM accounts a WHERE EXISTS"
        " (SELECT 1 FROM instances i WHERE i.account_id = a.account_id) LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    return next_month_start(now - ISSUE_AFTER_SECONDS) + ISSUE_AFTER_SECONDS
