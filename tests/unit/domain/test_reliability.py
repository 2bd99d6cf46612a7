"""Every number of `marketplace.md` §10."""

from __future__ import annotations

from itertools import permutations

import pytest

from ledger.domain.reliability import (
    HALF_LIFE,
    IGNORED_AFTER,
    MAX_EXCLUDED_SLOTS,
    MIN_CHECKS,
    SLOT_SECONDS,
    WINDOW_SECONDS,
    WINDOW_SLOTS,
    Check,
    Decayed,
    Rating,
    Result,
    Severity,
    excluded_slots,
    expected,
    expected_reliability,
    lower_bound,
    rating,
    reliability,
    slot_of,
    slot_start,
    worst,
)

HOUR = 3_600
DAY = 86_400
NOW = 1_798_761_600
"""A multiple of 300 s."""


def check(
    at: int, result: Result = "passed", severity: Severity = 1, *, excluded: bool = False
) -> Check:
    """A check in the slot that holds *at*."""
    return Check(slot_of(at), at, result, severity, excluded)


def passes(count: int, last: int = NOW) -> list[Check]:
    """*count* passed checks in slots of their own, all at the second *last* for their weight."""
    return [Check(slot, last, "passed") for slot in range(count)]


def test_the_constants_are_those_of_the_rule_book() -> None:
    """300 s a slot (288 a day), 30 days, half-life 14 days, 140 days, 12 checks, 8 h."""
    assert DAY // SLOT_SECONDS == 288
    assert (WINDOW_SECONDS, HALF_LIFE, IGNORED_AFTER) == (30 * DAY, 14 * DAY, 140 * DAY)
    assert (MIN_CHECKS, MAX_EXCLUDED_SLOTS * SLOT_SECONDS) == (12, 8 * HOUR)


@pytest.mark.parametrize(
    ("passed", "n", "share", "bound", "without_decay"),
    [
        pytest.param(0, 0, None, "0.000000", "0.600000", id="0-of-0"),
        pytest.param(1, 1, None, "0.206543", "0.636364", id="1-of-1"),
        pytest.param(10, 10, None, "0.722460", "0.800000", id="10-of-10"),
        pytest.param(12, 12, "1.000000", "0.757499", "0.818182", id="12-of-12"),
        pytest.param(60, 60, "1.000000", "0.939826", "0.942857", id="60-of-60"),
        pytest.param(99, 100, "0.990000", "0.945512", "0.954545", id="99-of-100"),
        pytest.param(288, 288, "1.000000", "0.986837", "0.986577", id="288-of-288"),
        pytest.param(8_630, 8_640, "0.998843", "0.997871", "0.998382", id="8630-of-8640"),
        pytest.param(0, 5, None, "0.000000", "0.400000", id="0-of-5"),
    ],
)
def test_the_table_of_ratings(
    passed: int, n: int, share: str | None, bound: str, without_decay: str
) -> None:
    """All three numbers of a row come out to six decimals, from counts and from the checks."""
    shown = reliability(passed, n)
    assert (None if shown is None else f"{shown:.6f}") == share
    assert f"{lower_bound(passed, n):.6f}" == bound
    assert f"{expected(passed, n):.6f}" == without_decay

    failures = [Check(slot, NOW, "failed") for slot in range(passed, n)]
    found = rating([*passes(passed), *failures], NOW + 1)
    assert found == Rating(passed, n, shown, found.expected_reliability, lower_bound(passed, n))
    assert f"{expected_reliability([*passes(passed), *failures], NOW):.6f}" == without_decay


@pytest.mark.parametrize("n", [1, 10, 12, 60, 288, 8_640])
def test_a_perfect_record_has_the_simple_bound(n: int) -> None:
    """For n passes out of n the bound is n / (n + 3.8416)."""
    assert lower_bound(n, n) == pytest.approx(n / (n + 3.8416), abs=1e-12)


@pytest.mark.parametrize("n", [0, 1, 5, 12, 100, 8_640])
def test_without_a_pass_the_bound_is_zero_itself(n: int) -> None:
    """Rounding leaves no tiny number above or below 0."""
    assert lower_bound(0, n) == 0


def test_sixty_passes_two_weeks_old_weigh_half() -> None:
    """Decay: (30 + 6) / (30 + 10) = 0.9."""
    assert expected_reliability(passes(60, NOW - HALF_LIFE), NOW) == pytest.approx(0.9, abs=1e-12)
    assert Decayed(NOW - HALF_LIFE, 60, 60).moved(NOW).expected == pytest.approx(0.9, abs=1e-12)


@pytest.mark.parametrize(
    ("severity", "shown"),
    [
        pytest.param(1, "0.929577", id="severity-1"),
        pytest.param(2, "0.916667", id="severity-2-an-instance-failed-to-start"),
        pytest.param(3, "0.904110", id="severity-3-unreachable-while-rented"),
    ],
)
def test_a_failure_weighs_as_much_as_its_severity(severity: Severity, shown: str) -> None:
    """60 fresh passes and one fresh failure: 66 / (70 + severity)."""
    checks = [*passes(60), Check(60, NOW, "failed", severity)]
    assert f"{expected_reliability(checks, NOW):.6f}" == shown
    assert f"{Decayed(NOW, 60, 60).add('failed', severity).expected:.6f}" == shown


def test_a_pass_weighs_one_whatever_is_written_beside_it() -> None:
    """Severity is a property of failures only, in both forms."""
    assert expected_reliability([Check(0, NOW, "passed", 3)], NOW) == expected(1, 1)
    assert Decayed(NOW).add("passed", 3) == Decayed(NOW, 1, 1)


def test_an_inconclusive_check_changes_nothing() -> None:
    """A fault on the platform's side neither helps nor hurts the host."""
    assert rating([check(NOW - 1, "inconclusive")], NOW) == rating([], NOW)
    assert Decayed(NOW, 3, 4).add("inconclusive") == Decayed(NOW, 3, 4)


def test_a_check_in_approved_maintenance_changes_nothing() -> None:
    """C35: an excluded failure is not counted, and an excluded pass neither."""
    checks = [check(NOW - 1, "failed", 3, excluded=True), check(NOW - 400, excluded=True)]
    assert rating(checks, NOW) == rating([], NOW)


def test_a_new_machine_starts_at_the_prior() -> None:
    """Prior Beta(6, 4): 0.600, no share, and a bound of 0."""
    assert rating([], NOW) == Rating(0, 0, None, 0.6, 0.0)


@pytest.mark.parametrize(("n", "share"), [(11, None), (12, 1.0)])
def test_the_share_appears_with_the_twelfth_check(n: int, share: float | None) -> None:
    """Null while n < 12."""
    assert reliability(n, n) == share


@pytest.mark.parametrize(
    ("at", "n"),
    [
        pytest.param(NOW - WINDOW_SECONDS - 1, 0, id="a-second-too-old"),
        pytest.param(NOW - WINDOW_SECONDS, 1, id="thirty-days-old"),
        pytest.param(NOW - 1, 1, id="a-second-ago"),
        pytest.param(NOW, 0, id="now"),
        pytest.param(NOW + 1, 0, id="not-yet"),
    ],
)
def test_the_window_is_half_open(at: int, n: int) -> None:
    """Counted over [now − 30 d, now)."""
    assert rating([check(at)], NOW).n == n


@pytest.mark.parametrize(
    ("at", "weight"),
    [
        pytest.param(NOW - IGNORED_AFTER - 1, 0, id="older-than-140-days"),
        pytest.param(NOW - IGNORED_AFTER, 2**-10, id="140-days"),
        pytest.param(NOW - 2 * HALF_LIFE, 0.25, id="28-days"),
        pytest.param(NOW, 1, id="now"),
        pytest.param(NOW + 1, 0, id="not-yet"),
    ],
)
def test_a_check_loses_its_weight_and_then_its_place(at: int, weight: float) -> None:
    """Half every 14 days, nothing beyond 140 days, and nothing before it was made."""
    assert expected_reliability([check(at)], NOW) == pytest.approx(expected(weight, weight))


@pytest.mark.parametrize(
    ("results", "index"),
    [
        pytest.param([("passed", 1), ("failed", 1)], 1, id="a-failure-beats-a-pass"),
        pytest.param([("failed", 2), ("failed", 1), ("failed", 3)], 2, id="the-severest-failure"),
        pytest.param([("inconclusive", 1), ("passed", 1)], 1, id="a-pass-beats-inconclusive"),
        pytest.param([("failed", 1), ("inconclusive", 3)], 0, id="a-failure-beats-inconclusive"),
        pytest.param([("passed", 3), ("failed", 1)], 1, id="severity-of-a-pass-means-nothing"),
        pytest.param([("passed", 3), ("passed", 1)], 0, id="of-equals-the-earliest"),
        pytest.param([("failed", 2), ("failed", 2)], 0, id="of-equal-failures-the-earliest"),
    ],
)
def test_the_worst_conclusive_result_of_a_slot_counts(
    results: list[tuple[Result, Severity]], index: int
) -> None:
    """One check counts per slot, and which one does not depend on the order they arrive in."""
    checks = [Check(7, 2_100 + i, *result) for i, result in enumerate(results)]
    for order in permutations(checks):
        assert worst(order) == checks[index]


def test_a_slot_without_a_conclusive_result_counts_for_nothing() -> None:
    """No check, only inconclusive or only excluded ones leave nothing to count."""
    assert worst([]) is None
    assert worst([check(NOW, "inconclusive"), check(NOW, "failed", excluded=True)]) is None


def test_a_failed_start_in_the_slot_of_a_passed_check_is_the_one_that_counts() -> None:
    """Instance starts are checks too: the pass of that slot is gone, n stays 1."""
    ping, start = check(NOW - 290), check(NOW - 20, "failed", 2)
    found = rating([ping, start], NOW)
    assert (found.passed, found.n) == (0, 1)
    assert expected_reliability([ping, start], NOW - 20) == pytest.approx(6 / 12)


def test_a_failure_that_comes_later_does_not_rate_the_past() -> None:
    """Replay up to a second gives what was known then, also inside one slot."""
    checks = [check(NOW - 290), check(NOW - 20, "failed", 2)]
    assert rating(checks, NOW - 100).passed == 1
    assert rating(checks, NOW).passed == 0


def test_slots_touch() -> None:
    """Second 300·k is the first of slot k, and the one before it belongs to slot k − 1."""
    assert [slot_of(second) for second in (0, 299, 300, NOW)] == [0, 0, 1, NOW // 300]
    assert slot_start(slot_of(NOW + 299)) == NOW


def test_a_result_that_turns_out_wrong_is_replaced() -> None:
    """An upheld dispute: taking the pass away and adding the failure equals having seen it so."""
    at, now = NOW - 5 * DAY, NOW
    sums = Decayed(at).add("passed").moved(now).remove("passed", at=at).add("failed", 3, at)
    assert sums.expected == pytest.approx(
        expected_reliability([check(at, "failed", 3)], now), abs=1e-12
    )


def test_a_year_of_checks_kept_one_by_one_equals_the_same_from_scratch() -> None:
    """Adding at its second and removing after 140 days drifts by less than 10^-9 in a year."""
    step, last = 1_500, NOW + 365 * DAY
    checks = [
        check(at, "failed" if at // step % 37 == 0 else "passed", 3)
        for at in range(NOW, last, step)
    ]
    sums, oldest = Decayed(NOW), 0
    for one in checks:
        sums = sums.moved(one.at).add(one.result, one.severity)
        while one.at - checks[oldest].at > IGNORED_AFTER:
            sums = sums.remove(checks[oldest].result, checks[oldest].severity, checks[oldest].at)
            oldest += 1
    assert sums.expected == pytest.approx(expected_reliability(checks, sums.at), abs=1e-9)


def test_only_slots_wholly_in_maintenance_are_excluded() -> None:
    """A slot that is begun before the window or outlives it is judged as ever."""
    first = slot_of(NOW)
    assert excluded_slots([(NOW, NOW + 900)], NOW + DAY) == {first, first + 1, first + 2}
    assert excluded_slots([(NOW + 1, NOW + 899)], NOW + DAY) == {first + 1}
    assert excluded_slots([(NOW + 1, NOW + 300)], NOW + DAY) == frozenset()


def test_overlapping_and_touching_windows_are_one() -> None:
    """A slot across the border of two windows is in maintenance, and none counts twice."""
    first = slot_of(NOW)
    apart = excluded_slots([(NOW + 450, NOW + 900), (NOW, NOW + 450)], NOW + DAY)
    assert apart == {first, first + 1, first + 2}
    assert excluded_slots([(NOW, NOW + 900), (NOW + 300, NOW + 600)], NOW + DAY) == apart


def test_slots_after_now_are_not_decided() -> None:
    """The slot that holds *now* is in, the next one is not."""
    assert excluded_slots([(NOW, NOW + DAY)], NOW + 299) == {slot_of(NOW)}
    assert excluded_slots([(NOW, NOW + DAY)], NOW - 1) == frozenset()


def test_eight_hours_are_excluded_and_the_ninth_is_not() -> None:
    """96 slots of a window of 9 h are excluded, the first ones; 8 h exactly fit."""
    first = slot_of(NOW)
    for hours in (8, 9):
        found = excluded_slots([(NOW, NOW + hours * HOUR)], NOW + DAY)
        assert found == set(range(first, first + 96))


def test_the_cap_is_over_any_thirty_days() -> None:
    """5 h, then 5 h a week later give 8 h; 30 days after the first slot there is room again."""
    week, month = NOW + 7 * DAY, NOW + 30 * DAY
    windows = [(NOW, NOW + 5 * HOUR), (week, week + 5 * HOUR), (month, month + 5 * HOUR)]
    found = excluded_slots(windows, month + DAY)
    hours = [
        sum(slot_of(start) <= slot < slot_of(until) for slot in found) / 12
        for start, until in windows
    ]
    assert hours == [5, 3, 5]


def test_an_endless_window_gives_eight_hours_a_month() -> None:
    """In 300 days of maintenance exactly the first 8 h of every 30 days are excluded."""
    first = slot_of(NOW)
    found = excluded_slots([(NOW, NOW + 300 * DAY)], NOW + 300 * DAY)
    assert found == {first + month * WINDOW_SLOTS + i for month in range(10) for i in range(96)}
