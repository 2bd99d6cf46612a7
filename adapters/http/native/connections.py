"""How one gets into a container: what its machine's host publishes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, put
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from adapters.http.call import HOST, Caller, allowed
from adapters.http.native.instances import WayIntoInstance, shown_connection
from adapters.http.wire import Body
from ledger.domain.events import PublishedPort
from ledger.errors import NotFoundError
from ledger.services import connections as use_cases
from ledger.services.ledger import Unit

_Port = Annotated[int, Meta(ge=1, le=65_535)]


class NewPort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of the container, and where the host publishes it."""

    container_port: _Port
    host_port: _Port
    protocol: str = "tcp"


class NewConnection(Body):
    """How one gets into the container of an assignment."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "assignment": 1,
        "ports": [{"container_port": 22, "host_port": 40022}],
        "public_ip": "203.0.113.9",
        "ssh_host": "203.0.113.9",
        "ssh_port": 40022,
        "digest": "sha256:" + "5e" * 32,
    }

    assignment: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    ports: Annotated[list[NewPort], Meta(max_length=use_cases.PORTS_MAX)] = msgspec.field(
        default_factory=list
    )
    public_ip: str | None = None
    ssh_host: str | None = None
    ssh_port: _Port | None = None
    jupyter_url: str | None = None
    jupyter_token: str | None = None
    digest: str | None = None
    """Which image really runs there."""


@put(
    "/v1/instances/{instance_id:int}/connection",
    opt=allowed(*HOST, machine=True),
    summary="Publish a way in",
)
async def publish_connection(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewConnection]
) -> Response[WayIntoInstance]:
    """Say how one gets into a container on one's machine; the same again changes nothing.

    Another assignment than the one that runs is `stale_assignment`.
    """
    ports = [
        PublishedPort(
            container_port=one.container_port, host_port=one.host_port, protocol=one.protocol
        )
        for one in data.ports
    ]
    addresses = use_cases.addresses_of(
        public_ip=data.public_ip,
        ssh_host=data.ssh_host,
        ssh_port=data.ssh_port,
        jupyter_url=data.jupyter_url,
        jupyter_token=data.jupyter_token,
    )

    def do(unit: Unit) -> WayIntoInstance:
        instance = unit.instance(instance_id)
        is_own = call.is_admin or instance.host_id == call.principal.account_id
        if not is_own or call.machine_id not in {None, instance.machine_id}:
            raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
        use_cases.publish(unit, instance_id, data.assignment, ports, addresses, data.digest)
        way = use_cases.way_into(unit.connection, unit.vault, instance_id)
        assert way is not None
        return shown_connection(way)

    return await call.command(do, secret=True)


HANDLERS = [publish_connection]
