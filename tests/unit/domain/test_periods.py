"""Usage periods: ten years of local calendars, with every change of the clock in them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import next_month_start, parse_rfc3339
from ledger.domain.periods import Rule, boundaries, day_start, local_day, next_boundary
from ledger.errors import RejectedError
from ledger.services.zones import zone, zone_names

FIRST = parse_rfc3339("2020-01-01T00:00:00Z")
LAST = parse_rfc3339("2030-01-01T00:00:00Z")
# Clocks that change at midnight, by half an hour, twice a year around a fast, or for good.
ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "America/Asuncion", "America/Caracas",
    "America/Chicago", "America/Godthab", "America/Havana", "America/Mexico_City",
    "America/Miquelon", "America/New_York", "America/Phoenix", "America/Santiago",
    "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns", "Antarctica/Troll",
    "Asia/Amman", "Asia/Beirut", "Asia/Damascus", "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu",
    "Asia/Kolkata", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores", "Australia/Adelaide",
    "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin", "Europe/Chisinau", "Europe/Dublin",
    "Europe/London", "Europe/Volgograd", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham",
    "Pacific/Easter", "Pacific/Norfolk", "UTC",
)  # fmt: skip
RULES = [("monthly", 1), ("monthly", 29), ("monthly", 31), ("weekly", 1), ("weekly", 7)]


def offset(where: ZoneInfo, second: int) -> timedelta:
    """How far the clock of a zone is ahead of UTC."""
    found = datetime.fromtimestamp(second, UTC).astimezone(where).utcoffset()
    assert found is not None
    return found


def changes(where: ZoneInfo) -> list[int]:
    """Every second of the ten years in which the clock of a zone changes."""
    found = []
    for start in range(FIRST, LAST, 86_400):
        low, high = start, start + 86_400
        if offset(where, low) == offset(where, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(where, middle) == offset(where, low) else (
                low, middle,
            )  # fmt: skip
        found.append(high)
    return found


@pytest.mark.parametrize("name", ZONES)
def test_ten_years_of_periods_touch_and_begin_with_a_local_day(name: str) -> None:
    """TIME-05: in every zone periods ascend, touch, and begin in the first second of their day."""
    where = zone(name)
    for cycle, anchor in RULES:
        found = boundaries(Rule(cycle, anchor, where), FIRST, LAST)  # type: ignore[arg-type]  # literals
        longest = 32 if cycle == "monthly" else 9
        for start, end in pairwise([FIRST, *found]):
            assert start < end <= start + longest * 86_400
        for second in found:
            day = local_day(second, where)
            assert local_day(second - 1, where) < day
            if cycle == "weekly":
                assert day.isoweekday() == anchor
            else:
                last = (day + timedelta(days=1)).month != day.month
                assert day.day == anchor or (last and day.day < anchor)


@pytest.mark.parametrize("name", ZONES)
def test_around_each_change_of_a_clock_the_next_boundary_advances(name: str) -> None:
    """TIME-03: from any second around a change the next boundary is later, and only one apart."""
    where = zone(name)
    rules = [Rule("weekly", 7, where), Rule("monthly", 31, where), Rule("monthly", 1, where)]
    for change in changes(where):
        for rule in rules:
            for around in (-86_400, -3_601, -1, 0, 1, 1_800, 3_600, 86_400):
                second = next_boundary(rule, change + around)
                assert second > change + around
                assert next_boundary(rule, second - 1) == second
                assert next_boundary(rule, second) > second


def test_the_zones_hold_enough_changes_of_clocks() -> None:
    """The tests above see more than 30 zones that change, several of them at midnight."""
    changing = [name for name in ZONES if changes(zone(name))]
    assert len(changing) >= 30
    at_midnight = {
        name
        for name in changing
        for change in changes(zone(name))
        if (change + int(offset(zone(name), change - 1).total_seconds())) % 86_400 == 0
    }
    assert len(at_midnight) >= 3


def test_the_longest_and_shortest_days_of_the_rule_book() -> None:
    """§5.5: London's spring day has 82,800 s, Sydney's autumn day 90,000 s, at these instants."""
    london, sydney = zone("Europe/London"), zone("Australia/Sydney")
    assert day_start(date(2028, 3, 26), london) == 1_837_641_600
    assert day_start(date(2028, 3, 27), london) == 1_837_724_400
    assert day_start(date(2027, 4, 4), sydney) == 1_806_757_200
    assert day_start(date(2027, 4, 5), sydney) == 1_806_847_200


def test_an_anchor_beyond_the_month_falls_on_its_last_day_and_comes_back() -> None:
    """Day 31: the last of February and of April, and the 31st again in between."""
    rule = Rule("monthly", 31, zone("UTC"))
    found = boundaries(rule, parse_rfc3339("2028-01-31T00:00:00Z"), LAST)[:4]
    days = [datetime.fromtimestamp(one, UTC).strftime("%m-%d") for one in found]
    assert days == ["02-29", "03-31", "04-30", "05-31"]


def test_utc_months_from_the_first_are_the_months_of_everybody_else() -> None:
    """An account that chooses UTC, monthly, day 1 has the periods that it had without choosing."""
    found = boundaries(Rule("monthly", 1, zone("UTC")), FIRST, LAST)
    for start, end in pairwise([FIRST, *found]):
        assert next_month_start(start) == end


def test_a_day_that_never_was_has_no_period() -> None:
    """Samoa had no 2011-12-30: the Friday's week begins with the Saturday, and time goes on."""
    rule = Rule("weekly", 5, zone("Pacific/Apia"))
    start, end = (parse_rfc3339(f"{day}T00:00:00Z") for day in ("2011-12-20", "2012-01-20"))
    found = boundaries(rule, start, end)
    days = [(later - earlier) / 86_400 for earlier, later in pairwise(found)]
    assert days[:2] == [7, 6]


@settings(max_examples=300)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(RULES),
    st.integers(FIRST, LAST),
    st.integers(0, 400 * 86_400),
)
def test_who_was_opened_later_has_the_boundaries_of_who_was_opened_before(
    name: str, rule: tuple[str, int], opened: int, later: int
) -> None:
    """TIME-02: opened before or after a change of the clock, accounts of one zone end together."""
    cycle, anchor = rule
    given_rule = Rule(cycle, anchor, zone(name))  # type: ignore[arg-type]  # literals
    until = opened + later + 400 * 86_400
    early = boundaries(given_rule, opened, until)
    assert boundaries(given_rule, opened + later, until) == [
        second for second in early if second > opened + later
    ]


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(zone_names())),
    st.sampled_from(RULES),
    st.integers(parse_rfc3339("1975-01-01T00:00:00Z"), parse_rfc3339("2037-01-01T00:00:00Z")),
)
def test_in_any_zone_and_year_the_next_boundary_is_later_and_within_reach(
    name: str, rule: tuple[str, int], second: int
) -> None:
    """TIME-03: no zone, rule and second make a billing run stand still or skip a period."""
    cycle, anchor = rule
    found = next_boundary(Rule(cycle, anchor, zone(name)), second)  # type: ignore[arg-type]  # literals
    assert second < found <= second + (33 if cycle == "monthly" else 9) * 86_400


@pytest.mark.parametrize("name", ["", "Berlin", "../etc/passwd", "/etc/passwd", "Europe/", "utc"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    """Only names of the package are zones; a path is none."""
    with pytest.raises(RejectedError) as refused:
        zone(name)
    assert refused.value.code == "invalid_args"
