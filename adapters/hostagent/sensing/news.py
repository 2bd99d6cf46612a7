"""Whatever the server should hear of besides seconds: collected here until a report takes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from adapters.hostagent.collector.port import Collector, Finding
from adapters.hostagent.sensing.clocks import SECOND_NS, ClockEvent, HostTime
from adapters.hostagent.sensing.kernel_log import KernelLog
from adapters.hostagent.sensing.meter import Meter
from adapters.hostagent.sensing.watched import HOLDING, Watched
from adapters.hostagent.sensing.xids import OFF_THE_BUS, Fault, FaultBook, classify
from ledger.domain.usage import HealthEvent

_MAX_DETAIL: Final = 256


class News:
    """Health events in the order in which they were found."""

    def __init__(
        self, collector: Collector, kernel_log: KernelLog | None, host_time: HostTime
    ) -> None:
        """Begin with none.

        Args:
            collector: The first source of faults; knows where the GPUs are.
            kernel_log: The second one.
            host_time: Gives moments their second.
        """
        self.doubtful: set[int] = set()
        """Instances whose GPUs should be probed from inside now: those of the last look."""
        self.faults = FaultBook()
        self.counter_resets = 0
        self._collector = collector
        self._kernel_log = kernel_log
        self._time = host_time
        self._health: list[HealthEvent] = []
        self._watched: Mapping[int, Watched] = {}
        self._off_the_bus: dict[str, int] = {}
        """GPUs by the generation in which they fell."""

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to tell."""
        return not self._health

    @property
    def off_the_bus(self) -> frozenset[str]:
        """GPUs of which the driver or the kernel said so, in this generation."""
        return frozenset(self._off_the_bus)

    def watch(self, watched: Mapping[int, Watched]) -> None:
        """These instances are on the machine now."""
        self._watched = watched
        self.doubtful.clear()

    def take(self) -> list[HealthEvent]:
        """What happened since the last call."""
        taken, self._health = self._health, []
        return taken

    def holder(self, gpu_uuid: str | None) -> int | None:
        """The instance that has the GPU; null when it is free or not known."""
        for one in self._watched.values():
            if gpu_uuid is not None and gpu_uuid in one.gpu_uuids and one.state in HOLDING:
                return one.instance
        return None

    def second_of(self, at_ns: int) -> int:
        """The second of a moment; by the wall clock while there is no anchor."""
        anchor_ns = self._time.anchor_ns
        return (time.time_ns() if anchor_ns is None else at_ns + anchor_ns) // SECOND_NS

    # --- what is found ---------------------------------------------------------------------------

    def clocks(self, events: Sequence[ClockEvent], now_ns: int) -> None:
        """Steps, sleep and boots."""
        for one in events:
            self._health.append(
                HealthEvent(
                    at=self.second_of(now_ns), kind=one.kind, seconds=one.seconds, code=one.ms
                )
            )

    def findings(self, findings: Sequence[Finding]) -> None:
        """What the collector found, and what was found about GPUs elsewhere."""
        for one in findings:
            if one.kind in {"gpu_missing", "gpu_lost"}:
                self._doubt(one.gpu_uuid)
            self._add(one, self.holder(one.gpu_uuid))

    def disk(self, finding: Finding, instance: int | None) -> None:
        """A disk has just become too full; without an instance it is the machine's."""
        self._add(finding, instance)

    def _add(self, one: Finding, instance: int | None) -> None:
        self._health.append(
            HealthEvent(
                at=self.second_of(one.at_ns),
                kind=one.kind,
                gpu_uuid=one.gpu_uuid,
                code=one.code,
                instance=instance,
                seconds=one.seconds,
                detail=None if one.detail is None else one.detail[:_MAX_DETAIL],
            )
        )

    def counters(self, meter: Meter, now_ns: int) -> None:
        """What was odd about byte counters, and bytes that have no second."""
        at = self.second_of(now_ns)
        for one in meter.take_oddities():
            self.counter_resets += one.flag == "counter_reset"
            self._health.append(HealthEvent(at=at, kind=one.flag, instance=one.instance))
        for instance, lost in meter.take_lost().items():
            self._health.append(
                HealthEvent(
                    at=at, kind="counter_gap", instance=instance, up=lost.up, down=lost.down
                )
            )

    def look_for_faults(self, generation: int) -> None:
        """Faults from both sources, each counted once; *generation* is the driver's present one."""
        self._off_the_bus = {
            uuid: fell_in for uuid, fell_in in self._off_the_bus.items() if fell_in == generation
        }
        for fault in (*self._from_driver(), *self._from_kernel()):
            if self.faults.take(fault):
                self._fault(fault, generation)

    def _from_driver(self) -> list[Fault]:
        return [
            Fault(one.at_ns, one.uuid, one.code, "driver") for one in self._collector.take_xids()
        ]

    def _from_kernel(self) -> list[Fault]:
        if self._kernel_log is None:
            return []
        return [
            Fault(
                one.at_ns,
                self._gpu_at(one.pci),
                one.code,
                "kernel" if one.is_xid else "bus",
                one.raw,
            )
            for one in self._kernel_log.take()
        ]

    def _gpu_at(self, pci: str | None) -> str | None:
        """The GPU at a bus address without function."""
        for gpu in self._collector.identities():
            if pci is not None and gpu.pci is not None and gpu.pci.rpartition(".")[0] == pci:
                return gpu.uuid
        return None

    def _fault(self, fault: Fault, generation: int) -> None:
        if fault.gpu_uuid is None or classify(fault.code) in {"fatal", "suspect"}:
            self._doubt(fault.gpu_uuid)
        if fault.code == OFF_THE_BUS and fault.gpu_uuid is not None:
            self._off_the_bus[fault.gpu_uuid] = generation
        self._add(
            Finding(fault.at_ns, "xid", fault.gpu_uuid, fault.code, detail=fault.detail),
            self.holder(fault.gpu_uuid),
        )

    def _doubt(self, gpu_uuid: str | None) -> None:
        """Have the instances on a GPU probed; without a UUID, all of them."""
        for one in self._watched.values():
            if one.state in HOLDING and (gpu_uuid is None or gpu_uuid in one.gpu_uuids):
                self.doubtful.add(one.instance)
