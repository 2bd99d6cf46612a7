"""Runs comparisons: each once per job and UTC day by itself, or whenever a person asks.

A comparison reads without a lock and may take long; what it found is written in one command. To run
it again for the same day finds the same things, and writes nothing twice.
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.events import JobName, ReconciliationCompleted
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services.ledger import Ledger, read_policy
from ledger.services.reconciliation.difference import Difference
from ledger.services.reconciliation.findings import STREAM, record, stands
from ledger.services.reconciliation.jobs import JOBS, Job, compare
from ledger.services.reconciliation.processor import ProcessorComparison
from ledger.store.database import Connection


class Outcome(NamedTuple):
    """What one comparison found: `open` of its differences wait for a person."""

    job: JobName
    period_from: int
    found: int
    opened: int
    open: int
    note: str
    differences: list[Difference]

    @property
    def is_clean(self) -> bool:
        """True when both sides agree, or were explained."""
        return not self.open


def run(
    ledger: Ledger, name: JobName, day: int, processor: ProcessorComparison | None = None
) -> Outcome:
    """Compare both sides of *name* for the UTC day that begins at second *day*.

    Raises:
        RejectedError: `invalid_args` for a second that begins no day, or a day to come.
        UnavailableError: A side does not answer; nothing was written.
        ConflictError: `rebuild_running`.
    """
    if day % SECONDS_PER_DAY or day > ledger.clock():
        message = "a comparison is for a UTC day that has begun: name its first second"
        raise RejectedError("invalid_args", message)
    job, until = JOBS[name], day + SECONDS_PER_DAY
    found = compare(ledger, name, day, until, processor)
    with ledger.unit() as unit:
        if found.is_done:
            recorded = record(unit, name, day if job.of_days else 0, found.differences)
        else:
            recorded = stands(unit, name)
        row = unit.connection.execute(
            "SELECT found, note FROM reconciliations WHERE job = %s AND period_from = %s",
            [name, day],
        ).fetchone()
        if recorded.opened or row != (len(found.differences), found.note):
            unit.append(
                STREAM,
                ReconciliationCompleted(
                    job=name,
                    period_from=day,
                    period_until=until,
                    found=len(found.differences),
                    opened=recorded.opened,
                    note=found.note,
                    completed_at=unit.now,
                ),
            )
    return Outcome(name, day, len(found.differences), *recorded, found.note, found.differences)


def last_ready(ledger: Ledger, name: JobName) -> int:
    """The first second of the last day of which nothing can come any more for this comparison."""
    with ledger.reading() as connection:
        late = read_policy(connection).late_usage_seconds
    return _newest(JOBS[name], ledger.clock(), late)


def _newest(job: Job, now: int, late_usage_seconds: int) -> int:
    ready = now - job.due_seconds(late_usage_seconds) - SECONDS_PER_DAY
    return ready // SECONDS_PER_DAY * SECONDS_PER_DAY


def due(connection: Connection, now: int) -> list[tuple[JobName, int]]:
    """The jobs and days that are to be compared at second *now*, oldest day first.

    A job begins with the last day that is ready for it; from then on it leaves none out.
    """
    policy = read_policy(connection)
    last: dict[str, int] = dict(
        connection.execute(
            "SELECT job, max(period_from) FROM reconciliations GROUP BY job"
        ).fetchall()
    )
    waiting: list[tuple[JobName, int]] = []
    for name, job in JOBS.items():
        newest = _newest(job, now, policy.late_usage_seconds)
        # What is so now is compared once, however many days nobody looked.
        first = last.get(name, newest - SECONDS_PER_DAY) + SECONDS_PER_DAY
        if not job.of_days:
            first = max(first, newest)
        waiting += [(name, day) for day in range(first, newest + 1, SECONDS_PER_DAY)]
    return sorted(waiting, key=lambda one: one[1])


def run_due(ledger: Ledger, processor: ProcessorComparison | None = None) -> list[Outcome]:
    """Compare everything that is due at the present second."""
    with ledger.reading() as connection:
        waiting = due(connection, ledger.clock())
    return [run(ledger, name, day, processor) for name, day in waiting]
