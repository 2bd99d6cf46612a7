"""Volume offers: how much of a machine's disk its host gives to volumes, and at what rate.

A machine has one open volume offer at most. The disk that it names holds all volumes of the
machine, those from earlier offers too; slices cannot have it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ledger.domain.events import Fact, VolumeOfferClosed, VolumeOffered
from ledger.domain.ids import machine_stream
from ledger.domain.money import BYTES_PER_GB
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine


class VolumeOffer(NamedTuple):
    """An open volume offer: GB, nanos per GB-month."""

    volume_offer_id: int
    machine_id: int
    host_id: int
    disk_gb: int
    left_gb: int
    storage_rate: int
    until: int | None


def offer(
    unit: Unit, machine_id: int, *, disk_gb: int, storage_rate: int, until: int | None = None
) -> int:
    """Give *disk_gb* of a machine's disk to volumes; returns the offer's id.

    An open offer is replaced; the same one again changes nothing. Volumes keep their terms, and
    count towards *disk_gb*.

    Args:
        unit: The command's transaction.
        machine_id: Whose disk.
        disk_gb: All volumes of the machine together, sold or not.
        storage_rate: Nanos per GB-month; 0 is allowed.
        until: The end date of the offer and of the volumes made from it.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `not_enrolled`, or `invalid_args` for a size or an end that cannot be.
        DeclinedError: `no_capacity` when instances and volumes leave less of the disk.
    """
    machine = require_machine(unit.connection, machine_id)
    if machine.enrolled_at is None:
        raise RejectedError("not_enrolled", "the machine's agent has not enrolled yet")
    if not 1 <= disk_gb <= machine.disk_gb:
        message = f"a volume offer is between 1 and the machine's {machine.disk_gb} GB"
        raise RejectedError("invalid_args", message)
    if until is not None and until <= unit.now:
        raise RejectedError("invalid_args", "a volume offer must end in the future")
    before = open_offer_of(unit, machine_id)
    asked = (disk_gb, storage_rate, until)
    if before is not None and (before.disk_gb, before.storage_rate, before.until) == asked:
        return before.volume_offer_id
    free = machine.disk_gb - kept_gb(unit, machine_id, "instances")
    if disk_gb > free:
        message = f"instances leave {free} GB of machine {machine_id}"
        raise DeclinedError("no_capacity", message, free_disk_gb=free)
    new: list[Fact] = [] if before is None else [_closed(unit, before, "replaced")]
    volume_offer_id = unit.next_id("volume_offer")
    new.append(
        VolumeOffered(
            volume_offer_id=volume_offer_id,
            machine_id=machine_id,
            host_id=machine.host_id,
            disk_gb=disk_gb,
            storage_rate=storage_rate,
            until=until,
            offered_at=unit.now,
        )
    )
    unit.append(machine_stream(machine_id), *new)
    return volume_offer_id


def withdraw(
    unit: Unit,
    machine_id: int,
    reason: Literal["withdrawn", "ended", "machine_removed"] = "withdrawn",
) -> None:
    """Sell no more volumes of a machine; those that exist go on. Again changes nothing.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    require_machine(unit.connection, machine_id)
    found = open_offer_of(unit, machine_id)
    if found is not None:
        unit.append(machine_stream(machine_id), _closed(unit, found, reason))


def require_volume_offer(unit: Unit, volume_offer_id: int) -> VolumeOffer:
    """The open offer with this id.

    Raises:
        NotFoundError: `no_such_ask` for one that never was.
        RejectedError: `no_such_ask` when it is closed or over.
    """
    row = unit.connection.execute(
        "SELECT volume_offer_id, machine_id, host_id, disk_gb, left_gb, storage_rate, until,"
        " closed_at FROM volume_offers WHERE volume_offer_id = %s",
        [volume_offer_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_ask", f"there is no volume offer {volume_offer_id}")
    if row[7] is not None or (row[6] is not None and row[6] <= unit.now):
        message = f"volume offer {volume_offer_id} is withdrawn, replaced or over: search again"
        raise RejectedError("no_such_ask", message)
    return VolumeOffer(*row[:7])._replace(storage_rate=int(row[5]))


def open_offer_of(unit: Unit, machine_id: int) -> VolumeOffer | None:
    """The machine's open offer, if it has one."""
    row = unit.connection.execute(
        "SELECT volume_offer_id, machine_id, host_id, disk_gb, left_gb, storage_rate, until"
        " FROM volume_offers WHERE machine_id = %s AND closed_at IS NULL",
        [machine_id],
    ).fetchone()
    return None if row is None else VolumeOffer(*row)._replace(storage_rate=int(row[5]))


def _closed(
    unit: Unit,
    offered: VolumeOffer,
    reason: Literal["withdrawn", "replaced", "ended", "machine_removed"],
) -> VolumeOfferClosed:
    return VolumeOfferClosed(
        volume_offer_id=offered.volume_offer_id,
        machine_id=offered.machine_id,
        reason=reason,
        closed_at=unit.now,
    )


def kept_gb(unit: Unit, machine_id: int, what: Literal["instances", "volumes"]) -> int:
    """GB of a machine's disk that belong to its living instances, or to its volumes."""
    row = unit.connection.execute(
        f"SELECT coalesce(sum(disk_bytes), 0) FROM {what}"  # noqa: S608 - one of two words
        " WHERE machine_id = %s AND destroyed_at IS NULL",
        [machine_id],
    ).fetchone()
    assert row is not None
    return int(row[0]) // BYTES_PER_GB
