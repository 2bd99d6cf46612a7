"""One fact of every kind of the market: offers, bids, allocations, reservations, extensions."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import TERMS, T

COMING: Final = e.Coming(effective_at=T + 1, terms=TERMS, bid=None)
BIDDING: Final = e.Coming(
    effective_at=T + 1,
    terms=e.Terms(
        kind="interruptible",
        gpu_rate=300_000_000,
        storage_rate=150_000_000,
        up_rate=3_000_000,
        down_rate=3_000_000,
        fee_bp=1_500,
    ),
    bid=300_000_000,
)
MARKET: Final[tuple[e.AnyFact, ...]] = (
    e.OfferOpened(offer_id=12, machine_id=4001, listing_id=1, gpus=2, opened_at=T),
    e.AllocationDecided(
        machine_id=4001,
        displaced=[1002],
        granted=[e.AllocatedGpus(instance_id=1001, slots=[0, 1], gpu_uuids=["GPU-a", "GPU-b"])],
        min_bids=[
            e.SmallestBid(gpus=1, amount=None),
            e.SmallestBid(gpus=2, amount=300_000_001),
        ],
        policy_version=1,
        decided_at=T,
    ),
    e.GpuHealthChanged(
        machine_id=4001, gpu_uuid="GPU-a", healthy=False, reason="xid 79", changed_at=T
    ),
    e.BidChanged(
        instance_id=1001, bid=300_000_000, effective_at=T + 1, coming=[BIDDING], changed_at=T
    ),
    e.TermsTookEffect(instance_id=1001, terms=BIDDING.terms, bid=300_000_000, effective_at=T + 1),
    e.ReservationBought(
        instance_id=1001,
        account_id=7,
        reservation_no=1,
        base_rate=1_000_000_000,
        deposit=576_000_000_000,
        added=576_000_000_000,
        term_from=T,
        term_until=T + 2_592_000,
        coming=[COMING],
        bought_at=T,
    ),
    e.ReservationEnded(
        instance_id=1001,
        account_id=7,
        host_id=9,
        reservation_no=1,
        reason="cancelled",
        remaining=288_000_000_000,
        received=72_000_000_000,
        kept=75_600_000_000,
        kept_fee=11_340_000_000,
        coming=[COMING],
        ended_at=T + 1_296_000,
    ),
    e.PriceIncreaseProposed(
        instance_id=1001, proposal_no=1, terms=TERMS, until=T + 31_536_000, proposed_at=T
    ),
    e.PriceIncreaseAccepted(instance_id=1001, proposal_no=1, accepted_at=T),
    e.PriceIncreaseRejected(instance_id=1001, proposal_no=2, rejected_at=T),
    e.ContractExtended(instance_id=1001, until=None, coming=[COMING], extended_at=T),
)
"""One fact of every kind that the market adds."""
