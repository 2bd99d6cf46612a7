"""Scheduled jobs: a request of these clients that is to be carried out by the calendar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, RENTER, Caller, endpoint
from adapters.http.vast.errors import Refusal, unsupported
from adapters.http.vast.permissions import in_body
from adapters.http.vast.renting import read_bid
from adapters.http.vast.wire import Json, answer, mapping, money, number, whole
from ledger.domain.events import Frequency, JobAction, JobPlan
from ledger.errors import RejectedError
from ledger.services import jobs as use_cases
from ledger.services import rentals
from ledger.services.jobs import Job
from ledger.services.ledger import Unit

_PATH: Final = re.compile(r"/+api/v0/instances/(?:(reboot|bid_price)/)?([0-9]{1,18})/?")
_PATHS: Final[dict[JobAction, str]] = {
    "reboot": "/api/v0/instances/reboot/{}/",
    "change_bid": "/api/v0/instances/bid_price/{}/",
    "start": "/api/v0/instances/{}/",
    "stop": "/api/v0/instances/{}/",
}
_STATES: Final[dict[str, JobAction]] = {"running": "start", "stopped": "stop"}
_FREQUENCIES: Final[dict[str, Frequency]] = {
    "HOURLY": "HOURLY",
    "DAILY": "DAILY",
    "WEEKLY": "WEEKLY",
}
_HIGHEST_BID: Final = 32 * 16 * 10**9
_PAGE: Final = 1_000


@endpoint(
    "POST",
    "/v0/commands/schedule_job",
    roles=RENTER,
    needs="api.instance.schedule",
    naming=in_body("instance_id", "instance_id"),
)
async def schedule(call: Caller) -> Response[Any]:
    """Let an instance be rebooted, started, stopped or bid for by the calendar.

    One job of each kind per instance: a second one is a 422 that names the first.
    """
    instance_id, plan = _plan(call.body)

    def do(unit: Unit) -> Json:
        rentals.owned(unit, instance_id, call.account_id)
        made = use_cases.schedule(unit, instance_id, plan)
        return _told(unit, call.account_id, made)

    try:
        return await call.command(do)
    except RejectedError as error:
        if error.code != "job_exists":
            raise
        known = error.detail["job_id"]
        raise Refusal(422, "job_exists", error.message, scheduled_job_id=known) from error


@endpoint(
    "PUT",
    "/v0/commands/schedule_job/{job_id:int}",
    roles=RENTER,
    needs="api.instance.change",
)
async def change(call: Caller, job_id: FromPath[int]) -> Response[Any]:
    """Give a job another schedule, or another bid."""
    instance_id, plan = _plan(call.body)

    def do(unit: Unit) -> Json:
        known = use_cases.require_job(unit.connection, call.account_id, job_id)
        if known.instance_id != instance_id:
            message = f"job {job_id} is of instance {known.instance_id}"
            raise RejectedError("invalid_args", message)
        use_cases.change(unit, call.account_id, job_id, plan)
        return _told(unit, call.account_id, job_id)

    return await call.command(do)


@endpoint("GET", "/v0/commands/schedule_job", roles=ANYONE, needs="api.instance.list_jobs")
async def listed(call: Caller) -> Response[Any]:
    """One's jobs, with the next due second and what came of the last run."""
    found = await call.question(
        lambda connection: use_cases.jobs(connection, call.account_id, limit=_PAGE)
    )
    return answer([_row(one) for one in found])


@endpoint(
    "DELETE",
    "/v0/commands/schedule_job/{job_id:int}",
    roles=RENTER,
    needs="api.instance.remove",
)
async def remove(call: Caller, job_id: FromPath[int]) -> Response[Any]:
    """Do it no more."""

    def do(unit: Unit) -> Json:
        use_cases.remove(unit, call.account_id, job_id)
        return {"success": True, "id": job_id, "msg": f"job {job_id} is removed"}

    return await call.command(do)


def _plan(body: Json) -> tuple[int, JobPlan]:
    """The instance that a job is for, and what is to be done when.

    Raises:
        RejectedError: `invalid_args`, `invalid_price`.
        Refusal: `unsupported` for a request that no job carries out.
    """
    instance_id = whole(body.get("instance_id"), "instance_id")
    action, bid = _action(body, instance_id)
    frequency = _FREQUENCIES.get(str(body.get("frequency")).upper())
    if frequency is None:
        raise RejectedError("invalid_args", "`frequency` is HOURLY, DAILY or WEEKLY")
    start = body.get("start_time")
    end = body.get("end_time")
    plan = JobPlan(
        action=action,
        bid=bid,
        frequency=frequency,
        day=_part(body, "day_of_the_week") if frequency == "WEEKLY" else None,
        hour=None if frequency == "HOURLY" else _part(body, "hour_of_the_day"),
        minute=_part(body, "min_of_the_hour"),
        start=0 if start is None else int(number(start, "start_time")),
        until=None if end is None else int(number(end, "end_time")),
    )
    return instance_id, plan


def _part(body: Json, name: str) -> int:
    return 0 if body.get(name) is None else whole(body[name], name)


def _action(body: Json, instance_id: int) -> tuple[JobAction, int | None]:
    """What the request that is to be carried out does, and the bid that it makes."""
    found = _PATH.fullmatch(str(body.get("api_endpoint")))
    inner = mapping(body.get("request_body"), "request_body")
    if found is None or str(body.get("request_method")).upper() != "PUT":
        msg = "jobs are reboot, start, stop and change bid; run others from a shell"
        raise unsupported(msg)
    if int(found[2]) != instance_id:
        raise RejectedError("invalid_args", "`api_endpoint` and `instance_id` are two instances")
    if found[1] == "reboot":
        return "reboot", None
    if found[1] == "bid_price":
        price = inner.get("price")
        return "change_bid", None if price is None else read_bid(price, _HIGHEST_BID)
    state = inner.get("state")
    if not isinstance(state, str) or state not in _STATES:
        raise RejectedError("invalid_args", "`request_body`: `state` is running or stopped")
    return _STATES[state], None


def _told(unit: Unit, account_id: int, job_id: int) -> Json:
    found = use_cases.require_job(unit.connection, account_id, job_id)
    return {"success": True, "scheduled_job_id": job_id, **_row(found)}


def _row(job: Job) -> Json:
    plan = job.plan
    return {
        "id": job.job_id,
        "instance_id": job.instance_id,
        "api_endpoint": _PATHS[plan.action].format(job.instance_id),
        "request_method": "PUT",
        "request_body": _request(plan),
        "start_time": plan.start or job.scheduled_at,
        "end_time": plan.until,
        "day_of_the_week": plan.day,
        "hour_of_the_day": plan.hour,
        "min_of_the_hour": plan.minute,
        "frequency": plan.frequency,
        "next_run": job.due_at,
        "last_run": job.last_ran_at,
        "last_outcome": job.last_outcome,
        "last_error": job.last_code,
    }


def _request(plan: JobPlan) -> Json:
    match plan.action:
        case "change_bid":
            return {"price": None if plan.bid is None else money(plan.bid)}
        case "start" | "stop":
            return {"state": "running" if plan.action == "start" else "stopped"}
        case "reboot":
            return {}


ENDPOINTS: Sequence[Any] = [schedule, change, listed, remove]
