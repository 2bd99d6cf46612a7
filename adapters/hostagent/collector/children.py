"""The collector's processes over time: the one that is asked, the one that leaves, those that hang.

Whoever misses its deadline gets SIGTERM and a grace. SIGKILL is never sent, because it has frozen
GPUs (`host-agent.md` §5): a process that hangs in the driver is left behind, and counted.
"""

from __future__ import annotations

from typing import Final

from adapters.hostagent.collector.life import Waits
from adapters.hostagent.collector.process import ChildProcess
from adapters.hostagent.collector.readings import SECOND_NS

_LEAVING_NS: Final = SECOND_NS // 10
"""How soon to look again whether one that was asked to leave has left."""


class Children:
    """At most one process is asked and one leaves at a time. Not thread-safe."""

    def __init__(self, grace_seconds: float, waits: Waits) -> None:
        """Begin without a process; each one leaves in *grace_seconds*, or hangs."""
        self._grace_ns = int(grace_seconds * SECOND_NS)
        self._waits = waits
        self.present: ChildProcess | None = None
        """The one that is asked."""
        self._leaving: tuple[ChildProcess, int] | None = None
        self._abandoned: list[ChildProcess] = []

    @property
    def is_leaving(self) -> bool:
        """Whether one was asked to leave and may still do so: no other is started meanwhile."""
        return self._leaving is not None

    @property
    def hanging(self) -> int:
        """How many did not leave in time, and are still there."""
        return sum(not one.has_ended() for one in self._abandoned)

    def start(self) -> None:
        """Start one to be asked."""
        assert self.present is None
        self.present = ChildProcess(self._waits)

    def let_go(self, now_ns: int) -> None:
        """Ask the present one to leave, and hear no more of it."""
        if self.present is None:
            return
        self.present.let_go()
        if self._leaving is not None:
            self._abandoned.append(self._leaving[0])
        self._leaving = (self.present, now_ns + self._grace_ns)
        self.present = None

    def bury(self, now_ns: int) -> None:
        """Forget those that have ended, and give up one whose grace is over."""
        self._abandoned = [one for one in self._abandoned if not one.has_ended()]
        if self._leaving is None:
            return
        child, until_ns = self._leaving
        if child.has_ended():
            self._leaving = None
        elif now_ns >= until_ns:
            self._abandoned.append(child)
            self._leaving = None

    def look_again_ns(self, second_ns: int) -> int | None:
        """Nanoseconds until it is worth to `bury` again; null when nobody leaves or hangs."""
        if self._leaving is not None:
            return min(_LEAVING_NS, second_ns)
        return second_ns if self._abandoned else None

    def take_leaving(self) -> ChildProcess | None:
        """The one that leaves, which somebody else waits for now."""
        leaving, self._leaving = self._leaving, None
        return None if leaving is None else leaving[0]

    def abandon(self, child: ChildProcess) -> None:
        """It did not leave."""
        self._abandoned.append(child)
