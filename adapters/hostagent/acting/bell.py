"""What the loop waits for: somebody rings, a process ends, or the time is over.

Nothing is asked again and again in between: the kernel says when a process ends.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection


class Bell:
    """Rung from any thread, waited for by one."""

    def __init__(self) -> None:
        """Begin silent."""
        self._rung = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._rung, select.POLLIN)
        self._processes: dict[int, int | None] = {}
        """By pid, what becomes readable when it ends; null once it has ended."""

    def ring(self) -> None:
        """End the wait under way, or the next one."""
        os.eventfd_write(self._rung, 1)

    def watch(self, pids: Collection[int]) -> None:
        """Wait for the end of these processes from now on, and of no others."""
        for pid in self._processes.keys() - set(pids):
            self._drop(pid)
            del self._processes[pid]
        for pid in pids:
            if pid not in self._processes:
                self._processes[pid] = self._held(pid)

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; true when a process has ended, which is said once."""
        ready = {descriptor for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000)}
        if self._rung in ready:
            os.eventfd_read(self._rung)
            ready.discard(self._rung)
        for pid, descriptor in self._processes.items():
            if descriptor in ready:
                self._drop(pid)
                self._processes[pid] = None
        return bool(ready)

    def __del__(self) -> None:
        """Threads may ring until the end of the program, so nobody closes it while it is held."""
        self.watch(())
        os.close(self._rung)

    def _held(self, pid: int) -> int | None:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None  # It is gone, or not to be seen from here: the next look finds out.
        self._poll.register(descriptor, select.POLLIN)
        return descriptor

    def _drop(self, pid: int) -> None:
        descriptor = self._processes[pid]
        if descriptor is not None:
            self._poll.unregister(descriptor)
            os.close(descriptor)
