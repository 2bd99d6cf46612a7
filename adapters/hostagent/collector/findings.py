"""What readings mean for the machine's health; each thing is found once, when it begins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from adapters.hostagent.collector.codes import LOSING
from adapters.hostagent.collector.port import Finding
from adapters.hostagent.collector.protocol import Field, GpuRow, Opened, Swept
from adapters.hostagent.collector.readings import Readings

SLOWED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""Throttle reasons that are a fault of the host: hardware slowdown, heat (two), power brake."""


class Inspector:
    """Compares what is there with what should be, and with what was."""

    def __init__(self, registered: Collection[str] | None, readings: Readings) -> None:
        """Expect the *registered* GPUs; null: those of the first generation."""
        self.expected = None if registered is None else frozenset(registered)
        self._readings = readings
        self._findings: list[Finding] = []
        self._slowed: set[str] = set()
        self._told_set: tuple[frozenset[str], int] | None = None
        if self.expected is not None:
            readings.know(sorted(self.expected))

    def take(self) -> list[Finding]:
        """What was found since the last call."""
        taken, self._findings = self._findings, []
        return taken

    def find(self, finding: Finding) -> None:
        """Note something that was found elsewhere."""
        self._findings.append(finding)

    def opened(self, opened: Opened, pci_gpus: int, now_ns: int) -> bool:
        """Look at a new generation; false when it has no GPU though some are expected."""
        found = {gpu.uuid for gpu in opened.gpus}
        if self.expected is None and found:
            self.expected = frozenset(found)
        self._compare(found, opened.unreadable, pci_gpus, now_ns)
        for gpu in opened.gpus:
            self._readings.mark(gpu.uuid, "mig_enabled" if gpu.mig else "ok")
            if gpu.persistence is False:
                self.find(Finding(now_ns, "persistence_off", gpu.uuid))
        self._slowed.clear()
        return bool(found) or not self.expected

    def _compare(self, found: set[str], unreadable: list[int], pci_gpus: int, now_ns: int) -> None:
        """NVML, the PCI bus and the registered inventory must name the same GPUs."""
        expected = self.expected or frozenset()
        missing = expected - found
        # Places that answer "lost" are the missing GPUs, when there are as many of both.
        is_lost = len(unreadable) == len(missing) and all(code in LOSING for code in unreadable)
        for uuid in sorted(missing):
            if self._readings.state_of(uuid) == "lost" or (is_lost and unreadable):
                self.lost(uuid, now_ns)
            elif self._readings.mark(uuid, "missing"):
                detail = f"nvml {len(found)}, pci {pci_gpus}, registered {len(expected)}"
                self.find(Finding(now_ns, "gpu_missing", uuid, detail=detail))
        told = (frozenset(found), pci_gpus)
        if told == self._told_set:
            return
        self._told_set = told
        for uuid in sorted(found - expected):
            self.find(Finding(now_ns, "inventory_changed", uuid, detail="not registered"))
        # A kernel without a PCI bus of its own, or a simulated driver, says nothing about the bus.
        if pci_gpus and pci_gpus != len(found) + len(unreadable) and not missing:
            detail = f"nvml {len(found)}, pci {pci_gpus}, registered {len(expected)}"
            self.find(Finding(now_ns, "gpu_missing", detail=detail))

    def lost(self, uuid: str, now_ns: int) -> None:
        """A GPU fell off the bus."""
        if self._readings.mark(uuid, "lost"):
            self.find(Finding(now_ns, "gpu_lost", uuid, code=min(LOSING)))

    def swept(self, swept: Swept) -> None:
        """Look at one sweep before its rows replace the last ones."""
        for uuid in swept.lost:
            self.lost(uuid, swept.ended_ns)
        for row in swept.rows:
            if self._readings.state_of(row.uuid) in {"lost", "missing"}:
                self._readings.mark(row.uuid, "ok")
            self._throttle(row, swept.ended_ns)
            self._errors(row, swept.ended_ns)

    def _throttle(self, row: GpuRow, now_ns: int) -> None:
        reasons = row.values.get("throttle")
        if reasons is None:
            return
        if not reasons & SLOWED:
            self._slowed.discard(row.uuid)
        elif row.uuid not in self._slowed:
            self._slowed.add(row.uuid)
            self.find(Finding(now_ns, "throttled", row.uuid, code=reasons))

    def _errors(self, row: GpuRow, now_ns: int) -> None:
        """New uncorrected errors; those before this generation were told or are history."""
        field: Field = "ecc_uncorrected_volatile"
        now, before = row.values.get(field), self._readings.value(row.uuid, 60, field)
        if now is not None and before is not None and now > before:
            self.find(Finding(now_ns, "ecc_uncorrected", row.uuid, code=now - before))
