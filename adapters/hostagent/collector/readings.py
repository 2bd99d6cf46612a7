"""The newest numbers of each GPU, and when they stop being news."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, get_args

from adapters.hostagent.collector.port import GpuReading, GpuState, NvmlState, Reading
from adapters.hostagent.collector.protocol import (
    Cadence,
    Field,
    GpuRow,
    ProcessMemory,
    ProcessUtilisation,
    Status,
)

SECOND_NS: Final = 1_000_000_000
GRACE_NS: Final = 5 * SECOND_NS
"""A number is news for its cadence and this long; a sweep that takes longer has failed."""
_KEPT_UTILISATIONS: Final = 400
"""Over five minutes: as long as a report may wait to be sealed."""
FIELDS: Final[tuple[Field, ...]] = get_args(Field)


class _Kept:
    """What is kept of one GPU: one row per cadence."""

    def __init__(self) -> None:
        self.rows: dict[Cadence, tuple[int, GpuRow]] = {}
        self.state: GpuState = "ok"


class Readings:
    """Rows as they come in from sweeps, by UUID; no index is kept."""

    def __init__(self) -> None:
        """Begin knowing nothing."""
        self._gpus: dict[str, _Kept] = {}
        self._utilisation: deque[tuple[int, dict[str, int]]] = deque(maxlen=_KEPT_UTILISATIONS)

    def forget(self) -> None:
        """Drop all numbers of a generation that is over; the history of utilisation stays."""
        for kept in self._gpus.values():
            kept.rows.clear()

    def know(self, gpu_uuids: Iterable[str]) -> None:
        """Keep a place for these GPUs, whether they answer or not."""
        for uuid in gpu_uuids:
            self._gpus.setdefault(uuid, _Kept())

    def mark(self, uuid: str, state: GpuState) -> bool:
        """Note what a GPU is; true when that is new."""
        kept = self._gpus.setdefault(uuid, _Kept())
        is_new = kept.state != state
        kept.state = state
        if state != "ok":
            kept.rows.clear()
        return is_new

    def state_of(self, uuid: str) -> GpuState:
        """What the GPU is; unknown ones are missing."""
        return self._gpus[uuid].state if uuid in self._gpus else "missing"

    @property
    def lost(self) -> frozenset[str]:
        """GPUs that fell off the bus."""
        return frozenset(uuid for uuid, kept in self._gpus.items() if kept.state == "lost")

    def take(self, cadence: Cadence, at_ns: int, rows: Iterable[GpuRow]) -> None:
        """Keep the rows of one sweep in the place of the last ones."""
        utilisation: dict[str, int] = {}
        for row in rows:
            kept = self._gpus.setdefault(row.uuid, _Kept())
            kept.rows[cadence] = (at_ns, row)
            if "util" in row.values:
                utilisation[row.uuid] = row.values["util"]
        if cadence == 1:
            self._utilisation.append((at_ns, utilisation))

    def utilisation(self, gpu_uuids: Collection[str], from_ns: int, until_ns: int) -> int:
        """The highest measured of these GPUs in `[from_ns, until_ns)`; -1 when none was."""
        found = -1
        for at_ns, percents in reversed(self._utilisation):
            if at_ns < from_ns:
                break
            if at_ns < until_ns:
                found = max([found, *(percents.get(uuid, -1) for uuid in gpu_uuids)])
        return found

    def value(self, uuid: str, cadence: Cadence, field: Field) -> int | None:
        """The last number of one field, whatever its age; null when it was none."""
        kept = self._gpus.get(uuid)
        if kept is None or cadence not in kept.rows:
            return None
        return kept.rows[cadence][1].values.get(field)

    def at(self, now_ns: int, state: NvmlState, generation: int) -> Reading:
        """Everything that is news at *now_ns*."""
        return Reading(
            state,
            generation,
            {uuid: _reading(uuid, kept, now_ns, state) for uuid, kept in self._gpus.items()},
        )


def _reading(uuid: str, kept: _Kept, now_ns: int, state: NvmlState) -> GpuReading:
    values: dict[Field, int] = {}
    status: dict[Field, Status] = {}
    procs: list[ProcessMemory] | None = None
    proc_util: list[ProcessUtilisation] | None = None
    newest: int | None = None
    for cadence, (at_ns, row) in kept.rows.items():
        newest = at_ns if newest is None else max(newest, at_ns)
        if state != "ok" or now_ns - at_ns > cadence * SECOND_NS + GRACE_NS:
            continue
        values |= row.values
        status |= row.missing
        if row.procs is not None:
            procs = row.procs
        if row.proc_util is not None:
            proc_util = row.proc_util
    otherwise: Status = "not_supported" if kept.state == "mig_enabled" else "stale"
    if kept.state in {"lost", "missing"}:
        otherwise = "error"
    known = {*values, *(["procs"] if procs is not None else [])}
    known |= {"proc_util"} if proc_util is not None else set()
    for field in FIELDS:
        if field not in known:
            status.setdefault(field, otherwise)
    return GpuReading(uuid, kept.state, newest, values, status, procs, proc_util)
