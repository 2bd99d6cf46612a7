"""Volumes: their read models, empty, as the facts behind them are new.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import volumes

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make what is missing, and let the service role work on it."""
    for table in (volumes.volume_offers, volumes.volumes, volumes.volume_attachments):
        table.create(op.get_bind(), checkfirst=True)
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table.name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "volumes are facts of the log; restore a backup of the older version instead"
    raise RuntimeError(message)
