"""Senses without a driver: GPUs by name only, bytes at a constant rate, time from the clocks.

For demo and tests, and for a machine on which the agent is tried before its GPUs are there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from adapters.hostagent.acting.senses import Attested, Watched
from adapters.hostagent.reports import Run, run_block
from ledger.domain.hardware import GpuInventory, Inventory
from ledger.domain.usage import HostClock, InstanceBlock, TickState

_SECOND_NS: Final = 10**9
_WINDOW_SECONDS: Final = 60


class SimulatedSenses:
    """Looks, and attests every second in which it looked; a second without a look stays missing."""

    def __init__(
        self,
        gpu_uuids: Sequence[str],
        *,
        sealed_until: int = 0,
        boot_id: str | None = None,
        up_bytes_per_second: int = 1_000,
        down_bytes_per_second: int = 2_000,
        util: int = 90,
    ) -> None:
        """See *gpu_uuids*; nothing before *sealed_until* is attested again."""
        self.boot_id = boot_id or _kernel_boot_id()
        self.doubtful: set[int] = set()
        self.lost_gpus: frozenset[str] = frozenset()
        self.gone_disks: frozenset[int] = frozenset()
        self._gpu_uuids = list(gpu_uuids)
        self._up, self._down, self._util = up_bytes_per_second, down_bytes_per_second, util
        self._anchor_ns = time.time_ns() - time.monotonic_ns()
        self._next = sealed_until
        """The first second that was not attested."""
        self._rows: dict[int, dict[int, TickState]] = {}
        """Second → instance → state."""
        self._is_new = True

    @property
    def second(self) -> int:
        """The running second."""
        return (time.monotonic_ns() + self._anchor_ns) // _SECOND_NS

    @property
    def has_news(self) -> bool:
        """Only what it is made of, once."""
        return self._is_new

    def start(self) -> None:
        """Nothing runs beside."""

    def stop(self) -> None:
        """Nothing runs beside."""

    def next_look_ns(self, now_ns: int) -> int:
        """The middle of the next second."""
        second = (now_ns + self._anchor_ns) // _SECOND_NS + 1
        return second * _SECOND_NS + _SECOND_NS // 2 - self._anchor_ns

    def look(self, watched: Sequence[Watched]) -> None:
        """Note what this second is like."""
        second = self.second
        if second >= self._next:
            self._rows.setdefault(second, {one.instance: one.state for one in watched})

    def last_reading(self, instance: int) -> None:
        """There is no counter."""

    def contact(self, sent_ns: int, received_ns: int, server_time_ms: int) -> None:
        """The clock of a simulated machine is right."""

    def attest(self) -> Attested | None:
        """The next run of seconds without a hole, at most a minute."""
        finished = sorted(second for second in self._rows if second < self.second)
        if not finished:
            return None
        start = finished[0]
        count = 1
        while count < min(len(finished), _WINDOW_SECONDS) and finished[count] == start + count:
            count += 1
        rows = [self._rows.pop(start + offset) for offset in range(count)]
        self._next = start + count
        instances = sorted({instance for row in rows for instance in row})
        blocks = [self._block(instance, start, rows) for instance in instances]
        return self._attested(start, count, blocks)

    def news(self) -> Attested:
        """No second."""
        return self._attested(max(self._next, self.second), 0, [])

    def spare(self, pids: Callable[[], Collection[int]]) -> None:
        """No process is looked at."""

    def metrics(self) -> bytes:
        """Nothing is measured."""
        return b""

    def gpu_count(self) -> int:
        """As many as it was told."""
        return len(self._gpu_uuids)

    def inventory(self) -> Inventory:
        """Its GPUs by name."""
        return Inventory(gpus=[GpuInventory(uuid=one, name="simulated") for one in self._gpu_uuids])

    def _block(
        self, instance: int, start: int, rows: Sequence[dict[int, TickState]]
    ) -> InstanceBlock:
        present = [index for index, row in enumerate(rows) if instance in row]
        runs = []
        for row in rows[present[0] : present[-1] + 1]:
            state = row.get(instance, "unknown")
            is_running = state == "running"
            up, down = (self._up, self._down) if is_running else (0, 0)
            runs.append(Run(1, state, up, down, self._util if is_running else -1))
        return run_block(instance, start + present[0], runs)

    def _attested(self, start: int, count: int, blocks: list[InstanceBlock]) -> Attested:
        inventory = self.inventory() if self._is_new else None
        self._is_new = False
        clock = HostClock(
            mono_ns=time.monotonic_ns(),
            boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            wall_ns=time.time_ns(),
            synced=True,
        )
        return Attested(start, count, blocks, [], [], inventory, clock, b"")


def _kernel_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(16)
