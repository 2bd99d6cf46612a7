"""Everything the agent senses, put together: look once a second, attest what is finished.

Nothing here waits for a driver, a network or a disk. What the agent does not see in a second is not
in the report: no second, no byte and no percentage is made up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from adapters.hostagent.collector.port import Collector, Finding, Reading
from adapters.hostagent.collector.readings import SECOND_NS
from adapters.hostagent.reports import block
from adapters.hostagent.sensing.attribution import Occupants
from adapters.hostagent.sensing.clock_source import read_clocks
from adapters.hostagent.sensing.clocks import ClockEvent, ClockReading, HostTime
from adapters.hostagent.sensing.energy import EnergyMeter
from adapters.hostagent.sensing.inventory import is_same_hardware, take_inventory
from adapters.hostagent.sensing.kernel_log import KernelLog
from adapters.hostagent.sensing.meter import Meter, MeterState
from adapters.hostagent.sensing.processes import PROC, Process, process
from adapters.hostagent.sensing.storage import Disks
from adapters.hostagent.sensing.ticks import SeenSecond, TickBook
from adapters.hostagent.sensing.xids import OFF_THE_BUS, Fault, FaultBook, classify
from ledger.domain.hardware import Inventory
from ledger.domain.usage import (
    MAX_GPUS,
    MAX_WINDOW_SECONDS,
    GpuSample,
    HealthEvent,
    HostClock,
    InstanceBlock,
    TickState,
)

_ALIVE: Final = frozenset({"running", "frozen", "gpu_lost"})
"""States that need a living first process, where the runtime names one."""
_WITH_GPUS: Final = frozenset({"running", "frozen", "loading", "rebooting", "gpu_lost"})
_SLOW_LOOK_NS: Final = 5 * SECOND_NS
_MACHINE: Final = 0
_MAX_DETAIL: Final = 256


class Settings(NamedTuple):
    """What an operator may set."""

    link_bytes_per_second: int = 1_250_000_000
    """Of the machine's uplink: more than that is flagged as implausible."""
    disk: Path = Path("/")
    """On the disk that instances get."""
    port_range: str | None = None
    disk_mb_s: int | None = None
    """From `inventory.measure_disk`."""
    sample_seconds: int = 60
    """Between two samples of a GPU in the reports."""


class Watched(NamedTuple):
    """What the agent knows of the container of one instance at a look."""

    instance: int
    state: TickState
    pid: int | None = None
    """First process, in the host's namespace; null where the runtime has none to name."""
    gpu_uuids: tuple[str, ...] = ()
    container: str | None = None
    """64 hex digits: owner of the processes that are expected on its GPUs."""
    disk: str | None = None
    """A path on its disk."""


class Attested(NamedTuple):
    """What `ReportChain.seal` takes, and `state`, to be committed in the same transaction."""

    start: int
    count: int
    blocks: list[InstanceBlock]
    health: list[HealthEvent]
    gpus: list[GpuSample]
    inventory: Inventory | None
    clock: HostClock
    state: bytes


_encoder = msgspec.msgpack.Encoder()
_states = msgspec.msgpack.Decoder(MeterState)


class Senses:
    """Looks at one machine. Not thread-safe: one loop looks, attests and seals."""

    def __init__(
        self,
        collector: Collector,
        *,
        state: bytes | None = None,
        sealed_until: int = 0,
        settings: Settings | None = None,
        clock: Callable[[], ClockReading] = read_clocks,
        kernel_log: KernelLog | None = None,
        proc: Path = PROC,
    ) -> None:
        """Go on from what was last committed.

        Args:
            collector: Reads the GPUs; started and stopped with this.
            state: `Attested.state` as last committed; null on a new machine.
            sealed_until: First second that is in no report of the machine yet.
            settings: What the operator set.
            clock: Reads the clocks.
            kernel_log: A second source of faults.
            proc: Where the kernel shows its processes.
        """
        now = clock()
        kept = None if state is None else _states.decode(state)
        self.collector = collector
        self.time = HostTime(sealed_until, "" if kept is None else kept.boot_id)
        self.settings = settings or Settings()
        self.boot_id = now.boot_id
        self.doubtful: set[int] = set()
        """Instances whose GPUs should be probed from inside now; the agent takes them out."""
        self.energy = EnergyMeter()
        self.faults = FaultBook()
        self.ticks_total = 0
        self.counter_resets_total = 0
        self._clock = clock
        self._proc = proc
        self._kernel_log = kernel_log
        self._meter = Meter(kept, now, self.settings.link_bytes_per_second, proc=proc)
        self._book = TickBook()
        self._occupants = Occupants(proc)
        self._disks = Disks()
        self._health: list[HealthEvent] = []
        self._watched: dict[int, Watched] = {}
        self._processes: dict[tuple[int, int], Process | None] = {}
        self._off_the_bus: dict[str, int] = {}
        """GPUs by the generation in which they fell."""
        self._look_ns = now.mono_ns
        self._slow_look_ns = now.mono_ns - _SLOW_LOOK_NS
        self._sampled: dict[str, int] = {}
        self._inventory: Inventory | None = None
        self._inventory_of = 0
        self._is_inventory_new = False
        self._note_clock(self.time.look(now), now)

    # --- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read GPUs and the kernel's log."""
        self.collector.start()
        if self._kernel_log is not None:
            self._kernel_log.start()

    def stop(self) -> None:
        """End in order."""
        self.collector.stop()
        if self._kernel_log is not None:
            self._kernel_log.stop()

    def phase(self) -> int:
        """Nanoseconds to add to CLOCK_MONOTONIC for the machine's time, for `NvmlCollector`."""
        return self.time.anchor_ns or 0

    def next_look_ns(self, now_ns: int) -> int:
        """The middle of the next second: looking then, no second goes without a look."""
        half = SECOND_NS // 2
        shifted = now_ns + self.phase() + half
        return (shifted // SECOND_NS + 1) * SECOND_NS - half - self.phase()

    @property
    def second(self) -> int | None:
        """The Unix second of the last look; null without an anchor: then there are no ticks."""
        return self.time.second(self._look_ns)

    @property
    def missed_seconds_total(self) -> int:
        """Seconds between looks that nobody looked into."""
        return self._book.missed

    @property
    def lost_gpus(self) -> frozenset[str]:
        """GPUs that fell off the bus: their instances run without them."""
        reading = self.collector.reading(self._look_ns)
        lost = {uuid for uuid, gpu in reading.gpus.items() if gpu.state == "lost"}
        return frozenset(lost | self._off_the_bus.keys())

    @property
    def gone_disks(self) -> set[int]:
        """Instances whose disk is no more."""
        return set(self._disks.gone)

    def contact(self, sent_ns: int, received_ns: int, server_time_ms: int) -> None:
        """Learn the time from an answer of the server; moments of CLOCK_MONOTONIC."""
        self.time.contact(sent_ns, received_ns, server_time_ms)

    def look(self, watched: Sequence[Watched]) -> None:
        """See what every instance does now; at least once a second, best at `next_look_ns`."""
        now = self._clock()
        self._look_ns = now.mono_ns
        self._note_clock(self.time.look(now), now)
        second = self.time.second(now.mono_ns)
        if second is not None:
            begins_ns = self.time.begins_ns(second)
            self._book.look(second, begins_ns, begins_ns + SECOND_NS)
        self._watched = {one.instance: one for one in watched}
        lost = self.lost_gpus
        for one in watched:
            state = self._state(one, lost)
            if second is not None:
                self._book.see(one.instance, state, one.gpu_uuids)
            if one.pid is not None:
                self._meter.read(one.instance, one.pid, now)
        self._note_faults(now)
        self._note_findings(self.collector.take_findings())
        if now.mono_ns - self._slow_look_ns >= _SLOW_LOOK_NS:
            self._slow_look_ns = now.mono_ns
            self._look_slowly(now)
        self._forget()

    def last_reading(self, instance: int) -> None:
        """Read an instance's counters once more: at its stop request and just before a kill.

        They vanish with the container; what is carried after the last reading is lost.
        """
        pid = self._meter.pid_of(instance)
        if pid is not None:
            self._meter.read(instance, pid, self._clock())

    def _state(self, one: Watched, lost: frozenset[str]) -> TickState:
        """What the second is, with the process and the GPUs looked at."""
        if one.state not in _ALIVE:
            return one.state
        if one.pid is not None and not self._is_alive(one.instance, one.pid):
            return "exited"
        return "gpu_lost" if lost.intersection(one.gpu_uuids) else one.state

    def _is_alive(self, instance: int, pid: int) -> bool:
        found = process(pid, self._proc)
        return found is not None and found == self._processes.setdefault((instance, pid), found)

    def _forget(self) -> None:
        here = self._watched.keys()
        self._processes = {
            key: one
            for key, one in self._processes.items()
            if key[0] in here and self._watched[key[0]].pid == key[1]
        }
        self._disks.forget({_MACHINE, *here})
        self.doubtful &= here

    # --- what is found ---------------------------------------------------------------------------

    def _second_of(self, at_ns: int) -> int:
        """For events: the anchor's second, or the wall clock's while there is no anchor."""
        anchor = self.time.anchor_ns
        return ((at_ns + anchor) if anchor is not None else time.time_ns()) // SECOND_NS

    def _note_clock(self, events: Sequence[ClockEvent], now: ClockReading) -> None:
        for event in events:
            self._health.append(
                HealthEvent(
                    at=self._second_of(now.mono_ns),
                    kind=event.kind,
                    seconds=event.seconds,
                    code=event.ms,
                )
            )

    def _holder(self, gpu_uuid: str | None) -> int | None:
        """The instance that has the GPU."""
        for one in self._watched.values():
            if gpu_uuid is not None and gpu_uuid in one.gpu_uuids and one.state in _WITH_GPUS:
                return one.instance
        return None

    def holder_label(self, gpu_uuid: str) -> str:
        """The instance that has the GPU, as a metric's label; empty when it is free."""
        holder = self._holder(gpu_uuid)
        return "" if holder is None else str(holder)

    def _note_findings(self, findings: Sequence[Finding]) -> None:
        for one in findings:
            holder = self._holder(one.gpu_uuid)
            if one.kind in {"gpu_missing", "gpu_lost"}:
                self._doubt(one.gpu_uuid)
            self._health.append(
                HealthEvent(
                    at=self._second_of(one.at_ns),
                    kind=one.kind,
                    gpu_uuid=one.gpu_uuid,
                    code=one.code,
                    instance=holder,
                    seconds=one.seconds,
                    detail=None if one.detail is None else one.detail[:_MAX_DETAIL],
                )
            )

    def _doubt(self, gpu_uuid: str | None) -> None:
        """Have the instances on a GPU probed; without a UUID, all of them."""
        for one in self._watched.values():
            if one.state in _WITH_GPUS and (gpu_uuid is None or gpu_uuid in one.gpu_uuids):
                self.doubtful.add(one.instance)

    def _note_faults(self, now: ClockReading) -> None:
        found = [
            Fault(one.at_ns, one.uuid, one.code, "driver") for one in self.collector.take_xids()
        ]
        if self._kernel_log is not None:
            found += [
                Fault(
                    one.at_ns,
                    self._gpu_at(one.pci),
                    one.code,
                    "kernel" if one.is_xid else "bus",
                    one.raw,
                )
                for one in self._kernel_log.take()
            ]
        for fault in found:
            if self.faults.take(fault):
                self._note_fault(fault)
        generation = self.collector.status().generation
        self._off_the_bus = {
            uuid: fell_in for uuid, fell_in in self._off_the_bus.items() if fell_in == generation
        }

    def _note_fault(self, fault: Fault) -> None:
        kind = classify(fault.code)
        if kind in {"fatal", "suspect"} or fault.gpu_uuid is None:
            self._doubt(fault.gpu_uuid)
        if fault.code == OFF_THE_BUS and fault.gpu_uuid is not None:
            self._off_the_bus[fault.gpu_uuid] = self.collector.status().generation
        self._health.append(
            HealthEvent(
                at=self._second_of(fault.at_ns),
                kind="xid",
                gpu_uuid=fault.gpu_uuid,
                code=fault.code,
                instance=self._holder(fault.gpu_uuid),
                detail=fault.detail,
            )
        )

    def _gpu_at(self, pci: str | None) -> str | None:
        """The GPU at a bus address without function."""
        for gpu in self.collector.identities():
            if pci is not None and gpu.pci is not None and gpu.pci.rpartition(".")[0] == pci:
                return gpu.uuid
        return None

    def _look_slowly(self, now: ClockReading) -> None:
        """Processes, energy, disks and the machine itself."""
        reading = self.collector.reading(now.mono_ns)
        self.energy.look(reading, now.mono_ns)
        expected: dict[str, set[str]] = {}
        for one in self._watched.values():
            for uuid in one.gpu_uuids if one.container is not None else ():
                expected.setdefault(uuid, set()).add(one.container or "")
        self._note_findings(self._occupants.look(reading, expected, now.mono_ns))
        for instance, path in [
            (_MACHINE, self.settings.disk),
            *((one.instance, Path(one.disk)) for one in self._watched.values() if one.disk),
        ]:
            found = self._disks.look(instance, path, now.mono_ns)
            if found is not None:
                self._health.append(
                    HealthEvent(
                        at=self._second_of(now.mono_ns),
                        kind=found.kind,
                        instance=instance or None,
                        detail=found.detail,
                    )
                )
        self._look_at_machine(reading)

    def _look_at_machine(self, reading: Reading) -> None:
        """The inventory goes with the first report of a generation and with each change."""
        if reading.state != "ok" or reading.generation == self._inventory_of:
            return
        self._inventory_of = reading.generation
        found = take_inventory(
            self.collector.identities(),
            self.collector.versions(),
            disk=self.settings.disk,
            port_range=self.settings.port_range,
            disk_mb_s=self.settings.disk_mb_s,
        )
        self._is_inventory_new |= self._inventory is None or not is_same_hardware(
            found, self._inventory
        )
        self._inventory = found

    # --- what is attested ------------------------------------------------------------------------

    def attest(self, limit: int = MAX_WINDOW_SECONDS) -> Attested | None:
        """The next finished seconds in a row, at most *limit*; null when there is none.

        A second is finished once a look was made after it. Whatever is returned is gone from here:
        seal and commit it together with its `state`, or end the process.
        """
        seconds = self._book.finished(self._look_ns, limit)
        if not seconds:
            return None
        start, count = seconds[0].second, len(seconds)
        blocks = self._blocks(seconds)
        self._book.drop(count)
        self.time.use_until(start + count)
        self.ticks_total += sum(one.count for one in blocks)
        attested = self._with_news(start, count, blocks)
        step = self.time.settle()
        if step is not None:
            self._note_clock([step], self._clock())
        return attested

    def news(self) -> Attested:
        """What happened and need not wait for a second to end: a report that attests none."""
        return self._with_news(self.time.unused_from, 0, [])

    @property
    def has_news(self) -> bool:
        """True when there is something to tell besides seconds."""
        return bool(self._health) or self._is_inventory_new

    def _with_news(self, start: int, count: int, blocks: list[InstanceBlock]) -> Attested:
        self._note_counters()
        health, self._health = self._health, []
        inventory = self._inventory if self._is_inventory_new else None
        self._is_inventory_new = False
        self._meter.forget(set(self._watched))
        return Attested(
            start=start,
            count=count,
            blocks=blocks,
            health=health,
            gpus=self._samples(start + count) if count else [],
            inventory=inventory,
            clock=self.time.attestation(),
            state=_encoder.encode(self._meter.state(self._clock())),
        )

    def _note_counters(self) -> None:
        at = self._second_of(self._look_ns)
        for one in self._meter.take_oddities():
            self.counter_resets_total += one.flag == "counter_reset"
            self._health.append(HealthEvent(at=at, kind=one.flag, instance=one.instance))
        for instance, lost in self._meter.take_lost().items():
            self._health.append(
                HealthEvent(
                    at=at, kind="counter_gap", instance=instance, up=lost.up, down=lost.down
                )
            )

    def _blocks(self, seconds: Sequence[SeenSecond]) -> list[InstanceBlock]:
        instances = dict.fromkeys(number for one in seconds for number in one.instances)
        return [self._block(number, seconds) for number in instances]

    def _block(self, instance: int, seconds: Sequence[SeenSecond]) -> InstanceBlock:
        """One instance from its first second to its last; what is missing between is unknown."""
        places = [place for place, one in enumerate(seconds) if instance in one.instances]
        states: list[TickState] = []
        up: list[int] = []
        down: list[int] = []
        util: list[int] = []
        for one in seconds[places[0] : places[-1] + 1]:
            seen = one.instances.get(instance)
            # Bytes between two seconds of the report are in neither.
            self._meter.lose(instance, self._meter.cut(instance, one.from_ns))
            carried = self._meter.cut(instance, one.until_ns)
            if seen is None:
                self._meter.lose(instance, carried)
                states.append("unknown")
                up.append(0)
                down.append(0)
                util.append(-1)
                continue
            states.append(seen.state)
            up.append(carried.up)
            down.append(carried.down)
            has_gpus = seen.state in _ALIVE and seen.state != "gpu_lost"
            util.append(
                self.collector.utilisation(seen.gpu_uuids, one.from_ns, one.until_ns)
                if has_gpus
                else -1
            )
        first = seconds[places[0]].second
        return block(instance, first, states, up=up, down=down, util=util)

    def _samples(self, second: int) -> list[GpuSample]:
        """A sample of each GPU whose last one is old enough."""
        found = []
        for uuid, gpu in self.collector.reading(self._look_ns).gpus.items():
            if second - self._sampled.get(uuid, 0) < self.settings.sample_seconds:
                continue
            if gpu.at_ns is None and gpu.state == "ok":
                continue
            self._sampled[uuid] = second
            found.append(self._occupants.sample(gpu, second - 1))
        return found[:MAX_GPUS]
