"""What the acting half needs of the sensing half: looks once a second, and what follows from them.

All `*_ns` are CLOCK_MONOTONIC; only the sensing half turns them into Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from adapters.hostagent.sensing.watched import Attested, Watched

__all__ = ["Attested", "Senses", "Watched"]


class Senses(Protocol):
    """The sensing half; its state is handed to its constructor as it was last committed."""

    @property
    def boot_id(self) -> str:
        """Names this boot of the machine."""

    @property
    def second(self) -> int | None:
        """The running Unix second; null while nothing is known of the time: no ticks then."""

    @property
    def doubtful(self) -> set[int]:
        """Instances to probe inside now."""

    @property
    def lost_gpus(self) -> frozenset[str]:
        """GPUs that fell off the bus."""

    @property
    def gone_disks(self) -> frozenset[int]:
        """Instances whose disk is no more."""

    @property
    def has_news(self) -> bool:
        """True when there is something to tell besides seconds."""

    def start(self) -> None:
        """Begin to look."""

    def stop(self) -> None:
        """End what runs beside."""

    def next_look_ns(self, now_ns: int) -> int:
        """When the next look is due: the middle of the next second."""

    def look(self, watched: Sequence[Watched]) -> None:
        """Take in what is now; never waits for the driver."""

    def last_reading(self, instance: int) -> None:
        """Read an instance's counters once more, right before it is stopped."""

    def contact(self, sent_ns: int, received_ns: int, server_time_ms: int) -> None:
        """The server answered, with its time."""

    def attest(self) -> Attested | None:
        """The next finished seconds; null when there are none."""

    def news(self) -> Attested:
        """No second: only what cannot wait for one."""

    def spare(self, pids: Callable[[], Collection[int]]) -> None:
        """Take *pids* on the GPUs for the platform's own."""

    def metrics(self) -> bytes:
        """The sensing part of the metrics, as Prometheus reads them."""

    def gpu_count(self) -> int | None:
        """GPUs that the driver shows now; null when it does not answer."""
