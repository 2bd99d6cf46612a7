"""The byte counters of a container's network namespace, as the kernel shows them for a process."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from adapters.hostagent.sensing.processes import PROC, contents

_LOOPBACK: Final = b"lo"
_TX_COLUMN: Final = 8


class Interface(NamedTuple):
    """One interface as seen inside: what is sent goes up, what is received comes down."""

    name: str
    ifindex: int
    up: int
    down: int


class Network(NamedTuple):
    """The interfaces of a namespace, without loopback."""

    namespace: int
    """Inode of the namespace; it may be used again after a reboot."""
    interfaces: list[Interface]


def read_network(pid: int, proc: Path = PROC) -> Network | None:
    """The network that a process sees; null when the process is gone, or has the host's own.

    The host's own counts everybody's bytes: a container that uses it cannot be metered.
    """
    root = f"{proc}/{pid}"
    try:
        namespace = os.stat(f"{root}/ns/net").st_ino
        if namespace == _own_namespace(f"{proc}"):
            return None
        counters = _counters(contents(f"{root}/net/dev"))
        indexes = _indexes(root, set(counters))
    except OSError:
        return None
    return Network(
        namespace,
        [
            Interface(_text(name), indexes.get(name, 0), up, down)
            for name, (up, down) in counters.items()
        ],
    )


@cache
def _own_namespace(proc: str) -> int:
    """This process's: it never changes."""
    return os.stat(f"{proc}/self/ns/net").st_ino


def _text(name: bytes) -> str:
    """A name; bytes that are no text are written out, so that two names stay two."""
    return name.decode(errors="backslashreplace")


def uses_host_network(pid: int, proc: Path = PROC) -> bool:
    """True when a container has no network namespace of its own and must be refused."""
    try:
        own = (proc / "self/ns/net").stat().st_ino
        return own == (proc / str(pid) / "ns/net").stat().st_ino
    except OSError:
        return False


def _counters(dev: bytes) -> dict[bytes, tuple[int, int]]:
    """Bytes sent and received by interface; the first two lines are headings."""
    found = {}
    for line in dev.split(b"\n")[2:]:
        # Renters name interfaces, in any bytes but blanks, colons and ends of lines.
        name, _, columns = line.partition(b":")
        numbers = columns.split(None, _TX_COLUMN + 1)
        name = name.strip()
        if name != _LOOPBACK and len(numbers) > _TX_COLUMN:
            found[name] = (int(numbers[_TX_COLUMN]), int(numbers[0]))
    return found


def _indexes(root: str, names: set[bytes]) -> dict[bytes, int]:
    """Indexes by name. `net/dev` has none; these lists name what is up, each for one family."""
    found: dict[bytes, int] = {}
    for file, index, name, base in (
        ("net/dev_mcast", 0, 1, 10),
        ("net/igmp", 0, 1, 10),
        ("net/if_inet6", 1, 5, 16),
    ):
        if names <= found.keys():
            break
        try:
            rows = contents(f"{root}/{file}").split(b"\n")
        except OSError:
            continue
        for row in rows:
            words = row.split()
            if len(words) > name and not row[:1].isspace() and words[name] in names:
                found.setdefault(words[name], int(words[index], base))
    return found
