"""Launches, ways in, templates, secrets, ssh keys, keys' rights, jobs: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted


def launch_changes(fact: e.LaunchFact, position: int) -> Iterator[Change]:
    """What an instance is started with, and how one gets in."""
    match fact:
        case e.InstanceLaunchResolved():
            yield Change(
                "INSERT INTO instance_launches VALUES (%s, %s, %s, %s, NULL)",
                (fact.instance_id, fact.image_digest, fact.template_id, fact.template_hash),
            )
        case e.InstanceLaunchChanged():
            yield Change(
                "UPDATE instances SET launch = %s, changed_position = %s WHERE instance_id = %s",
                (fact.launch, position, fact.instance_id),
            )
            yield Change(
                "INSERT INTO instance_launches VALUES (%s, %s, NULL, NULL, %s)"
                " ON CONFLICT (instance_id) DO UPDATE SET image_digest = EXCLUDED.image_digest,"
                " changed_at = EXCLUDED.changed_at",
                (fact.instance_id, fact.image_digest, fact.changed_at),
            )
            yield _desired(fact.instance_id, position)
        case e.ConnectionPublished():
            yield Change(
                "INSERT INTO connections VALUES (%s, %s, %s::jsonb, %s, %s, %s, %s)"
                " ON CONFLICT (instance_id) DO UPDATE SET assignment_no = EXCLUDED.assignment_no,"
                " ports = EXCLUDED.ports, addresses = EXCLUDED.addresses,"
                " addresses_hash = EXCLUDED.addresses_hash, digest = EXCLUDED.digest,"
                " published_at = EXCLUDED.published_at",
                (
                    fact.instance_id,
                    fact.assignment_no,
                    _json(fact.ports),
                    fact.addresses,
                    fact.addresses_hash,
                    fact.digest,
                    fact.published_at,
                ),
            )


def ended_with(instance_id: int, at: int) -> Iterator[Change]:
    """What an instance takes with it when it is destroyed: its key, its way in, its jobs."""
    yield Change(
        "UPDATE api_keys SET revoked_at = %s WHERE revoked_at IS NULL AND key_id IN"
        " (SELECT key_id FROM api_key_grants WHERE instance_id = %s)",
        (at, instance_id),
    )
    yield Change("DELETE FROM connections WHERE instance_id = %s", (instance_id,))
    yield Change("DELETE FROM instance_ssh_keys WHERE instance_id = %s", (instance_id,))
    yield Change(
        "UPDATE scheduled_jobs SET removed_at = %s WHERE instance_id = %s AND removed_at IS NULL",
        (at, instance_id),
    )


def configuration_changes(fact: e.ConfigurationFact, position: int) -> Iterator[Change]:
    """What an account keeps for its launches."""
    match fact:
        case e.TemplateCreated():
            yield Change(
                "INSERT INTO templates VALUES (%s, %s, 1, %s, %s, %s, %s, %s, %s, %s, NULL)",
                (
                    fact.template_id,
                    fact.account_id,
                    fact.hash_id,
                    fact.reference,
                    fact.content_hash,
                    fact.name_hash,
                    fact.public,
                    fact.created_at,
                    fact.created_at,
                ),
            )
            yield _version(fact.hash_id, fact.template_id, 1, fact.reference)
            yield counted("template", fact.template_id)
        case e.TemplateChanged():
            yield Change(
                "UPDATE templates SET version = %s, hash_id = %s, reference = %s,"
                " content_hash = %s, name_hash = %s, public = %s, changed_at = %s"
                " WHERE template_id = %s",
                (
                    fact.version,
                    fact.hash_id,
                    fact.reference,
                    fact.content_hash,
                    fact.name_hash,
                    fact.public,
                    fact.changed_at,
                    fact.template_id,
                ),
            )
            yield _version(fact.hash_id, fact.template_id, fact.version, fact.reference)
        case e.TemplateDeleted():
            yield Change(
                "UPDATE templates SET deleted_at = %s WHERE template_id = %s",
                (fact.deleted_at, fact.template_id),
            )
            yield Change(
                "DELETE FROM template_versions WHERE template_id = %s", (fact.template_id,)
            )
        case e.SecretSet():
            yield Change(
                "INSERT INTO account_secrets VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (secret_id) DO UPDATE SET value_hash = EXCLUDED.value_hash,"
                " set_at = EXCLUDED.set_at",
                (
                    fact.secret_id,
                    fact.account_id,
                    fact.reference,
                    fact.name_hash,
                    fact.value_hash,
                    fact.set_at,
                ),
            )
            yield _counted_up("secret", fact.secret_id)
        case e.SecretRemoved():
            yield Change("DELETE FROM account_secrets WHERE secret_id = %s", (fact.secret_id,))
        case e.LaunchPolicySet():
            yield Change(
                "INSERT INTO launch_policies VALUES (%s, %s, %s) ON CONFLICT (account_id)"
                " DO UPDATE SET secure_only = EXCLUDED.secure_only, set_at = EXCLUDED.set_at",
                (fact.account_id, fact.secure_only, fact.set_at),
            )
        case _:
            yield from _ssh_key_changes(fact, position)


_SshKeyFact = (
    e.SshKeyAdded | e.SshKeyChanged | e.SshKeyRemoved | e.SshKeyAttached | e.SshKeyDetached
)


def _ssh_key_changes(fact: _SshKeyFact, position: int) -> Iterator[Change]:
    match fact:
        case e.SshKeyAdded():
            yield Change(
                "INSERT INTO ssh_keys VALUES (%s, %s, %s, %s, %s)",
                (fact.ssh_key_id, fact.account_id, fact.reference, fact.key_hash, fact.added_at),
            )
            yield counted("ssh_key", fact.ssh_key_id)
        case e.SshKeyChanged():
            yield Change(
                "UPDATE ssh_keys SET key_hash = %s WHERE ssh_key_id = %s",
                (fact.key_hash, fact.ssh_key_id),
            )
            yield _opened_by(fact.ssh_key_id, position)
        case e.SshKeyRemoved():
            yield _opened_by(fact.ssh_key_id, position)
            yield Change("DELETE FROM ssh_keys WHERE ssh_key_id = %s", (fact.ssh_key_id,))
            yield Change("DELETE FROM instance_ssh_keys WHERE ssh_key_id = %s", (fact.ssh_key_id,))
        case e.SshKeyAttached():
            yield Change(
                "INSERT INTO instance_ssh_keys VALUES (%s, %s, %s)",
                (fact.instance_id, fact.ssh_key_id, fact.attached_at),
            )
            yield _desired(fact.instance_id, position)
        case e.SshKeyDetached():
            yield Change(
                "DELETE FROM instance_ssh_keys WHERE instance_id = %s AND ssh_key_id = %s",
                (fact.instance_id, fact.ssh_key_id),
            )
            yield _desired(fact.instance_id, position)


def _desired(instance_id: int, position: int) -> Change:
    """What is wanted of an instance's machine is news to it."""
    return Change(
        "UPDATE machines SET desired_version = %s"
        " WHERE machine_id = (SELECT machine_id FROM instances WHERE instance_id = %s)",
        (position, instance_id),
    )


def _opened_by(ssh_key_id: int, position: int) -> Change:
    """A key changed: news to every machine with an instance that it opens."""
    return Change(
        "UPDATE machines SET desired_version = %s WHERE machine_id IN"
        " (SELECT i.machine_id FROM instances i JOIN instance_ssh_keys k USING (instance_id)"
        " WHERE k.ssh_key_id = %s)",
        (position, ssh_key_id),
    )


def access_changes(fact: e.AccessFact, position: int) -> Iterator[Change]:
    """What keys may do, and how they are called."""
    del position
    match fact:
        case e.ApiKeyRestricted():
            yield Change(
                "INSERT INTO api_key_grants VALUES (%s, %s::jsonb, %s)",
                (fact.key_id, _json(fact.grants), fact.instance_id),
            )
        case e.ApiKeyNamed():
            if fact.reference is None:
                yield Change("DELETE FROM api_key_names WHERE key_id = %s", (fact.key_id,))
            else:
                yield Change(
                    "INSERT INTO api_key_names VALUES (%s, %s) ON CONFLICT (key_id) DO NOTHING",
                    (fact.key_id, fact.reference),
                )
        case e.ApiKeyReset():
            return


def job_changes(fact: e.JobFact, position: int) -> Iterator[Change]:
    """What instances are to do by the calendar, and what came of it."""
    del position
    match fact:
        case e.JobScheduled():
            yield Change(
                "INSERT INTO scheduled_jobs VALUES"
                " (%s, %s, %s, %s::jsonb, %s, NULL, NULL, NULL, NULL, %s, NULL)",
                (
                    fact.job_id,
                    fact.account_id,
                    fact.instance_id,
                    _json(fact.plan),
                    fact.due_at,
                    fact.scheduled_at,
                ),
            )
            yield counted("job", fact.job_id)
        case e.JobChanged():
            yield Change(
                "UPDATE scheduled_jobs SET plan = %s::jsonb, due_at = %s WHERE job_id = %s",
                (_json(fact.plan), fact.due_at, fact.job_id),
            )
        case e.JobRemoved():
            yield Change(
                "UPDATE scheduled_jobs SET removed_at = %s WHERE job_id = %s",
                (fact.removed_at, fact.job_id),
            )
        case e.JobRan():
            yield Change(
                "UPDATE scheduled_jobs SET due_at = %s, last_outcome = %s, last_code = %s,"
                " last_due_at = %s, last_ran_at = %s WHERE job_id = %s",
                (
                    fact.next_due_at,
                    fact.outcome,
                    fact.code,
                    fact.due_at,
                    fact.ran_at,
                    fact.job_id,
                ),
            )


def _version(hash_id: str, template_id: int, version: int, reference: str) -> Change:
    return Change(
        "INSERT INTO template_versions VALUES (%s, %s, %s, %s)",
        (hash_id, template_id, version, reference),
    )


def _counted_up(kind: str, number: int) -> Change:
    """The last id of a kind, by a fact that may name an older one."""
    return Change(
        "INSERT INTO id_counters (kind, last) VALUES (%s, %s)"
        " ON CONFLICT (kind) DO UPDATE SET last = greatest(id_counters.last, EXCLUDED.last)",
        (kind, number),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
