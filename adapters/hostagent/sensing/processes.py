"""What the kernel says of a process; never trusted by pid alone, because pids are used again."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Grain of start times."""
_CONTAINER: Final = re.compile(
    r"(?:docker-|cri-containerd-|libpod-|crio-|/docker/|/libpod-)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
_STATE, _STARTED = 0, 19
"""Fields 3 and 22 of `stat`, counted behind the name."""
_GONE: Final = frozenset({b"Z", b"X", b"x"})
_CHUNK: Final = 65_536


class Process(NamedTuple):
    """A living process, told apart from others with its pid by when it started."""

    pid: int
    started_ticks: int
    """Since boot, CLOCK_BOOTTIME, in units of `TICK_NS`, rounded down."""


def contents(path: str) -> bytes:
    """All of a file of the kernel, as bytes: processes choose names that are no text.

    It is read every second for every instance, so without the layers of `Path` and `open`.

    Raises:
        OSError: There is none, or its process has ended.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.read(descriptor, _CHUNK)
        # The kernel hands out long files record by record; only nothing is the end.
        while more := os.read(descriptor, _CHUNK):
            found += more
    finally:
        os.close(descriptor)
    return found


def process(pid: int, proc: Path = PROC) -> Process | None:
    """The process with that pid; null when there is none, or only its remains."""
    try:
        stat = contents(f"{proc}/{pid}/stat")
    except OSError:
        return None
    # The name may hold blanks and brackets; the last bracket ends it.
    fields = stat.rpartition(b")")[2].split(None, _STARTED + 1)
    if len(fields) <= _STARTED or fields[_STATE] in _GONE:
        return None
    return Process(pid, int(fields[_STARTED]))


def container_of(pid: int, proc: Path = PROC) -> str | None:
    """The 64-digit id of the container a process runs in; null when it runs in none."""
    try:
        text = contents(f"{proc}/{pid}/cgroup").decode(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        found = _CONTAINER.search(line)
        if found is not None:
            return found.group(1)
    return None


def inside_pid(pid: int, proc: Path = PROC) -> int | None:
    """The pid that the process has inside its own namespace."""
    try:
        status = contents(f"{proc}/{pid}/status").decode(errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


class Containers:
    """Which container a process runs in, looked up once per process."""

    def __init__(self, proc: Path = PROC) -> None:
        """Look in *proc*."""
        self._proc = proc
        self._known: dict[Process, str | None] = {}

    def of(self, pid: int) -> tuple[Process, str | None] | None:
        """The process and its container; null when there is no such process."""
        found = process(pid, self._proc)
        if found is None:
            return None
        if found not in self._known:
            self._known[found] = container_of(pid, self._proc)
        return found, self._known[found]

    def keep(self, pids: set[int]) -> None:
        """Forget the processes with other pids."""
        self._known = {one: found for one, found in self._known.items() if one.pid in pids}
