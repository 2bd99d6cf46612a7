"""When a scheduled job is due: whole UTC seconds within a window, once an hour, a day or a week."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import JobPlan
from ledger.errors import RejectedError

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY
_EPOCH_WEEKDAY: Final = 4
"""Second 0 was on a Thursday; Sunday is day 0."""
_PERIODS: Final = {"HOURLY": _HOUR, "DAILY": _DAY, "WEEKLY": _WEEK}


def check_plan(plan: JobPlan) -> None:
    """Refuse a plan whose fields do not go together.

    Raises:
        RejectedError: `invalid_schedule`; the message says which.
    """
    wants_hour, wants_day = plan.frequency != "HOURLY", plan.frequency == "WEEKLY"
    if (plan.hour is not None) != wants_hour:
        _refuse("an hour is for DAILY and WEEKLY, and those need one")
    if (plan.day is not None) != wants_day:
        _refuse("a day is for WEEKLY, and that needs one; 0 is Sunday")
    limits = ((plan.minute, 59), (plan.hour or 0, 23), (plan.day or 0, 6))
    if not all(0 <= value <= most for value, most in limits):
        _refuse("a minute is 0 to 59, an hour 0 to 23 (UTC), a day 0 (Sunday) to 6")
    if plan.until is not None and plan.until <= plan.start:
        _refuse("its window ends after it starts")
    if plan.bid is not None and plan.action != "change_bid":
        _refuse("a bid is for change_bid alone")


def next_due(plan: JobPlan, after: int) -> int | None:
    """The first due second at or after *after*; none when the window has none left."""
    period = _PERIODS[plan.frequency]
    offset = plan.minute * _MINUTE + (plan.hour or 0) * _HOUR
    if plan.day is not None:
        offset += (plan.day - _EPOCH_WEEKDAY) % 7 * _DAY
    first = max(after, plan.start)
    due = first + (offset - first) % period
    return due if plan.until is None or due < plan.until else None


def dues_between(plan: JobPlan, first: int, end: int) -> int:
    """How many due seconds lie in `[first, end)`, *first* being one."""
    return max(0, -(-(end - first) // _PERIODS[plan.frequency]))


def last_due(plan: JobPlan, first: int, now: int) -> int:
    """The last due second of the window up to *now*, *first* being one."""
    end = now + 1 if plan.until is None else min(now + 1, plan.until)
    period = _PERIODS[plan.frequency]
    return first + (end - 1 - first) // period * period


def _refuse(why: str) -> None:
    raise RejectedError("invalid_schedule", f"this is no schedule: {why}")
