"""Posting: quantities become increments of a charge, booked in an hour of an invoice period."""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ledger.domain.ids import month_start
from ledger.meters.pricing import STORAGE_DIVISOR
from ledger.projections.usage.page import Hour, Page
from ledger.projections.usage.pieces import HOUR, pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.projections.usage.state import Meter, Segment
    from ledger.store.database import Connection

_MONTHS_MAX: Final = 4_096
"""A bound on memory, nothing else."""


class Posting:
    """Adds to rate segments and to the rows of a page.

    `closed` says per account up to which second its periods are closed; the owner keeps it.
    """

    def __init__(self, closed: dict[int, int]) -> None:
        """Begin with an empty page."""
        self.page = Page()
        self._closed = closed
        self._months: dict[int, int] = {}
        self.cuts: dict[int, list[int]] = {}
        """Seconds at which promotional credit of an account begins or ends, ascending."""
        self.periods: dict[int, list[int]] = {}
        """Seconds at which periods begin, ascending, of accounts that chose their own."""
        self._stops: dict[int, list[int]] = {}
        """Both together: no piece of usage goes over one."""

    def load(self, connection: Connection) -> None:
        """Take stored cuts and boundaries into memory."""
        for account_id, second in connection.execute(
            "SELECT account_id, since FROM promotion_usage WHERE is_cut"
        ):
            self._remember_cut(account_id, second)
        for account_id, boundary in connection.execute(
            "SELECT account_id, boundary FROM metered_periods ORDER BY account_id, boundary"
        ):
            insort(self.periods.setdefault(account_id, []), boundary)
            self._stop(account_id)

    def cut(self, account_id: int, second: int) -> None:
        """Promotional credit of an account begins or ends at *second*."""
        self._remember_cut(account_id, second)
        self.page.cuts.add((account_id, second))

    def _remember_cut(self, account_id: int, second: int) -> None:
        seconds = self.cuts.setdefault(account_id, [])
        if second not in seconds:
            insort(seconds, second)
            self._stop(account_id)

    def plan(self, account_id: int, boundaries: Sequence[int], after: int | None = None) -> None:
        """Periods of an account begin at these seconds; with *after*, they replace later ones."""
        known = self.periods.get(account_id, [])
        if after is not None:
            known = [one for one in known if one <= after]
            self.page.unplanned.setdefault(account_id, after)
            coming = self.page.planned.get(account_id, [])
            self.page.planned[account_id] = [one for one in coming if one <= after]
        self.periods[account_id] = sorted({*known, *boundaries})
        self.page.planned.setdefault(account_id, []).extend(boundaries)
        self.page.current.clear()
        self._stop(account_id)

    def _stop(self, account_id: int) -> None:
        both = {*self.cuts.get(account_id, ()), *self.periods.get(account_id, ())}
        self._stops[account_id] = sorted(both)

    def is_cut(self, meter: Meter, start: int, end: int) -> bool:
        """True when usage of `[start, end)` has to be cut for its account."""
        seconds = self._stops.get(meter.account_id)
        return seconds is not None and bisect_right(seconds, start) < bisect_right(seconds, end - 1)

    def pieces(self, meter: Meter, start: int, end: int) -> list[tuple[int, int, Segment]]:
        """`[start, end)` cut at hours, changes of terms, periods, ends of promotional credit."""
        found = pieces(meter, start, end)
        if not self._stops or not self.is_cut(meter, start, end):
            return found
        seconds = self._stops[meter.account_id]
        cut = []
        for first, last, segment in found:
            inside = [one for one in seconds if first < one < last]
            stops = [first, *inside, last]
            cut += [(a, b, segment) for a, b in pairwise(stops)]
        return cut

    def post_pieces(
        self,
        meter: Meter,
        start: int,
        end: int,
        position: int,
        *,
        gpu: bool = False,
        storage: bool = False,
    ) -> None:
        """Post seconds of one meter, hour by hour and segment by segment."""
        segment = meter.segment
        if (
            start // HOUR == (end - 1) // HOUR
            and start >= segment.since
            and end <= segment.until
            and not (self._stops and self.is_cut(meter, start, end))
        ):
            seconds = end - start
            self.post(
                meter,
                segment,
                start,
                end,
                position,
                seconds if gpu else 0,
                seconds if storage else 0,
                0,
                0,
            )
            return
        for a, b, piece in self.pieces(meter, start, end):
            self.post(
                meter, piece, a, b, position, b - a if gpu else 0, b - a if storage else 0, 0, 0
            )

    def post(
        self,
        meter: Meter,
        segment: Segment,
        start: int,
        end: int,
        position: int,
        gpu: int,
        storage: int,
        up: int,
        down: int,
    ) -> None:
        """Add quantities to a segment and book the increments of its charge in the hour's row.

        The increments are differences of floored running totals (`ledger.meters.pricing`), written
        out here because this is where every tick of the platform passes.
        """
        hour = start // HOUR
        key = (meter.instance_id, hour, segment.number)
        row = self.page.current.get(key)
        if row is None or (self.periods and meter.account_id in self.periods):
            row = self._row(meter, segment, hour, key, start, position)
        segment.dirty = True
        fee_bp = segment.fee_bp
        charged = kept = 0
        if gpu:
            segment.q_gpu += gpu
            total = segment.gpu_rate * segment.q_gpu // 3600
            fee = fee_bp * total // 10_000
            row.gpu_quantity += gpu
            row.gpu_charge += total - segment.c_gpu
            row.gpu_fee += fee - segment.f_gpu
            charged += total - segment.c_gpu
            kept += fee - segment.f_gpu
            segment.c_gpu = total
            segment.f_gpu = fee
        if storage:
            segment.q_storage += storage
            total = segment.storage_product * segment.q_storage // STORAGE_DIVISOR
            fee = fee_bp * total // 10_000
            row.storage_quantity += storage
            row.storage_charge += total - segment.c_storage
            row.storage_fee += fee - segment.f_storage
            charged += total - segment.c_storage
            kept += fee - segment.f_storage
            segment.c_storage = total
            segment.f_storage = fee
        if up:
            segment.q_up += up
            total = segment.up_rate * segment.q_up // 1_000_000_000
            fee = fee_bp * total // 10_000
            row.up_quantity += up
            row.up_charge += total - segment.c_up
            row.up_fee += fee - segment.f_up
            charged += total - segment.c_up
            kept += fee - segment.f_up
            segment.c_up = total
            segment.f_up = fee
        if down:
            segment.q_down += down
            total = segment.down_rate * segment.q_down // 1_000_000_000
            fee = fee_bp * total // 10_000
            row.down_quantity += down
            row.down_charge += total - segment.c_down
            row.down_fee += fee - segment.f_down
            charged += total - segment.c_down
            kept += fee - segment.f_down
            segment.c_down = total
            segment.f_down = fee
        row.charged += charged
        row.kept += kept
        if self.cuts and charged:
            self._promote(meter, start, charged)
        row.first_second = min(row.first_second, start)
        row.until = max(row.until, end)

    def post_idle(self, meter: Meter, start: int, end: int, position: int) -> None:
        """Post seconds in which a reservation ran on without GPUs (`reserved_idle`)."""
        for a, b, segment in self.pieces(meter, start, end):
            hour = a // HOUR
            key = (meter.instance_id, hour, segment.number)
            row = self.page.current.get(key)
            if row is None or (self.periods and meter.account_id in self.periods):
                row = self._row(meter, segment, hour, key, a, position)
            segment.dirty = True
            segment.q_idle += b - a
            total = segment.gpu_rate * segment.q_idle // 3600
            fee = segment.fee_bp * total // 10_000
            row.idle_quantity += b - a
            row.idle_charge += total - segment.c_idle
            row.idle_fee += fee - segment.f_idle
            row.charged += total - segment.c_idle
            if self.cuts:
                self._promote(meter, a, total - segment.c_idle)
            row.kept += fee - segment.f_idle
            segment.c_idle = total
            segment.f_idle = fee
            row.first_second = min(row.first_second, a)
            row.until = max(row.until, b)

    def _promote(self, meter: Meter, second: int, charged: int) -> None:
        """Note what an account with promotional credit was charged for this stretch of time."""
        seconds = self.cuts.get(meter.account_id)
        if seconds is None or second < seconds[0]:
            return
        since = max(seconds[bisect_right(seconds, second) - 1], self._period_start(meter, second))
        key = (meter.account_id, since)
        self.page.promotions[key] = self.page.promotions.get(key, 0) + charged

    def _period_start(self, meter: Meter, second: int) -> int:
        """The first second of the usage period of an account that holds *second*."""
        own = self.periods.get(meter.account_id)
        if own is None:
            return self._month(second // HOUR)
        return own[bisect_right(own, second) - 1] if second >= own[0] else 0

    def _month(self, hour: int) -> int:
        month = self._months.get(hour)
        if month is None:
            if len(self._months) >= _MONTHS_MAX:
                self._months.clear()
            month = self._months[hour] = month_start(hour * HOUR)
        return month

    def _booked(self, account_id: int, hour: int, start: int) -> int:
        """The first second of the invoice period in which usage of second *start* is booked.

        Late usage of a period that ended inside an hour is booked a second later, so that it has a
        row beside that of the new period.
        """
        closed = self._closed[account_id]
        own = self.periods.get(account_id)
        if own is None:
            month = self._month(hour)
            return month if hour * HOUR >= closed or month == month_start(closed) else closed
        if start < closed:
            return closed + 1 if closed % HOUR else closed
        before = bisect_right(own, start)
        return max(closed, own[before - 1]) if before else closed

    def _row(
        self,
        meter: Meter,
        segment: Segment,
        hour: int,
        key: tuple[int, int, int],
        start: int,
        position: int,
    ) -> Hour:
        """The row of this hour in the invoice period that is open for it now."""
        booked = self._booked(meter.account_id, hour, start)
        row = self.page.hours.get((*key, booked))
        if row is None:
            row = Hour(meter, segment, hour, booked, start, position)
            self.page.hours[(*key, booked)] = row
        self.page.current[key] = row
        self.page.meters[meter.instance_id] = meter
        return row
