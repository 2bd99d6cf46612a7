"""Webhooks: their read models, and the queue of what waits to be sent.

A database that revision 0001 made yesterday lacks the read models that this program added since:
they are made here. Those whose shape has changed are made anew by `gpuledger rebuild`, which the
program asks for.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import metadata

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Operational, no read model: attempts are not facts. `position` is that of the event's fact.
# `attempts` counts all that were ever made, `tries` those since the delivery was last asked for. A
# claimed row is being sent; it is due again at `due_at` if whoever sends it dies.
QUEUE = """
CREATE TABLE webhook_deliveries (
    webhook_id    bigint NOT NULL,
    position      bigint NOT NULL,
    state         text NOT NULL DEFAULT 'pending'
                  CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts      integer NOT NULL DEFAULT 0,
    tries         integer NOT NULL DEFAULT 0,
    queued_at     bigint NOT NULL,
    due_at        bigint NOT NULL,
    claimed       boolean NOT NULL DEFAULT false,
    attempted_at  bigint,
    ended_at      bigint,
    status        integer,
    reason        text,
    excerpt       text,
    PRIMARY KEY (webhook_id, position)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at, position)
    WHERE state = 'pending';
CREATE INDEX webhook_deliveries_claimed ON webhook_deliveries (webhook_id) WHERE claimed;
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;
"""


def upgrade() -> None:
    """Make what is missing, and let the service role work on it."""
    metadata.create_all(op.get_bind())
    op.execute(QUEUE)
    for name in [*(table.name for table in metadata.sorted_tables), "webhook_deliveries"]:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "webhooks are facts of the log; restore a backup of the older version instead"
    raise RuntimeError(message)
