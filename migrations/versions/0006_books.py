"""Reconciliation, adjustments, mail and budgets: their read models, and the queue of messages.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import adjustments, budgets, mail, reconciliation

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLES = (
    reconciliation.reconciliations,
    reconciliation.findings,
    adjustments.adjustments,
    mail.mail_settings,
    mail.mail_dead_letters,
    budgets.budgets,
)
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
    """Make what is missing, and let the service role work on it."""
    for table in _TABLES:
        table.create(op.get_bind(), checkfirst=True)
    op.execute(QUEUE)
    for name in [*(table.name for table in _TABLES), "mail_messages"]:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "findings and settings are facts of the log; restore a backup of the older version"
    raise RuntimeError(message)
