"""Sorted, disjoint, half-open second ranges: coverage, GPU intervals, anomalies."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """The seconds `[start, end)`."""

    start: int
    end: int


def overlap(ranges: Sequence[tuple[int, int]], start: int, end: int) -> list[Range]:
    """The parts of `[start, end)` that lie in *ranges* (sorted, disjoint)."""
    first = bisect_right(ranges, (start, start)) - 1
    found = []
    for low, high in ranges[max(first, 0) :]:
        if low >= end:
            break
        low, high = max(low, start), min(high, end)  # noqa: PLW2901 - clipped in place
        if low < high:
            found.append(Range(low, high))
    return found


def subtract(start: int, end: int, taken: Iterable[tuple[int, int]]) -> list[Range]:
    """The parts of `[start, end)` outside *taken* (sorted, disjoint)."""
    free = []
    for low, high in taken:
        if low >= end:
            break
        if high <= start:
            continue
        if low > start:
            free.append(Range(start, low))
        start = max(start, high)
    if start < end:
        free.append(Range(start, end))
    return free


def add(ranges: list[Range], start: int, end: int) -> tuple[Range, list[Range]]:
    """Put `[start, end)` into *ranges* in place, merging what overlaps or touches.

    Returns:
        The range that now holds it, and the old ranges that it swallowed.
    """
    low = bisect_left(ranges, (start, start))
    if low and ranges[low - 1].end >= start:
        low -= 1
    high = low
    while high < len(ranges) and ranges[high].start <= end:
        high += 1
    swallowed = ranges[low:high]
    merged = Range(
        min(start, swallowed[0].start) if swallowed else start,
        max(end, swallowed[-1].end) if swallowed else end,
    )
    ranges[low:high] = [merged]
    return merged, swallowed


def length(ranges: Iterable[tuple[int, int]]) -> int:
    """Seconds in all ranges together."""
    return sum(end - start for start, end in ranges)
