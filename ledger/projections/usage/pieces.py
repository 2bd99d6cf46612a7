"""How a report is cut: seconds alike in everything that matters, and the link's ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.domain.usage import Column, UsageReport, column_peak, column_values
from ledger.meters.bandwidth import capped, within_ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.projections.usage.state import MachineMeter, Meter, Segment

HOUR: Final = 3_600


def fits(columns: Sequence[Column], totals: Sequence[int], link: int) -> bool:
    """True when no second of the report exceeds the link.

    Where the bytes of all seconds together would fit into one, nothing else has to be looked at.
    """
    return sum(totals) <= link or within_ceiling([column_peak(one) for one in columns], link)


class Ceiling:
    """Bytes of one block after the ceiling, second by second, and what was above it."""

    __slots__ = ("down", "excess", "up")

    def __init__(self, up: list[int], down: list[int]) -> None:
        self.up = up
        self.down = down
        self.excess = [0] * len(up)


def ceilings(report: UsageReport, machine: MachineMeter) -> dict[int, Ceiling]:
    """Apply the ceiling to a report in which some second exceeds a link."""
    result = {
        block.instance: Ceiling(list(column_values(block.up)), list(column_values(block.down)))
        for block in report.instances
    }
    for second in range(report.start, report.start + report.count):
        present = [
            (result[block.instance], second - block.start)
            for block in report.instances
            if block.start <= second < block.start + block.count
        ]
        for name, link in (("up", machine.up_link), ("down", machine.down_link)):
            attested = [getattr(one, name)[at] for one, at in present]
            counted = capped(attested, link)
            for (one, at), before, after in zip(present, attested, counted, strict=True):
                getattr(one, name)[at] = after
                one.excess[at] += before - after
    return result


def pieces(meter: Meter, start: int, end: int) -> list[tuple[int, int, Segment]]:
    """`[start, end)` cut at hours and at changes of terms."""
    found = []
    while start < end:
        segment = meter.segment_at(start)
        stop = min(end, (start // HOUR + 1) * HOUR, segment.until)
        found.append((start, stop, segment))
        start = stop
    return found


def outside_code(meter: Meter, start: int, end: int) -> tuple[str, int]:
    """Why billable ticks from *start* lie outside every GPU interval, and up to which second."""
    if start >= meter.destroyed:
        return "after_destroy", end
    end = min(end, meter.destroyed)
    assigned = meter.assigned_at
    if assigned is not None and start < assigned < end:
        end = assigned
    ended = [until for _, until, *_ in meter.intervals if until <= start]
    if ended and (assigned is None or max(ended) >= assigned or start < assigned):
        return "after_stop", end
    return "before_start", end
