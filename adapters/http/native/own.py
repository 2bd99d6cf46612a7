"""Whose things are: what a caller may act on, and what it may see; anything else is not found."""

from __future__ import annotations

from adapters.http.call import Call
from ledger.errors import NotFoundError
from ledger.services import machines, rentals, volumes
from ledger.services.ledger import Unit
from ledger.services.questions.instances import InstanceView, instance
from ledger.services.questions.machines import MachineView, machine
from ledger.store.database import Connection

# --- to act on -----------------------------------------------------------------------------------


def own_machine(call: Call, connection: Connection, machine_id: int) -> machines.Machine:
    """The machine, if it is the caller's, or the caller an admin.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    host = None if call.is_admin else call.principal.account_id
    return machines.owned(connection, machine_id, host)


def require_own(call: Call, unit: Unit, instance_id: int) -> None:
    """Let a command go on if the instance is the caller's, or the caller an admin.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    if not call.is_admin:
        rentals.owned(unit, instance_id, call.principal.account_id)


def require_own_volume(call: Call, unit: Unit, volume_id: int) -> None:
    """Let a command go on if the volume is the caller's, or the caller an admin.

    Raises:
        NotFoundError: `no_such_volume`.
    """
    if not call.is_admin:
        volumes.owned(unit, volume_id, call.principal.account_id)


# --- to see --------------------------------------------------------------------------------------


def seen_machine(call: Call, connection: Connection, machine_id: int) -> MachineView:
    """A machine that is offered, or one's own, or any for those who see all.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    found = machine(connection, machine_id, call.ledger.clock())
    is_mine = found.host_id == call.principal.account_id
    if not (call.sees_all or is_mine or found.listing is not None):
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return found


def require_insight(call: Call, connection: Connection, machine_id: int) -> None:
    """Let a question about the inside of a machine go on: its host's, or of those who see all.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    machines.owned(connection, machine_id, None if call.sees_all else call.principal.account_id)


async def visible(call: Call, instance_id: int) -> InstanceView:
    """An instance that the caller may see: one's own, one on one's machine, any for those who may.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    found = await call.question(lambda connection: instance(connection, instance_id))
    mine = call.principal.account_id in {
        found.host_id if call.principal.role == "host" else found.account_id
    }
    if not (call.sees_all or mine):
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return found
