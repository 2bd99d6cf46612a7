"""The event log, its keepers, and the first generation of read models.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

from ledger.projections.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LOG = """
CREATE TABLE log_position (
    id            smallint PRIMARY KEY CHECK (id = 1),
    next          bigint NOT NULL CHECK (next >= 1),
    recorded_at   bigint NOT NULL,
    fact_position bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO log_position VALUES (1, 1, 0, 0);

CREATE TABLE stream_heads (
    stream_id     text PRIMARY KEY,
    version       bigint NOT NULL,
    body_hash     bytea NOT NULL,
    recorded_at   bigint NOT NULL,
    machine_id    bigint,
    until         bigint,
    boot_id       text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX stream_heads_machine ON stream_heads (machine_id) WHERE machine_id IS NOT NULL;

CREATE TABLE events (
    position      bigint NOT NULL,
    count         integer NOT NULL CHECK (count >= 1),
    recorded_at   bigint NOT NULL,
    version       bigint NOT NULL,
    stream_id     text NOT NULL,
    topic         text NOT NULL,
    state         bytea NOT NULL,
    signature     bytea,
    PRIMARY KEY (position)
) PARTITION BY RANGE (position);
CREATE INDEX events_stream ON events (stream_id, version);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the event log is append only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Partitions are made as free tables and attached: CREATE TABLE ... PARTITION OF would block
-- open appends.
-- The function runs as the owner of the log, so the service role needs no right to create anything.
CREATE FUNCTION ensure_event_partitions(ahead integer DEFAULT 2, width bigint DEFAULT 1000000000)
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    made integer := 0;
    part bigint;
    part_name text;
BEGIN
    PERFORM pg_advisory_xact_lock(7415001);
    FOR part IN SELECT generate_series(0, (SELECT next FROM log_position) / width + ahead) LOOP
        part_name := 'events_' || part;
        CONTINUE WHEN to_regclass(part_name) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                       part_name);
        EXECUTE format('ALTER TABLE %I ALTER COLUMN state SET STORAGE EXTERNAL', part_name);
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT span'
                       ' CHECK (position >= %s AND position < %s)',
                       part_name, part * width, (part + 1) * width);
        EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                       part_name, part * width, (part + 1) * width);
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT span', part_name);
        EXECUTE format('CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON %I
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', part_name);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
SELECT ensure_event_partitions();
"""

KEEPERS = """
CREATE TABLE projection_positions (
    name          text PRIMARY KEY,
    version       integer NOT NULL,
    position      bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE key_secrets (
    key_id        text PRIMARY KEY,
    secret_sha256 bytea NOT NULL,
    last_used_at  bigint
);

CREATE TABLE enrolment_tokens (
    token_sha256  bytea PRIMARY KEY,
    machine_id    bigint NOT NULL,
    expires_at    bigint NOT NULL,
    used_at       bigint
);

CREATE TABLE idempotency (
    scope         text NOT NULL,
    key           text NOT NULL,
    request_hash  bytea NOT NULL,
    status        integer NOT NULL,
    answer        bytea NOT NULL,
    answered_at   bigint NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE TABLE vault_subjects (
    subject       text PRIMARY KEY,
    wrapped_key   bytea NOT NULL
);
CREATE TABLE vault_items (
    subject       text NOT NULL REFERENCES vault_subjects ON DELETE CASCADE,
    name          text NOT NULL,
    sealed        bytea NOT NULL,
    PRIMARY KEY (subject, name)
);
"""

GRANTS = """
GRANT USAGE ON SCHEMA ledger TO gpuledger_service;
GRANT SELECT, INSERT ON events TO gpuledger_service;
GRANT SELECT, UPDATE ON log_position TO gpuledger_service;
GRANT SELECT, INSERT, UPDATE ON stream_heads, projection_positions, key_secrets, enrolment_tokens
    TO gpuledger_service;
GRANT SELECT, INSERT ON idempotency TO gpuledger_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON vault_subjects, vault_items TO gpuledger_service;
REVOKE ALL ON FUNCTION ensure_event_partitions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ensure_event_partitions TO gpuledger_service;
"""


def upgrade() -> None:
    """Create everything in the schema `ledger`."""
    op.execute(LOG)
    op.execute(KEEPERS)
    op.execute(GRANTS)
    metadata.create_all(op.get_bind())
    for table in metadata.sorted_tables:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table.name} TO gpuledger_service")


def downgrade() -> None:
    """History is never taken back: restore a backup instead."""
    message = "the event log is never dropped by a migration; restore a backup instead"
    raise RuntimeError(message)
