"""The queue of messages that go out by mail.

Read models have no migrations: a rebuild makes those that this version added.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Operational, no read model: attempts are not facts. `position` is that of the notice; a claimed
# row is being sent and is due again at `due_at` if whoever sends it dies.
QUEUE = """
CREATE TABLE mail_messages (
    account_id    bigint NOT NULL,
    position      bigint NOT NULL,
    state         text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dead')),
    attempts      integer NOT NULL DEFAULT 0,
    tries         integer NOT NULL DEFAULT 0,
    queued_at     bigint NOT NULL,
    due_at        bigint NOT NULL,
    claimed       boolean NOT NULL DEFAULT false,
    attempted_at  bigint,
    ended_at      bigint,
    reason        text,
    PRIMARY KEY (account_id, position)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX mail_messages_due ON mail_messages (due_at, position) WHERE state = 'pending';
CREATE INDEX mail_messages_ended ON mail_messages (ended_at) WHERE ended_at IS NOT NULL;
"""


def upgrade() -> None:
    """Make the queue, and let the service role work on it."""
    op.execute(QUEUE)
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON mail_messages TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "the queue says what was sent; restore a backup of the older version"
    raise RuntimeError(message)
