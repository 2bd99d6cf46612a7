"""Volumes: create, clone, attach, delete (`marketplace.md` §5.6).

A volume lives on one machine and serves instances of its account there. It has a storage meter of
its own, from its creation to its end, whether an instance has it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledger.domain.events import Fact, NoticeCode, Terms, VolumeCreated, VolumeLifeFact
from ledger.domain.ids import volume_stream
from ledger.domain.money import BYTES_PER_GB
from ledger.domain.volume import (
    AttachVolume,
    DestroyVolume,
    Volume,
    VolumeCommand,
    check_mount_path,
    decide,
    fold,
    require_alive,
)
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services.admission import admit
from ledger.services.allocation import is_online
from ledger.services.labels import check_label
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.notices import notice
from ledger.services.offers import free_of_charge
from ledger.services.volume_offers import VolumeOffer, require_volume_offer
from ledger.store.codec import decode_fact
from ledger.store.log import read_stream

_MOUNTS_MAX = 16


class NewVolume(NamedTuple):
    """A volume to be made: from which offer, how large, under which name."""

    volume_offer_id: int
    disk_gb: int
    name: str | None = None


class Mount(NamedTuple):
    """Where a new instance is to have a volume: one that exists (its id), or one to be made."""

    mount_path: str
    volume: int | NewVolume


def create(unit: Unit, account_id: int, wanted: NewVolume) -> int:
    """Make a volume and return its id; its rate, fee and end date stand from now on.

    Raises:
        NotFoundError: `no_such_ask` for an offer that never was, `no_such_account`.
        RejectedError: `no_such_ask` when the offer is closed, `invalid_args`.
        DeclinedError: `no_capacity` when the offer has less left or its machine takes nobody now;
            `insufficient_credit` below a day of its cost; `spend_rate_limit`.
    """
    return _create(unit, account_id, wanted, cloned_from=None)


def clone(
    unit: Unit,
    volume_id: int,
    volume_offer_id: int,
    *,
    disk_gb: int | None = None,
    name: str | None = None,
) -> int:
    """Make a volume that begins with the contents of another; returns the new one's id.

    It is a contract of its own, from any volume offer, also one of another machine. The size is
    that of the source unless a larger one is asked for.

    Raises:
        NotFoundError: `no_such_volume`, also for one that was destroyed; `no_such_ask`.
        RejectedError: `no_such_ask`, or `invalid_args` for a size below the source's.
        DeclinedError: as `create`; `no_capacity` too while the source's machine is offline.
    """
    source = load(unit, volume_id)
    require_alive(source)
    source_gb = source.disk_bytes // BYTES_PER_GB
    wanted = NewVolume(volume_offer_id, source_gb if disk_gb is None else disk_gb, name)
    if wanted.disk_gb < source_gb:
        message = f"a clone of volume {volume_id} is at least {source_gb} GB"
        raise RejectedError("invalid_args", message)
    if not is_online(unit, require_machine(unit.connection, source.machine_id)):
        message = f"machine {source.machine_id} is offline: nothing can be copied from it now"
        raise DeclinedError("no_capacity", message)
    return _create(unit, source.account_id, wanted, cloned_from=volume_id)


def attach_all(
    unit: Unit, account_id: int, machine_id: int, instance_id: int, mounts: Sequence[Mount]
) -> list[tuple[str, Fact]]:
    """The facts that give a new instance its volumes, those made for it among them.

    The caller appends them after the instance's creation, in the same transaction.

    Raises:
        NotFoundError: `no_such_volume`, also for somebody else's or a destroyed one.
        RejectedError: `invalid_args` for a path or a volume named twice, a path that cannot be, or
            a volume of another machine; `contract_expired`.
    """
    found: list[tuple[str, Fact]] = []
    for mount in mounts:
        assert isinstance(mount.volume, int), "made before the instance"
        volume = owned(unit, mount.volume, account_id)
        wish = AttachVolume(instance_id, mount.mount_path)
        found += [(volume_stream(volume.volume_id), one) for one in decide(volume, wish, unit.now)]
        if volume.machine_id != machine_id:
            message = (
                f"volume {volume.volume_id} is on machine {volume.machine_id}:"
                " it serves instances there only; a clone can be made elsewhere"
            )
            raise RejectedError("invalid_args", message)
    return found


def make_all(unit: Unit, account_id: int, machine_id: int, mounts: Sequence[Mount]) -> list[Mount]:
    """Make the volumes that *mounts* ask for; the same mounts, all with ids.

    Raises:
        NotFoundError, RejectedError, DeclinedError: as `create`.
        RejectedError: `invalid_args` when there are too many, two share a path or a volume, or the
            offer is another machine's.
    """
    if len(mounts) > _MOUNTS_MAX:
        raise RejectedError("invalid_args", f"an instance has at most {_MOUNTS_MAX} volumes")
    ids = [one.volume for one in mounts if isinstance(one.volume, int)]
    paths = [one.mount_path for one in mounts]
    if len(set(ids)) < len(ids) or len(set(paths)) < len(paths):
        raise RejectedError("invalid_args", "name each volume and each mount path once")
    made = []
    for mount in mounts:
        check_mount_path(mount.mount_path)
        if isinstance(mount.volume, int):
            made.append(mount)
            continue
        offered = require_volume_offer(unit, mount.volume.volume_offer_id)
        if offered.machine_id != machine_id:
            message = (
                f"volume offer {offered.volume_offer_id} is of machine {offered.machine_id},"
                f" and the instance would be on machine {machine_id}"
            )
            raise RejectedError("invalid_args", message)
        made.append(Mount(mount.mount_path, create(unit, account_id, mount.volume)))
    return made


def delete(
    unit: Unit, volume_id: int, *, by_admin: bool = False, reason: str | None = None
) -> None:
    """End the meter now; deleting again changes nothing.

    Raises:
        NotFoundError: `no_such_volume`.
        DeclinedError: `volume_in_use` while an instance that is not destroyed has it.
    """
    if load(unit, volume_id).status == "destroyed":
        return
    used_by = users(unit, volume_id)
    if used_by:
        shown = ", ".join(map(str, used_by))
        message = f"volume {volume_id} is used by instance {shown}: destroy it first"
        raise DeclinedError("volume_in_use", message, instances=used_by)
    wish = DestroyVolume("admin" if by_admin else "renter", reason)
    command_all(unit, [(volume_id, wish)])


def command_all(unit: Unit, wishes: Iterable[tuple[int, VolumeCommand]]) -> list[int]:
    """Carry out commands on many volumes as one change; returns those that it concerned."""
    new: list[tuple[str, Fact]] = []
    notices: list[tuple[str, Fact]] = []
    changed = []
    for volume_id, wish in wishes:
        volume = load(unit, volume_id)
        facts = decide(volume, wish, unit.now)
        new += [(volume_stream(volume_id), fact) for fact in facts]
        if facts:
            changed.append(volume_id)
            code: NoticeCode = "destroyed" if isinstance(wish, DestroyVolume) else "expired"
            notices.append(notice(unit, volume.account_id, code, f"volume-{volume_id}"))
    unit.append_all([*new, *notices])
    return changed


def owned(unit: Unit, volume_id: int, account_id: int) -> Volume:
    """The volume, if it is this account's.

    Raises:
        NotFoundError: `no_such_volume`, also for somebody else's.
    """
    volume = load(unit, volume_id)
    if volume.account_id != account_id:
        raise NotFoundError("no_such_volume", f"there is no volume {volume_id}")
    return volume


def load(unit: Unit, volume_id: int) -> Volume:
    """The state of a volume, from its facts.

    Raises:
        NotFoundError: `no_such_volume`.
    """
    history: list[VolumeLifeFact] = []
    for stored in read_stream(unit.connection, volume_stream(volume_id)):
        fact = decode_fact(stored.topic, stored.state)
        history.append(fact)  # type: ignore[arg-type]  # a volume's stream holds its facts
    if not history:
        raise NotFoundError("no_such_volume", f"there is no volume {volume_id}")
    return fold(history)


def users(unit: Unit, volume_id: int) -> list[int]:
    """The instances that have the volume and are not destroyed, by id."""
    rows = unit.connection.execute(
        "SELECT instance_id FROM volume_attachments a JOIN instances i USING (instance_id)"
        " WHERE a.volume_id = %s AND i.destroyed_at IS NULL ORDER BY instance_id",
        [volume_id],
    )
    return [row[0] for row in rows]


def living(unit: Unit, account_id: int) -> list[int]:
    """The volumes of an account that were not destroyed, by id."""
    rows = unit.connection.execute(
        "SELECT volume_id FROM volumes WHERE account_id = %s AND destroyed_at IS NULL"
        " ORDER BY volume_id",
        [account_id],
    )
    return [row[0] for row in rows]


def _create(unit: Unit, account_id: int, wanted: NewVolume, *, cloned_from: int | None) -> int:
    offered = require_volume_offer(unit, wanted.volume_offer_id)
    check_label(wanted.name)
    if wanted.disk_gb < 1:
        raise RejectedError("invalid_args", "a volume is at least 1 GB")
    _require_room(unit, offered, wanted.disk_gb)
    terms = _terms(unit, offered, account_id)
    disk_bytes = wanted.disk_gb * BYTES_PER_GB
    admit(unit, account_id, terms, disk_bytes)
    volume_id = unit.next_id("instance")
    created = VolumeCreated(
        volume_id=volume_id,
        account_id=account_id,
        machine_id=offered.machine_id,
        host_id=offered.host_id,
        volume_offer_id=offered.volume_offer_id,
        disk_bytes=disk_bytes,
        terms=terms,
        until=offered.until,
        name=wanted.name,
        cloned_from=cloned_from,
        policy_version=unit.policy.version,
        created_at=unit.now,
    )
    told = notice(unit, account_id, "created", f"volume-{volume_id}")
    unit.append_all([(volume_stream(volume_id), created), told])
    return volume_id


def _require_room(unit: Unit, offered: VolumeOffer, disk_gb: int) -> None:
    machine = require_machine(unit.connection, offered.machine_id)
    if not is_online(unit, machine) or machine.stopped_for_maintenance or machine.below_bars:
        message = f"machine {machine.machine_id} takes no new volumes now"
        raise DeclinedError("no_capacity", message)
    if disk_gb > offered.left_gb:
        message = f"volume offer {offered.volume_offer_id} has {offered.left_gb} GB left"
        raise DeclinedError("no_capacity", message, left_gb=offered.left_gb)


def _terms(unit: Unit, offered: VolumeOffer, account_id: int) -> Terms:
    terms = Terms(
        kind="volume",
        gpu_rate=0,
        storage_rate=offered.storage_rate,
        up_rate=0,
        down_rate=0,
        fee_bp=unit.policy.fee_bp,
    )
    return free_of_charge(terms) if offered.host_id == account_id else terms
