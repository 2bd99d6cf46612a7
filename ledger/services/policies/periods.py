"""Usage periods that end, and seconds that no tick can cover any more."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from ledger.domain.events import Fact, PeriodClosed, UsageGapRecorded
from ledger.domain.ids import account_stream, instance_stream, month_start, next_month_start
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.meters.intervals import Range, overlap, subtract
from ledger.projections.contracts import CONTRACTS
from ledger.projections.runner import position_of
from ledger.services import invoicing
from ledger.services.billing import PLAN_DUE, plan_due
from ledger.services.ledger import Ledger, read_policy
from ledger.services.policies.common import is_due
from ledger.services.policies.glance import ISSUE_AFTER_SECONDS, any_of, marked
from ledger.store.database import Connection

_BATCH: Final = 2_000
"""Periods closed in one transaction: nobody waits long for the log."""

_MONTHS: Final = (
    "SELECT a.account_id, greatest(a.closed_until, min(i.created_at)), a.closed_until"  # noqa: S608 - a constant
    f" FROM accounts a JOIN {CONTRACTS} i USING (account_id)"
    " WHERE a.closed_until < %(month)s AND NOT EXISTS"
    " (SELECT 1 FROM billing b WHERE b.account_id = a.account_id)"
    " GROUP BY a.account_id HAVING greatest(a.closed_until, min(i.created_at)) < %(month)s"
    f" ORDER BY a.account_id LIMIT {_BATCH}"
)
"""Accounts with UTC calendar months that ever rented, and have a month to close."""

_CHOSEN: Final = f"""
SELECT a.account_id, a.closed_until, b.zero_invoices, min(i.created_at),
       array_agg(DISTINCT p.boundary ORDER BY p.boundary)
FROM billing b JOIN accounts a USING (account_id)
JOIN planned_boundaries p ON p.account_id = a.account_id AND p.boundary > a.closed_until
                         AND p.boundary <= %(passed)s
LEFT JOIN {CONTRACTS} i ON i.account_id = a.account_id
GROUP BY a.account_id, b.zero_invoices HAVING b.zero_invoices OR max(p.boundary) > min(i.created_at)
ORDER BY a.account_id LIMIT {_BATCH}
"""  # noqa: S608 - a constant
"""Accounts with periods of their own, and the boundaries up to which they can be closed."""

PERIODS_DUE: Final = any_of(_MONTHS, _CHOSEN)
GAPS_DUE: Final = (
    f"SELECT 1 WHERE {marked('gaps')}"
    f" < (%(now)s - %(late)s) / {SECONDS_PER_HOUR} * {SECONDS_PER_HOUR}"
)


def close_periods(ledger: Ledger) -> None:
    """Close usage periods an hour after they ended, for accounts that ever rented."""
    passed = ledger.clock() - ISSUE_AFTER_SECONDS
    boundary = month_start(passed)
    while _is_due(ledger, boundary, passed):
        with ledger.unit() as unit:
            new: list[tuple[str, Fact]] = []
            for account_id, start, end in [
                *_ended_months(unit.connection, boundary),
                *_ended_periods(unit.connection, passed),
            ]:
                fact = PeriodClosed(
                    account_id=account_id, period_from=start, period_until=end, closed_at=unit.now
                )
                new.append((account_stream(account_id), fact))
            unit.append_all(new)
            if not new:
                return


def _is_due(ledger: Ledger, boundary: int, passed: int) -> bool:
    with ledger.reading() as connection:
        return bool(
            connection.execute(_MONTHS, {"month": boundary}).fetchone()
            or connection.execute(_CHOSEN, {"passed": passed}).fetchone()
        )


def _ended_months(connection: Connection, boundary: int) -> list[tuple[int, int, int]]:
    """(account, from, until) of every UTC month that ended by *boundary* and is not closed."""
    found = []
    for account_id, used_from, closed_until in connection.execute(
        _MONTHS, {"month": boundary}
    ).fetchall():
        start = max(closed_until, month_start(used_from))
        while next_month_start(start) <= boundary:
            end = next_month_start(start)
            found.append((account_id, start, int(end)))
            start = end
    return found


def _ended_periods(connection: Connection, passed: int) -> list[tuple[int, int, int]]:
    """(account, from, until) of every period of an account's own that ended by *passed*.

    What lies before the first instance, as a whole, is no period.
    """
    found = []
    for account_id, closed_until, zero, used_from, boundaries in connection.execute(
        _CHOSEN, {"passed": passed}
    ).fetchall():
        bounds = [closed_until, *boundaries]
        for start, end in pairwise(bounds):
            if zero or end > used_from:
                found.append((account_id, start, end))
    return found


def issue_invoices(ledger: Ledger) -> None:
    """Issue the invoices of periods that are closed and folded."""
    invoicing.issue_due(ledger)


def plan_periods(ledger: Ledger) -> None:
    """Plan further boundaries for accounts whose plan comes to its end."""
    if is_due(ledger, PLAN_DUE):
        with ledger.unit() as unit:
            plan_due(unit)


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
        "SELECT (SELECT min(boundary) FROM planned_boundaries WHERE boundary > %s), EXISTS"  # noqa: S608 - a constant
        f" (SELECT 1 FROM accounts a JOIN {CONTRACTS} i USING (account_id))",
        [now - ISSUE_AFTER_SECONDS],
    ).fetchone()
    assert row is not None
    ends = [] if row[0] is None else [row[0]]
    if row[1]:
        ends.append(int(next_month_start(now - ISSUE_AFTER_SECONDS)))
    return min(ends) + ISSUE_AFTER_SECONDS if ends else None
