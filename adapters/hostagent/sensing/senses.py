"""Everything the agent senses, put together: look once a second, attest what is finished.

    collector = NvmlCollector(registered_uuids)
    senses = Senses(collector, state=spool.state, sealed_until=chain.sealed_until)
    senses.start()
    while True:
        sleep_until(senses.next_look_ns(time.monotonic_ns()))
        senses.look([Watched(instance, "running", pid, gpu_uuids, container_id), ...])
        while (found := senses.attest()) is not None:
            spool.commit(chain.seal(found.start, found.count, found.blocks, ...), found.state)

Nothing here waits for a driver, a network or a disk. What the agent does not see in a second is not
in the report: no second, no byte and no percentage is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from adapters.hostagent.collector.port import Collector, Reading, Standing
from adapters.hostagent.reports import block
from adapters.hostagent.sensing.attribution import Occupants
from adapters.hostagent.sensing.clock_source import read_clocks
from adapters.hostagent.sensing.clocks import SECOND_NS, ClockReading, HostTime
from adapters.hostagent.sensing.energy import EnergyMeter
from adapters.hostagent.sensing.inventory import is_same_hardware, take_inventory
from adapters.hostagent.sensing.kernel_log import KernelLog
from adapters.hostagent.sensing.meter import Meter, MeterState
from adapters.hostagent.sensing.metrics import registry, render
from adapters.hostagent.sensing.news import News
from adapters.hostagent.sensing.processes import PROC, Process, process
from adapters.hostagent.sensing.storage import Disks
from adapters.hostagent.sensing.ticks import SeenSecond, TickBook
from adapters.hostagent.sensing.watched import ALIVE, Attested, Settings, Watched
from ledger.domain.hardware import Inventory
from ledger.domain.usage import (
    MAX_GPUS,
    MAX_WINDOW_SECONDS,
    GpuSample,
    InstanceBlock,
    TickState,
)

_SLOW_LOOK_NS: Final = 5 * SECOND_NS
_MACHINE: Final = 0

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
        stock: Callable[..., Inventory] = take_inventory,
    ) -> None:
        """Go on from what was last committed.

        Args:
            collector: Reads the GPUs; started and stopped with this.
            state: `Attested.state` as last committed; null on a new machine.
            sealed_until: First second that is in no report of the machine yet.
            settings: What the operator set.
            clock: Reads the clocks.
            kernel_log: A second source of faults; started and stopped with this.
            proc: Where the kernel shows its processes.
            stock: Says what the machine is made of, as `take_inventory` does.
        """
        now = clock()
        kept = None if state is None else _states.decode(state)
        self.collector = collector
        self.settings = settings or Settings()
        self.boot_id = now.boot_id
        self.time = HostTime(sealed_until, "" if kept is None else kept.boot_id)
        self.news_book = News(collector, kernel_log, self.time)
        self.energy = EnergyMeter()
        self.ticks_total = 0
        self._clock = clock
        self._stock = stock
        self._proc = proc
        self._kernel_log = kernel_log
        self._meter = Meter(kept, now, self.settings.link_bytes_per_second, proc=proc)
        self._book = TickBook()
        self._occupants = Occupants(proc)
        self._own_pids: Callable[[], Collection[int]] = frozenset
        self._disks = Disks()
        self._watched: dict[int, Watched] = {}
        self._processes: dict[tuple[int, int], Process] = {}
        self._look_ns = now.mono_ns
        self._slow_look_ns = now.mono_ns - _SLOW_LOOK_NS
        self._sampled: dict[str, int] = {}
        self._inventory: Inventory | None = None
        self._inventory_of = 0
        self._is_inventory_new = False
        self.news_book.clocks(self.time.look(now), now.mono_ns)

    def spare(self, pids: Callable[[], Collection[int]]) -> None:
        """Take *pids* on the GPUs for the platform's own: no foreign process is found in them."""
        self._own_pids = pids

    # --- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read GPUs and the kernel's log."""
        self.collector.start(self.phase)
        if self._kernel_log is not None:
            self._kernel_log.start()

    def stop(self) -> None:
        """End in order."""
        self.collector.stop()
        if self._kernel_log is not None:
            self._kernel_log.stop()

    def phase(self) -> int:
        """Nanoseconds to add to CLOCK_MONOTONIC for the machine's time."""
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
    def doubtful(self) -> set[int]:
        """Instances that the last look gave a reason to probe from inside."""
        return self.news_book.doubtful

    @property
    def lost_gpus(self) -> frozenset[str]:
        """GPUs that fell off the bus: their instances run without them."""
        return self.collector.standing(self._look_ns).lost | self.news_book.off_the_bus

    def gpu_count(self) -> int | None:
        """GPUs that the driver shows now; null when it does not answer."""
        reading = self.collector.reading(self._look_ns)
        if reading.state != "ok":
            return None
        return sum(one.state in {"ok", "mig_enabled"} for one in reading.gpus.values())

    def metrics(self) -> bytes:
        """What is sensed, as Prometheus reads it."""
        return render(registry(self))

    @property
    def gone_disks(self) -> frozenset[int]:
        """Instances whose disk is no more."""
        return frozenset(self._disks.gone)

    def contact(self, sent_ns: int, received_ns: int, server_time_ms: int) -> None:
        """Learn the time from an answer of the server; moments of CLOCK_MONOTONIC."""
        self.time.contact(sent_ns, received_ns, server_time_ms)

    def look(self, watched: Sequence[Watched]) -> None:
        """See what every instance does now; at least once a second, best at `next_look_ns`."""
        now = self._clock()
        self._look_ns = now.mono_ns
        self.news_book.clocks(self.time.look(now), now.mono_ns)
        second = self.time.second(now.mono_ns)
        if second is not None:
            begins_ns = self.time.begins_ns(second)
            self._book.look(second, begins_ns, begins_ns + SECOND_NS)
        self._watched = {one.instance: one for one in watched}
        self.news_book.watch(self._watched)
        standing = self.collector.standing(now.mono_ns)
        self.news_book.look_for_faults(standing.generation)
        self.news_book.findings(self.collector.take_findings())
        lost = standing.lost | self.news_book.off_the_bus
        for one in watched:
            found = None if one.pid is None else process(one.pid, self._proc)
            state = self._state(one, found, lost)
            if second is not None:
                self._book.see(one.instance, state, one.gpu_uuids)
            if found is not None:
                self._meter.read(one.instance, found.pid, now, found)
        if now.mono_ns - self._slow_look_ns >= _SLOW_LOOK_NS:
            self._slow_look_ns = now.mono_ns
            self._look_slowly(now, self.collector.reading(now.mono_ns))
        self._look_at_machine(standing)
        self._forget()

    def last_reading(self, instance: int) -> None:
        """Read an instance's counters once more: at its stop request and just before a kill.

        They vanish with the container; what is carried after the last reading is lost.
        """
        pid = self._meter.pid_of(instance)
        if pid is not None:
            self._meter.read(instance, pid, self._clock())

    def _state(self, one: Watched, found: Process | None, lost: frozenset[str]) -> TickState:
        """What the second is, with the process and the GPUs looked at."""
        if one.state not in ALIVE:
            return one.state
        if one.pid is not None and not self._is_the_same(one.instance, one.pid, found):
            return "exited"
        return "gpu_lost" if lost.intersection(one.gpu_uuids) else one.state

    def _is_the_same(self, instance: int, pid: int, found: Process | None) -> bool:
        """Whether the process that had that pid at the first look has it now."""
        return found is not None and found == self._processes.setdefault((instance, pid), found)

    def _forget(self) -> None:
        here = self._watched.keys()
        self._processes = {
            (instance, pid): one
            for (instance, pid), one in self._processes.items()
            if instance in here and self._watched[instance].pid == pid
        }
        self._disks.forget({_MACHINE, *here})

    # --- every few seconds -----------------------------------------------------------------------

    def _look_slowly(self, now: ClockReading, reading: Reading) -> None:
        """Processes, energy and disks."""
        self.energy.look(reading, now.mono_ns)
        expected: dict[str, set[str]] = {}
        for one in self._watched.values():
            for uuid in one.gpu_uuids:
                expected.setdefault(uuid, set()).update([one.container] if one.container else [])
        own = self._own_pids()
        self.news_book.findings(self._occupants.look(reading, expected, now.mono_ns, own))
        disks = [(_MACHINE, self.settings.disk)]
        disks += [(one.instance, Path(one.disk)) for one in self._watched.values() if one.disk]
        for instance, path in disks:
            found = self._disks.look(instance, path, now.mono_ns)
            if found is not None:
                self.news_book.disk(found, instance or None)

    def _look_at_machine(self, standing: Standing) -> None:
        """The inventory goes with the first report of a generation that changed it.

        Asked at every look: a GPU may be gone before the next slow one.
        """
        if standing.state != "ok" or standing.generation == self._inventory_of:
            return
        self._inventory_of = standing.generation
        found = self._stock(
            self.collector.identities(),
            self.collector.versions(),
            disk=self.settings.disk,
            port_range=self.settings.port_range,
            disk_mb_s=self.settings.disk_mb_s,
        )
        before, self._inventory = self._inventory, found
        self._is_inventory_new |= before is None or not is_same_hardware(found, before)

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
        instances = dict.fromkeys(number for one in seconds for number in one.instances)
        blocks = [self._block(number, seconds) for number in instances]
        self._book.drop(count)
        self.time.use_until(start + count)
        self.ticks_total += sum(one.count for one in blocks)
        attested = self._with_news(start, count, blocks)
        step = self.time.settle()
        self.news_book.clocks([] if step is None else [step], self._look_ns)
        return attested

    def news(self) -> Attested:
        """What happened and need not wait for a second to end: a report that attests none."""
        # Seconds that were looked into and are not finished must still fit behind this report.
        start = self._book.first
        return self._with_news(
            self.second or self.time.unused_from if start is None else start, 0, []
        )

    @property
    def has_news(self) -> bool:
        """True when there is something to tell besides seconds."""
        return not self.news_book.is_empty or self._is_inventory_new

    def _with_news(self, start: int, count: int, blocks: list[InstanceBlock]) -> Attested:
        self._meter.forget(set(self._watched))
        self.news_book.counters(self._meter, self._look_ns)
        inventory = self._inventory if self._is_inventory_new else None
        self._is_inventory_new = False
        return Attested(
            start=start,
            count=count,
            blocks=blocks,
            health=self.news_book.take(),
            gpus=self._samples(start + count - 1) if count else [],
            inventory=inventory,
            clock=self.time.attestation(),
            state=_encoder.encode(self._meter.state(self._clock())),
        )

    def _block(self, instance: int, seconds: Sequence[SeenSecond]) -> InstanceBlock:
        """One instance from its first second to its last; what is missing between is unknown."""
        places = [place for place, one in enumerate(seconds) if instance in one.instances]
        states: list[TickState] = []
        up: list[int] = []
        down: list[int] = []
        util: list[int] = []
        for one in seconds[places[0] : places[-1] + 1]:
            seen = one.instances.get(instance)
            # Bytes from between two seconds are in neither.
            self._meter.lose(instance, self._meter.cut(instance, one.from_ns))
            carried = self._meter.cut(instance, one.until_ns)
            if seen is None:
                self._meter.lose(instance, carried)
            states.append("unknown" if seen is None else seen.state)
            up.append(0 if seen is None else carried.up)
            down.append(0 if seen is None else carried.down)
            has_gpus = seen is not None and seen.state in {"running", "frozen"}
            uuids = seen.gpu_uuids if seen is not None and has_gpus else ()
            util.append(self.collector.utilisation(uuids, one.from_ns, one.until_ns))
        first = seconds[places[0]].second
        return block(instance, first, states, up=up, down=down, util=util)

    def _samples(self, second: int) -> list[GpuSample]:
        """A sample of each GPU whose last one is old enough."""
        found = []
        for uuid, gpu in self.collector.reading(self._look_ns).gpus.items():
            is_early = second - self._sampled.get(uuid, 0) < self.settings.sample_seconds
            if is_early or (gpu.at_ns is None and gpu.state == "ok"):
                continue
            self._sampled[uuid] = second
            found.append(self._occupants.sample(gpu, second))
        return found[:MAX_GPUS]
