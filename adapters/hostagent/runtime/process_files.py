"""Files and processes of the process runtime: whole files, and processes that are never mistaken.

A process is known by its number and when it began: numbers are given again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_EXIT_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01


def write(path: Path, value: dict[str, Any]) -> None:
    """Put *value* there as JSON, whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)


def read(path: Path) -> dict[str, Any] | None:
    """What `write` put there; null when nothing did."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def end_of(path: Path, size: int) -> bytes:
    """The last *size* bytes of a file; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def exit_of(folder: Path) -> dict[str, Any] | None:
    """How a process that is gone ended; its shim may be about to write it down."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while (ended := read(folder / "exit.json")) is None and is_locked(folder / "lock"):
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    return ended or read(folder / "exit.json")


def is_locked(path: Path) -> bool:
    """Whether a shim holds the lock on this file: it lives."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def is_alive(run: dict[str, Any]) -> bool:
    """True while the very process lives that was started, and not one that got its number."""
    start = start_of(run["pid"])
    return start is not None and start == run["pid_start"]


def start_of(pid: int) -> int | None:
    """When a process began, in ticks of the kernel since boot; null when it lives no more."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # names are any bytes
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


@contextlib.contextmanager
def held(run: dict[str, Any]) -> Iterator[int | None]:
    """A descriptor of the process that *run* names; none when it has ended."""
    try:
        descriptor = os.pidfd_open(run["pid"])
    except OSError:
        yield None
        return
    try:
        # Asked after the descriptor is held: the number cannot be given to another one any more.
        yield descriptor if is_alive(run) else None
    finally:
        os.close(descriptor)


def send(descriptor: int, number: signal.Signals) -> None:
    """Signal the process behind *descriptor*; one that has ended does not mind."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def until_gone(descriptor: int, seconds: float) -> None:
    """Wait for the end of the process behind *descriptor*, for so long at most."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(max(0, int(seconds * 1000)))


def reap_later(shim: subprocess.Popen[bytes]) -> None:
    """Wait for a shim on a thread, so that it leaves no zombie and no warning."""
    threading.Thread(target=shim.wait, name="shim", daemon=True).start()
