"""Scheduled jobs: reboot, start, stop or another bid, by the calendar."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.own import require_own
from adapters.http.wire import Body, Dollars, Id, Instant, Page, decode_cursor, instant, page_of
from ledger.domain.events import Frequency, JobAction, JobPlan
from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars, parse_dollars
from ledger.services import jobs as use_cases
from ledger.services.ledger import Unit

_Day = Annotated[int, Meta(ge=0, le=6)]
_Hour = Annotated[int, Meta(ge=0, le=23)]
_Minute = Annotated[int, Meta(ge=0, le=59)]


class JobChange(Body):
    """When to do what, in UTC; within `[start, until)`, from now on by default.

    `hour` for DAILY and WEEKLY, `day` (0 is Sunday) for WEEKLY. `bid` is dollars per hour for the
    slice; without it `change_bid` bids the smallest amount that runs.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "action": "change_bid",
        "bid": "0.30",
        "frequency": "DAILY",
        "hour": 3,
        "minute": 30,
        "until": "2027-01-01T00:00:00Z",
    }

    action: Literal["reboot", "start", "stop", "change_bid"]
    frequency: Literal["HOURLY", "DAILY", "WEEKLY"]
    bid: Dollars | None = None
    day: _Day | None = None
    hour: _Hour | None = None
    minute: _Minute = 0
    start: str | None = None
    until: str | None = None


class NewJob(JobChange, kw_only=True):
    """A job of an instance; one of each action, which `PUT` changes."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"instance_id": 7, **JobChange.EXAMPLE}

    instance_id: Id


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job; `due_at` is null when its window has no due second left.

    `last_outcome`: `done`; `refused` by the rule `last_code`; or `missed`, as nothing ran then.
    """

    job_id: int
    account_id: int
    instance_id: int
    action: str
    bid: Dollars | None
    frequency: str
    day: int | None
    hour: int | None
    minute: int
    start: Instant | None
    until: Instant | None
    due_at: Instant | None
    last_outcome: str | None
    last_code: str | None
    last_due_at: Instant | None
    last_ran_at: Instant | None
    scheduled_at: Instant


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """This job is done no more."""

    job_id: int


def _plan(data: JobChange) -> JobPlan:
    action: JobAction = data.action
    frequency: Frequency = data.frequency
    start = instant(data.start, "start")
    return JobPlan(
        action=action,
        bid=None if data.bid is None else parse_dollars(data.bid),
        frequency=frequency,
        day=data.day,
        hour=data.hour,
        minute=data.minute,
        start=start or 0,
        until=instant(data.until, "until"),
    )


def _maybe(second: int | None) -> str | None:
    return None if second is None else rfc3339(second)


def _shown(job: use_cases.Job) -> Job:
    plan = job.plan
    return Job(
        job_id=job.job_id,
        account_id=job.account_id,
        instance_id=job.instance_id,
        action=plan.action,
        bid=None if plan.bid is None else format_dollars(plan.bid),
        frequency=plan.frequency,
        day=plan.day,
        hour=plan.hour,
        minute=plan.minute,
        start=_maybe(plan.start or None),
        until=_maybe(plan.until),
        due_at=_maybe(job.due_at),
        last_outcome=job.last_outcome,
        last_code=job.last_code,
        last_due_at=_maybe(job.last_due_at),
        last_ran_at=_maybe(job.last_ran_at),
        scheduled_at=rfc3339(job.scheduled_at),
    )


@post("/v1/scheduled-jobs", opt=allowed(*RENTER), summary="Schedule a job")
async def schedule(call: Caller, data: JSONBody[NewJob]) -> Response[Job]:
    """Let an instance do something by the calendar; `job_exists` names the one to change."""

    def do(unit: Unit) -> Job:
        require_own(call, unit, data.instance_id)
        job_id = use_cases.schedule(unit, data.instance_id, _plan(data))
        return _shown(use_cases.require_job(unit.connection, None, job_id))

    return await call.command(do, 201)


@get("/v1/scheduled-jobs", opt=allowed(*ANYONE), summary="List scheduled jobs")
async def list_jobs(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Job]:
    """List one's jobs with the next due second and what came of the last run."""
    after, account = decode_cursor(cursor, int, 0), call.view(account_id)
    found = await call.question(
        lambda connection: use_cases.jobs(
            connection, account, instance_id=instance_id, after=after, limit=limit + 1
        )
    )
    return page_of([_shown(one) for one in found], limit, lambda one: one.job_id)


@put("/v1/scheduled-jobs/{job_id:int}", opt=allowed(*RENTER), summary="Change a scheduled job")
async def change(call: Caller, job_id: FromPath[int], data: JSONBody[JobChange]) -> Response[Job]:
    """Give a job another schedule, or another bid."""

    def do(unit: Unit) -> Job:
        known = _known(call, unit, job_id)
        use_cases.change(unit, known.account_id, job_id, _plan(data))
        return _shown(use_cases.require_job(unit.connection, None, job_id))

    return await call.command(do)


@delete(
    "/v1/scheduled-jobs/{job_id:int}",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Remove a scheduled job",
)
async def remove(call: Caller, job_id: FromPath[int]) -> Response[Removed]:
    """Do it no more."""

    def do(unit: Unit) -> Removed:
        use_cases.remove(unit, _known(call, unit, job_id).account_id, job_id)
        return Removed(job_id=job_id)

    return await call.command(do)


def _known(call: Caller, unit: Unit, job_id: int) -> use_cases.Job:
    """The job, if it is the caller's, or the caller an admin."""
    account = None if call.is_admin else call.principal.account_id
    return use_cases.require_job(unit.connection, account, job_id)


HANDLERS = [schedule, list_jobs, change, remove]
