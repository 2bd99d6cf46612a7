"""Machines: registered by a host, enrolled by their agent."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final, NamedTuple

from ledger.domain.events import (
    EnrolmentOffered,
    MachineEnrolled,
    MachineKeyRevoked,
    MachineRegistered,
    MachineSpec,
)
from ledger.domain.hardware import Inventory
from ledger.domain.ids import machine_stream
from ledger.domain.usage import key_id_of
from ledger.errors import AuthError, NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.store.database import Connection

MAX_GPUS: Final = 16
ENROLMENT_SECONDS: Final = 3_600
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
_MAX_MBPS = 10_000_000
_MAX_SIZE = 2**31 - 1


class Enrolled(NamedTuple):
    """What the agent needs to know after enrolment."""

    machine_id: int
    key_id: str


def register(unit: Unit, host_id: int, spec: MachineSpec) -> int:
    """Register a machine of a host and return its id.

    Raises:
        RejectedError: `too_many_gpus` above 16, `invalid_args` for sizes that cannot be.
    """
    if spec.gpus > MAX_GPUS:
        raise RejectedError("too_many_gpus", f"a machine has at most {MAX_GPUS} GPUs")
    sizes = (spec.gpus, spec.cpu_cores, spec.ram_gb, spec.disk_gb, spec.gpu_ram_gb)
    links = (spec.up_mbps, spec.down_mbps)
    if min(*sizes, *links) < 1 or max(sizes) > _MAX_SIZE or max(links) > _MAX_MBPS:
        message = "every size of a machine is at least 1, and a link at most 10,000,000 Mbit/s"
        raise RejectedError("invalid_args", message)
    machine_id = unit.next_id("machine")
    unit.append(
        machine_stream(machine_id),
        MachineRegistered(
            machine_id=machine_id, host_id=host_id, spec=spec, registered_at=unit.now
        ),
    )
    return machine_id


def offer_enrolment(unit: Unit, machine_id: int) -> str:
    """Make a one-time token, valid for an hour, with which the machine's agent enrols."""
    require_machine(unit.connection, machine_id)
    token = f"gle_{secrets.token_urlsafe(32)}"
    unit.append(
        machine_stream(machine_id),
        EnrolmentOffered(
            machine_id=machine_id,
            expires_at=unit.now + ENROLMENT_SECONDS,
            offered_at=unit.now,
        ),
    )
    unit.connection.execute(
        "INSERT INTO enrolment_tokens (token_sha256, machine_id, expires_at) VALUES (%s, %s, %s)",
        [hashlib.sha256(token.encode()).digest(), machine_id, unit.now + ENROLMENT_SECONDS],
    )
    return token


def enrol(
    unit: Unit,
    token: str,
    public_key: str,
    gpu_uuids: list[str],
    inventory: Inventory | None = None,
) -> Enrolled:
    """Bind an Ed25519 public key (64 hex digits) and GPUs, in slot order, to the token's machine.

    The same token with the same key again is the same enrolment, so a lost answer can be repeated.

    Raises:
        AuthError: The token is unknown, expired, or was used for another key.
        RejectedError: `invalid_args`, or `gpu_taken` when a GPU belongs to another machine.
    """
    row = unit.connection.execute(
        "SELECT machine_id, expires_at, used_at FROM enrolment_tokens WHERE token_sha256 = %s",
        [hashlib.sha256(token.encode()).digest()],
    ).fetchone()
    if row is None:
        raise AuthError("auth_error", "the enrolment token is not valid")
    machine_id, expires_at, used_at = row
    if not _PUBLIC_KEY.fullmatch(public_key):
        raise RejectedError("invalid_args", "a public key is 32 bytes in lower-case hexadecimal")
    key_id = key_id_of(bytes.fromhex(public_key))
    if used_at is not None:
        known = unit.connection.execute(
            "SELECT 1 FROM machine_keys WHERE machine_id = %s AND public_key = %s",
            [machine_id, bytes.fromhex(public_key)],
        ).fetchone()
        if known is None:
            raise AuthError("auth_error", "the enrolment token was used before")
        return Enrolled(machine_id, key_id)
    if expires_at <= unit.now:
        raise AuthError("auth_error", "the enrolment token has expired; ask for a new one")
    machine = require_machine(unit.connection, machine_id)
    _check_gpus(unit, machine_id, machine.gpus, gpu_uuids)
    unit.append(
        machine_stream(machine_id),
        MachineEnrolled(
            machine_id=machine_id,
            key_id=key_id,
            public_key=public_key,
            gpu_uuids=gpu_uuids,
            inventory=inventory,
            enrolled_at=unit.now,
        ),
    )
    unit.connection.execute(
        "UPDATE enrolment_tokens SET used_at = %s WHERE token_sha256 = %s",
        [unit.now, hashlib.sha256(token.encode()).digest()],
    )
    return Enrolled(machine_id, key_id)


def _check_gpus(unit: Unit, machine_id: int, gpus: int, gpu_uuids: list[str]) -> None:
    if len(gpu_uuids) != gpus or len(set(gpu_uuids)) != gpus:
        message = f"the machine was registered with {gpus} GPUs; give that many different UUIDs"
        raise RejectedError("invalid_args", message)
    if any(not one or len(one) > 128 for one in gpu_uuids):  # noqa: PLR2004 - far above a UUID
        raise RejectedError("invalid_args", "a GPU UUID is 1 to 128 characters")
    rows = unit.connection.execute(
        "SELECT gpu_uuid, machine_id FROM gpus WHERE gpu_uuid = ANY(%s) OR machine_id = %s",
        [gpu_uuids, machine_id],
    ).fetchall()
    if any(owner != machine_id for _, owner in rows):
        raise RejectedError("gpu_taken", "one of these GPUs belongs to another machine")
    if rows and {one for one, _ in rows} != set(gpu_uuids):
        message = "the machine was enrolled with other GPUs before"
        raise RejectedError("invalid_args", message)


def revoke_key(unit: Unit, machine_id: int, key_id: str, reason: str) -> None:
    """Refuse everything that arrives under this key from now on."""
    row = unit.connection.execute(
        "SELECT revoked_at FROM machine_keys WHERE machine_id = %s AND key_id = %s",
        [machine_id, key_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_key", f"machine {machine_id} has no key {key_id!r}")
    if row[0] is None:
        unit.append(
            machine_stream(machine_id),
            MachineKeyRevoked(
                machine_id=machine_id, key_id=key_id, reason=reason, revoked_at=unit.now
            ),
        )


class Machine(NamedTuple):
    """What decisions need to know of a machine."""

    machine_id: int
    host_id: int
    gpus: int
    disk_gb: int
    enrolled_at: int | None
    boot_id: str | None
    offline_since: int | None
    listing_id: int | None
    floor: int | None
    """Lowest bid per GPU of the last listing, nanos per hour; none: it takes no bids."""
    stopped_for_maintenance: bool
    below_bars: bool
    """Known to miss a minimum of this market: not rented anew."""


def require_machine(connection: Connection, machine_id: int) -> Machine:
    """The machine.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    row = connection.execute(
        "SELECT m.machine_id, m.host_id, m.gpus, m.disk_gb, m.enrolled_at, m.boot_id,"
        " m.offline_since, m.listing_id, m.floor, s.stopped_for_maintenance, s.below_bars"
        " FROM machines m JOIN machine_standing s USING (machine_id) WHERE m.machine_id = %s",
        [machine_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return Machine(*row)._replace(floor=None if row[8] is None else int(row[8]))


def owned(connection: Connection, machine_id: int, host_id: int | None) -> Machine:
    """The machine, if it is this host's; of anybody where none is named.

    Raises:
        NotFoundError: `no_such_machine`, also for somebody else's.
    """
    machine = require_machine(connection, machine_id)
    if host_id is not None and machine.host_id != host_id:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return machine


def last_contact(connection: Connection, machine_id: int) -> int | None:
    """When the last report of a machine arrived; none if none ever did."""
    row = connection.execute(
        "SELECT max(recorded_at) FROM stream_heads WHERE machine_id = %s", [machine_id]
    ).fetchone()
    return None if row is None else row[0]
