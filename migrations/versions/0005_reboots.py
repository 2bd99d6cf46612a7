"""How often each instance was rebooted: a number that its machine's agent moves towards.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column where 0001 of this program did not make it, and count what happened before."""
    op.execute("ALTER TABLE instances ADD COLUMN IF NOT EXISTS reboots integer NOT NULL DEFAULT 0")
    op.execute(
        """
        UPDATE instances i SET reboots = found.times FROM (
            SELECT substr(stream_id, 10)::bigint AS instance_id, count(*) AS times FROM events
            WHERE topic = 'instance.rebooted.v1' GROUP BY stream_id
        ) found WHERE found.instance_id = i.instance_id
        """
    )


def downgrade() -> None:
    """The facts keep what the column counted."""
    op.execute("ALTER TABLE instances DROP COLUMN reboots")
