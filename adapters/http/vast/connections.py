"""How an instance is reached, as far as its host has said so."""

from __future__ import annotations

from typing import Any

from adapters.http.vast.wire import Json
from ledger.domain.events import PublishedPort
from ledger.services.connections import Addresses, WayIn

_NONE = -1
_SSH = 22


def connection_columns(way: WayIn | None) -> Json:
    """Addresses and ports; none is null, as clients cut and count them."""
    ports = [] if way is None else way.ports
    known = Addresses() if way is None or way.addresses is None else way.addresses
    direct = [one.host_port for one in ports]
    ssh = next((one.host_port for one in ports if _is_ssh(one)), 0)
    public = known.public_ip or ""
    return {
        "ssh_host": known.ssh_host or (public if ssh else ""),
        "ssh_port": known.ssh_port or ssh,
        "ssh_idx": "",
        "machine_dir_ssh_port": ssh,
        "public_ipaddr": public,
        "local_ipaddrs": "",
        "ports": _published(ports),
        "direct_port_start": min(direct, default=_NONE),
        "direct_port_end": max(direct, default=_NONE),
        "direct_port_count": len(direct) or _NONE,
        "jupyter_token": known.jupyter_token or "",
    }


def _is_ssh(port: PublishedPort) -> bool:
    return (port.container_port, port.protocol) == (_SSH, "tcp")


def _published(ports: list[PublishedPort]) -> dict[str, list[dict[str, Any]]]:
    """Container port → where it is published, as container runtimes write it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in ports:
        place = {"HostIp": "0.0.0.0", "HostPort": str(one.host_port)}  # noqa: S104 - any address of the host
        found.setdefault(f"{one.container_port}/{one.protocol}", []).append(place)
    return found
