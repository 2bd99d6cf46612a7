"""What an account keeps for its launches: templates, secrets, ssh keys, and what it demands.

Every text, names and comments included, lies in the vault: the log holds references and keyed
hashes.
"""

from __future__ import annotations

from ledger.domain.events.base import Fact


class TemplateCreated(Fact, tag="template.created.v1"):
    """An account named a launch configuration; `hash_id` is the name of its first version."""

    account_id: int
    template_id: int
    hash_id: str
    reference: str
    content_hash: str
    name_hash: str
    public: bool
    created_at: int


class TemplateChanged(Fact, tag="template.changed.v1"):
    """Another version of a template; instances made from those before keep what they have."""

    account_id: int
    template_id: int
    version: int
    hash_id: str
    reference: str
    content_hash: str
    name_hash: str
    public: bool
    changed_at: int


class TemplateDeleted(Fact, tag="template.deleted.v1"):
    """Nothing is made from it any more."""

    account_id: int
    template_id: int
    deleted_at: int


class SecretSet(Fact, tag="secret.set.v1"):
    """An account keeps a value for the environments of its launches, or another value."""

    account_id: int
    secret_id: int
    reference: str
    name_hash: str
    value_hash: str
    set_at: int


class SecretRemoved(Fact, tag="secret.removed.v1"):
    """The value is destroyed; launches that were made with it keep it."""

    account_id: int
    secret_id: int
    removed_at: int


class SshKeyAdded(Fact, tag="ssh_key.added.v1"):
    """An account keeps a public key; its comment may name a person, so all of it is sealed."""

    account_id: int
    ssh_key_id: int
    reference: str
    key_hash: str
    added_at: int


class SshKeyChanged(Fact, tag="ssh_key.changed.v1"):
    """Another public key under the same id, on every instance that it is attached to."""

    account_id: int
    ssh_key_id: int
    key_hash: str
    changed_at: int


class SshKeyRemoved(Fact, tag="ssh_key.removed.v1"):
    """The key is destroyed, and lets nobody in any more."""

    account_id: int
    ssh_key_id: int
    removed_at: int


class SshKeyAttached(Fact, tag="ssh_key.attached.v1"):
    """The key lets its owner into this instance."""

    account_id: int
    ssh_key_id: int
    instance_id: int
    attached_at: int


class SshKeyDetached(Fact, tag="ssh_key.detached.v1"):
    """The key lets nobody into this instance any more."""

    account_id: int
    ssh_key_id: int
    instance_id: int
    detached_at: int


class LaunchPolicySet(Fact, tag="launch_policy.set.v1"):
    """What an account demands of machines: with *secure_only*, the secure tier."""

    account_id: int
    secure_only: bool
    set_at: int


ConfigurationFact = (
    TemplateCreated
    | TemplateChanged
    | TemplateDeleted
    | SecretSet
    | SecretRemoved
    | SshKeyAdded
    | SshKeyChanged
    | SshKeyRemoved
    | SshKeyAttached
    | SshKeyDetached
    | LaunchPolicySet
)
