"""The byte counters of a container's network namespace, as the kernel shows them for a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from adapters.hostagent.sensing.processes import PROC

_LOOPBACK: Final = "lo"
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
    root = proc / str(pid)
    try:
        namespace = (root / "ns/net").stat().st_ino
        if namespace == (proc / "self/ns/net").stat().st_ino:
            return None
        counters = _counters((root / "net/dev").read_text())
        indexes = _indexes(root, set(counters))
    except OSError:
        return None
    return Network(
        namespace,
        [Interface(name, indexes.get(name, 0), up, down) for name, (up, down) in counters.items()],
    )


def uses_host_network(pid: int, proc: Path = PROC) -> bool:
    """True when a container has no network namespace of its own and must be refused."""
    try:
        own = (proc / "self/ns/net").stat().st_ino
        return own == (proc / str(pid) / "ns/net").stat().st_ino
    except OSError:
        return False


def _counters(text: str) -> dict[str, tuple[int, int]]:
    """Bytes sent and received by interface; the first two lines are headings."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, columns = line.partition(":")
        numbers = columns.split()
        if name.strip() != _LOOPBACK and len(numbers) > _TX_COLUMN:
            found[name.strip()] = (int(numbers[_TX_COLUMN]), int(numbers[0]))
    return found


def _indexes(root: Path, names: set[str]) -> dict[str, int]:
    """Indexes by name. `net/dev` has none; these lists name what is up, each for one family."""
    found: dict[str, int] = {}
    for file, index, name, base in (
        ("net/dev_mcast", 0, 1, 10),
        ("net/igmp", 0, 1, 10),
        ("net/if_inet6", 1, 5, 16),
    ):
        if names <= found.keys():
            break
        try:
            text = (root / file).read_text()
        except OSError:
            continue
        for line in text.splitlines():
            words = line.split()
            if len(words) > name and not line[0].isspace() and words[name] in names:
                found.setdefault(words[name], int(words[index], base))
    return found
