"""What can be rented on a machine, and who got its GPUs."""

from __future__ import annotations

import msgspec

from ledger.domain.events.base import Fact


class OfferOpened(Fact, tag="offer.opened.v1"):
    """One slice of a listed machine can be rented under this id.

    The offer is closed by the instance created from it, or by the end of its listing.
    """

    offer_id: int
    machine_id: int
    listing_id: int
    gpus: int
    opened_at: int


class AllocatedGpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs that a decision gave to one instance."""

    instance_id: int
    slots: list[int]
    gpu_uuids: list[str]


class SmallestBid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a newcomer must bid for a slice to run now, nanos per hour; null: no bid would do."""

    gpus: int
    amount: int | None


class AllocationDecided(Fact, tag="allocation.decided.v1"):
    """The auction of a machine was decided anew: who got GPUs, who lost them, what a place costs.

    The displacements and grants are facts of their instances, in the same transaction.
    """

    machine_id: int
    displaced: list[int]
    granted: list[AllocatedGpus]
    min_bids: list[SmallestBid]
    policy_version: int
    decided_at: int


class GpuHealthChanged(Fact, tag="gpu.health_changed.v1"):
    """A GPU can no longer be rented, or can be again."""

    machine_id: int
    gpu_uuid: str
    healthy: bool
    reason: str
    changed_at: int


OfferFact = OfferOpened | AllocationDecided | GpuHealthChanged
