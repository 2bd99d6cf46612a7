"""Which attested seconds count, and on which meters.

A report is folded in one pass. The usual block (one state, the next seconds, one hour, inside or
outside the GPU interval as a whole) costs four sums; everything else is cut into pieces that are
usual. The rule is that of `marketplace.md` §3.2: a second counts on a meter when the server's
interval and the host's first timely tick both say so.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from ledger.domain.idleness import IDLE_BELOW_PERCENT, idle_tail, is_idle
from ledger.domain.usage import (
    GPU_BILLABLE,
    InstanceBlock,
    block_states,
    column_total,
    column_values,
    decode_stored,
)
from ledger.meters.intervals import overlap, subtract
from ledger.projections.usage.page import Page
from ledger.projections.usage.pieces import HOUR, Ceiling, ceilings, fits, outside_code
from ledger.projections.usage.state import FAR_FUTURE, MachineMeter, Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.domain.usage import GpuSample
    from ledger.projections.usage.live import Live
    from ledger.projections.usage.posting import Posting
    from ledger.store.log import Stored

_NO_INTERVAL: Final = (FAR_FUTURE, 0, 0, 0)


class ReportFold:
    """Folds usage reports into the rows of a page."""

    def __init__(self, live: Live, posting: Posting) -> None:
        """Meter what is *live*, and book by *posting*."""
        self._live = live
        self._posting = posting
        self._page = Page()

    def begin(self, page: Page) -> None:
        """What changes from now on goes into *page*."""
        self._page = page

    def take(self, stored: Stored) -> None:
        """Fold one report."""
        report = decode_stored(stored.state)
        machine = self._live.machines[report.machine]
        self._page.reports += 1
        self._page.ticks += stored.count if report.instances else 0
        if report.inventory is not None:
            self._page.machines[machine.machine_id] = machine
            machine.take_inventory(report.inventory)
        if not report.count:
            return
        low = stored.recorded_at - self._live.late
        self._page.machines[machine.machine_id] = machine
        self._attest(machine, report.start, report.start + report.count, low, stored.position)
        blocks = report.instances
        position = stored.position
        ups = [column_total(block.up) for block in blocks]
        downs = [column_total(block.down) for block in blocks]
        if fits([block.up for block in blocks], ups, machine.up_link) and (
            fits([block.down for block in blocks], downs, machine.down_link)
        ):
            for block, up, down in zip(blocks, ups, downs, strict=True):
                self._block(machine, block, low, position, up, down)
                position += block.count
        else:
            limits = ceilings(report, machine)
            for block in blocks:
                self._slow_block(machine, block, low, position, limits[block.instance])
                position += block.count
        if report.gpus:
            self._samples(machine, report.gpus)

    def _attest(
        self, machine: MachineMeter, start: int, until: int, low: int, position: int
    ) -> None:
        """Storage runs in every second that the machine attests for the first time, in time."""
        covered = machine.covered
        if start >= covered.until:
            covered.append(start, until, position)
            fresh: Sequence[tuple[int, int]] = ((start, until),)
        else:
            if start < covered.trimmed:
                self._live.reload(covered, "machine_coverage", "machine_id", machine.machine_id)
            fresh = subtract(start, until, overlap(covered.ranges, start, until))
            for first, end in fresh:
                covered.add(first, end, position)
        for first, end in fresh:
            first = max(first, low)  # noqa: PLW2901 - clipped to what is timely
            if first >= end:
                continue
            for meter in chain(machine.instances.values(), machine.volumes.values()):
                begin, finish = max(first, meter.created), min(end, meter.destroyed)
                if begin >= finish:
                    continue
                if meter.holds is not None:
                    self._idle(meter, begin, finish, position)
                if meter.lost:
                    for piece in subtract(begin, finish, [(a, b) for a, b in meter.lost]):
                        self._posting.post_pieces(
                            meter, piece.start, piece.end, position, storage=True
                        )
                else:
                    self._posting.post_pieces(meter, begin, finish, position, storage=True)

    def _block(
        self,
        machine: MachineMeter,
        block: InstanceBlock,
        low: int,
        position: int,
        up: int,
        down: int,
    ) -> None:
        """One instance's ticks, *up* and *down* bytes in all, where nobody exceeds the link."""
        meter = machine.instances.get(block.instance)
        start = block.start
        end = start + block.count
        if meter is None or len(block.state) != 1:
            self._slow_block(machine, block, low, position, None)
            return
        if (
            start < meter.covered.until
            or start < low
            or start < meter.created
            or end > meter.destroyed
            or start // HOUR != (end - 1) // HOUR
            or start < meter.segment.since
            or end > meter.segment.until
            or self._posting.is_cut(meter, start, end)
        ):
            self._slow_block(machine, block, low, position, None)
            return
        seconds = 0
        interval: Sequence[int] = _NO_INTERVAL
        if block.state[0][0] in GPU_BILLABLE:
            if meter.intervals:
                interval = meter.intervals[-1]
            if start < interval[0] or end > interval[1]:
                self._slow_block(machine, block, low, position, None)
                return
            seconds = block.count
        meter.covered.append(start, end, position)
        self._page.meters[meter.instance_id] = meter
        # Unknown is 255: one look at the last second tells all that is not idle.
        if seconds and block.util[-1] < IDLE_BELOW_PERCENT and interval[1] >= FAR_FUTURE:
            meter.idle(start, end, idle_tail(block.util))
        elif meter.idle_until:
            meter.busy()
        self._posting.post(
            meter,
            meter.segment,
            start,
            end,
            position,
            seconds,
            0,
            up,
            down,
        )

    def _slow_block(
        self,
        machine: MachineMeter,
        block: InstanceBlock,
        low: int,
        position: int,
        ceiling: Ceiling | None,
    ) -> None:
        """One instance's ticks, cut into pieces that are alike in everything that matters."""
        start, end = block.start, block.start + block.count
        note = self._page.anomalies.add
        meter = machine.instances.get(block.instance) or self._live.find(machine, block.instance)
        if meter is None:
            note(machine.machine_id, block.instance, "unknown_instance", start, end, 0, position)
            return
        self._page.meters[meter.instance_id] = meter
        covered = meter.covered
        if start < covered.trimmed:
            self._live.reload(covered, "coverage", "instance_id", meter.instance_id)
        seen_until = covered.until
        taken = overlap(covered.ranges, start, end)
        for first, last in taken:
            note(
                machine.machine_id, meter.instance_id, "duplicate_second", first, last, 0, position
            )
        fresh = subtract(start, end, taken)
        up = ceiling.up if ceiling else column_values(block.up)
        down = ceiling.down if ceiling else column_values(block.down)
        for first, last in fresh:
            covered.add(first, last, position)
            if first < low:
                stop = min(last, low)
                note(machine.machine_id, meter.instance_id, "too_late", first, stop, 0, position)
                first = stop  # noqa: PLW2901 - the rest is timely
            if first >= last:
                continue
            for state, begin, finish in block_states(block):
                begin, finish = max(begin, first), min(finish, last)  # noqa: PLW2901 - clipped
                if begin < finish and state in GPU_BILLABLE:
                    self._gpu(meter, begin, finish, position)
            if ceiling:
                self._excess(meter, ceiling, start, first, last, position)
            for begin, finish in self._outside_life(meter, first, last):
                lost = sum(up[begin - start : finish - start])
                lost += sum(down[begin - start : finish - start])
                if lost:
                    note(
                        machine.machine_id,
                        meter.instance_id,
                        "bytes_outside_life",
                        begin,
                        finish,
                        lost,
                        position,
                    )
            begin, finish = max(first, meter.created), min(last, meter.destroyed)
            meter.segment = meter.segment_at(covered.until)
            for a, b, segment in self._posting.pieces(meter, begin, finish):
                moved_up = sum(up[a - start : b - start])
                moved_down = sum(down[a - start : b - start])
                if moved_up or moved_down:
                    self._posting.post(meter, segment, a, b, position, 0, 0, moved_up, moved_down)
        self._look_for_work(meter, block, seen_until)

    @staticmethod
    def _look_for_work(meter: Meter, block: InstanceBlock, seen_until: int) -> None:
        """Go on with the idle run, or end it, by the ticks after everything seen before."""
        interval = meter.intervals[-1] if meter.intervals else _NO_INTERVAL
        for state, begin, end in block_states(block):
            start = max(begin, seen_until)
            if start >= end:
                continue
            util = block.util[start - block.start : end - block.start]
            inside = interval[0] <= start and interval[1] >= FAR_FUTURE
            if inside and state in GPU_BILLABLE and util[-1] < IDLE_BELOW_PERCENT:
                meter.idle(start, end, idle_tail(util))
            elif meter.idle_until:
                meter.busy()

    def _samples(self, machine: MachineMeter, samples: Sequence[GpuSample]) -> None:
        """An idle run holds only where every reading of its GPUs agrees."""
        for sample in samples:
            gpu = machine.gpus.get(sample.gpu_uuid)
            if gpu is None or gpu.instance_id is None:
                continue
            meter = machine.instances.get(gpu.instance_id)
            if meter is not None and meter.idle_until and not is_idle(sample, gpu.max_power_mw):
                meter.busy(sample.at)
                self._page.meters[meter.instance_id] = meter

    def _idle(self, meter: Meter, start: int, end: int, position: int) -> None:
        """Seconds of a term that the machine attests and in which the instance held no GPUs."""
        for segment in meter.segments:
            if segment.kind != "reserved":
                continue
            low, high = max(start, segment.since), min(end, segment.until)
            if low < high:
                held = [(a, b) for a, b in meter.holds or () if a < high and b > low]
                for idle in subtract(low, high, held):
                    self._posting.post_idle(meter, idle.start, idle.end, position)

    def _gpu(self, meter: Meter, start: int, end: int, position: int) -> None:
        """Bill the part of `[start, end)` inside GPU intervals; the rest is an anomaly."""
        inside = [
            (max(low, start), min(high, end))
            for low, high, *_ in meter.intervals
            if low < end and high > start and max(low, start) < min(high, end)
        ]
        inside.sort()
        for low, high in inside:
            self._posting.post_pieces(meter, low, high, position, gpu=True)
        for low, high in subtract(start, end, inside):
            first = low
            while first < high:
                code, until = outside_code(meter, first, high)
                self._page.anomalies.add(
                    meter.machine_id, meter.instance_id, code, first, until, 0, position
                )
                first = until

    def _excess(
        self, meter: Meter, ceiling: Ceiling, start: int, first: int, last: int, position: int
    ) -> None:
        for second in range(first, last):
            over = ceiling.excess[second - start]
            if over:
                self._page.anomalies.add(
                    meter.machine_id,
                    meter.instance_id,
                    "bandwidth_excess",
                    second,
                    second + 1,
                    over,
                    position,
                )

    @staticmethod
    def _outside_life(meter: Meter, start: int, end: int) -> list[tuple[int, int]]:
        parts = []
        if start < meter.created:
            parts.append((start, min(end, meter.created)))
        if end > meter.destroyed:
            parts.append((max(start, meter.destroyed), end))
        return parts
