"""What surrounds a launch: images, connections, templates, secrets, ssh keys, keys, jobs."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, PrimaryKeyConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, string, table

instance_launches = table(
    "instance_launches",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    string("image_digest", nullable=True),
    maybe("template_id"),
    string("template_hash", nullable=True),
    maybe("changed_at"),
)
"""What stood behind the names of a launch; its reference is in `instances`."""
connections = table(
    "connections",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    Column("assignment_no", Integer, nullable=False),
    Column("ports", JSONB, nullable=False),
    string("addresses", nullable=True),
    string("addresses_hash", nullable=True),
    string("digest", nullable=True),
    big("published_at"),
)
"""The last way into an instance that was not destroyed; `ports` are (container, host, protocol)."""
templates = table(
    "templates",
    FACTS,
    big("template_id", primary_key=True, autoincrement=False),
    big("account_id"),
    Column("version", Integer, nullable=False),
    string("hash_id"),
    string("reference"),
    string("content_hash"),
    string("name_hash"),
    Column("public", Boolean, nullable=False),
    big("created_at"),
    big("changed_at"),
    maybe("deleted_at"),
    Index("templates_account", "account_id", "template_id"),
    Index("templates_public", "template_id", postgresql_where=text("public")),
)
template_versions = table(
    "template_versions",
    FACTS,
    string("hash_id", nullable=False),
    big("template_id"),
    Column("version", Integer, nullable=False),
    string("reference"),
    PrimaryKeyConstraint("hash_id"),
    Index("template_versions_template", "template_id", "version"),
)
"""Every version of a template that was not deleted."""
account_secrets = table(
    "account_secrets",
    FACTS,
    big("secret_id", primary_key=True, autoincrement=False),
    big("account_id"),
    string("reference"),
    string("name_hash"),
    string("value_hash"),
    big("set_at"),
    Index("account_secrets_name", "account_id", "name_hash", unique=True),
)
ssh_keys = table(
    "ssh_keys",
    FACTS,
    big("ssh_key_id", primary_key=True, autoincrement=False),
    big("account_id"),
    string("reference"),
    string("key_hash"),
    big("added_at"),
    Index("ssh_keys_account", "account_id", "ssh_key_id"),
)
instance_ssh_keys = table(
    "instance_ssh_keys",
    FACTS,
    big("instance_id"),
    big("ssh_key_id"),
    big("attached_at"),
    PrimaryKeyConstraint("instance_id", "ssh_key_id"),
    Index("instance_ssh_keys_key", "ssh_key_id"),
)
launch_policies = table(
    "launch_policies",
    FACTS,
    big("account_id", primary_key=True, autoincrement=False),
    Column("secure_only", Boolean, nullable=False),
    big("set_at"),
)
api_key_grants = table(
    "api_key_grants",
    FACTS,
    Column("key_id", string("key_id").type, primary_key=True),
    Column("grants", JSONB, nullable=False),
    maybe("instance_id"),
    Index(
        "api_key_grants_instance",
        "instance_id",
        postgresql_where=text("instance_id IS NOT NULL"),
    ),
)
"""What a key may do; a key without a row may do all that its role may."""
api_key_names = table(
    "api_key_names",
    FACTS,
    Column("key_id", string("key_id").type, primary_key=True),
    string("reference"),
)
scheduled_jobs = table(
    "scheduled_jobs",
    FACTS,
    big("job_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("instance_id"),
    Column("plan", JSONB, nullable=False),
    maybe("due_at"),
    string("last_outcome", nullable=True),
    string("last_code", nullable=True),
    maybe("last_due_at"),
    maybe("last_ran_at"),
    big("scheduled_at"),
    maybe("removed_at"),
    Index(
        "scheduled_jobs_due",
        "due_at",
        postgresql_where=text("due_at IS NOT NULL AND removed_at IS NULL"),
    ),
    Index("scheduled_jobs_account", "account_id", "job_id"),
    Index("scheduled_jobs_instance", "instance_id"),
    fillfactor=70,
)
"""`due_at` is the next second in which it runs; null when its window has none left."""
