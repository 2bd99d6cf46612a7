"""What surrounds a launch: read models, requested container logs, and who called what.

A database of an older program lacks the read models that this one added since: whatever the
metadata name and the schema lacks is made here, empty, as the facts behind it are new.

Revision ID: 0010
Revises: 0006
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import metadata

revision = "0010"
down_revision = "0006"
branch_labels = None
depends_on = None

# Operational, no read models. `options` and `text` are sealed under the renter's subject; a row
# lives for an hour. `nonce` and the vault's key make the address under which a text is fetched.
LOG_REQUESTS = """
CREATE TABLE log_requests (
    request_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nonce         bytea NOT NULL,
    account_id    bigint NOT NULL,
    instance_id   bigint NOT NULL,
    machine_id    bigint NOT NULL,
    options       bytea NOT NULL,
    text          bytea,
    asked_at      bigint NOT NULL,
    uploaded_at   bigint,
    expires_at    bigint NOT NULL
);
CREATE INDEX log_requests_open ON log_requests (machine_id, request_id) WHERE text IS NULL;
CREATE INDEX log_requests_instance ON log_requests (instance_id);
CREATE INDEX log_requests_expiry ON log_requests (expires_at);
CREATE INDEX log_requests_account ON log_requests (account_id);
"""

# Addresses are personal: sealed under the account's subject, found again by a keyed hash, and
# destroyed with the account's personal data. Both tables are bounded in age.
ACCESS_LOG = """
CREATE TABLE access_addresses (
    address_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id    bigint NOT NULL,
    address_hash  text NOT NULL,
    sealed        bytea NOT NULL,
    first_seen    bigint NOT NULL,
    last_seen     bigint NOT NULL,
    UNIQUE (account_id, address_hash)
);
CREATE INDEX access_addresses_age ON access_addresses (last_seen);
CREATE TABLE access_log (
    entry_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            bigint NOT NULL,
    account_id    bigint NOT NULL,
    key_id        text NOT NULL,
    role          text NOT NULL,
    endpoint      text NOT NULL,
    method        text NOT NULL,
    path          text NOT NULL,
    status        integer NOT NULL,
    address_id    bigint
);
CREATE INDEX access_log_account ON access_log (account_id, entry_id);
CREATE INDEX access_log_age ON access_log (at);
"""
_TABLES = ("log_requests", "access_addresses", "access_log")


def upgrade() -> None:
    """Make what is missing, and let the service role work on it."""
    metadata.create_all(op.get_bind())
    op.execute(LOG_REQUESTS)
    op.execute(ACCESS_LOG)
    for name in [*(table.name for table in metadata.sorted_tables), *_TABLES]:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "templates, keys and jobs are facts of the log; restore a backup instead"
    raise RuntimeError(message)
