"""What a host may end: contracts that expired two days ago, and a machine without contracts."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import (
    Fact,
    MachineKeyRevoked,
    MachineRemoved,
    MachineUnlisted,
    OutageEnded,
)
from ledger.domain.ids import machine_stream, rfc3339
from ledger.domain.instance import DestroyInstance, Instance
from ledger.domain.money import SECONDS_PER_DAY
from ledger.domain.volume import DestroyVolume
from ledger.errors import NotFoundError, RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services import maintenance, volumes
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.rentals import command_all
from ledger.services.volume_offers import withdraw

GRACE_SECONDS: Final = 2 * SECONDS_PER_DAY
"""How long a renter may fetch its data after the contract's end (`marketplace.md` §6)."""
_WISH: Final = DestroyInstance("host", "the contract expired")


def clean_up(unit: Unit, machine_id: int) -> list[int]:
    """Destroy every contract of a machine that ended two days ago or earlier.

    A volume that a living instance still has is left.

    Returns:
        The instances and volumes that were destroyed.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    require_machine(unit.connection, machine_id)
    rows = unit.connection.execute(
        "SELECT instance_id FROM instances WHERE machine_id = %s AND destroyed_at IS NULL"
        " AND status = 'expired' AND until <= %s ORDER BY instance_id",
        [machine_id, unit.now - GRACE_SECONDS],
    ).fetchall()
    destroyed = command_all(unit, [(row[0], _WISH) for row in rows])
    rows = unit.connection.execute(
        "SELECT volume_id FROM volumes v WHERE machine_id = %s AND destroyed_at IS NULL"
        " AND status = 'expired' AND until <= %s AND NOT EXISTS ("
        "SELECT 1 FROM volume_attachments a JOIN instances i USING (instance_id)"
        " WHERE a.volume_id = v.volume_id AND i.destroyed_at IS NULL) ORDER BY volume_id",
        [machine_id, unit.now - GRACE_SECONDS],
    ).fetchall()
    gone = DestroyVolume("host", "the contract expired")
    return destroyed + volumes.command_all(unit, [(row[0], gone) for row in rows])


def destroy_expired(unit: Unit, machine_id: int, instance_id: int) -> None:
    """Destroy one instance in its host's name; again changes nothing.

    Raises:
        NotFoundError: `no_such_instance` on this machine.
        RejectedError: `not_expired` before two days have passed since the contract's end.
    """
    instance = unit.instance(instance_id)
    if instance.machine_id != machine_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    if instance.status != "destroyed":
        _require_expired(unit, instance)
        command_all(unit, [(instance_id, _WISH)])


def _require_expired(unit: Unit, instance: Instance) -> None:
    if instance.status == "expired" and instance.until is not None:
        allowed_at = instance.until + GRACE_SECONDS
        if allowed_at <= unit.now:
            return
        message = f"the renter may fetch its data until {rfc3339(allowed_at)}"
        raise RejectedError("not_expired", message, allowed_at=rfc3339(allowed_at))
    message = "a host can never end a contract before its end"
    raise RejectedError("not_expired", message)


def remove_machine(unit: Unit, machine_id: int) -> None:
    """Take a machine out of the marketplace for good.

    Its keys are revoked, so what its agent still spools is refused; its GPUs can be enrolled again
    in another machine. What it did stays in the books.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `has_contracts` while anything of a renter is on it.
    """
    machine = require_machine(unit.connection, machine_id)
    row = unit.connection.execute(
        f"SELECT count(*) FROM {CONTRACTS} c WHERE machine_id = %s AND destroyed_at IS NULL",  # noqa: S608 - a constant
        [machine_id],
    ).fetchone()
    assert row is not None
    if row[0]:
        message = f"{row[0]} contracts are on machine {machine_id}: they must be destroyed first"
        raise RejectedError("has_contracts", message, contracts=row[0])
    withdraw(unit, machine_id, "machine_removed")
    new: list[Fact] = []
    if machine.listing_id is not None:
        new.append(MachineUnlisted(machine_id=machine_id, unlisted_at=unit.now))
    for window in maintenance.open_windows(unit, machine_id):
        maintenance.call_off(unit, window)
    new += _still_down(unit, machine_id)
    for (key_id,) in unit.connection.execute(
        "SELECT key_id FROM machine_keys WHERE machine_id = %s AND revoked_at IS NULL"
        " ORDER BY enrolled_at, key_id",
        [machine_id],
    ).fetchall():
        new.append(
            MachineKeyRevoked(
                machine_id=machine_id,
                key_id=key_id,
                reason="the machine was removed",
                revoked_at=unit.now,
            )
        )
    unit.append(
        machine_stream(machine_id),
        *new,
        MachineRemoved(machine_id=machine_id, removed_at=unit.now),
    )
    unit.connection.execute("DELETE FROM probe_results WHERE machine_id = %s", [machine_id])


def _still_down(unit: Unit, machine_id: int) -> list[Fact]:
    return [
        OutageEnded(outage_id=row[0], machine_id=machine_id, ended_at=unit.now)
        for row in unit.connection.execute(
            "SELECT outage_id FROM outages WHERE machine_id = %s AND ended_at IS NULL",
            [machine_id],
        )
    ]
