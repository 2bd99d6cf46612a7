"""Usage periods of accounts that chose their own: anchors, weeks, local midnights (`§14`).

A boundary is the first instant of a local day. What is computed here is written into facts as
instants at once, so a change of a zone's rules moves no period that was announced.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple

Cycle = Literal["monthly", "weekly"]
LAST_ANCHOR_DAY = 31
DAYS_OF_WEEK = 7
_DECEMBER = 12


class Rule(NamedTuple):
    """How an account's periods are cut: `anchor` is a day of the month, or an ISO weekday."""

    cycle: Cycle
    anchor: int
    zone: tzinfo


def day_start(day: date, zone: tzinfo) -> int:
    """The first second of a local day.

    Where the clock jumps over midnight the day begins at the jump; where midnight comes twice, the
    first one counts.
    """
    moment = datetime(day.year, day.month, day.day, tzinfo=zone, fold=0)
    return int(moment.timestamp())


def local_day(second: int, zone: tzinfo) -> date:
    """The local day that holds *second*."""
    return datetime.fromtimestamp(second, UTC).astimezone(zone).date()


def next_boundary(rule: Rule, after: int) -> int:
    """The first boundary later than second *after*."""
    for day in _days(rule, local_day(after, rule.zone)):
        second = day_start(day, rule.zone)
        if second > after:
            return second
    raise AssertionError(rule)  # pragma: no cover - days never end


def boundaries(rule: Rule, after: int, until: int) -> list[int]:
    """The boundaries later than *after*, up to the first one at or after *until*."""
    found = [next_boundary(rule, after)]
    while found[-1] < until:
        found.append(next_boundary(rule, found[-1]))
    return found


def _days(rule: Rule, day: date) -> Iterator[date]:
    """The days on which periods begin, from the one at or before *day* on, without an end."""
    if rule.cycle == "weekly":
        day -= timedelta(days=(day.isoweekday() - rule.anchor) % DAYS_OF_WEEK)
        while True:
            yield day
            day += timedelta(days=DAYS_OF_WEEK)
    year, month = day.year, day.month
    while True:
        yield date(year, month, min(rule.anchor, monthrange(year, month)[1]))
        year, month = (year + 1, 1) if month == _DECEMBER else (year, month + 1)
