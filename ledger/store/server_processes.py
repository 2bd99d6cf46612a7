"""The processes of one embedded cluster, and the end of those that a killed server left."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROC = Path("/proc")


def can_list_processes() -> bool:
    """Whether this system has `/proc`; without it the locks alone tell what runs."""
    return (_PROC / "self/cmdline").exists()


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie, which has no command line."""
    if can_list_processes():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes() != b""
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def server_processes(uid: int, cluster_name: str, data_dir: Path) -> list[int]:
    """Process ids of a cluster's postmaster and its children, found by user and command line.

    The command line of a child begins with the cluster's name. Everybody may read it, while the
    working directory of another user's process is hidden even from root in a container.
    """
    child_title = f"postgres: {cluster_name}: ".encode()
    data_argument = os.fsencode(data_dir)
    found = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            if entry.stat().st_uid != uid:
                continue
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        program, *arguments = command.split(b"\0")
        is_postmaster = program.endswith(b"/postgres") and data_argument in arguments
        if is_postmaster or command.startswith(child_title):
            found.append(int(entry.name))
    return found


def end_orphans(pids: Iterable[int], *, by_force: bool) -> None:
    """End processes whose postmaster is dead: what they did not commit is lost either way."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if by_force else signal.SIGQUIT)
