from __future__ import annotations

import pytest

from ledger.meters.intervals import Range, add, length, overlap, subtract

COVERED = [Range(10, 20), Range(30, 40), Range(50, 60)]


@pytest.mark.parametrize(
    ("start", "end", "parts"),
    [
        pytest.param(0, 5, [], id="before"),
        pytest.param(0, 10, [], id="touching-the-first"),
        pytest.param(0, 11, [(10, 11)], id="one-second-in"),
        pytest.param(10, 20, [(10, 20)], id="exactly-one"),
        pytest.param(12, 15, [(12, 15)], id="inside-one"),
        pytest.param(19, 31, [(19, 20), (30, 31)], id="across-a-hole"),
        pytest.param(20, 30, [], id="exactly-the-hole"),
        pytest.param(0, 99, [(10, 20), (30, 40), (50, 60)], id="everything"),
        pytest.param(59, 99, [(59, 60)], id="the-last-second"),
        pytest.param(60, 99, [], id="after"),
        pytest.param(15, 15, [], id="an-empty-interval-inside"),
        pytest.param(10, 10, [], id="an-empty-interval-at-a-start"),
    ],
)
def test_the_seconds_of_an_interval_that_are_covered(
    start: int, end: int, parts: list[tuple[int, int]]
) -> None:
    """LIFE-07: only the part of an interval that lies in a range counts, to the second."""
    assert overlap(COVERED, start, end) == parts


@pytest.mark.parametrize(
    ("start", "end", "parts"),
    [
        pytest.param(0, 5, [(0, 5)], id="before"),
        pytest.param(0, 10, [(0, 10)], id="touching-the-first"),
        pytest.param(10, 20, [], id="exactly-one"),
        pytest.param(12, 15, [], id="inside-one"),
        pytest.param(9, 21, [(9, 10), (20, 21)], id="around-one"),
        pytest.param(15, 35, [(20, 30)], id="a-hole"),
        pytest.param(0, 99, [(0, 10), (20, 30), (40, 50), (60, 99)], id="everything"),
        pytest.param(60, 99, [(60, 99)], id="after"),
        pytest.param(25, 25, [], id="an-empty-interval-in-a-hole"),
    ],
)
def test_the_seconds_of_an_interval_that_are_free(
    start: int, end: int, parts: list[tuple[int, int]]
) -> None:
    """LIFE-07: a gap is exactly what no range covers."""
    assert subtract(start, end, COVERED) == parts


@pytest.mark.parametrize(
    ("start", "end", "merged", "swallowed", "ranges"),
    [
        pytest.param(0, 5, (0, 5), [], [(0, 5), (10, 20), (30, 40), (50, 60)], id="alone-in-front"),
        pytest.param(
            70, 75, (70, 75), [], [(10, 20), (30, 40), (50, 60), (70, 75)], id="alone-behind"
        ),
        pytest.param(
            22, 28, (22, 28), [], [(10, 20), (22, 28), (30, 40), (50, 60)], id="alone-in-a-hole"
        ),
        pytest.param(
            20, 25, (10, 25), [(10, 20)], [(10, 25), (30, 40), (50, 60)], id="touching-an-end"
        ),
        pytest.param(
            25, 30, (25, 40), [(30, 40)], [(10, 20), (25, 40), (50, 60)], id="touching-a-start"
        ),
        pytest.param(
            20, 30, (10, 40), [(10, 20), (30, 40)], [(10, 40), (50, 60)], id="filling-a-hole"
        ),
        pytest.param(
            12, 15, (10, 20), [(10, 20)], [(10, 20), (30, 40), (50, 60)], id="nothing-new"
        ),
        pytest.param(
            0, 99, (0, 99), [(10, 20), (30, 40), (50, 60)], [(0, 99)], id="over-everything"
        ),
    ],
)
def test_a_range_merges_with_what_it_overlaps_or_touches(
    start: int,
    end: int,
    merged: tuple[int, int],
    swallowed: list[tuple[int, int]],
    ranges: list[tuple[int, int]],
) -> None:
    """Adjacent seconds become one range, and the ranges that vanished are told."""
    held = list(COVERED)
    assert add(held, start, end) == (merged, swallowed)
    assert held == ranges


def test_the_first_range_of_all() -> None:
    """The first range stands alone in an empty list."""
    held: list[Range] = []
    assert add(held, 5, 9) == ((5, 9), [])
    assert held == [(5, 9)]


def test_a_length_is_the_sum_of_the_seconds() -> None:
    """LIFE-10: length is end minus start, summed; an empty range has none."""
    assert length(COVERED) == 30
    assert length([Range(7, 7)]) == 0
    assert length([]) == 0
