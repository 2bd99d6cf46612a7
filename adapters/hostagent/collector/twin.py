"""Simulated GPUs in memory: the collector of machines without a driver or a compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from adapters.hostagent.collector.findings import Inspector
from adapters.hostagent.collector.port import CollectorStatus, Finding, NvmlState, Reading, Standing
from adapters.hostagent.collector.protocol import (
    Cadence,
    Field,
    GpuIdentity,
    GpuRow,
    Opened,
    ProcessMemory,
    Swept,
    Versions,
    Xid,
)
from adapters.hostagent.collector.readings import SECOND_NS, Readings

_OF_CADENCE: dict[Cadence, tuple[Field, ...]] = {
    1: ("util", "mem_util"),
    5: ("mem_total", "mem_used", "mem_reserved", "power_mw", "temp_c", "energy_mj", "throttle"),
    60: ("link_gen", "link_width", "ecc_uncorrected_volatile"),
}
_WITH_PROCESSES: Cadence = 5
_RESTING: dict[Field, int] = {
    "util": 0, "mem_util": 0, "mem_used": 0, "mem_reserved": 512 << 20, "power_mw": 30_000,
    "temp_c": 40, "throttle": 1, "link_gen": 4, "link_width": 16,
}  # fmt: skip


class SimulatedGpu:
    """A GPU that does what it is told; `values` are what the next reading shows."""

    def __init__(self, identity: GpuIdentity) -> None:
        """Begin resting."""
        self.identity = identity
        self.values: dict[Field, int] = {**_RESTING, "mem_total": identity.memory_bytes or 0}
        self.procs: list[ProcessMemory] = []
        self.is_lost = False


def simulated_gpu(
    uuid: str, slot: int = 0, *, name: str = "RTX 4090", mib: int = 24_576
) -> GpuIdentity:
    """An ordinary card."""
    return GpuIdentity(
        uuid=uuid,
        slot=slot,
        name=name,
        pci=f"0000:{slot + 1:02x}:00.0",
        minor=slot,
        memory_bytes=mib << 20,
        pcie_gen_max=4,
        pcie_width_max=16,
        persistence=True,
    )


class CollectorTwin:
    """A collector without a process: every reading is of the moment at which it is asked for.

    `hang` and `recover` are what a driver does; `tell_xid` what it says.
    """

    def __init__(self, gpus: Sequence[GpuIdentity], driver: str = "570.133.20") -> None:
        """Have these GPUs, none of them working on anything."""
        self.gpus = {one.uuid: SimulatedGpu(one) for one in gpus}
        self._versions = Versions(driver=driver, nvml=f"12.{driver}", cuda="12.8")
        self._readings = Readings()
        self._inspector = Inspector([one.uuid for one in gpus], self._readings)
        self._xids: list[Xid] = []
        self._state: NvmlState = "down"
        self._generation = 0
        self._good_ns: int | None = None

    def start(self, phase: Callable[[], int] | None = None) -> None:
        """Begin to read, whenever it is asked; *phase* does not matter."""
        self._open(0)

    def stop(self) -> None:
        """End."""
        self._state = "down"

    def hang(self, now_ns: int) -> None:
        """The driver answers no more."""
        self._readings.forget()
        self._state = "stale"
        self._inspector.find(
            Finding(now_ns, "telemetry_gap", seconds=0, detail="the driver does not answer")
        )

    def recover(self, now_ns: int) -> None:
        """The driver answers again, in a new generation."""
        self._open(now_ns)

    def tell_xid(self, now_ns: int, code: int, uuid: str | None) -> None:
        """The driver reports a fault."""
        self._xids.append(Xid(now_ns, code, uuid))

    def standing(self, now_ns: int) -> Standing:
        """What is true at *now_ns*, without what was measured."""
        self._sweep(now_ns)
        return Standing(self._state, self._generation, self._readings.lost)

    def reading(self, now_ns: int) -> Reading:
        """What is known at *now_ns*."""
        self._sweep(now_ns)
        return self._readings.at(now_ns, self._state, self._generation)

    def utilisation(self, gpu_uuids: Collection[str], from_ns: int, until_ns: int) -> int:
        """The highest utilisation measured of these GPUs in `[from_ns, until_ns)`; -1 for none."""
        return self._readings.utilisation(gpu_uuids, from_ns, until_ns)

    def take_findings(self) -> Sequence[Finding]:
        """What was found since the last call."""
        return self._inspector.take()

    def take_xids(self) -> Sequence[Xid]:
        """The faults told since the last call."""
        taken, self._xids = self._xids, []
        return taken

    def release(self) -> None:
        """Let go of the driver until `acquire`."""
        self._readings.forget()
        self._state = "released"

    def acquire(self) -> None:
        """Read again after `release`."""
        if self._state == "released":
            self._open(self._good_ns or 0)

    def identities(self) -> Sequence[GpuIdentity]:
        """The GPUs of the last generation."""
        return [one.identity for one in self.gpus.values() if not one.is_lost]

    def versions(self) -> Versions | None:
        """Of the simulated driver."""
        return self._versions

    def status(self) -> CollectorStatus:
        """How the collector itself is doing."""
        return CollectorStatus(
            state=self._state,
            generation=self._generation,
            abandoned_children=0,
            last_good_sweep_ns=self._good_ns,
            sweep_seconds={},
            child_pid=None,
            child_fds=0,
            child_rss_bytes=0,
            child_cpu_ns=0,
        )

    def _open(self, now_ns: int) -> None:
        opened = Opened(versions=self._versions, gpus=list(self.identities()), events=True)
        self._inspector.opened(opened, 0, now_ns)
        self._readings.forget()
        self._generation += 1
        self._state = "ok"

    def _sweep(self, now_ns: int) -> None:
        if self._state != "ok":
            return
        is_due = self._good_ns is None or now_ns - self._good_ns >= SECOND_NS // 10
        if not is_due:
            return
        self._good_ns = now_ns
        lost = [uuid for uuid, gpu in self.gpus.items() if gpu.is_lost]
        for cadence, fields in _OF_CADENCE.items():
            rows = [
                GpuRow(
                    uuid=uuid,
                    values={name: gpu.values[name] for name in fields if name in gpu.values},
                    missing={name: "not_supported" for name in fields if name not in gpu.values},
                    procs=list(gpu.procs) if cadence == _WITH_PROCESSES else None,
                    proc_util=[] if cadence == _WITH_PROCESSES else None,
                )
                for uuid, gpu in self.gpus.items()
                if not gpu.is_lost
            ]
            self._inspector.swept(
                Swept(
                    cadence=cadence, began_ns=now_ns, ended_ns=now_ns, rows=rows, lost=lost,
                    open_fds=0, rss_bytes=0, cpu_ns=0,
                )
            )  # fmt: skip
            self._readings.take(cadence, now_ns, rows)
