"""When containers said that they live: spans of heartbeats, kept until no tick can be late.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table and let the service write it."""
    op.execute(
        """
        CREATE TABLE heartbeat_spans (
            instance_id   bigint NOT NULL,
            start         bigint NOT NULL,
            until         bigint NOT NULL,
            PRIMARY KEY (instance_id, start)
        ) WITH (fillfactor = 50)
        """
    )
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON heartbeat_spans TO gpuledger_service")


def downgrade() -> None:
    """The table holds nothing that has to be kept."""
    op.execute("DROP TABLE heartbeat_spans")
