"""The sensing half as the acting half runs it, on a machine with a driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from adapters.hostagent.collector.protocol import GpuIdentity, Versions
from adapters.hostagent.collector.supervisor import NvmlCollector
from adapters.hostagent.kernel_gpus import gpus as kernel_gpus
from adapters.hostagent.sensing.inventory import take_inventory
from adapters.hostagent.sensing.kernel_log import KernelLog
from adapters.hostagent.sensing.metrics import registry, render
from adapters.hostagent.sensing.senses import Senses
from ledger.domain.hardware import Inventory

_FIRST_LOOK_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1


class MachineSenses(Senses):
    """Looks through NVML, the kernel's log and the kernel's files."""

    def __init__(
        self,
        registered: Sequence[str],
        *,
        state: bytes | None,
        sealed_until: int,
        gpus_only: bool = False,
    ) -> None:
        """Go on from what was last committed, on a machine with the GPUs *registered*.

        With *gpus_only* nothing is told of the computer around them.
        """
        super().__init__(
            NvmlCollector(registered),
            state=state,
            sealed_until=sealed_until,
            kernel_log=KernelLog(),
            stock=_gpus_alone if gpus_only else take_inventory,
        )
        self._metrics = registry(self)

    def metrics(self) -> bytes:
        """What is sensed, and how the sensing itself is doing."""
        return render(self._metrics)

    def gpu_count(self) -> int | None:
        """GPUs that answered the last sweep; null when the driver does not answer."""
        if self.collector.status().state != "ok":
            return None
        reading = self.collector.reading(time.monotonic_ns())
        return sum(one.state == "ok" for one in reading.gpus.values())

    def release_nvml(self) -> None:
        """Close the driver, for a reset or a change of MIG; ticks go on without GPU evidence."""
        self.collector.release()

    def acquire_nvml(self) -> None:
        """Open the driver again."""
        self.collector.acquire()


def take_stock(*, gpus_only: bool = False) -> Inventory:
    """What the machine is made of, asked once; its GPUs are empty where no driver answers."""
    collector = NvmlCollector()
    collector.start()
    try:
        deadline = time.monotonic() + _FIRST_LOOK_SECONDS
        while not collector.identities() and time.monotonic() < deadline:
            if collector.status().state == "down" and not kernel_gpus():
                break
            time.sleep(_POLL_SECONDS)
        look = _gpus_alone if gpus_only else take_inventory
        return look(collector.identities(), collector.versions())
    finally:
        collector.stop()


def _gpus_alone(gpus: Sequence[GpuIdentity], versions: Versions | None, **_: Any) -> Inventory:
    """For a computer that plays a machine it is not: its own processors and memory are left out."""
    return Inventory(gpus=take_inventory(gpus, versions).gpus)
