"""Scheduled jobs that are due: each due second at most once, and none caught up in a burst.

A run and the fact that it ran are one transaction, and that fact names the next due second. What
fell due while nothing ran is recorded as missed; only a due second that is at most a minute ago is
still carried out.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events import JobOutcome, JobRan
from ledger.domain.ids import account_stream
from ledger.domain.schedule import dues_between, last_due
from ledger.domain.schedule import next_due as due_after
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services import rentals
from ledger.services.jobs import Job, require_job
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection

GRACE_SECONDS: Final = 60
"""How late a run may be and still be that run."""
JOBS_DUE: Final = (
    "SELECT job_id FROM scheduled_jobs WHERE due_at <= %(now)s AND removed_at IS NULL"
    " ORDER BY due_at, job_id"
)


def run_jobs(ledger: Ledger) -> None:
    """Carry out every job that is due, in the order of their due seconds."""
    with ledger.reading() as connection:
        due = connection.execute(JOBS_DUE, {"now": ledger.clock()}).fetchall()
    for (job_id,) in due:
        try:
            _run(ledger, job_id)
        except (RejectedError, DeclinedError, NotFoundError) as error:
            _run(ledger, job_id, refused=error.code)


def _run(ledger: Ledger, job_id: int, refused: str | None = None) -> None:
    """Run a job once, or record why a rule refused it."""
    with ledger.unit() as unit:
        try:
            job = require_job(unit.connection, None, job_id)
        except NotFoundError:
            return  # Removed meanwhile, or gone with its instance.
        due_at = _pass_over(unit, job)
        if due_at is None:
            return
        if refused is None:
            _carry_out(unit, job)
        _record(unit, job, "refused" if refused else "done", due_at, due_at + 1, code=refused)


def _pass_over(unit: Unit, job: Job) -> int | None:
    """The due second that is to be run now; those before it, if any, are recorded as missed."""
    first = job.due_at
    if first is None or first > unit.now:
        return None
    last = last_due(job.plan, first, unit.now)
    is_late = unit.now > last + GRACE_SECONDS
    end = last + 1 if is_late else last
    if missed := dues_between(job.plan, first, end):
        _record(unit, job, "missed", first, end, count=missed)
    return None if is_late else last


def _record(
    unit: Unit,
    job: Job,
    outcome: JobOutcome,
    due_at: int,
    after: int,
    *,
    code: str | None = None,
    count: int = 1,
) -> None:
    unit.append(
        account_stream(job.account_id),
        JobRan(
            account_id=job.account_id,
            instance_id=job.instance_id,
            job_id=job.job_id,
            outcome=outcome,
            code=code,
            count=count,
            due_at=due_at,
            next_due_at=due_after(job.plan, after),
            ran_at=unit.now,
        ),
    )


def _carry_out(unit: Unit, job: Job) -> None:
    match job.plan.action:
        case "reboot":
            rentals.reboot(unit, job.instance_id)
        case "start":
            rentals.start(unit, job.instance_id)
        case "stop":
            rentals.stop(unit, job.instance_id)
        case "change_bid":
            rentals.change_bid(unit, job.instance_id, job.plan.bid)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second in which a job is due."""
    row = connection.execute(
        "SELECT min(due_at) FROM scheduled_jobs WHERE due_at > %s AND removed_at IS NULL", [now]
    ).fetchone()
    return None if row is None else row[0]
