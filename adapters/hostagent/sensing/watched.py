"""What the agent tells its senses about the containers, and what it gets back for its reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ledger.domain.hardware import Inventory
from ledger.domain.usage import GpuSample, HealthEvent, HostClock, InstanceBlock, TickState

ALIVE: Final = frozenset({"running", "frozen", "gpu_lost"})
"""States that need a living first process, where the runtime names one."""
HOLDING: Final = ALIVE | {"loading", "rebooting"}
"""States in which the instance holds its GPUs."""


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


@dataclass(frozen=True, slots=True)
class Attested:
    """What `ReportChain.seal` takes, and `state`, to be committed in the same transaction."""

    start: int
    count: int
    blocks: list[InstanceBlock]
    health: list[HealthEvent]
    gpus: list[GpuSample]
    inventory: Inventory | None
    clock: HostClock
    state: bytes
