"""Renting: create, start, stop, reboot, destroy, and the decision that follows each of them.

Who may do what to which instance is checked by `owned`; the rules of the states are the domain's
(`ledger.domain.instance`). After every change of a machine, `settle` grants free GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ledger.domain.auction import Waiting, allocate
from ledger.domain.events import Fact, InstanceCreated, Terms
from ledger.domain.ids import instance_stream
from ledger.domain.instance import (
    DestroyInstance,
    GrantGpus,
    Instance,
    InstanceCommand,
    LabelInstance,
    RebootInstance,
    StartInstance,
    StopInstance,
    decide,
)
from ledger.domain.money import BYTES_PER_GB, format_dollars
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services.credit import admission_cost, lock_credit
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, last_contact, require_machine

_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
_MAX_LAUNCH_BYTES: Final = 65_536


class Listing(msgspec.Struct, frozen=True):
    """The prices at which a machine is offered now."""

    listing_id: int
    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int
    down_rate: int
    min_gpus: int
    until: int | None


def rent(
    unit: Unit,
    account_id: int,
    machine_id: int,
    *,
    gpus: int | None = None,
    disk_gb: int,
    label: str | None = None,
    wait: bool = False,
    launch: Mapping[str, object] | None = None,
) -> int:
    """Rent GPUs of a listed machine on demand and return the instance's id.

    Args:
        unit: The command's transaction.
        account_id: Who pays.
        machine_id: Which machine.
        gpus: How many of its GPUs; all by default.
        disk_gb: Size of the disk, billed until the instance is destroyed.
        label: A name of the renter's own.
        wait: Create it in `scheduling` when the GPUs are taken, instead of refusing.
        launch: Image, environment and commands; kept in the vault, never in the log.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `no_such_ask` when it is not listed, `invalid_args` for a slice or disk that
            it does not have.
        DeclinedError: `no_capacity` when the GPUs are taken or the machine is offline and *wait* is
            off; `insufficient_credit`.
    """
    machine = require_machine(unit.connection, machine_id)
    listing = require_listing(unit, machine)
    gpus = machine.gpus if gpus is None else gpus
    _check_slice(machine, listing, gpus, disk_gb)
    check_label(label)
    terms = _terms(unit, machine, listing, account_id, gpus)
    disk_bytes = disk_gb * BYTES_PER_GB
    _require_disk(unit, machine, disk_gb)
    fits = _is_online(unit, machine) and gpus <= len(free_slots(unit, machine))
    if not fits and not wait:
        message = f"machine {machine_id} has no {gpus} free GPUs now"
        raise DeclinedError("no_capacity", message)
    _admit(unit, account_id, terms, disk_bytes)
    instance_id = unit.next_id("instance")
    reference, launch_hash = _keep_launch(unit, account_id, instance_id, launch)
    unit.append(
        instance_stream(instance_id),
        InstanceCreated(
            instance_id=instance_id,
            account_id=account_id,
            machine_id=machine_id,
            host_id=machine.host_id,
            listing_id=listing.listing_id,
            gpus=gpus,
            disk_bytes=disk_bytes,
            terms=terms,
            until=listing.until,
            label=label,
            launch=reference,
            launch_hash=launch_hash,
            policy_version=unit.policy.version,
            reason="new" if fits else "no_capacity",
            created_at=unit.now,
        ),
    )
    settle(unit, machine_id)
    return instance_id


def start(unit: Unit, instance_id: int) -> None:
    """Let a stopped instance run again, as soon as its GPUs are free.

    Raises:
        RejectedError: `contract_expired`.
        DeclinedError: `insufficient_credit`.
    """
    instance = unit.instance(instance_id)
    new = decide(instance, StartInstance(), unit.now)
    if new:
        _admit(unit, instance.account_id, instance.terms, instance.disk_bytes)
        unit.append(instance_stream(instance_id), *new)
        settle(unit, instance.machine_id)


def stop(unit: Unit, instance_id: int, *, by_admin: bool = False) -> None:
    """End the GPU meter now; the disk is kept, and its meter goes on."""
    command(unit, instance_id, StopInstance("admin" if by_admin else "renter"))


def reboot(unit: Unit, instance_id: int) -> None:
    """Restart the container in place; GPUs and priority are kept.

    Raises:
        RejectedError: `not_running`.
    """
    command(unit, instance_id, RebootInstance())


def label(unit: Unit, instance_id: int, text: str | None) -> None:
    """Give an instance another label, or none."""
    check_label(text)
    command(unit, instance_id, LabelInstance(text))


def destroy(
    unit: Unit, instance_id: int, *, by_admin: bool = False, reason: str | None = None
) -> None:
    """End every meter now; destroying again changes nothing."""
    command(unit, instance_id, DestroyInstance("admin" if by_admin else "renter", reason))


def command(unit: Unit, instance_id: int, wish: InstanceCommand) -> None:
    """Carry out one command on one instance and decide anew who gets its machine's GPUs."""
    instance = unit.instance(instance_id)
    new = decide(instance, wish, unit.now)
    if new:
        unit.append(instance_stream(instance_id), *new)
        settle(unit, instance.machine_id)


def command_all(unit: Unit, wishes: Iterable[tuple[int, InstanceCommand]]) -> list[int]:
    """Carry out commands on many instances as one change; returns those that it concerned."""
    new: list[tuple[str, Fact]] = []
    machines: list[int] = []
    changed = []
    for instance_id, wish in wishes:
        instance = unit.instance(instance_id)
        decided = decide(instance, wish, unit.now)
        if decided:
            changed.append(instance_id)
            machines.append(instance.machine_id)
            new.extend((instance_stream(instance_id), fact) for fact in decided)
    unit.append_all(new)
    for machine_id in dict.fromkeys(machines):
        settle(unit, machine_id)
    return changed


def owned(unit: Unit, instance_id: int, account_id: int) -> Instance:
    """The instance, if it is this account's.

    Raises:
        NotFoundError: `no_such_instance`, also for somebody else's.
    """
    instance = unit.instance(instance_id)
    if instance.account_id != account_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return instance


# --- who gets GPUs -------------------------------------------------------------------------------


def settle(unit: Unit, machine_id: int) -> list[int]:
    """Grant a machine's free GPUs to those who wait for them; returns who got some."""
    waiting = [
        Waiting(*row)
        for row in unit.connection.execute(
            "SELECT instance_id, gpus, requested_position FROM instances"
            " WHERE machine_id = %s AND destroyed_at IS NULL AND status = 'scheduling'"
            " ORDER BY requested_position",
            [machine_id],
        )
    ]
    if not waiting:
        return []
    machine = require_machine(unit.connection, machine_id)
    if not _is_online(unit, machine):
        return []
    uuids: dict[int, str] = dict(
        unit.connection.execute(
            "SELECT slot, gpu_uuid FROM gpus WHERE machine_id = %s", [machine_id]
        ).fetchall()
    )
    granted = []
    new: list[tuple[str, Fact]] = []
    for grant in allocate(free_slots(unit, machine), waiting):
        instance = unit.instance(grant.instance_id)
        wish = GrantGpus(grant.slots, tuple(uuids[slot] for slot in grant.slots))
        new.extend(
            (instance_stream(grant.instance_id), fact) for fact in decide(instance, wish, unit.now)
        )
        granted.append(grant.instance_id)
    unit.append_all(new)
    return granted


def free_slots(unit: Unit, machine: Machine) -> list[int]:
    """Slots of the machine that nobody holds, ascending."""
    rows = unit.connection.execute(
        "SELECT g.slot FROM gpus g WHERE g.machine_id = %s AND NOT EXISTS ("
        " SELECT 1 FROM gpu_assignments a WHERE a.machine_id = g.machine_id"
        " AND a.slot = g.slot AND upper_inf(a.during)) ORDER BY g.slot",
        [machine.machine_id],
    )
    return [slot for (slot,) in rows]


# --- what must hold before -----------------------------------------------------------------------


def require_listing(unit: Unit, machine: Machine) -> Listing:
    """The listing in force.

    Raises:
        RejectedError: `no_such_ask` when the machine is not offered.
    """
    row = unit.connection.execute(
        "SELECT listing_id, gpu_rate_per_gpu, storage_rate, up_rate, down_rate, min_gpus, until"
        " FROM listings WHERE listing_id = %s",
        [machine.listing_id],
    ).fetchone()
    if row is None or (row[6] is not None and row[6] <= unit.now):
        raise RejectedError("no_such_ask", f"machine {machine.machine_id} is not offered")
    return Listing(row[0], int(row[1]), int(row[2]), int(row[3]), int(row[4]), row[5], row[6])


def slice_sizes(gpus: int, min_gpus: int) -> list[int]:
    """The slices a machine is cut into: m, 2m, 4m, … and the whole machine."""
    sizes = []
    size = min_gpus
    while size < gpus:
        sizes.append(size)
        size *= 2
    return [*sizes, gpus]


def _check_slice(machine: Machine, listing: Listing, gpus: int, disk_gb: int) -> None:
    sizes = slice_sizes(machine.gpus, listing.min_gpus)
    if gpus not in sizes:
        shown = ", ".join(map(str, sizes))
        raise RejectedError("invalid_args", f"this machine is offered in slices of {shown} GPUs")
    largest = machine.disk_gb * gpus // machine.gpus
    if not 1 <= disk_gb <= largest:
        message = f"the disk of a slice of {gpus} GPUs is between 1 and {largest} GB"
        raise RejectedError("invalid_args", message)


def _require_disk(unit: Unit, machine: Machine, disk_gb: int) -> None:
    row = unit.connection.execute(
        "SELECT coalesce(sum(disk_bytes), 0) FROM instances"
        " WHERE machine_id = %s AND destroyed_at IS NULL",
        [machine.machine_id],
    ).fetchone()
    assert row is not None
    free = machine.disk_gb - int(row[0]) // BYTES_PER_GB
    if disk_gb > free:
        message = f"machine {machine.machine_id} has {free} GB of disk left"
        raise DeclinedError("no_capacity", message, free_disk_gb=free)


def _terms(unit: Unit, machine: Machine, listing: Listing, account_id: int, gpus: int) -> Terms:
    # Renting one's own machine posts no charge (`marketplace.md` §14).
    own = machine.host_id == account_id
    return Terms(
        kind="on_demand",
        gpu_rate=0 if own else listing.gpu_rate_per_gpu * gpus,
        storage_rate=0 if own else listing.storage_rate,
        up_rate=0 if own else listing.up_rate,
        down_rate=0 if own else listing.down_rate,
        fee_bp=unit.policy.fee_bp,
    )


def _admit(unit: Unit, account_id: int, terms: Terms, disk_bytes: int) -> None:
    credit = lock_credit(unit.connection, [account_id]).get(account_id)
    if credit is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    available = credit.available(unit.now, unit.policy)
    needed = 1
    if unit.policy.admission:
        needed = admission_cost(terms.gpu_rate, terms.storage_rate, disk_bytes)
    if available < needed:
        message = (
            f"starting needs {format_dollars(needed)} (an hour of GPUs and a day of storage);"
            f" {format_dollars(available)} is available"
        )
        raise DeclinedError(
            "insufficient_credit",
            message,
            needed=format_dollars(needed),
            available=format_dollars(available),
        )


def _is_online(unit: Unit, machine: Machine) -> bool:
    silence = unit.policy.offline_after_seconds
    if silence is None:
        return machine.enrolled_at is not None
    contact = last_contact(unit.connection, machine.machine_id)
    if contact is None:
        contact = machine.enrolled_at
    return contact is not None and unit.now <= contact + silence


def check_label(text: str | None) -> None:
    """Refuse a label that could not be shown.

    Raises:
        RejectedError: `invalid_args`.
    """
    if text is not None and not _LABEL.fullmatch(text):
        raise RejectedError("invalid_args", "a label is 1 to 128 printable characters")


def _keep_launch(
    unit: Unit, account_id: int, instance_id: int, launch: Mapping[str, object] | None
) -> tuple[str | None, str | None]:
    """Seal the launch configuration; the log gets a reference and a keyed hash."""
    if not launch:
        return None, None
    text = msgspec.json.encode(dict(launch), order="sorted")
    if len(text) > _MAX_LAUNCH_BYTES:
        raise RejectedError("invalid_args", "a launch configuration is at most 64 KiB")
    row = unit.connection.execute(
        "SELECT subject FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    name = f"launch-{instance_id}"
    unit.vault.put(unit.connection, row[0], name, text)
    return f"{row[0]}/{name}", unit.vault.keyed_hash(text.decode())
