from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.reliability import (
    HALF_LIFE,
    IGNORED_AFTER,
    MAX_EXCLUDED_SLOTS,
    SLOT_SECONDS,
    WINDOW_SLOTS,
    Check,
    Decayed,
    Result,
    excluded_slots,
    expected,
    expected_reliability,
    lower_bound,
    rating,
    slot_of,
    slot_start,
    worst,
)
from tests.support.examples import examples

DAY = 86_400
START = 1_798_761_600
SPAN = 200 * DAY

seconds = st.integers(START, START + SPAN) | st.integers(START, START + 20 * SLOT_SECONDS)
instants = st.integers(START, START + 2 * SPAN)


@st.composite
def a_check(draw: st.DrawFn) -> Check:
    """Any check, in the slot that holds its second."""
    at = draw(seconds)
    result: Result = draw(st.sampled_from(["passed", "passed", "failed", "inconclusive"]))
    excluded = draw(st.sampled_from([False, False, False, True]))
    return Check(slot_of(at), at, result, draw(st.sampled_from([1, 2, 3])), excluded)


histories = st.lists(a_check(), max_size=40)


class Kept:
    """What a read model keeps: the sums, and the check that counts in each slot."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.sums = Decayed(START)
        self.slots: dict[int, Check] = {}

    def see(self, check: Check) -> None:
        """Take in one check, in the order of time; a worse result replaces that of its slot."""
        self.move(check.at)
        before = self.slots.get(check.slot)
        after = worst([check] if before is None else [before, check])
        if after is None or after == before:
            return
        if before is not None:
            self.sums = self.sums.remove(before.result, before.severity, before.at)
        self.sums = self.sums.add(after.result, after.severity, after.at)
        self.slots[check.slot] = after

    def move(self, now: int) -> None:
        """Let time pass; checks older than 140 days go."""
        self.sums = self.sums.moved(now)
        for check in [one for one in self.slots.values() if now - one.at > IGNORED_AFTER]:
            self.sums = self.sums.remove(check.result, check.severity, check.at)
            del self.slots[check.slot]


@given(checks=histories, later=st.integers(0, SPAN))
def test_kept_check_by_check_and_from_scratch_agree(checks: list[Check], later: int) -> None:
    """The incremental sums give the expected reliability within 10^-9, at any later second."""
    kept = Kept()
    for check in sorted(checks, key=lambda one: one.at):
        kept.see(check)
    now = kept.sums.at + later
    kept.move(now)
    assert abs(kept.sums.expected - expected_reliability(checks, now)) < 1e-9


@given(checks=histories, now=instants)
def test_a_check_that_comes_late_counts_as_if_it_had_been_on_time(
    checks: list[Check], now: int
) -> None:
    """Adding a check at an earlier second equals adding it then and moving on."""
    on_time, late = Decayed(START), Decayed(now)
    for check in sorted(checks, key=lambda one: one.at):
        if check.at <= now:
            on_time = on_time.moved(check.at).add(check.result, check.severity)
            late = late.add(check.result, check.severity, check.at)
    on_time = on_time.moved(now)
    assert abs(on_time.pass_weight - late.pass_weight) < 1e-9
    assert abs(on_time.severity_weight - late.severity_weight) < 1e-9


@given(checks=histories, now=instants, data=st.data())
def test_neither_order_nor_repetition_of_checks_changes_a_rating(
    checks: list[Check], now: int, data: st.DataObject
) -> None:
    """Permuted or repeated delivery rates a machine as before."""
    repeated = data.draw(st.permutations(checks + checks[: len(checks) // 2]))
    before, after = rating(checks, now), rating(repeated, now)
    assert (after.passed, after.n) == (before.passed, before.n)
    assert abs(after.expected_reliability - before.expected_reliability) < 1e-9


@given(checks=histories, now=instants)
def test_no_slot_counts_twice_and_every_number_is_a_share(checks: list[Check], now: int) -> None:
    """There are at most as many results as slots, and all numbers lie between 0 and 1."""
    found = rating(checks, now)
    assert found.passed <= found.n <= len({one.slot for one in checks})
    assert 0 <= found.lower_bound <= 1
    assert 0 < found.expected_reliability < 1
    assert (found.reliability is None) == (found.n < 12)
    if found.reliability is not None:
        assert found.lower_bound <= found.reliability


@given(checks=histories, now=instants, check=a_check())
def test_a_failure_never_helps(checks: list[Check], now: int, check: Check) -> None:
    """One failure more never raises what is expected."""
    failure = check._replace(result="failed", excluded=False)
    worse = expected_reliability([*checks, failure], now)
    without = [one for one in checks if one.slot != failure.slot]
    assert worse <= expected_reliability([*without, failure._replace(result="passed")], now) + 1e-12
    assert worse <= expected_reliability([*without], now) + 1e-12


@given(n=st.integers(1, 10_000), data=st.data())
def test_more_passes_and_more_evidence_raise_the_bound(n: int, data: st.DataObject) -> None:
    """The bound grows with passes at one n, and with n at one share; it is below the share."""
    passed = data.draw(st.integers(0, n))
    bound = lower_bound(passed, n)
    assert 0 <= bound <= passed / n
    assert bound <= lower_bound(passed * 2, n * 2) + 1e-12
    if passed < n:
        assert bound <= lower_bound(passed + 1, n)


@given(
    weights=st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)),
    first=st.integers(0, SPAN),
    second=st.integers(0, SPAN),
)
def test_time_passes_alike_in_one_step_or_two(
    weights: tuple[float, float], first: int, second: int
) -> None:
    """Moving twice equals moving once, and a half-life halves what there is."""
    sums = Decayed(START, *weights)
    once = sums.moved(START + first + second)
    twice = sums.moved(START + first).moved(START + first + second)
    assert abs(once.pass_weight - twice.pass_weight) < 1e-9
    assert abs(once.severity_weight - twice.severity_weight) < 1e-9
    half = sums.moved(START + HALF_LIFE)
    assert abs(half.expected - expected(weights[0] / 2, weights[1] / 2)) < 1e-9


windows = st.lists(
    st.builds(
        lambda start, length: (start, start + length),
        st.integers(START, START + 90 * DAY),
        st.integers(0, 10 * 3_600) | st.integers(0, 40 * DAY),
    ),
    max_size=6,
)


def in_maintenance(windows: list[tuple[int, int]], slot: int) -> bool:
    """Whether the windows together cover every second of a slot."""
    second = slot_start(slot)
    while second < slot_start(slot + 1):
        reach = max((until for start, until in windows if start <= second), default=second)
        if reach <= second:
            return False
        second = reach
    return True


@settings(deadline=None, max_examples=examples(30))
@given(windows=windows, now=st.integers(START, START + 140 * DAY))
def test_at_most_eight_hours_of_any_thirty_days_are_excluded(
    windows: list[tuple[int, int]], now: int
) -> None:
    """A naive walk over every slot, in time order with the cap, finds the same slots."""
    excluded: list[int] = []
    for slot in range(slot_of(START), slot_of(now) + 1):
        recent = [one for one in excluded[-MAX_EXCLUDED_SLOTS:] if one > slot - WINDOW_SLOTS]
        if len(recent) < MAX_EXCLUDED_SLOTS and in_maintenance(windows, slot):
            excluded.append(slot)
    assert excluded_slots(windows, now) == set(excluded)


@given(windows=windows, now=st.integers(START, START + 140 * DAY), later=st.integers(0, 90 * DAY))
def test_a_slot_once_decided_stays_decided(
    windows: list[tuple[int, int]], now: int, later: int
) -> None:
    """As time goes on slots are only added, and windows in the future do not touch the past."""
    found = excluded_slots(windows, now)
    assert found == {
        slot for slot in excluded_slots(windows, now + later) if slot_start(slot) <= now
    }
    begun = [window for window in windows if window[0] <= now]
    assert excluded_slots(begun, now) == found
