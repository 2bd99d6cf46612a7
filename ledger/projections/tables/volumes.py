"""Volumes: what is offered, what exists, and which instances have it."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

volume_offers = table(
    "volume_offers",
    FACTS,
    big("volume_offer_id", primary_key=True, autoincrement=False),
    big("machine_id"),
    big("host_id"),
    big("disk_gb"),
    big("left_gb"),
    money("storage_rate"),
    maybe("until"),
    big("offered_at"),
    maybe("closed_at"),
    string("reason", nullable=True),
    Index(
        "volume_offers_open",
        "machine_id",
        unique=True,
        postgresql_where=text("closed_at IS NULL"),
    ),
    Index(
        "volume_offers_price",
        "storage_rate",
        "volume_offer_id",
        postgresql_where=text("closed_at IS NULL"),
    ),
    fillfactor=70,
)
"""`left_gb`: what of `disk_gb` no volume of the machine has; 0 once the offer is closed."""
volumes = table(
    "volumes",
    FACTS,
    big("volume_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("machine_id"),
    big("host_id"),
    big("volume_offer_id"),
    big("disk_bytes"),
    money("storage_rate"),
    Column("fee_bp", Integer, nullable=False),
    maybe("until"),
    string("name", nullable=True),
    maybe("cloned_from"),
    string("status"),
    big("created_at"),
    maybe("expired_at"),
    maybe("destroyed_at"),
    Index("volumes_account", "account_id", "volume_id"),
    Index("volumes_machine", "machine_id", postgresql_where=text("destroyed_at IS NULL")),
    fillfactor=70,
)
volume_attachments = table(
    "volume_attachments",
    FACTS,
    big("volume_id"),
    big("instance_id"),
    string("mount_path"),
    big("attached_at"),
    PrimaryKeyConstraint("volume_id", "instance_id"),
    Index("volume_attachments_instance", "instance_id"),
)
"""An attachment lasts as long as its instance lives."""
