"""How full disks are, and whether they are still there. Warnings only: no bill depends on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from adapters.hostagent.collector.port import Finding
from ledger.domain.usage import HealthKind

FILL_NS: Final = 3600 * 1_000_000_000
"""At most once an hour; nothing is ever walked through."""
GONE_NS: Final = 10 * 1_000_000_000
HIGH_PERCENT: Final = 90
CRITICAL_PERCENT: Final = 98


class DiskUse(NamedTuple):
    """Of the file system that holds a path, or of its project quota where it has one; bytes."""

    total: int
    used: int

    @property
    def percent(self) -> int:
        """Rounded down."""
        return self.used * 100 // self.total if self.total else 0


def disk_use(path: Path) -> DiskUse | None:
    """One question to the kernel, whatever the number of files; null when the path is gone."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    total = found.f_blocks * found.f_frsize
    return DiskUse(total, total - found.f_bavail * found.f_frsize)


class _Watched(NamedTuple):
    filled_ns: int | None
    kind: HealthKind | None
    missing_since_ns: int | None


class Disks:
    """Watches the machine's disk (instance 0) and those of instances."""

    def __init__(self) -> None:
        """Begin with no crossing told."""
        self._disks: dict[tuple[int, Path], _Watched] = {}
        self.gone: set[int] = set()
        """Instances whose disk was missing in two looks 10 s apart."""

    def look(self, instance: int, path: Path, now_ns: int) -> Finding | None:
        """What is new about a disk: it has just become too full, once per crossing."""
        key = (instance, path)
        last = self._disks.get(key, _Watched(None, None, None))
        if not path.exists():
            if key not in self._disks:
                # Never seen: it may lie where the agent cannot look, in a container of its own.
                return None
            since_ns = now_ns if last.missing_since_ns is None else last.missing_since_ns
            self._disks[key] = last._replace(missing_since_ns=since_ns)
            if now_ns - since_ns >= GONE_NS:
                self.gone.add(instance)
            return None
        self.gone.discard(instance)
        last = last._replace(missing_since_ns=None)
        self._disks[key] = last
        if last.filled_ns is not None and now_ns - last.filled_ns < FILL_NS:
            return None
        use = disk_use(path)
        if use is None:
            return None
        kind = crossed(use.percent)
        self._disks[key] = _Watched(now_ns, kind, None)
        if kind is None or last.kind in {kind, "disk_critical"}:
            return None
        return Finding(now_ns, kind, detail=f"{use.percent} % of {use.total // 10**9} GB used")

    def forget(self, keep: set[int]) -> None:
        """Drop the disks of other instances."""
        self._disks = {key: one for key, one in self._disks.items() if key[0] in keep}
        self.gone &= keep


def crossed(percent: int) -> HealthKind | None:
    """The warning that belongs to a fill level."""
    if percent >= CRITICAL_PERCENT:
        return "disk_critical"
    return "disk_high" if percent >= HIGH_PERCENT else None
