"""Public ssh keys of an account, and the instances that they open.

The whole line is sealed, as its comment may name a person. Every key that an account has when it
creates an instance is attached to it; others are attached by hand.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import (
    Fact,
    SshKeyAdded,
    SshKeyAttached,
    SshKeyChanged,
    SshKeyDetached,
    SshKeyRemoved,
)
from ledger.domain.ids import account_stream
from ledger.domain.instance.contract import require_alive
from ledger.domain.ssh import PublicKey, parse_public_key
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.subjects import opened, require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

SSH_KEYS_MAX: Final = 50
"""Keys of one account."""


class KeptSshKey(NamedTuple):
    """A key of an account; the key is none once it was erased."""

    ssh_key_id: int
    key: PublicKey | None
    added_at: int


def add_key(unit: Unit, account_id: int, line: str) -> int:
    """Keep a public key and return its id; the same key again is the same id.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
        RejectedError: `invalid_ssh_key`, or `too_many_ssh_keys`.
    """
    key = parse_public_key(line)
    subject = require_subject(unit.connection, account_id)
    key_hash = _hash(unit, key)
    known = _find(unit, account_id, key_hash)
    if known is not None:
        return known
    row = unit.connection.execute(
        "SELECT count(*) FROM ssh_keys WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    if row[0] >= SSH_KEYS_MAX:
        raise RejectedError("too_many_ssh_keys", f"an account has at most {SSH_KEYS_MAX} ssh keys")
    ssh_key_id = unit.next_id("ssh_key")
    name = f"ssh-key-{ssh_key_id}"
    unit.vault.put(unit.connection, subject, name, key.line.encode())
    unit.append(
        account_stream(account_id),
        SshKeyAdded(
            account_id=account_id,
            ssh_key_id=ssh_key_id,
            reference=f"{subject}/{name}",
            key_hash=key_hash,
            added_at=unit.now,
        ),
    )
    return ssh_key_id


def change_key(unit: Unit, account_id: int, ssh_key_id: int, line: str) -> None:
    """Put another key in the place of one; what it was attached to, the new one opens.

    Raises:
        NotFoundError: `no_such_ssh_key`.
        RejectedError: `invalid_ssh_key`, or `ssh_key_exists` when another id has it.
    """
    reference, before = _require(unit, account_id, ssh_key_id)
    key = parse_public_key(line)
    key_hash = _hash(unit, key)
    subject, _, name = reference.partition("/")
    known = _find(unit, account_id, key_hash)
    if known not in {None, ssh_key_id}:
        raise RejectedError("ssh_key_exists", f"ssh key {known} is this key", ssh_key_id=known)
    unit.vault.put(unit.connection, subject, name, key.line.encode())
    if key_hash != before:
        unit.append(
            account_stream(account_id),
            SshKeyChanged(
                account_id=account_id,
                ssh_key_id=ssh_key_id,
                key_hash=key_hash,
                changed_at=unit.now,
            ),
        )


def remove_key(unit: Unit, account_id: int, ssh_key_id: int) -> None:
    """Destroy a key; it is attached to nothing any more.

    Raises:
        NotFoundError: `no_such_ssh_key`.
    """
    reference, _ = _require(unit, account_id, ssh_key_id)
    subject, _, name = reference.partition("/")
    unit.vault.remove(unit.connection, subject, [name])
    unit.append(
        account_stream(account_id),
        SshKeyRemoved(account_id=account_id, ssh_key_id=ssh_key_id, removed_at=unit.now),
    )


def attach(unit: Unit, instance_id: int, ssh_key_id: int) -> None:
    """Let a key of the instance's account in; again changes nothing.

    Raises:
        NotFoundError: `no_such_instance`, also for one that was destroyed, or `no_such_ssh_key`.
    """
    instance = unit.instance(instance_id)
    require_alive(instance)
    _require(unit, instance.account_id, ssh_key_id)
    if ssh_key_id not in _attached(unit.connection, instance_id):
        unit.append(
            account_stream(instance.account_id),
            _attachment(unit, instance.account_id, ssh_key_id, instance_id),
        )


def attach_all(unit: Unit, instance_id: int) -> None:
    """Let every key that the account of a new instance has now into it."""
    rows = unit.connection.execute(
        "SELECT k.account_id, k.ssh_key_id FROM ssh_keys k JOIN instances i USING (account_id)"
        " WHERE i.instance_id = %s ORDER BY k.ssh_key_id",
        [instance_id],
    ).fetchall()
    new: list[tuple[str, Fact]] = [
        (account_stream(account_id), _attachment(unit, account_id, ssh_key_id, instance_id))
        for account_id, ssh_key_id in rows
    ]
    unit.append_all(new)


def detach(unit: Unit, instance_id: int, ssh_key_id: int) -> None:
    """Let a key in no longer.

    Raises:
        NotFoundError: `no_such_instance`, or `no_such_ssh_key` when it is not attached.
    """
    instance = unit.instance(instance_id)
    require_alive(instance)
    if ssh_key_id not in _attached(unit.connection, instance_id):
        raise _no_such_key(ssh_key_id)
    unit.append(
        account_stream(instance.account_id),
        SshKeyDetached(
            account_id=instance.account_id,
            ssh_key_id=ssh_key_id,
            instance_id=instance_id,
            detached_at=unit.now,
        ),
    )


def keys_of(connection: Connection, vault: Vault, account_id: int) -> list[KeptSshKey]:
    """The keys of an account, by id."""
    rows = connection.execute(
        "SELECT ssh_key_id, reference, added_at FROM ssh_keys WHERE account_id = %s"
        " ORDER BY ssh_key_id",
        [account_id],
    ).fetchall()
    return [KeptSshKey(row[0], _key(connection, vault, row[1]), row[2]) for row in rows]


def keys_into(connection: Connection, vault: Vault, instance_id: int) -> list[KeptSshKey]:
    """The keys that open an instance, by id, with the second since when."""
    rows = connection.execute(
        "SELECT k.ssh_key_id, k.reference, i.attached_at FROM instance_ssh_keys i"
        " JOIN ssh_keys k USING (ssh_key_id) WHERE i.instance_id = %s ORDER BY k.ssh_key_id",
        [instance_id],
    ).fetchall()
    return [KeptSshKey(row[0], _key(connection, vault, row[1]), row[2]) for row in rows]


def _key(connection: Connection, vault: Vault, reference: str) -> PublicKey | None:
    text = opened(connection, vault, reference)
    return None if text is None else parse_public_key(text.decode())


def _attachment(unit: Unit, account_id: int, ssh_key_id: int, instance_id: int) -> SshKeyAttached:
    return SshKeyAttached(
        account_id=account_id,
        ssh_key_id=ssh_key_id,
        instance_id=instance_id,
        attached_at=unit.now,
    )


def _attached(connection: Connection, instance_id: int) -> set[int]:
    rows = connection.execute(
        "SELECT ssh_key_id FROM instance_ssh_keys WHERE instance_id = %s", [instance_id]
    )
    return {row[0] for row in rows}


def _hash(unit: Unit, key: PublicKey) -> str:
    """A keyed hash of the key itself: the same key with another comment is the same."""
    return unit.vault.keyed_hash(f"ssh/{key.kind}/{key.blob.hex()}")


def _find(unit: Unit, account_id: int, key_hash: str) -> int | None:
    row = unit.connection.execute(
        "SELECT ssh_key_id FROM ssh_keys WHERE account_id = %s AND key_hash = %s",
        [account_id, key_hash],
    ).fetchone()
    return None if row is None else int(row[0])


def _require(unit: Unit, account_id: int, ssh_key_id: int) -> tuple[str, str]:
    """Reference and hash of a key that this account has."""
    row = unit.connection.execute(
        "SELECT reference, key_hash FROM ssh_keys WHERE ssh_key_id = %s AND account_id = %s",
        [ssh_key_id, account_id],
    ).fetchone()
    if row is None:
        raise _no_such_key(ssh_key_id)
    return row[0], row[1]


def _no_such_key(ssh_key_id: int) -> NotFoundError:
    return NotFoundError("no_such_ssh_key", f"there is no ssh key {ssh_key_id}")
