"""Ways in: how a running instance is reached is told to the server, and again when it changed.

Not in a report: addresses must be erasable, and a signed report is kept byte for byte.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import structlog

from adapters.hostagent.acting.calls import SignedCalls, is_final
from adapters.hostagent.acting.errand import Errand
from adapters.hostagent.runtime.port import Connection, Found, Runtime, RuntimeUnavailableError

REFRESH_SECONDS: Final = 60.0
"""How often what was told is compared with what is."""
_SSH_PORT: Final = 22

log = structlog.get_logger("gpuledger.agent")


class WaysIn(Errand):
    """Publishes, on a thread of its own, how the instances that run are reached."""

    def __init__(self, calls: SignedCalls, runtime: Runtime, public_ip: str | None) -> None:
        """Ask *runtime*, and send by *calls*; *public_ip* is where renters reach this machine."""
        self._calls = calls
        self._runtime = runtime
        self._public_ip = public_ip
        self._running: tuple[Found, ...] = ()
        self._told: dict[int, dict[str, Any]] = {}
        """Instance → what the server knows of it."""
        super().__init__(
            "ways-in",
            self.publish,
            "a way in could not be told",
            (httpx.HTTPError, RuntimeUnavailableError),
            REFRESH_SECONDS,
        )

    def running(self, found: Collection[Found]) -> None:
        """These instances run now; called at every look, and cheap while nothing changed."""
        before = {(one.instance, one.assignment, one.pid) for one in self._running}
        self._running = tuple(found)
        if {(one.instance, one.assignment, one.pid) for one in found} != before:
            self.call()

    def publish(self) -> None:
        """Tell what is not known yet of the instances that run.

        Raises:
            httpx.HTTPError: The server did not answer.
            RuntimeUnavailableError: The runtime did not answer.
        """
        running = {one.instance: one for one in self._running}
        self._told = {key: one for key, one in self._told.items() if key in running}
        for instance, found in running.items():
            body = way_in(found.assignment, self._runtime.connection(found.id), self._public_ip)
            told = self._told.get(instance)
            if told == body:
                continue
            if told is None and body.keys() == {"assignment", "ports"} and not body["ports"]:
                continue  # There is no way in, and nobody thinks that there is one.
            try:
                self._calls.put(f"/v1/instances/{instance}/connection", body)
            except httpx.HTTPStatusError as error:
                if not is_final(error):
                    raise
                # It was stopped or given away meanwhile; what comes next is told anew.
                log.info("a way in is not wanted any more", instance=instance)
            self._told[instance] = body


def way_in(assignment: int, connection: Connection, public_ip: str | None) -> dict[str, Any]:
    """The request that publishes *connection* for an assignment.

    Addresses are in it only together with a port that is published there.
    """
    address = connection.public_ip or public_ip
    by_port = {one.container_port: one.host_port for one in connection.ports}
    body: dict[str, Any] = {
        "assignment": assignment,
        "ports": [
            {
                "container_port": one.container_port,
                "host_port": one.host_port,
                "protocol": one.protocol,
            }
            for one in connection.ports
        ],
    }
    if connection.digest is not None:
        body["digest"] = connection.digest
    if address is None or not connection.ports:
        return body
    body["public_ip"] = address
    if _SSH_PORT in by_port:
        body |= {"ssh_host": address, "ssh_port": by_port[_SSH_PORT]}
    jupyter = connection.jupyter
    if jupyter is not None and jupyter.container_port in by_port:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{by_port[jupyter.container_port]}/"
        body |= {"jupyter_url": url, "jupyter_token": jupyter.token}
    return body


def public_address(server: str) -> str | None:
    """The address from which this machine reaches *server*, if the world can reach it by that.

    Behind a translation of addresses there is none: the operator says it (`--public-ip`).
    """
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        places = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, place in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)  # of a datagram socket: nothing is sent
                own = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
        except OSError:
            continue
        if own.is_global:
            return str(own)
    return None
