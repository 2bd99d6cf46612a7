"""Listings: at what prices and until when a machine is offered."""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import MachineListed, MachineUnlisted
from ledger.domain.ids import machine_stream
from ledger.errors import RejectedError
from ledger.services.allocation import settle
from ledger.services.comparisons import require_listable
from ledger.services.contracts import extend_contracts
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.offers import open_offer
from ledger.services.slices import slice_sizes

_WHOLE: Final = 10_000


class Prices(NamedTuple):
    """What a listing asks: nanos per GPU and hour, per GB-month, per GB up and down."""

    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int = 0
    down_rate: int = 0
    min_bid_per_gpu: int | None = None


def list_machine(
    unit: Unit,
    machine_id: int,
    prices: Prices,
    *,
    min_gpus: int = 1,
    until: int | None = None,
    reserved_discount_max_bp: int = 4_000,
) -> int:
    """Offer a machine at these prices and return the listing's id; contracts keep their own.

    One offer opens per slice size. A later end than a contract's extends it, or proposes a price
    increase (`ledger.services.contracts`).

    Raises:
        RejectedError: `invalid_price` below one nano per GPU and hour, `invalid_args`,
            `not_enrolled`, `below_bars` for a machine known to miss a minimum.
    """
    machine = require_machine(unit.connection, machine_id)
    if machine.enrolled_at is None:
        raise RejectedError("not_enrolled", "the machine's agent has not enrolled yet")
    if prices.gpu_rate_per_gpu < 1:
        raise RejectedError("invalid_price", "a GPU costs at least one nano an hour")
    if not 1 <= min_gpus <= machine.gpus:
        message = f"the smallest slice is between 1 and the machine's {machine.gpus} GPUs"
        raise RejectedError("invalid_args", message)
    if not 0 <= reserved_discount_max_bp < _WHOLE:
        raise RejectedError("invalid_args", "a reserved discount is from 0 to below 100 %")
    if prices.min_bid_per_gpu is not None and prices.min_bid_per_gpu < 1:
        message = "a floor is at least one nano an hour; leave it out to take no bids"
        raise RejectedError("invalid_price", message)
    if until is not None and until <= unit.now:
        raise RejectedError("invalid_args", "a listing must end in the future")
    require_listable(unit, machine_id)
    listing_id = unit.next_id("listing")
    unit.append(
        machine_stream(machine_id),
        MachineListed(
            machine_id=machine_id,
            listing_id=listing_id,
            gpu_rate_per_gpu=prices.gpu_rate_per_gpu,
            storage_rate=prices.storage_rate,
            up_rate=prices.up_rate,
            down_rate=prices.down_rate,
            min_bid_per_gpu=prices.min_bid_per_gpu,
            min_gpus=min_gpus,
            until=until,
            reserved_discount_max_bp=reserved_discount_max_bp,
            listed_at=unit.now,
        ),
    )
    for gpus in slice_sizes(machine.gpus, min_gpus):
        open_offer(unit, machine_id, listing_id, gpus)
    extend_contracts(unit, machine_id)
    settle(unit, machine_id)
    return listing_id


def unlist_machine(unit: Unit, machine_id: int) -> None:
    """Take a machine off the market; contracts go on."""
    if require_machine(unit.connection, machine_id).listing_id is not None:
        unit.append(
            machine_stream(machine_id),
            MachineUnlisted(machine_id=machine_id, unlisted_at=unit.now),
        )


def open_missing_offers(unit: Unit) -> int:
    """Open the offers of listings that an older program made, before there were any.

    Returns:
        How many machines came to the market by it.
    """
    bare = unit.connection.execute(
        "SELECT m.machine_id, m.listing_id, m.gpus, l.min_gpus"
        " FROM machines m JOIN listings l ON l.listing_id = m.listing_id"
        " WHERE NOT EXISTS (SELECT 1 FROM offers o WHERE o.listing_id = m.listing_id)"
        " ORDER BY m.machine_id"
    ).fetchall()
    for machine_id, listing_id, machine_gpus, min_gpus in bare:
        for gpus in slice_sizes(machine_gpus, min_gpus):
            open_offer(unit, machine_id, listing_id, gpus)
        settle(unit, machine_id)
    return len(bare)
