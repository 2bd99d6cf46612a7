"""The database's shape, as Alembic revisions; applied by `ledger.store.database.migrate`."""
