"""Scheduled jobs: what an instance is to do by the calendar, and what came of it.

One job of each kind an instance: another schedule changes it. Running them is a policy
(`ledger.services.policies.jobs`); an instance takes its jobs with it when it is destroyed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ledger.domain.events import JobChanged, JobPlan, JobRemoved, JobScheduled
from ledger.domain.ids import account_stream
from ledger.domain.instance import Instance, require_bidding
from ledger.domain.instance.contract import require_alive
from ledger.domain.money import MAX_POSTING_NANOS
from ledger.domain.schedule import check_plan, next_due
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.store.database import Connection

JOBS_MAX: Final = 200
"""Living jobs of one account."""


class Job(NamedTuple):
    """A job: its plan, when it is due next (none: never), and what came of the last run."""

    job_id: int
    account_id: int
    instance_id: int
    plan: JobPlan
    due_at: int | None
    last_outcome: str | None
    last_code: str | None
    last_due_at: int | None
    last_ran_at: int | None
    scheduled_at: int


def schedule(unit: Unit, instance_id: int, plan: JobPlan) -> int:
    """Plan a job for an instance; returns its id. The same plan again is the same job.

    Raises:
        NotFoundError: `no_such_instance`, also for one that was destroyed.
        RejectedError: `invalid_schedule`, `invalid_price`, `job_exists` (with its `job_id`) when
            the instance has another of this kind, `not_interruptible`, or `too_many_jobs`.
    """
    instance = unit.instance(instance_id)
    _check(instance, plan)
    living = jobs(unit.connection, instance.account_id, limit=JOBS_MAX + 1)
    for one in living:
        if (one.instance_id, one.plan.action) == (instance_id, plan.action):
            if one.plan == plan:
                return one.job_id
            message = f"job {one.job_id} does this to instance {instance_id}: change that one"
            raise RejectedError("job_exists", message, job_id=one.job_id)
    if len(living) >= JOBS_MAX:
        raise RejectedError("too_many_jobs", f"an account has at most {JOBS_MAX} jobs")
    job_id = unit.next_id("job")
    unit.append(
        account_stream(instance.account_id),
        JobScheduled(
            account_id=instance.account_id,
            instance_id=instance_id,
            job_id=job_id,
            plan=plan,
            due_at=next_due(plan, unit.now + 1),
            scheduled_at=unit.now,
        ),
    )
    return job_id


def change(unit: Unit, account_id: int, job_id: int, plan: JobPlan) -> None:
    """Give a job another plan, for the same thing to do; the same again changes nothing.

    Raises:
        NotFoundError: `no_such_job`.
        RejectedError: `invalid_schedule`, `invalid_price`.
    """
    job = require_job(unit.connection, account_id, job_id)
    if plan.action != job.plan.action:
        message = f"job {job_id} is for {job.plan.action}: make another for {plan.action}"
        raise RejectedError("invalid_schedule", message)
    _check(unit.instance(job.instance_id), plan)
    if plan != job.plan:
        unit.append(
            account_stream(account_id),
            JobChanged(
                account_id=account_id,
                instance_id=job.instance_id,
                job_id=job_id,
                plan=plan,
                due_at=next_due(plan, unit.now + 1),
                changed_at=unit.now,
            ),
        )


def remove(unit: Unit, account_id: int, job_id: int) -> None:
    """Do it no more.

    Raises:
        NotFoundError: `no_such_job`.
    """
    job = require_job(unit.connection, account_id, job_id)
    unit.append(
        account_stream(account_id),
        JobRemoved(
            account_id=account_id,
            instance_id=job.instance_id,
            job_id=job_id,
            removed_at=unit.now,
        ),
    )


_COLUMNS: Final = (
    "job_id, account_id, instance_id, plan, due_at, last_outcome, last_code, last_due_at,"
    " last_ran_at, scheduled_at"
)


def jobs(
    connection: Connection,
    account_id: int | None,
    *,
    instance_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[Job]:
    """The jobs of an account (none: of all), by id; those of one instance, if it is named."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM scheduled_jobs WHERE job_id > %s AND removed_at IS NULL"  # noqa: S608 - a constant
        " AND (%s::bigint IS NULL OR account_id = %s)"
        " AND (%s::bigint IS NULL OR instance_id = %s) ORDER BY job_id LIMIT %s",
        [after, account_id, account_id, instance_id, instance_id, limit],
    ).fetchall()
    return [Job(row[0], row[1], row[2], msgspec.convert(row[3], JobPlan), *row[4:]) for row in rows]


def require_job(connection: Connection, account_id: int | None, job_id: int) -> Job:
    """A living job of this account (none: of any).

    Raises:
        NotFoundError: `no_such_job`.
    """
    found = jobs(connection, account_id, after=job_id - 1, limit=1)
    if not found or found[0].job_id != job_id:
        raise NotFoundError("no_such_job", f"there is no scheduled job {job_id}")
    return found[0]


def _check(instance: Instance, plan: JobPlan) -> None:
    require_alive(instance)
    check_plan(plan)
    if plan.action == "change_bid":
        require_bidding(instance)
    if plan.bid is not None and not 0 < plan.bid <= MAX_POSTING_NANOS:
        raise RejectedError("invalid_price", "a bid is above 0")
