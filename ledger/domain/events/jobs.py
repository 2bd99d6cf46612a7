"""What an instance is to do by the calendar."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import Fact

JobAction = Literal["reboot", "start", "stop", "change_bid"]
Frequency = Literal["HOURLY", "DAILY", "WEEKLY"]
JobOutcome = Literal["done", "refused", "missed"]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do and when: at *minute* of every hour, day or week, UTC, within `[start, until)`.

    `start` is 0 where the window has no beginning. `hour` is null when hourly, `day` (0 is Sunday)
    unless weekly. `bid` is nanos per hour for the slice; null there: the smallest that runs.
    """

    action: JobAction
    bid: int | None
    frequency: Frequency
    day: int | None
    hour: int | None
    minute: int
    start: int
    until: int | None


class JobScheduled(Fact, tag="job.scheduled.v1"):
    """A job is planned; `due_at` is its first second (null: its window has none)."""

    account_id: int
    instance_id: int
    job_id: int
    plan: JobPlan
    due_at: int | None
    scheduled_at: int


class JobChanged(Fact, tag="job.changed.v1"):
    """Another plan for the same job."""

    account_id: int
    instance_id: int
    job_id: int
    plan: JobPlan
    due_at: int | None
    changed_at: int


class JobRemoved(Fact, tag="job.removed.v1"):
    """It is not done any more."""

    account_id: int
    instance_id: int
    job_id: int
    removed_at: int


class JobRan(Fact, tag="job.ran.v1"):
    """What came of the run that was due at *due_at*; the next one is due at *next_due_at*.

    `refused`: a rule said no, `code` says which. `missed`: the server did not run then; `count` due
    seconds from *due_at* on were passed over.
    """

    account_id: int
    instance_id: int
    job_id: int
    outcome: JobOutcome
    code: str | None
    count: int
    due_at: int
    next_due_at: int | None
    ran_at: int


JobFact = JobScheduled | JobChanged | JobRemoved | JobRan
