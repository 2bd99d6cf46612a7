"""The metering fold: which attested seconds count, what they cost, in which hour they are booked.

A report is folded in one pass. The usual block (one state, the next seconds, one hour, inside or
outside the GPU interval as a whole) costs four sums; everything else is cut into pieces that are
usual. The rule is that of `marketplace.md` §3.2: a second counts on a meter when the server's
interval and the host's first timely tick both say so.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from ledger.domain import events as e
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
from ledger.projections.usage.page import AnomalyPage, Page
from ledger.projections.usage.pieces import HOUR, Ceiling, ceilings, fits, outside_code
from ledger.projections.usage.posting import Posting
from ledger.projections.usage.state import (
    FAR_FUTURE,
    Covered,
    MachineMeter,
    Meter,
    Segment,
    load_instances,
    load_machines,
)
from ledger.store.codec import decode_fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.domain.hardware import Inventory
    from ledger.domain.usage import GpuSample
    from ledger.store.database import Connection
    from ledger.store.log import Stored

_DEFAULT_LATE_SECONDS: Final = 259_200
_RECLAIMABLE: Final = ("before_start", "after_stop")
_NO_INTERVAL: Final = (FAR_FUTURE, 0, 0, 0)
_LIVE_RANGES: Final = 64
"""Coverage ranges of one instance kept in memory before old ones are left to the table."""


class UsageFold:
    """Folds pages of the log into the usage group's tables; keeps live machines in memory between.

    `fold` must be followed by a commit of the page's transaction, or by `forget`.
    """

    def __init__(self) -> None:
        """Begin with nothing in memory."""
        self._machines: dict[int, MachineMeter] = {}
        self._meters: dict[int, Meter] = {}
        self._closed: dict[int, int] = {}
        self._dry: dict[int, int] = {}
        self._late: int | None = None
        self._page = Page()
        self._posting = Posting(self._closed)

    def forget(self) -> None:
        """Drop everything in memory, for instance after a page that did not commit."""
        self.__init__()  # type: ignore[misc]  # the empty state is the initial state

    def fold(self, connection: Connection, page: Sequence[Stored]) -> Page:
        """Fold *page* and return what changed; the caller writes it (`usage_page.write`)."""
        self._page = self._posting.page = Page()
        self._page.anomalies = AnomalyPage(connection)
        self._connection = connection
        if self._late is None:
            self._load_platform()
        self._prepare(page)
        for stored in page:
            if stored.topic == e.USAGE_REPORTED:
                self._report(stored)
            else:
                self._fact(decode_fact(stored.topic, stored.state), stored)
        self._trim(page[-1].recorded_at if page else 0)
        return self._page

    # --- loading and forgetting ------------------------------------------------------------------

    def _load_platform(self) -> None:
        row = self._connection.execute("SELECT late_usage_seconds FROM metered_platform").fetchone()
        self._late = _DEFAULT_LATE_SECONDS if row is None else row[0]
        for account_id, closed_until, dry_at in self._connection.execute(
            "SELECT account_id, closed_until, dry_at FROM metered_accounts"
        ):
            self._closed[account_id] = closed_until
            if dry_at is not None:
                self._dry[account_id] = dry_at

        for account_id, second in self._connection.execute(
            "SELECT account_id, since FROM promotion_usage WHERE is_cut"
        ):
            self._posting.remember_cut(account_id, second)

        for account_id, boundary in self._connection.execute(
            "SELECT account_id, boundary FROM metered_periods ORDER BY account_id, boundary"
        ):
            self._posting.remember_period(account_id, boundary)

    def _prepare(self, page: Sequence[Stored]) -> None:
        """Load the machines and instances of the page that are not in memory, set-based."""
        machines: set[int] = set()
        instances: set[int] = set()
        for stored in page:
            kind, _, rest = stored.stream_id.partition("-")
            if kind == "usage":
                machines.add(int(rest.partition("-")[0]))
            elif kind in {"instance", "volume"}:
                instances.add(int(rest))
        instances.difference_update(self._meters)
        if instances:
            rows = self._connection.execute(
                "SELECT DISTINCT machine_id FROM metered_instances WHERE instance_id = ANY(%s)",
                [list(instances)],
            )
            machines.update(row[0] for row in rows)
        machines.difference_update(self._machines)
        if machines and page:
            self._load(machines, page[0].recorded_at)
        missing = [one for one in instances if one not in self._meters]
        for meter in load_instances(self._connection, missing).values() if missing else ():
            self._adopt(meter)

    def _load(self, machine_ids: set[int], recorded_at: int) -> None:
        assert self._late is not None
        keep_after = recorded_at - self._late - HOUR
        for machine in load_machines(self._connection, machine_ids, keep_after).values():
            self._machines[machine.machine_id] = machine
            self._meters.update(machine.instances)
            self._meters.update(machine.volumes)

    def _adopt(self, meter: Meter) -> None:
        self._meters[meter.instance_id] = meter
        machine = self._machines.get(meter.machine_id)
        if machine is not None:
            machine.adopt(meter)

    def _trim(self, now: int) -> None:
        """Let go of what no timely tick can touch any more, so that memory follows the present."""
        assert self._late is not None
        horizon = now - self._late - HOUR
        for machine in self._page.machines.values():
            if len(machine.covered.ranges) > _LIVE_RANGES:
                self._page.trims.append((machine.covered, horizon))
            contracts = chain(machine.instances.values(), machine.volumes.values())
            self._page.evictions.extend(one for one in contracts if one.destroyed < horizon)
        for meter in self._page.meters.values():
            if len(meter.covered.ranges) > _LIVE_RANGES:
                self._page.trims.append((meter.covered, horizon))

    def committed(self) -> None:
        """The page is durable: forget what has left the present."""
        for covered, horizon in self._page.trims:
            covered.trim(horizon)
        for meter in self._page.evictions:
            self._meters.pop(meter.instance_id, None)
            self._machines[meter.machine_id].drop(meter)

    # --- facts -----------------------------------------------------------------------------------

    def _fact(self, fact: e.AnyFact, stored: Stored) -> None:
        page = self._page
        match fact:
            case e.PolicyAdopted():
                self._late = page.late_usage_seconds = fact.late_usage_seconds
            case e.AccountOpened():
                self._closed[fact.account_id] = fact.opened_at
                page.accounts[fact.account_id] = (fact.opened_at, None)
            case e.PeriodClosed():
                # What was booked in this period is booked; the rows that postings go to end here.
                page.current.clear()
                self._closed[fact.account_id] = fact.period_until
                page.accounts[fact.account_id] = (
                    fact.period_until,
                    self._dry.get(fact.account_id),
                )
            case e.BillingChosen():
                self._posting.plan(fact.account_id, fact.boundaries, fact.chosen_at)
            case e.PeriodsPlanned():
                self._posting.plan(fact.account_id, fact.boundaries)
            case e.PromotionGranted():
                self._posting.cut(fact.account_id, fact.granted_at)
                self._posting.cut(fact.account_id, fact.expires_at)
            case e.PromotionRevoked():
                self._posting.cut(fact.account_id, fact.revoked_at)
            case e.AccountExhausted():
                self._dry[fact.account_id] = fact.dry_at
                page.accounts[fact.account_id] = (self._closed[fact.account_id], fact.dry_at)
            case e.MachineRegistered():
                spec = fact.spec
                machine = MachineMeter(
                    fact.machine_id, spec.up_mbps * 125_000, spec.down_mbps * 125_000
                )
                self._machines[fact.machine_id] = machine
                page.machines[fact.machine_id] = machine
            case e.MachineEnrolled():
                machine = self._machine(fact.machine_id, stored.recorded_at)
                for gpu_uuid in fact.gpu_uuids:
                    machine.describe(gpu_uuid, None)
                self._inventory(machine, fact.inventory)
            case e.InstanceCreated():
                self._created(fact, fact.instance_id)
            case e.VolumeCreated():
                self._created(fact, fact.volume_id)
            case e.VolumeDestroyed():
                meter = page.meters[fact.volume_id] = self._meters[fact.volume_id]
                meter.destroyed = fact.destroyed_at
                meter.dirty = True
                self._machine(meter.machine_id, stored.recorded_at)
            case e.BidChanged() | e.ReservationBought() | e.ReservationEnded():
                self._agree(fact.instance_id, fact.coming)
            case e.ContractExtended():
                self._agree(fact.instance_id, fact.coming)
            case e.GpusAssigned():
                meter = self._meters[fact.instance_id]
                meter.assign(fact.assigned_at)
                machine = self._machine(meter.machine_id, stored.recorded_at)
                machine.hand_over(fact.gpu_uuids, meter.instance_id)
                if meter.lost and meter.lost[-1][1] == FAR_FUTURE:
                    meter.lost[-1][1] = fact.assigned_at
                    meter.dirty_lost.add(meter.lost[-1][0])
                page.meters[meter.instance_id] = meter
            case e.InstanceRunning():
                self._open_interval(
                    fact.instance_id, fact.gpu_from, FAR_FUTURE, fact.assignment_no, stored
                )
            case e.InstanceRan():
                self._open_interval(
                    fact.instance_id, fact.gpu_from, fact.gpu_until, fact.assignment_no, stored
                )
            case e.InstanceBootChanged():
                if fact.gpu_until is not None:
                    self._close_interval(fact.instance_id, fact.gpu_until)
            case e.InstanceStopped():
                self._release(fact.instance_id, fact.stopped_at)
                if fact.reason == "zero_balance":
                    self._late_exhaustion(fact, stored.position)
            case e.InstanceDisplaced():
                self._release(fact.instance_id, fact.displaced_at)
            case e.InstanceExpired():
                self._release(fact.instance_id, fact.expired_at)
            case e.InstanceDestroyed():
                meter = self._release(fact.instance_id, fact.destroyed_at)
                meter.destroyed = fact.destroyed_at
                meter.dirty = True
                if meter.lost and meter.lost[-1][1] == FAR_FUTURE:
                    meter.lost[-1][1] = fact.destroyed_at
                    meter.dirty_lost.add(meter.lost[-1][0])
            case e.InstanceDiskLost():
                meter = self._meters[fact.instance_id]
                meter.lost.append([fact.lost_at, FAR_FUTURE])
                meter.dirty_lost.add(fact.lost_at)
                page.meters[meter.instance_id] = meter
            case _:
                self._finding(fact, stored)

    def _finding(self, fact: e.AnyFact, stored: Stored) -> None:
        """Facts that only say that something was wrong."""
        note = self._page.anomalies.add
        at = stored.recorded_at
        match fact:
            case e.ObservationIgnored():
                note(
                    fact.machine_id,
                    fact.instance_id,
                    "observation_ignored",
                    fact.observed_at,
                    fact.observed_at + 1,
                    0,
                    stored.position,
                )
            case e.UsageGapRecorded():
                note(
                    fact.machine_id,
                    fact.instance_id,
                    "gap",
                    fact.gap_from,
                    fact.gap_until,
                    0,
                    stored.position,
                )
            case e.UsageRejected():
                note(fact.machine_id, 0, fact.code, at, at + 1, 0, stored.position)
            case e.UsageForked():
                note(fact.machine_id, 0, "chain_fork", at, at + 1, 0, stored.position)
            case e.AgentEquivocated():
                note(fact.machine_id, 0, "equivocation", at, at + 1, 0, stored.position)
            case _:
                return

    def _created(self, fact: e.InstanceCreated | e.VolumeCreated, contract_id: int) -> None:
        meter = Meter(
            contract_id,
            fact.account_id,
            fact.host_id,
            fact.machine_id,
            fact.disk_bytes,
            fact.created_at,
        )
        terms = fact.terms
        meter.add_segment(
            Segment(1, fact.created_at, terms.kind, terms.fee_bp).price(
                (terms.gpu_rate, terms.storage_rate, terms.up_rate, terms.down_rate),
                fact.disk_bytes,
            )
        )
        self._meters[meter.instance_id] = meter
        machine = self._machine(fact.machine_id, fact.created_at)
        machine.adopt(meter)
        self._page.meters[meter.instance_id] = meter

    def _agree(self, instance_id: int, coming: Sequence[e.Coming]) -> None:
        """New terms from a second on; each opens a rate segment."""
        meter = self._meters[instance_id]
        for one in coming:
            terms = one.terms
            number = len(meter.segments) + 1
            meter.add_segment(
                Segment(number, one.effective_at, terms.kind, terms.fee_bp).price(
                    (terms.gpu_rate, terms.storage_rate, terms.up_rate, terms.down_rate),
                    meter.disk_bytes,
                )
            )
            if terms.kind == "reserved":
                meter.watch_holds()
        meter.segment = meter.segment_at(meter.covered.until)
        self._page.meters[instance_id] = meter

    def _open_interval(
        self, instance_id: int, start: int, until: int, assignment: int, stored: Stored
    ) -> None:
        meter = self._meters[instance_id]
        meter.intervals.append([start, until, assignment, stored.position])
        meter.dirty_intervals.add(start)
        self._page.meters[instance_id] = meter
        if start < stored.recorded_at:
            self._reclaim(meter, start, min(until, stored.recorded_at))

    def _machine(self, machine_id: int, recorded_at: int) -> MachineMeter:
        """A machine that a fact is about; it goes with the page."""
        if machine_id not in self._machines:
            self._load({machine_id}, recorded_at)
        machine = self._page.machines[machine_id] = self._machines[machine_id]
        return machine

    def _inventory(self, machine: MachineMeter, inventory: Inventory | None) -> None:
        for gpu in inventory.gpus if inventory is not None else ():
            if gpu.uuid in machine.gpus:
                machine.describe(gpu.uuid, gpu.max_power_mw)

    def _release(self, instance_id: int, at: int) -> Meter:
        """The GPUs, if it held any, went back at second *at*."""
        meter = self._close_interval(instance_id, at)
        meter.release(at)
        self._machine(meter.machine_id, at).hand_over((), instance_id)
        return meter

    def _close_interval(self, instance_id: int, until: int) -> Meter:
        meter = self._meters[instance_id]
        self._page.meters[instance_id] = meter
        if meter.idle_until:
            meter.busy()
        if meter.intervals and meter.intervals[-1][1] == FAR_FUTURE:
            last = meter.intervals[-1]
            last[1] = max(until, last[0])
            meter.dirty_intervals.add(last[0])
        return meter

    def _reclaim(self, meter: Meter, start: int, until: int) -> None:
        """Bill first ticks that came before the confirmation that makes them count.

        The rule asks which seconds lie in the interval, not which message was first.
        """
        for code in _RECLAIMABLE:
            for low, high, position in self._page.anomalies.take(
                meter.machine_id, meter.instance_id, code, start, until
            ):
                self._posting.post_pieces(meter, low, high, position, gpu=True)

    def _late_exhaustion(self, fact: e.InstanceStopped, position: int) -> None:
        meter = self._meters[fact.instance_id]
        dry_at = self._dry.get(meter.account_id, fact.stopped_at)
        if dry_at < fact.stopped_at:
            self._page.anomalies.add(
                meter.machine_id,
                meter.instance_id,
                "late_exhaustion",
                dry_at,
                fact.stopped_at,
                0,
                position,
            )

    # --- reports ---------------------------------------------------------------------------------

    def _report(self, stored: Stored) -> None:
        report = decode_stored(stored.state)
        machine = self._machines[report.machine]
        self._page.reports += 1
        self._page.ticks += stored.count if report.instances else 0
        if report.inventory is not None:
            self._page.machines[machine.machine_id] = machine
            self._inventory(machine, report.inventory)
        if not report.count:
            return
        assert self._late is not None
        low = stored.recorded_at - self._late
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
                self._reload(covered, "machine_coverage", "machine_id", machine.machine_id)
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
        meter = machine.instances.get(block.instance) or self._find(machine, block.instance)
        if meter is None:
            note(machine.machine_id, block.instance, "unknown_instance", start, end, 0, position)
            return
        self._page.meters[meter.instance_id] = meter
        covered = meter.covered
        if start < covered.trimmed:
            self._reload(covered, "coverage", "instance_id", meter.instance_id)
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

    def _find(self, machine: MachineMeter, instance_id: int) -> Meter | None:
        """An instance that left memory long ago; none if it never lived on this machine."""
        meter = self._meters.get(instance_id)
        place = (machine.machine_id, instance_id)
        if meter is None and place not in self._page.strangers:
            meter = load_instances(self._connection, [instance_id]).get(instance_id)
        if meter is None or meter.is_volume or meter.machine_id != machine.machine_id:
            # Asked once a page: a host that names what is not its own must not slow the others.
            self._page.strangers.add(place)
            return None
        self._adopt(meter)
        return meter

    def _reload(self, covered: Covered, table: str, key: str, value: int) -> None:
        """Take the ranges that were trimmed from memory back from their table."""
        before = covered.ranges[0].start if covered.ranges else FAR_FUTURE
        rows = self._connection.execute(
            f"SELECT start, until, position FROM {table} WHERE {key} = %s"  # noqa: S608 - constants
            " AND start < %s ORDER BY start",
            [value, before],
        ).fetchall()
        kept, covered.ranges = covered.ranges, []
        for start, until, position in rows:
            covered.restore(start, until, position)
        covered.ranges.extend(kept)
        covered.trimmed = 0
