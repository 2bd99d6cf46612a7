"""Volumes: disk of a machine that a renter keeps apart from any instance."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact
from ledger.domain.events.instances import Terms


class VolumeOffered(Fact, tag="volume_offer.opened.v1"):
    """The host gives *disk_gb* of the machine's disk to volumes, those that exist included.

    `storage_rate` is in nanos per GB-month. Slices of the machine cannot have this disk.
    """

    volume_offer_id: int
    machine_id: int
    host_id: int
    disk_gb: int
    storage_rate: int
    until: int | None
    offered_at: int


class VolumeOfferClosed(Fact, tag="volume_offer.closed.v1"):
    """Nothing more is sold from the offer; its volumes keep their terms."""

    volume_offer_id: int
    machine_id: int
    reason: Literal["withdrawn", "replaced", "ended", "machine_removed"]
    closed_at: int


class VolumeCreated(Fact, tag="volume.created.v1"):
    """A contract with a storage meter and no other, which runs from *created_at*.

    Its id comes from the counter of instances, so a charge names one contract. `cloned_from` is the
    volume whose contents it begins with.
    """

    volume_id: int
    account_id: int
    machine_id: int
    host_id: int
    volume_offer_id: int
    disk_bytes: int
    terms: Terms
    until: int | None
    name: str | None
    cloned_from: int | None
    policy_version: int
    created_at: int


class VolumeAttached(Fact, tag="volume.attached.v1"):
    """An instance of the same account and machine has the volume at *mount_path* while it lives."""

    volume_id: int
    instance_id: int
    mount_path: str
    attached_at: int


class VolumeExpired(Fact, tag="volume.expired.v1"):
    """The contract reached its end; no further instance gets the volume, and its meter goes on."""

    volume_id: int
    expired_at: int


class VolumeDestroyed(Fact, tag="volume.destroyed.v1"):
    """The meter ended; final."""

    volume_id: int
    by: Literal["renter", "admin", "host", "storage_debt"]
    reason: str | None
    destroyed_at: int


VolumeLifeFact = VolumeCreated | VolumeAttached | VolumeExpired | VolumeDestroyed
"""Everything in the stream of a volume."""
VolumeFact = VolumeOffered | VolumeOfferClosed | VolumeLifeFact
