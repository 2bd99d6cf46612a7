"""What the agent asks of a collector, whatever is behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from adapters.hostagent.collector.protocol import (
    Field,
    GpuIdentity,
    ProcessMemory,
    ProcessUtilisation,
    Status,
    Versions,
    Xid,
)
from ledger.domain.usage import HealthKind

NvmlState = Literal["down", "starting", "ok", "stale", "released", "reboot_required"]
GpuState = Literal["ok", "lost", "missing", "mig_enabled"]


class GpuReading(NamedTuple):
    """What is known of one GPU now. A field is in `values` or its reason is in `status`."""

    uuid: str
    state: GpuState
    at_ns: int | None
    """Of the newest sweep; null before the first."""
    values: dict[Field, int]
    status: dict[Field, Status]
    procs: list[ProcessMemory] | None
    """Empty: no process. Null: not known."""
    proc_util: list[ProcessUtilisation] | None

    @property
    def has_unified_memory(self) -> bool:
        """True when the GPU has no memory of its own, so there is no figure for it."""
        return self.status.get("mem_total") == "not_supported" and self.state == "ok"

    @property
    def overall(self) -> Status:
        """Of the reading as a whole: ok as soon as utilisation or memory is known."""
        if "util" in self.values or "mem_used" in self.values:
            return "ok"
        reasons = [self.status.get("util", "stale"), self.status.get("mem_used", "stale")]
        return max(reasons, key=_WORST.index)


_WORST: tuple[Status, ...] = (
    "ok", "not_supported", "function_missing", "no_permission", "error", "stale"
)  # fmt: skip


class Reading(NamedTuple):
    """What is known of all GPUs; numbers belong to one generation and are compared only in it."""

    state: NvmlState
    generation: int
    gpus: dict[str, GpuReading]
    """By UUID: those of the generation, and those that are registered or were lost."""


class Standing(NamedTuple):
    """How things stand, without a number: cheap enough for every look."""

    state: NvmlState
    generation: int
    lost: frozenset[str]
    """GPUs that fell off the bus."""


class Finding(NamedTuple):
    """Something that the server should hear of; told once."""

    at_ns: int
    kind: HealthKind
    gpu_uuid: str | None = None
    code: int | None = None
    seconds: int | None = None
    detail: str | None = None


class CollectorStatus(NamedTuple):
    """How the collector itself is doing, for metrics and `agent status`."""

    state: NvmlState
    generation: int
    abandoned_children: int
    last_good_sweep_ns: int | None
    sweep_seconds: dict[int, float]
    """Duration of the last sweep of each cadence."""
    child_pid: int | None
    child_fds: int
    child_rss_bytes: int
    child_cpu_ns: int


class Collector(Protocol):
    """Reads GPUs without ever letting the caller wait for a driver."""

    def start(self, phase: Callable[[], int] | None = None) -> None:
        """Begin to read.

        Args:
            phase: Nanoseconds to add to CLOCK_MONOTONIC for the machine's time: GPUs are read in
                the middle of its seconds, so that none goes without.
        """

    def stop(self) -> None:
        """End in order; a process that hangs in the driver is left behind, never killed."""

    def standing(self, now_ns: int) -> Standing:
        """What is true at *now_ns*, without what was measured."""

    def reading(self, now_ns: int) -> Reading:
        """What is known at *now_ns*; what is too old is null and `stale`, never repeated."""

    def utilisation(self, gpu_uuids: Collection[str], from_ns: int, until_ns: int) -> int:
        """The highest utilisation measured of these GPUs in `[from_ns, until_ns)`; -1 for none."""

    def take_findings(self) -> Sequence[Finding]:
        """What was found since the last call."""

    def take_xids(self) -> Sequence[Xid]:
        """The driver's fault events since the last call."""

    def release(self) -> None:
        """Let go of the driver, so that it can be unloaded or a GPU reset; until `acquire`."""

    def acquire(self) -> None:
        """Read again after `release`."""

    def identities(self) -> Sequence[GpuIdentity]:
        """The GPUs of the last generation."""

    def versions(self) -> Versions | None:
        """Of the last generation; null before the first."""

    def status(self) -> CollectorStatus:
        """How the collector itself is doing."""
