"""When scheduled jobs are due, in UTC and nothing else (TIME-01, TIME-03)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.events import JobPlan
from ledger.domain.schedule import check_plan, dues_between, last_due, next_due
from ledger.errors import RejectedError

SUNDAY = 1_772_323_200
"""2026-03-01T00:00:00Z."""


def plan(**changes: Any) -> JobPlan:
    """A daily plan at 03:30, for ever."""
    usual: dict[str, Any] = {
        "action": "reboot",
        "bid": None,
        "frequency": "DAILY",
        "day": None,
        "hour": 3,
        "minute": 30,
        "start": 0,
        "until": None,
    }
    return JobPlan(**{**usual, **changes})


PLANS = st.one_of(
    st.builds(plan, frequency=st.just("HOURLY"), hour=st.none(), minute=st.integers(0, 59)),
    st.builds(plan, hour=st.integers(0, 23), minute=st.integers(0, 59)),
    st.builds(
        plan,
        frequency=st.just("WEEKLY"),
        day=st.integers(0, 6),
        hour=st.integers(0, 23),
        minute=st.integers(0, 59),
    ),
)


@given(one=PLANS, after=st.integers(0, 2**33))
def test_a_due_second_reads_as_its_plan(one: JobPlan, after: int) -> None:
    """A due second is on the minute, hour and UTC weekday that were asked for, and the first."""
    due = next_due(one, after)
    assert due is not None
    at = datetime.fromtimestamp(due, UTC)
    assert (at.minute, at.second) == (one.minute, 0)
    assert one.hour in {None, at.hour}
    assert one.day in {None, at.isoweekday() % 7}
    period = {"HOURLY": 3_600, "DAILY": 86_400, "WEEKLY": 604_800}[one.frequency]
    assert after <= due < after + period
    assert next_due(one, due + 1) == due + period


@given(one=PLANS, first=st.integers(0, 2**33), late=st.integers(0, 3 * 604_800))
def test_the_last_due_second_and_how_many_lie_before(one: JobPlan, first: int, late: int) -> None:
    """Counting from a due second to now finds each once: those before the last, and the last."""
    due = next_due(one, first)
    assert due is not None
    found, at = [], due
    while at <= due + late:
        found.append(at)
        after = next_due(one, at + 1)
        assert after is not None
        at = after
    assert last_due(one, due, due + late) == found[-1]
    assert dues_between(one, due, found[-1]) == len(found) - 1
    assert dues_between(one, due, due + late + 1) == len(found)


def test_the_window_bounds_it() -> None:
    """Nothing is due before the window or at its end; where none is left there is none."""
    window = plan(start=SUNDAY + 12_601, until=SUNDAY + 2 * 86_400 + 12_600)
    assert next_due(window, 0) == SUNDAY + 86_400 + 12_600
    assert next_due(window, SUNDAY + 86_400 + 12_601) is None
    assert last_due(window, SUNDAY + 86_400 + 12_600, 2**40) == SUNDAY + 86_400 + 12_600
    sunday = plan(frequency="WEEKLY", day=0, hour=0, minute=0)
    assert next_due(sunday, SUNDAY) == SUNDAY


@pytest.mark.parametrize(
    "changes",
    [
        {"hour": None},
        {"hour": 24},
        {"minute": 60},
        {"minute": -1},
        {"day": 1},
        {"frequency": "HOURLY"},
        {"frequency": "WEEKLY"},
        {"frequency": "WEEKLY", "day": 7},
        {"start": 10, "until": 10},
        {"bid": 1},
    ],
)
def test_what_is_no_plan(changes: dict[str, Any]) -> None:
    """Fields that do not go together, or do not exist on a clock, are `invalid_schedule`."""
    with pytest.raises(RejectedError) as error:
        check_plan(plan(**changes))
    assert error.value.code == "invalid_schedule"
