"""What the acting half needs of the sensing half: looks once a second, and what follows from them.

All `*_ns` are CLOCK_MONOTONIC; only the sensing half turns them into Unix seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ledger.domain.hardware import Inventory
from ledger.domain.usage import GpuSample, HealthEvent, HostClock, InstanceBlock, TickState


class Watched(NamedTuple):
    """What the agent knows of one instance's container at this look."""

    instance: int
    state: TickState
    pid: int | None = None
    """First process of the container, in the host's numbering; null: there is none."""
    gpu_uuids: tuple[str, ...] = ()
    container: str | None = None
    disk: str | None = None
    """A path on the instance's disk."""


@dataclass(frozen=True, slots=True)
class Attested:
    """All that a report attests, and the state to be committed in its transaction."""

    start: int
    count: int
    blocks: Sequence[InstanceBlock]
    health: Sequence[HealthEvent]
    gpus: Sequence[GpuSample]
    inventory: Inventory | None
    clock: HostClock | None
    state: bytes


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

    def metrics(self) -> bytes:
        """The sensing part of the metrics, as Prometheus reads them."""

    def gpu_count(self) -> int | None:
        """GPUs that the driver shows now; null when it does not answer."""
