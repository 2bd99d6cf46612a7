"""What each sweep reads of one GPU (`host-agent.md` §2.2)."""

from __future__ import annotations

from typing import Any, Final

import pynvml

from adapters.hostagent.collector.codes import INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED
from adapters.hostagent.collector.driver import (
    NUMBERS,
    SLOW_NUMBERS,
    Facts,
    Handle,
    Way,
    way,
)
from adapters.hostagent.collector.protocol import (
    Cadence,
    Field,
    GpuRow,
    ProcessMemory,
    ProcessUtilisation,
)

_PERCENT: Final = 100
_MAX_NVLINKS: Final = 36
_MAX_PROCESSES: Final = 1024
"""More rows than that of one GPU are the garbage some drivers give, and would not fit a frame."""
_LISTS: Final = (
    (
        way("nvmlDeviceGetComputeRunningProcesses_v3"),
        way("nvmlDeviceGetComputeRunningProcesses_v2"),
    ),
    (
        way("nvmlDeviceGetGraphicsRunningProcesses_v3"),
        way("nvmlDeviceGetGraphicsRunningProcesses_v2"),
    ),
    (way("nvmlDeviceGetMPSComputeRunningProcesses_v3"),),
)
_MEMORY: Final = (
    way("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2),
    way("nvmlDeviceGetMemoryInfo"),
)
_RATES: Final = way("nvmlDeviceGetUtilizationRates")
_REMAPPED: Final = way("nvmlDeviceGetRemappedRows")
_ROWS: Final[tuple[Field, ...]] = (
    "rows_remapped_corrected", "rows_remapped_uncorrected", "rows_pending", "rows_failed"
)  # fmt: skip
_PAGES: Final[tuple[tuple[Field, Way], ...]] = (
    ("pages_retired_single", way("nvmlDeviceGetRetiredPages", 0)),
    ("pages_retired_double", way("nvmlDeviceGetRetiredPages", 1)),
)


class Gpu:
    """One GPU of a generation: its handle, and how far its samples are read."""

    def __init__(self, uuid: str, handle: Handle, facts: Facts, *, is_mig: bool) -> None:
        """Begin before its first sample."""
        self.uuid = uuid
        self.handle = handle
        self.is_mig = is_mig
        self._facts = facts
        self._sampled_until = 0
        self._processes_until = 0

    def sweep(self, cadence: Cadence) -> GpuRow:
        """What belongs to *cadence*.

        Raises:
            GpuLostError: It fell off the bus.
            GenerationEndedError: NVML must be initialised again.
        """
        row = GpuRow(uuid=self.uuid)
        if self.is_mig:
            return row
        match cadence:
            case 1:
                self._utilisation(row)
            case 5:
                self._memory(row)
                self._numbers(row, NUMBERS)
                self._processes(row)
                self._process_utilisation(row)
            case 60:
                self._numbers(row, SLOW_NUMBERS)
                self._health(row)
                self._nvlinks(row)
        return row

    def _ask(self, row: GpuRow, field: Field, *ways: Way) -> Any:
        """The answer, or null with the reason noted under *field*."""
        found, status = self._facts.ask(self.uuid, self.handle, *ways)
        if status != "ok":
            row.missing[field] = status
        return found

    def _numbers(self, row: GpuRow, numbers: dict[Field, tuple[Way, ...]]) -> None:
        for field, ways in numbers.items():
            found = self._ask(row, field, *ways)
            if found is not None:
                row.values[field] = int(found)

    def _utilisation(self, row: GpuRow) -> None:
        """The mean of the driver's own samples since the last sweep, else its present rate."""
        rates = self._ask(row, "util", _RATES)
        if rates is None:
            row.missing["mem_util"] = row.missing["util"]
            return
        percent, memory = int(rates.gpu), int(rates.memory)
        mean = self._mean()
        if mean is not None:
            percent = mean
        for field, found in (("util", percent), ("mem_util", memory)):
            if found <= _PERCENT:
                row.values[field] = found  # type: ignore[index] # mypy widens the two literals
            else:
                row.missing[field] = "error"  # type: ignore[index] # likewise

    def _mean(self) -> int | None:
        def call(handle: Handle) -> list[tuple[int, int]]:
            try:
                kind, samples = pynvml.nvmlDeviceGetSamples(
                    handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._sampled_until
                )
            except pynvml.NVMLError as error:
                if error.value == NOT_FOUND:
                    return []  # No sample since then; it is no lasting absence.
                raise
            wide = kind != pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            return [
                (one.timeStamp, one.sampleValue.ullVal if wide else one.sampleValue.uiVal)
                for one in samples
            ]

        samples, _ = self._facts.ask(self.uuid, self.handle, Way("nvmlDeviceGetSamples", call))
        is_first = self._sampled_until == 0
        new = [(at, percent) for at, percent in samples or [] if at > self._sampled_until]
        if not new:
            return None
        self._sampled_until = max(at for at, _ in new)
        known = [percent for _, percent in new if percent <= _PERCENT]
        # The first answer holds what was sampled before anybody asked.
        return None if is_first or not known else sum(known) // len(known)

    def _memory(self, row: GpuRow) -> None:
        memory = self._ask(row, "mem_total", *_MEMORY)
        if memory is None or memory.total == 0:
            reason = row.missing.setdefault("mem_total", "not_supported")
            row.missing["mem_used"] = row.missing["mem_reserved"] = reason
            return
        row.values["mem_total"] = int(memory.total)
        row.values["mem_used"] = int(memory.used)
        if hasattr(memory, "reserved"):
            row.values["mem_reserved"] = int(memory.reserved)
        else:
            row.missing["mem_reserved"] = "function_missing"

    def _processes(self, row: GpuRow) -> None:
        """All lists together; one that the driver does not have takes nothing from the others."""
        found: dict[int, int | None] = {}
        is_known = False
        for ways in _LISTS:
            rows, status = self._facts.ask(self.uuid, self.handle, *ways)
            if status == "ok":
                is_known = True
                for one in rows[:_MAX_PROCESSES]:
                    found.setdefault(int(one.pid), one.usedGpuMemory)
            elif not is_known and "procs" not in row.missing:
                row.missing["procs"] = status
        if is_known:
            row.missing.pop("procs", None)
            row.procs = [ProcessMemory(pid, mem) for pid, mem in found.items() if pid > 0]

    def _process_utilisation(self, row: GpuRow) -> None:
        def call(handle: Handle) -> list[Any]:
            try:
                return list(pynvml.nvmlDeviceGetProcessUtilization(handle, self._processes_until))
            except pynvml.NVMLError as error:
                if error.value in {0, NOT_FOUND}:
                    return []  # Both say that nothing ran in the window.
                raise

        samples = self._ask(row, "proc_util", Way("nvmlDeviceGetProcessUtilization", call))
        if samples is None:
            return
        row.proc_util = [
            ProcessUtilisation(int(one.pid), int(one.smUtil))
            for one in samples[:_MAX_PROCESSES]
            if one.pid > 0 and one.smUtil <= _PERCENT
        ]
        self._processes_until = max([self._processes_until, *(one.timeStamp for one in samples)])

    def _health(self, row: GpuRow) -> None:
        remapped = self._ask(row, "rows_pending", _REMAPPED)
        for field, found in zip(_ROWS, remapped or (), strict=False):
            row.values[field] = int(found)
        if remapped is None:
            for field in _ROWS:
                row.missing[field] = row.missing["rows_pending"]
        for field, pages in _PAGES:
            retired = self._ask(row, field, pages)
            if retired is not None:
                row.values[field] = len(retired)

    def _nvlinks(self, row: GpuRow) -> None:
        """How many links are up; the first that is not supported is behind the last one."""

        def call(handle: Handle) -> int:
            up = 0
            for link in range(_MAX_NVLINKS):
                try:
                    up += int(pynvml.nvmlDeviceGetNvLinkState(handle, link))
                except pynvml.NVMLError as error:
                    if link > 0 and error.value in {NOT_SUPPORTED, INVALID_ARGUMENT}:
                        break
                    raise
            return up

        up = self._ask(row, "nvlinks", Way("nvmlDeviceGetNvLinkState", call))
        if up is not None:
            row.values["nvlinks"] = up
