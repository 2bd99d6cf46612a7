"""What each probe location saw last of each machine: thrown away with every new look, so no fact.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table and let the service write it."""
    op.execute(
        """
        CREATE TABLE probe_results (
            machine_id    bigint NOT NULL,
            location      text NOT NULL,
            result        text NOT NULL CHECK (result IN ('up', 'down', 'inconclusive')),
            received_at   bigint NOT NULL,
            PRIMARY KEY (machine_id, location)
        ) WITH (fillfactor = 50)
        """
    )
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON probe_results TO gpuledger_service")


def downgrade() -> None:
    """The table holds nothing that has to be kept."""
    op.execute("DROP TABLE probe_results")
