"""Whose processes are on the GPUs. They decide no ownership: that is the assignment's.

They show what the platform did not put there (`host-agent.md` §3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from adapters.hostagent.collector.port import Finding, GpuReading, Reading
from adapters.hostagent.sensing.processes import PROC, Containers
from ledger.domain.usage import GpuProcess, GpuSample

FOREIGN_BYTES: Final = 2 << 30
"""More memory than that on a GPU that nobody rents was put there by somebody."""
CONFIRM_NS: Final = 10_000_000_000
"""What is seen once may be a process that is ending; foreign is what is there this much later."""
_Sighting = tuple[str, int, int]
"""GPU, pid and start time; pid 0 for memory without a process."""


class Occupants:
    """Looks at the processes on the GPUs, again and again."""

    def __init__(self, proc: Path = PROC) -> None:
        """Look up processes in *proc*."""
        self._containers = Containers(proc)
        self._since: dict[_Sighting, int] = {}
        self._told: set[_Sighting] = set()

    def look(
        self,
        reading: Reading,
        expected: Mapping[str, Collection[str]],
        now_ns: int,
        own_pids: Collection[int] = (),
    ) -> list[Finding]:
        """Foreign processes that are there since the confirming look; each is found once.

        Args:
            reading: Processes and memory by GPU.
            expected: The containers that the platform put on each GPU; a GPU without is free.
            now_ns: The moment of the look.
            own_pids: The platform's own processes: they carry out its checks.
        """
        seen: dict[_Sighting, str] = {}
        pids: set[int] = set()
        for uuid, gpu in reading.gpus.items():
            pids |= {one.pid for one in gpu.procs or ()}
            seen |= self._foreign(uuid, gpu, expected.get(uuid, ()), own_pids)
        self._containers.keep(pids)
        self._since = {one: self._since.get(one, now_ns) for one in seen}
        self._told &= seen.keys()
        found = []
        for sighting, detail in seen.items():
            if sighting not in self._told and now_ns - self._since[sighting] >= CONFIRM_NS:
                self._told.add(sighting)
                found.append(Finding(now_ns, "foreign_process", sighting[0], detail=detail))
        return found

    def _foreign(
        self, uuid: str, gpu: GpuReading, expected: Collection[str], own_pids: Collection[int]
    ) -> dict[_Sighting, str]:
        found: dict[_Sighting, str] = {}
        for one in gpu.procs or ():
            if one.pid in own_pids:
                continue
            where = self._containers.of(one.pid)
            if where is None:
                continue  # NVML still lists processes that are gone.
            process, container = where
            if container is None or container not in expected:
                place = "the host itself" if container is None else f"container {container[:12]}"
                found[(uuid, process.pid, process.started_ticks)] = (
                    f"process {process.pid} of {place}"
                )
        used = gpu.values.get("mem_used", 0)
        is_free = not expected and not own_pids
        if is_free and not found and used > FOREIGN_BYTES:
            found[(uuid, 0, 0)] = f"{used >> 20} MiB in use on a GPU that is free"
        return found

    def sample(self, gpu: GpuReading, second: int) -> GpuSample:
        """A GPU's reading as a report carries it."""
        procs: list[GpuProcess] | None = None
        if gpu.procs is not None:
            procs = []
            for one in gpu.procs:
                where = self._containers.of(one.pid)
                if where is not None:
                    procs.append(GpuProcess(container=where[1], mem=one.mem))
        value = gpu.values.get
        return GpuSample(
            gpu_uuid=gpu.uuid,
            at=second,
            util=value("util"),
            mem_used=value("mem_used"),
            mem_reserved=value("mem_reserved"),
            mem_total=value("mem_total"),
            power_mw=value("power_mw"),
            temp_c=value("temp_c"),
            energy_mj=value("energy_mj"),
            throttle=value("throttle"),
            link_gen=value("link_gen"),
            link_width=value("link_width"),
            procs=procs,
            status=gpu.overall,
        )


def is_idle(gpu: GpuReading, idle_power_mw: int) -> bool | None:
    """Whether nothing runs on a GPU; null when that cannot be told.

    Never by utilisation alone: some cards stay at 100 % after a process died inside a kernel, with
    no process, no memory and the power of a resting card.
    """
    used, power = gpu.values.get("mem_used"), gpu.values.get("power_mw")
    util = gpu.values.get("util")
    if gpu.procs:
        return False
    if used is None or power is None or gpu.procs is None:
        return None if util is None or util > 0 else True
    return used <= FOREIGN_BYTES and power <= idle_power_mw
