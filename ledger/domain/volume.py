"""The life of one volume: commands, state, `evolve` (fold facts), `decide` (a wish into facts).

A volume is a contract that has a disk and nothing that runs. Which instances use it, and whether
they still live, is known to the services.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from ledger.domain.events import (
    Fact,
    Terms,
    VolumeAttached,
    VolumeCreated,
    VolumeDestroyed,
    VolumeExpired,
    VolumeLifeFact,
)
from ledger.errors import NotFoundError, RejectedError

VolumeStatus = Literal["active", "expired", "destroyed"]
_MOUNT_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]{1,64}){1,16}")
_NO_FOLDER: Final = frozenset({".", ".."})


class AttachVolume(NamedTuple):
    """Let an instance that is being created have the volume at a path."""

    instance_id: int
    mount_path: str


class ExpireVolume(NamedTuple):
    """The end date has come."""


class DestroyVolume(NamedTuple):
    """End the meter."""

    by: Literal["renter", "admin", "host", "storage_debt"]
    reason: str | None = None


VolumeCommand = AttachVolume | ExpireVolume | DestroyVolume


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as its facts have made it."""

    volume_id: int
    account_id: int
    machine_id: int
    host_id: int
    disk_bytes: int
    terms: Terms
    until: int | None
    name: str | None
    status: VolumeStatus


def evolve(volume: Volume | None, fact: VolumeLifeFact) -> Volume:
    """Fold one fact into the state. Total and pure: history is never refused."""
    if isinstance(fact, VolumeCreated):
        return Volume(
            volume_id=fact.volume_id,
            account_id=fact.account_id,
            machine_id=fact.machine_id,
            host_id=fact.host_id,
            disk_bytes=fact.disk_bytes,
            terms=fact.terms,
            until=fact.until,
            name=fact.name,
            status="active",
        )
    assert volume is not None, "a volume's stream begins with its creation"
    match fact:
        case VolumeAttached():
            return volume
        case VolumeExpired():
            return msgspec.structs.replace(volume, status="expired")
        case VolumeDestroyed():
            return msgspec.structs.replace(volume, status="destroyed")
        case _:
            assert_never(fact)


def decide(volume: Volume, command: VolumeCommand, now: int) -> list[Fact]:
    """Turn a wish into facts at second *now*; empty when it was already so.

    Raises:
        NotFoundError: `no_such_volume` for one that was destroyed (except destroy).
        RejectedError: `contract_expired`, or `invalid_args` for a path that no mount can have.
    """
    match command:
        case AttachVolume():
            require_alive(volume)
            check_mount_path(command.mount_path)
            if volume.status == "expired":
                message = f"the contract of volume {volume.volume_id} has ended: clone it"
                raise RejectedError("contract_expired", message)
            return [
                VolumeAttached(
                    volume_id=volume.volume_id,
                    instance_id=command.instance_id,
                    mount_path=command.mount_path,
                    attached_at=now,
                )
            ]
        case ExpireVolume():
            if volume.status != "active":
                return []
            return [VolumeExpired(volume_id=volume.volume_id, expired_at=now)]
        case DestroyVolume():
            if volume.status == "destroyed":
                return []
            return [
                VolumeDestroyed(
                    volume_id=volume.volume_id,
                    by=command.by,
                    reason=command.reason,
                    destroyed_at=now,
                )
            ]
        case _:
            assert_never(command)


def require_alive(volume: Volume) -> None:
    """Refuse what nobody can do with a destroyed volume.

    Raises:
        NotFoundError: `no_such_volume`.
    """
    if volume.status == "destroyed":
        raise NotFoundError("no_such_volume", f"volume {volume.volume_id} was destroyed")


def check_mount_path(path: str) -> None:
    """Refuse a place that no volume can be mounted at.

    Raises:
        RejectedError: `invalid_args`.
    """
    if not _MOUNT_PATH.fullmatch(path) or _NO_FOLDER & set(path.split("/")):
        message = f"{path[:64]!r} is no mount path such as /data: letters, digits, . _ - and /"
        raise RejectedError("invalid_args", message)


def fold(facts: Iterable[VolumeLifeFact]) -> Volume:
    """The state after *facts*, which begin with the creation."""
    volume: Volume | None = None
    for fact in facts:
        volume = evolve(volume, fact)
    assert volume is not None, "a volume without facts"
    return volume
