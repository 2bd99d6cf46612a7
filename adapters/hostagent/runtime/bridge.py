"""Networks of instances of the process runtime: a link each, an address each, ports of the host.

What an instance has is written into its `meta.json` (`slot`, `ports`), so a new agent goes on with
it. A link lives as long as the processes of its instance: the kernel takes it away with them.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import time
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final, NamedTuple

from adapters.hostagent.runtime import firewall
from adapters.hostagent.runtime.port import LaunchError, PortWish, RuntimeFault

ADDRESSES: Final = IPv4Network("10.249.0.0/16")
_PREFIX: Final = 30
"""Of one link: two addresses, the host's and the instance's."""
_MEND_SECONDS: Final = 60.0
"""How often the rules are put in place again: others flush them."""
_FIRST_PORT: Final = 1_024
"""Ports of the host below this are not given away."""
_FREE_PORTS: Final = range(32_768, 61_000)
_TRIES: Final = 1_000
_ROUTES: Final = Path("/proc/net/route")
_RESOLV: Final = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_PUBLIC_NAME_SERVERS: Final = ("1.1.1.1", "8.8.8.8")
_LOOPBACK: Final = ("127.", "::1", "fe80")

Meta = dict[str, Any]


class Link(NamedTuple):
    """Both ends of an instance's link."""

    name: str
    """Of the interface on the host."""
    host: IPv4Address
    guest: IPv4Address


class Bridge:
    """Gives instances addresses and ports, and keeps the rules of the firewall."""

    def __init__(self, addresses: IPv4Network = ADDRESSES) -> None:
        """Give addresses out of *addresses*, four to an instance."""
        self.addresses = addresses
        self._mended_at: float | None = None
        self._ports: Sequence[firewall.Published] = ()

    def place(self, meta: Meta, wishes: Sequence[PortWish], others: Collection[Meta]) -> Meta:
        """The slot and the ports of an instance that is to start; what it had it keeps.

        Args:
            meta: What is known of it.
            wishes: Ports that it is to have.
            others: All other instances.

        Raises:
            LaunchError: `runtime_failed`, there is no address or port left.
        """
        taken = {one["slot"] for one in others if "slot" in one}
        slots = range(self.addresses.num_addresses >> (32 - _PREFIX))
        slot = meta.get("slot")
        if slot is None or slot in taken or slot not in slots:
            slot = next((one for one in slots if one not in taken), None)
        if slot is None:
            message = f"no address is left in {self.addresses}"
            raise LaunchError("runtime_failed", message)
        had = {(number, protocol): host for number, protocol, host in meta.get("ports", ())}
        used = {(protocol, host) for one in others for _, protocol, host in one.get("ports", ())}
        ports: list[list[Any]] = []
        for wish in wishes:
            host = had.get((wish.container_port, wish.protocol)) or _free_port(wish, used)
            used.add((wish.protocol, host))
            ports.append([wish.container_port, wish.protocol, host])
        return {"slot": slot, "ports": ports}

    def link(self, slot: int) -> Link:
        """The link of a slot."""
        base = self.addresses.network_address + slot * 4
        return Link(f"{firewall.LINKS}{slot}", base + 1, base + 2)

    def orders(self, meta: Meta, folder: Path) -> dict[str, Any]:
        """What the shim is told; its name servers are written into *folder*."""
        link = self.link(meta["slot"])
        resolv = folder / "resolv.conf"
        resolv.write_text("".join(f"nameserver {one}\n" for one in name_servers()))
        resolv.chmod(0o644)
        return {
            "name": link.name,
            "host": str(link.host),
            "guest": str(link.guest),
            "prefix": _PREFIX,
            "resolv": str(resolv),
        }

    def keep(self, metas: Collection[Meta], *, is_due: bool = True) -> None:
        """Put the rules for these instances in place, or take them away where none is left.

        Args:
            metas: All instances there are.
            is_due: At once; else at most once a minute, and when ports are others than last time.

        Raises:
            firewall.FirewallError: They could not be put in place.
        """
        mine = [one for one in metas if "slot" in one]
        ports = [
            firewall.Published(host, protocol, self.link(one["slot"]).guest, number)
            for one in mine
            for number, protocol, host in one["ports"]
        ]
        now = time.monotonic()
        is_old = self._mended_at is None or now - self._mended_at >= _MEND_SECONDS
        if not (is_due or is_old or ports != self._ports):
            return
        self._mended_at, self._ports = now, ports
        if mine:
            firewall.put(self.addresses, ports)
        else:
            firewall.remove()

    def faults(self) -> list[RuntimeFault]:
        """What this machine lacks for it."""
        found = []
        if shutil.which("ip") is None:
            found.append(RuntimeFault("there is no `ip`: nothing starts", "install iproute2"))
        if firewall.tool() is None:
            what = "there is neither iptables nor nft: instances have no way out, nothing starts"
            found.append(RuntimeFault(what, "install nftables, or run with --network own"))
        for route in _routes():
            if route.overlaps(self.addresses):
                what = f"the addresses of instances, {self.addresses}, clash with route {route}"
                found.append(RuntimeFault(what, "choose others with --network-range"))
        return found


def name_servers() -> list[str]:
    """Those of the host that can be reached from another network than its own, or public ones."""
    for path in _RESOLV:
        found = []
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                words = line.split()
                if words[:1] == ["nameserver"] and len(words) > 1:
                    found.append(words[1])
        found = [one for one in found if not one.startswith(_LOOPBACK) and ":" not in one]
        if found:
            return found
    return list(_PUBLIC_NAME_SERVERS)


def _free_port(wish: PortWish, used: Collection[tuple[str, int]]) -> int:
    """The port of the host that was wished, if nobody has it, or any other."""
    wished = [] if wish.host_port is None or wish.host_port < _FIRST_PORT else [wish.host_port]
    others = (secrets.choice(_FREE_PORTS) for _ in range(_TRIES))
    for port in (*wished, *others):
        if (wish.protocol, port) not in used and _is_free(port, wish.protocol):
            return port
    message = "no port of the host is free"
    raise LaunchError("runtime_failed", message)


def _is_free(port: int, protocol: str) -> bool:
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - to see whether anybody has it
        except OSError:
            return False
    return True


def _routes() -> list[IPv4Network]:
    """Networks that the host reaches by something else than our links, and not by default."""
    found = []
    with contextlib.suppress(OSError):
        for line in _ROUTES.read_text().splitlines()[1:]:
            words = line.split()
            if words[0].startswith(firewall.LINKS) or words[1] == "00000000":
                continue
            address, mask = (int.from_bytes(bytes.fromhex(words[at])[::-1]) for at in (1, 7))
            found.append(IPv4Network((address, mask.bit_count())))
    return found
