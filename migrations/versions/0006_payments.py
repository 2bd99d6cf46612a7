"""Payments and payouts: their read models, and the messages of the processor.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import metadata

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Operational, no read model: a message only says which object to look at. `owner` is the host's
# account in which the object lies, empty for the platform's own.
EVENTS = """
CREATE TABLE payment_events (
    event_id      text PRIMARY KEY,
    type          text NOT NULL,
    kind          text NOT NULL,
    object        text NOT NULL,
    owner         text NOT NULL,
    created_at    bigint NOT NULL,
    received_at   bigint NOT NULL,
    due_at        bigint NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    problem       text,
    done_at       bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX payment_events_due ON payment_events (due_at) WHERE done_at IS NULL;
CREATE INDEX payment_events_done ON payment_events (done_at) WHERE done_at IS NOT NULL;
"""


def upgrade() -> None:
    """Make what is missing, and let the service role work on it."""
    metadata.create_all(op.get_bind())
    op.execute(EVENTS)
    for name in [*(table.name for table in metadata.sorted_tables), "payment_events"]:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "payments are facts of the log; restore a backup of the older version instead"
    raise RuntimeError(message)
