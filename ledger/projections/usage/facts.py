"""What facts change about what is metered: terms, GPU intervals, lost disks, periods, GPUs held.

Ticks change nothing here. A fact may come after ticks that it makes count: these are posted then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.domain import events as e
from ledger.projections.usage.state import FAR_FUTURE, MachineMeter, Meter, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.projections.usage.live import Live
    from ledger.projections.usage.posting import Posting
    from ledger.store.log import Stored

_RECLAIMABLE: Final = ("before_start", "after_stop")


class FactFold:
    """Folds facts into what is live."""

    def __init__(self, live: Live, posting: Posting) -> None:
        """Change *live*; what ticks of before now cost goes to *posting*."""
        self._live = live
        self._posting = posting

    def take(self, fact: e.AnyFact, stored: Stored) -> None:
        """Fold one fact."""
        page = self._live.page
        match fact:
            case e.PolicyAdopted():
                self._live.late = page.late_usage_seconds = fact.late_usage_seconds
            case e.AccountOpened():
                self._live.closed[fact.account_id] = fact.opened_at
                page.accounts[fact.account_id] = (fact.opened_at, None)
            case e.PeriodClosed():
                # What was booked in this period is booked; the rows that postings go to end here.
                page.current.clear()
                self._live.closed[fact.account_id] = fact.period_until
                page.accounts[fact.account_id] = (
                    fact.period_until,
                    self._live.dry.get(fact.account_id),
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
                self._live.dry[fact.account_id] = fact.dry_at
                page.accounts[fact.account_id] = (self._live.closed[fact.account_id], fact.dry_at)
            case e.MachineRegistered():
                spec = fact.spec
                machine = MachineMeter(
                    fact.machine_id, spec.up_mbps * 125_000, spec.down_mbps * 125_000
                )
                self._live.machines[fact.machine_id] = machine
                page.machines[fact.machine_id] = machine
            case e.MachineEnrolled():
                machine = self._live.machine(fact.machine_id, stored.recorded_at)
                for gpu_uuid in fact.gpu_uuids:
                    machine.describe(gpu_uuid, None)
                machine.take_inventory(fact.inventory)
            case e.InstanceCreated():
                self._created(fact, fact.instance_id)
            case e.VolumeCreated():
                self._created(fact, fact.volume_id)
            case e.VolumeDestroyed():
                meter = page.meters[fact.volume_id] = self._live.meters[fact.volume_id]
                meter.destroyed = fact.destroyed_at
                meter.dirty = True
                self._live.machine(meter.machine_id, stored.recorded_at)
            case e.BidChanged() | e.ReservationBought() | e.ReservationEnded():
                self._agree(fact.instance_id, fact.coming)
            case e.ContractExtended():
                self._agree(fact.instance_id, fact.coming)
            case e.GpusAssigned():
                meter = self._live.meters[fact.instance_id]
                meter.assign(fact.assigned_at)
                machine = self._live.machine(meter.machine_id, stored.recorded_at)
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
                meter = self._live.meters[fact.instance_id]
                meter.lost.append([fact.lost_at, FAR_FUTURE])
                meter.dirty_lost.add(fact.lost_at)
                page.meters[meter.instance_id] = meter
            case _:
                self._finding(fact, stored)

    def _finding(self, fact: e.AnyFact, stored: Stored) -> None:
        """Facts that only say that something was wrong."""
        note = self._live.page.anomalies.add
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
        self._live.meters[meter.instance_id] = meter
        machine = self._live.machine(fact.machine_id, fact.created_at)
        machine.adopt(meter)
        self._live.page.meters[meter.instance_id] = meter

    def _agree(self, instance_id: int, coming: Sequence[e.Coming]) -> None:
        """New terms from a second on; each opens a rate segment."""
        meter = self._live.meters[instance_id]
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
        self._live.page.meters[instance_id] = meter

    def _open_interval(
        self, instance_id: int, start: int, until: int, assignment: int, stored: Stored
    ) -> None:
        meter = self._live.meters[instance_id]
        meter.intervals.append([start, until, assignment, stored.position])
        meter.dirty_intervals.add(start)
        self._live.page.meters[instance_id] = meter
        if start < stored.recorded_at:
            self._reclaim(meter, start, min(until, stored.recorded_at))

    def _release(self, instance_id: int, at: int) -> Meter:
        """The GPUs, if it held any, went back at second *at*."""
        meter = self._close_interval(instance_id, at)
        meter.release(at)
        self._live.machine(meter.machine_id, at).hand_over((), instance_id)
        return meter

    def _close_interval(self, instance_id: int, until: int) -> Meter:
        meter = self._live.meters[instance_id]
        self._live.page.meters[instance_id] = meter
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
            for low, high, position in self._live.page.anomalies.take(
                meter.machine_id, meter.instance_id, code, start, until
            ):
                self._posting.post_pieces(meter, low, high, position, gpu=True)

    def _late_exhaustion(self, fact: e.InstanceStopped, position: int) -> None:
        meter = self._live.meters[fact.instance_id]
        dry_at = self._live.dry.get(meter.account_id, fact.stopped_at)
        if dry_at < fact.stopped_at:
            self._live.page.anomalies.add(
                meter.machine_id,
                meter.instance_id,
                "late_exhaustion",
                dry_at,
                fact.stopped_at,
                0,
                position,
            )
