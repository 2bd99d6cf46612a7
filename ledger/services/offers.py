"""Offers: one open offer per slice size of a listed machine, and what renting from one needs."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ledger.domain.events import OfferOpened, Terms
from ledger.domain.ids import machine_stream
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.projections.contracts import taken_gb
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, require_machine
from ledger.services.slices import share, slice_sizes


class Listing(msgspec.Struct, frozen=True):
    """The prices at which a machine is offered now, in nanos."""

    listing_id: int
    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int
    down_rate: int
    min_gpus: int
    until: int | None
    reserved_discount_max_bp: int

    def rates(self, gpus: int) -> Terms:
        """The terms on demand of a slice; the platform's fee is not the host's to set."""
        return Terms(
            kind="on_demand",
            gpu_rate=self.gpu_rate_per_gpu * gpus,
            storage_rate=self.storage_rate,
            up_rate=self.up_rate,
            down_rate=self.down_rate,
            fee_bp=0,
        )


class Offer(NamedTuple):
    """An open offer."""

    offer_id: int
    machine_id: int
    gpus: int


def free_of_charge(terms: Terms) -> Terms:
    """Renting one's own machine posts no charge (`marketplace.md` §14)."""
    return msgspec.structs.replace(terms, gpu_rate=0, storage_rate=0, up_rate=0, down_rate=0)


def require_offer(
    unit: Unit, *, machine_id: int | None, offer_id: int | None, gpus: int | None
) -> Offer:
    """The open offer that a renter names, by its id or as a slice of a machine.

    Raises:
        NotFoundError: `no_such_machine`; `no_such_ask` for an offer that never was.
        RejectedError: `no_such_ask` when it is closed or the machine is not listed, `invalid_args`
            for a slice that the machine is not cut into.
    """
    if offer_id is not None:
        return _offer_by_id(unit, offer_id, machine_id, gpus)
    if machine_id is None:
        raise RejectedError("invalid_args", "name an offer or a machine")
    machine = require_machine(unit.connection, machine_id)
    listing = require_listing(unit, machine)
    wanted = machine.gpus if gpus is None else gpus
    sizes = slice_sizes(machine.gpus, listing.min_gpus)
    if wanted not in sizes:
        shown = ", ".join(map(str, sizes))
        raise RejectedError("invalid_args", f"this machine is offered in slices of {shown} GPUs")
    row = unit.connection.execute(
        "SELECT offer_id, machine_id, gpus FROM offers"
        " WHERE machine_id = %s AND gpus = %s AND closed_at IS NULL",
        [machine_id, wanted],
    ).fetchone()
    if row is None:
        raise RejectedError("no_such_ask", f"machine {machine_id} is not offered")
    return Offer(*row)


def _offer_by_id(unit: Unit, offer_id: int, machine_id: int | None, gpus: int | None) -> Offer:
    row = unit.connection.execute(
        "SELECT offer_id, machine_id, gpus, closed_at FROM offers WHERE offer_id = %s", [offer_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_ask", f"there is no offer {offer_id}")
    if row[3] is not None:
        raise RejectedError("no_such_ask", f"offer {offer_id} is taken or withdrawn: search again")
    if machine_id not in {None, row[1]} or gpus not in {None, row[2]}:
        message = f"offer {offer_id} is {row[2]} GPUs of machine {row[1]}"
        raise RejectedError("invalid_args", message)
    return Offer(*row[:3])


def require_listing(unit: Unit, machine: Machine) -> Listing:
    """The listing in force.

    Raises:
        RejectedError: `no_such_ask` when the machine is not offered.
    """
    row = unit.connection.execute(
        "SELECT listing_id, gpu_rate_per_gpu, storage_rate, up_rate, down_rate, min_gpus, until,"
        " reserved_discount_max_bp FROM listings WHERE listing_id = %s",
        [machine.listing_id],
    ).fetchone()
    if row is None or (row[6] is not None and row[6] <= unit.now):
        raise RejectedError("no_such_ask", f"machine {machine.machine_id} is not offered")
    return Listing(row[0], *(int(rate) for rate in row[1:5]), *row[5:])


def open_offer(unit: Unit, machine_id: int, listing_id: int, gpus: int) -> int:
    """Put one slice of a listing on the market; returns the offer's id."""
    offer_id = unit.next_id("offer")
    unit.append(
        machine_stream(machine_id),
        OfferOpened(
            offer_id=offer_id,
            machine_id=machine_id,
            listing_id=listing_id,
            gpus=gpus,
            opened_at=unit.now,
        ),
    )
    return offer_id


def free_disk_gb(unit: Unit, machine: Machine) -> int:
    """What neither instances nor volumes nor a volume offer have of the machine's disk."""
    row = unit.connection.execute(
        f"SELECT {taken_gb('m.machine_id')} FROM machines m WHERE machine_id = %s",  # noqa: S608 - a constant
        [machine.machine_id],
    ).fetchone()
    assert row is not None
    return machine.disk_gb - int(row[0])


def check_disk(unit: Unit, machine: Machine, gpus: int, disk_gb: int) -> None:
    """Refuse a disk that a slice cannot have, or that the machine has no room for now.

    Raises:
        RejectedError: `invalid_args` beyond the slice's share.
        DeclinedError: `no_capacity` beyond what the machine has left.
    """
    largest = share(machine.disk_gb, gpus, machine.gpus)
    if not 1 <= disk_gb <= largest:
        message = f"the disk of a slice of {gpus} GPUs is between 1 and {largest} GB"
        raise RejectedError("invalid_args", message)
    free = free_disk_gb(unit, machine)
    if disk_gb > free:
        message = f"machine {machine.machine_id} has {free} GB of disk left"
        raise DeclinedError("no_capacity", message, free_disk_gb=free)
