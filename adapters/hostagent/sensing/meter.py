"""The bytes of every instance of a machine: read, judged, cut into seconds, and kept.

The state is what a restarted agent goes on from. It is committed in the same transaction as the
report that used it, so after a crash nothing is counted twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.hostagent.sensing.clocks import ClockReading
from adapters.hostagent.sensing.netdev import Interface, read_network
from adapters.hostagent.sensing.processes import PROC, TICK_NS, Process, process
from adapters.hostagent.sensing.seconds import NOTHING, Bytes, Course
from adapters.hostagent.sensing.traffic import Counter, CounterKey, Flag, advance, begin


class KeptInterface(msgspec.Struct, frozen=True, array_like=True):
    """One interface as last read."""

    key: CounterKey
    at_ns: int
    up: Counter
    down: Counter


class KeptInstance(msgspec.Struct, array_like=True):
    """What one instance carried since its last second in a report, and where its counters are."""

    course: Course
    interfaces: dict[str, KeptInterface] = {}
    pid: int = 0


class MeterState(msgspec.Struct, array_like=True):
    """What is committed with a report."""

    boot_id: str
    committed_ns: int
    """CLOCK_BOOTTIME."""
    instances: dict[int, KeptInstance] = {}


class Oddity(NamedTuple):
    """Something odd about the counters of one instance."""

    instance: int
    flag: Flag


class Meter:
    """Reads the counters of instances and gives their bytes by the second."""

    def __init__(
        self,
        state: MeterState | None,
        now: ClockReading,
        link_bytes_per_second: int,
        *,
        proc: Path = PROC,
    ) -> None:
        """Go on from *state*; null on a machine that never committed one."""
        self._link = link_bytes_per_second
        self._proc = proc
        self._boot_id = now.boot_id
        self._known_since_ns = now.boottime_ns
        self._instances: dict[int, KeptInstance] = {}
        self._oddities: list[Oddity] = []
        if state is None:
            return
        self._instances = state.instances
        if state.boot_id == now.boot_id:
            self._known_since_ns = state.committed_ns
            return
        # The counters and moments of another boot mean nothing now; bytes that were not in a
        # report yet belong to no second that can still be attested. What runs now started later.
        self._known_since_ns = 0
        for kept in self._instances.values():
            end = kept.course.points[-1].at_ns if kept.course.points else 0
            kept.course.lose(kept.course.cut(end))
            kept.course.points, kept.interfaces = [], {}

    def state(self, now: ClockReading) -> MeterState:
        """What must be committed with the report whose bytes were cut."""
        return MeterState(self._boot_id, now.boottime_ns, self._instances)

    def read(
        self, instance: int, pid: int, now: ClockReading, before: Process | None = None
    ) -> bool:
        """Read the counters that a container's first process sees; false when it is gone.

        *before* is the process as it was just seen, where somebody has looked already.
        """
        before = before or process(pid, self._proc)
        network = None if before is None else read_network(pid, self._proc)
        # The same process before and after, or the numbers may be another's.
        if before is None or network is None or process(pid, self._proc) != before:
            return False
        kept = self._instances.setdefault(instance, KeptInstance(Course()))
        kept.pid = pid
        started = self._started(before, now)
        carried = NOTHING
        interfaces: dict[str, KeptInterface] = {}
        for one in network.interfaces:
            key = CounterKey(now.boot_id, network.namespace, one.ifindex)
            more, interfaces[one.name] = self._judge(instance, kept, key, one, started, now)
            carried = carried.plus(more)
        if not kept.course.points or not kept.interfaces:
            # A container that is new to us: its counters were 0 when it started.
            self._begin(kept.course, before, now)
        kept.interfaces = interfaces
        kept.course.add(now.mono_ns, carried)
        return True

    def _begin(self, course: Course, found: Process, now: ClockReading) -> None:
        started_ns = found.started_ticks * TICK_NS - (now.boottime_ns - now.mono_ns)
        if found.started_ticks * TICK_NS + TICK_NS <= self._known_since_ns:
            started_ns = now.mono_ns  # Only a baseline: what it carried before is not ours.
        if course.points:
            course.add(started_ns, NOTHING)
        else:
            course.begin(started_ns)

    def _started(self, found: Process, now: ClockReading) -> tuple[int, bool]:
        """Nanoseconds since the container started, and whether it is older than our state."""
        started_ns = found.started_ticks * TICK_NS
        return now.boottime_ns - started_ns, started_ns + TICK_NS <= self._known_since_ns

    def _judge(
        self,
        instance: int,
        kept: KeptInstance,
        key: CounterKey,
        now_read: Interface,
        started: tuple[int, bool],
        now: ClockReading,
    ) -> tuple[Bytes, KeptInterface]:
        last = kept.interfaces.get(now_read.name)
        if last is not None and last.key == key:
            elapsed_ns = now.mono_ns - last.at_ns
            up = advance(last.up, now_read.up, elapsed_ns, self._link)
            down = advance(last.down, now_read.down, elapsed_ns, self._link)
        else:
            since_ns, is_older = started
            up = begin(now_read.up, since_ns, self._link, is_older_than_state=is_older)
            down = begin(now_read.down, since_ns, self._link, is_older_than_state=is_older)
        for flag in dict.fromkeys((*up.flags, *down.flags)):
            self._oddities.append(Oddity(instance, flag))
        return Bytes(up.bytes, down.bytes), KeptInterface(
            key, now.mono_ns, up.counter, down.counter
        )

    def cut(self, instance: int, until_ns: int) -> Bytes:
        """What the instance carried since the last cut, up to a moment; never told again."""
        kept = self._instances.get(instance)
        return NOTHING if kept is None else kept.course.cut(until_ns)

    def lose(self, instance: int, carried: Bytes) -> None:
        """These bytes were cut and have no second."""
        kept = self._instances.get(instance)
        if kept is not None:
            kept.course.lose(carried)

    def take_lost(self) -> dict[int, Bytes]:
        """Bytes without a second, by instance, since the last call."""
        lost = {number: kept.course.take_lost() for number, kept in self._instances.items()}
        return {number: one for number, one in lost.items() if one != NOTHING}

    def take_oddities(self) -> list[Oddity]:
        """What was odd since the last call."""
        taken, self._oddities = self._oddities, []
        return taken

    def pid_of(self, instance: int) -> int | None:
        """The process whose counters were read last."""
        kept = self._instances.get(instance)
        return None if kept is None or kept.pid == 0 else kept.pid

    def forget(self, keep: set[int]) -> None:
        """Drop the instances that are not on the machine any more and have nothing left to tell."""
        for number in [one for one in self._instances if one not in keep]:
            course = self._instances[number].course
            rest = course.cut(course.points[-1].at_ns) if course.points else NOTHING
            course.lose(rest)
            if not (course.lost_up or course.lost_down):
                del self._instances[number]
