"""One fact of every kind that surrounds a launch: images, ways in, templates, keys, jobs."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import HASH, T

DIGEST: Final = "sha256:" + "5e" * 32
PLAN: Final = e.JobPlan(
    action="change_bid",
    bid=300_000_000,
    frequency="WEEKLY",
    day=0,
    hour=3,
    minute=30,
    start=T,
    until=T + 604_800,
)
LAUNCHES: Final[tuple[e.AnyFact, ...]] = (
    e.InstanceLaunchResolved(
        instance_id=1001,
        image_digest=DIGEST,
        template_id=12,
        template_hash="9f" * 16,
        resolved_at=T,
    ),
    e.InstanceLaunchChanged(
        instance_id=1001,
        launch="s-7/launch-1001-1",
        launch_hash=HASH,
        image_digest=None,
        changed_at=T,
    ),
    e.ConnectionPublished(
        instance_id=1001,
        assignment_no=3,
        ports=[e.PublishedPort(container_port=22, host_port=40_022, protocol="tcp")],
        addresses="s-7/connection-1001",
        addresses_hash=HASH,
        digest=DIGEST,
        published_at=T,
    ),
    e.TemplateCreated(
        account_id=7,
        template_id=12,
        hash_id="9f" * 16,
        reference="s-7/template-12-1",
        content_hash=HASH,
        name_hash=HASH,
        public=False,
        created_at=T,
    ),
    e.TemplateChanged(
        account_id=7,
        template_id=12,
        version=2,
        hash_id="8e" * 16,
        reference="s-7/template-12-2",
        content_hash=HASH,
        name_hash=HASH,
        public=True,
        changed_at=T,
    ),
    e.TemplateDeleted(account_id=7, template_id=12, deleted_at=T),
    e.SecretSet(
        account_id=7,
        secret_id=5,
        reference="s-7/secret-5",
        name_hash=HASH,
        value_hash=HASH,
        set_at=T,
    ),
    e.SecretRemoved(account_id=7, secret_id=5, removed_at=T),
    e.SshKeyAdded(account_id=7, ssh_key_id=3, reference="s-7/ssh-key-3", key_hash=HASH, added_at=T),
    e.SshKeyChanged(account_id=7, ssh_key_id=3, key_hash=HASH, changed_at=T),
    e.SshKeyRemoved(account_id=7, ssh_key_id=3, removed_at=T),
    e.SshKeyAttached(account_id=7, ssh_key_id=3, instance_id=1001, attached_at=T),
    e.SshKeyDetached(account_id=7, ssh_key_id=3, instance_id=1001, detached_at=T),
    e.LaunchPolicySet(account_id=7, secure_only=True, set_at=T),
    e.ApiKeyRestricted(
        account_id=7,
        key_id="5532fdd278ee16eb",
        grants=[
            e.Grant(
                scope="instance_read",
                endpoint="api.instance.show_instance",
                constraints=[e.Constraint(field="id", comparison="eq", value=1001)],
            )
        ],
        instance_id=1001,
        restricted_at=T,
    ),
    e.ApiKeyNamed(
        account_id=7,
        key_id="5532fdd278ee16eb",
        reference="s-7/key-5532fdd278ee16eb-name",
        named_at=T,
    ),
    e.ApiKeyReset(account_id=7, key_id="5532fdd278ee16eb", reset_at=T),
    e.JobScheduled(
        account_id=7, instance_id=1001, job_id=4, plan=PLAN, due_at=T + 12_600, scheduled_at=T
    ),
    e.JobChanged(account_id=7, instance_id=1001, job_id=4, plan=PLAN, due_at=None, changed_at=T),
    e.JobRemoved(account_id=7, instance_id=1001, job_id=4, removed_at=T),
    e.JobRan(
        account_id=7,
        instance_id=1001,
        job_id=4,
        outcome="refused",
        code="not_interruptible",
        count=1,
        due_at=T,
        next_due_at=T + 604_800,
        ran_at=T,
    ),
)
"""One fact of every kind that launches and keys add."""
