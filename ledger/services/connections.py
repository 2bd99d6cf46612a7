"""Ways into a container: published by its machine's host, shown to its renter (§20).

Ports are in the log; addresses and passwords are sealed under the renter's subject and destroyed
with the instance. A way in holds as long as the assignment that it was published for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ledger.domain.events import PublishedPort
from ledger.domain.image import is_digest
from ledger.domain.instance import PublishConnection
from ledger.errors import RejectedError
from ledger.services.instance_keys import connection_name
from ledger.services.ledger import Unit
from ledger.services.rentals import command
from ledger.services.subjects import require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

PORTS_MAX = 256
_PORT_MAX = 65_535
_Text = Annotated[str, Meta(max_length=512, pattern=r"^[\x20-\x7e]*\Z")]
_Port = Annotated[int, Meta(ge=1, le=_PORT_MAX)]


class Addresses(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Where the container is reached; null where there is no such way."""

    public_ip: _Text | None = None
    ssh_host: _Text | None = None
    ssh_port: _Port | None = None
    jupyter_url: _Text | None = None
    jupyter_token: _Text | None = None


def addresses_of(**given: object) -> Addresses:
    """Addresses of what somebody sent.

    Raises:
        RejectedError: `invalid_args`; the message names the field.
    """
    try:
        return msgspec.convert(given, Addresses)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid_args", f"connection: {error}") from None


class WayIn(msgspec.Struct, frozen=True, kw_only=True):
    """How one gets into a container that runs now; the addresses are none once erased."""

    instance_id: int
    assignment_no: int
    ports: list[PublishedPort]
    addresses: Addresses | None
    digest: str | None
    published_at: int


def publish(
    unit: Unit,
    instance_id: int,
    assignment: int,
    ports: Sequence[PublishedPort],
    addresses: Addresses,
    digest: str | None = None,
) -> None:
    """Say how one gets into the container of an assignment; the same again changes nothing.

    Raises:
        NotFoundError: `no_such_instance`, also for one that was destroyed, or `erased`.
        RejectedError: `stale_assignment` when another assignment runs, or none; `invalid_args`.
    """
    _check(ports, digest)
    row = unit.connection.execute(
        "SELECT i.account_id, c.assignment_no, c.ports, c.addresses_hash, c.digest"
        " FROM instances i LEFT JOIN connections c USING (instance_id) WHERE i.instance_id = %s",
        [instance_id],
    ).fetchone()
    account_id = unit.instance(instance_id).account_id if row is None else row[0]
    sealed = msgspec.json.encode(addresses, order="sorted")
    is_empty = addresses == Addresses()
    addresses_hash = None if is_empty else unit.vault.keyed_hash(f"way-in/{sealed.decode()}")
    shown = msgspec.to_builtins(list(ports))
    if row is not None and tuple(row[1:]) == (assignment, shown, addresses_hash, digest):
        return
    reference = None
    if not is_empty:
        subject = require_subject(unit.connection, account_id)
        unit.vault.put(unit.connection, subject, connection_name(instance_id), sealed)
        reference = f"{subject}/{connection_name(instance_id)}"
    wish = PublishConnection(assignment, tuple(ports), reference, addresses_hash, digest)
    command(unit, instance_id, wish)


def way_into(connection: Connection, vault: Vault, instance_id: int) -> WayIn | None:
    """How one gets into an instance that runs; none where its host has not said so yet."""
    return ways_into(connection, vault, [instance_id]).get(instance_id)


def ways_into(
    connection: Connection, vault: Vault, instance_ids: Sequence[int]
) -> dict[int, WayIn]:
    """How one gets into those of some instances that run and whose hosts have said so."""
    rows = connection.execute(
        "SELECT c.instance_id, c.assignment_no, c.ports, c.addresses, c.digest, c.published_at"
        " FROM connections c JOIN instances i USING (instance_id) WHERE c.instance_id = ANY(%s)"
        " AND c.assignment_no = i.assignment_no AND i.status IN ('loading', 'running')",
        [list(instance_ids)],
    ).fetchall()
    places = {row[3]: row[3].partition("/")[::2] for row in rows if row[3] is not None}
    texts = vault.open_all(connection, list(places.values()))
    found = {}
    for row in rows:
        text = texts.get(places[row[3]]) if row[3] is not None else None
        found[row[0]] = WayIn(
            instance_id=row[0],
            assignment_no=row[1],
            ports=msgspec.convert(row[2], list[PublishedPort]),
            addresses=None if text is None else msgspec.json.decode(text, type=Addresses),
            digest=row[4],
            published_at=row[5],
        )
    return found


def _check(ports: Sequence[PublishedPort], digest: str | None) -> None:
    if len(ports) > PORTS_MAX:
        raise RejectedError("invalid_args", f"a container publishes at most {PORTS_MAX} ports")
    for one in ports:
        numbers = (one.container_port, one.host_port)
        if not all(1 <= number <= _PORT_MAX for number in numbers):
            raise RejectedError("invalid_args", "a port is 1 to 65535")
        if one.protocol not in {"tcp", "udp"}:
            raise RejectedError("invalid_args", "a port's protocol is tcp or udp")
    if digest is not None and not is_digest(digest):
        raise RejectedError("invalid_args", "a digest is sha256: and 64 hexadecimal digits")
