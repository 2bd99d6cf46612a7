"""What Alembic runs around the revisions: one transaction on the connection of `migrate`.

`config.attributes` carries `connection` (SQLAlchemy, whose search_path names the schema to change)
and `schema` (where the version table lies). There is no `alembic.ini` and no mode without a
database: `ledger.store.database.migrate` is the only caller.
"""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Apply the revisions; all of them or, after an error, none."""
    attributes = context.config.attributes
    context.configure(
        connection=attributes["connection"],
        version_table_schema=attributes["schema"],
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
