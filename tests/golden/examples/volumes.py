"""One fact of every kind of volumes: offers, volumes, attachments."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

VOLUMES: Final[tuple[e.AnyFact, ...]] = (
    e.VolumeOffered(
        volume_offer_id=601,
        machine_id=4001,
        host_id=9,
        disk_gb=500,
        storage_rate=100_000_000,
        until=T + 2_592_000,
        offered_at=T,
    ),
    e.VolumeOfferClosed(
        volume_offer_id=601, machine_id=4001, reason="replaced", closed_at=T + 86_400
    ),
    e.VolumeCreated(
        volume_id=1002,
        account_id=7,
        machine_id=4001,
        host_id=9,
        volume_offer_id=601,
        disk_bytes=30_000_000_000,
        terms=e.Terms(
            kind="volume",
            gpu_rate=0,
            storage_rate=100_000_000,
            up_rate=0,
            down_rate=0,
            fee_bp=1_500,
        ),
        until=T + 2_592_000,
        name="datasets",
        cloned_from=None,
        policy_version=1,
        created_at=T + 60,
    ),
    e.VolumeAttached(volume_id=1002, instance_id=1003, mount_path="/data", attached_at=T + 90),
    e.VolumeExpired(volume_id=1002, expired_at=T + 2_592_000),
    e.VolumeDestroyed(volume_id=1002, by="renter", reason=None, destroyed_at=T + 2_592_100),
)
"""One fact of every kind that volumes add."""
