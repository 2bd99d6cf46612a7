"""From readings at any moment to bytes of whole seconds, in integers. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

MAX_INTERPOLATION_NS: Final = 2_000_000_000
"""Over a longer hole nobody knows in which second the bytes were carried."""


class Bytes(NamedTuple):
    """Bytes of both directions, seen from inside the container."""

    up: int
    down: int

    def plus(self, other: Bytes) -> Bytes:
        """Per direction."""
        return Bytes(self.up + other.up, self.down + other.down)

    def minus(self, other: Bytes) -> Bytes:
        """Per direction."""
        return Bytes(self.up - other.up, self.down - other.down)


NOTHING: Final = Bytes(0, 0)


class Point(msgspec.Struct, frozen=True, array_like=True):
    """How many bytes an instance had carried in all at one moment of CLOCK_MONOTONIC."""

    at_ns: int
    up: int
    down: int


class Course(msgspec.Struct, array_like=True):
    """What one instance carried, from the end of its last second in a report on.

    `points` rise in time and never fall in bytes. `lost` are bytes of no known second: they go into
    `counter_gap` of the next report and are not billed.
    """

    points: list[Point] = []
    lost_up: int = 0
    lost_down: int = 0

    def begin(self, at_ns: int) -> None:
        """The counter is 0 at *at_ns*, where its container started."""
        assert not self.points
        self.points.append(Point(at_ns, 0, 0))

    def add(self, at_ns: int, carried: Bytes) -> None:
        """*carried* since the last point, of which there is one; after a long hole in no second."""
        last = self.points[-1]
        at_ns = max(at_ns, last.at_ns)
        if at_ns - last.at_ns > MAX_INTERPOLATION_NS:
            self.lose(carried)
            carried = NOTHING
        self.points.append(Point(at_ns, last.up + carried.up, last.down + carried.down))

    def lose(self, carried: Bytes) -> None:
        """Bytes that no second gets."""
        self.lost_up += carried.up
        self.lost_down += carried.down

    def cut(self, until_ns: int) -> Bytes:
        """Drop everything before *until_ns*; what that was."""
        if not self.points:
            return NOTHING
        end = self._total(until_ns)
        first = self.points[0]
        passed = end.minus(Bytes(first.up, first.down))
        rest = [point for point in self.points if point.at_ns > until_ns]
        at_ns = max(first.at_ns, min(until_ns, self.points[-1].at_ns))
        self.points = [Point(at_ns, end.up, end.down), *rest]
        return passed

    def take_lost(self) -> Bytes:
        """The bytes of no known second since the last call."""
        lost = Bytes(self.lost_up, self.lost_down)
        self.lost_up = self.lost_down = 0
        return lost

    def _total(self, at_ns: int) -> Bytes:
        """The count at a moment, between the readings on either side, rounded down."""
        before: Point | None = None
        for point in self.points:
            if point.at_ns == at_ns:
                before = point
                continue
            if point.at_ns > at_ns:
                if before is None:
                    return Bytes(point.up, point.down)
                passed, whole = at_ns - before.at_ns, point.at_ns - before.at_ns
                return Bytes(
                    before.up + (point.up - before.up) * passed // whole,
                    before.down + (point.down - before.down) * passed // whole,
                )
            before = point
        return NOTHING if before is None else Bytes(before.up, before.down)
