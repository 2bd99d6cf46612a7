from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledger.meters.intervals import Range, add, length, overlap, subtract

points = st.integers(0, 40)
pairs = st.tuples(points, points).map(lambda two: Range(min(two), max(two)))
filled = pairs.filter(lambda one: one.start < one.end)


def seconds(*ranges: tuple[int, int]) -> set[int]:
    """The naive model: a range is the set of its seconds."""
    return {second for start, end in ranges for second in range(start, end)}


def built(parts: list[Range]) -> list[Range]:
    """Sorted, disjoint ranges with all seconds of *parts*."""
    ranges: list[Range] = []
    for part in parts:
        add(ranges, *part)
    return ranges


def assert_normal(ranges: list[Range]) -> None:
    """Every range holds a second; they are in order and neither overlap nor touch."""
    assert all(one.start < one.end for one in ranges)
    assert all(one.end < other.start for one, other in pairwise(ranges))


@given(st.lists(filled, max_size=12))
def test_added_ranges_hold_exactly_their_seconds(parts: list[Range]) -> None:
    """LIFE-14: any ranges in any order become the same sorted, disjoint, merged list."""
    ranges = built(parts)
    assert_normal(ranges)
    assert seconds(*ranges) == seconds(*parts)
    assert built(sorted(parts)) == ranges
    assert built(parts + parts) == ranges
    assert length(ranges) == len(seconds(*parts))


@given(st.lists(filled, max_size=12), filled)
def test_adding_tells_what_it_swallowed(parts: list[Range], new: Range) -> None:
    """What a merge removes and what it returns account for every second of the list."""
    before = built(parts)
    after = list(before)
    merged, swallowed = add(after, *new)
    assert merged in after
    assert seconds(merged) == seconds(new, *swallowed)
    assert set(swallowed) == set(before) - (set(after) - {merged})


@given(st.lists(filled, max_size=12), pairs)
def test_covered_and_free_divide_an_interval(parts: list[Range], window: Range) -> None:
    """LIFE-07, LIFE-10: each second of a window is covered or a gap, never both, never neither."""
    ranges = built(parts)
    covered, free = overlap(ranges, *window), subtract(*window, ranges)
    assert_normal(covered)
    assert_normal(free)
    assert seconds(*covered) == seconds(window) & seconds(*ranges)
    assert seconds(*free) == seconds(window) - seconds(*ranges)
    assert length(covered) + length(free) == window.end - window.start


@given(st.lists(filled, max_size=12), points, points, points)
def test_two_windows_that_touch_see_what_one_sees(
    parts: list[Range], one: int, two: int, three: int
) -> None:
    """LIFE-09: cutting a window anywhere neither loses nor repeats a second."""
    ranges = built(parts)
    start, middle, end = sorted((one, two, three))
    whole = length(overlap(ranges, start, end))
    assert length(overlap(ranges, start, middle)) + length(overlap(ranges, middle, end)) == whole
