"""Environment secrets of an account: values that every launch of it gets, under its own values.

Name and value lie in the vault under the account's subject, an erased subject takes them with it.
A launch keeps what it was made with: changing a secret changes later launches only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ledger.domain.events import SecretRemoved, SecretSet
from ledger.domain.ids import account_stream
from ledger.domain.launch import EnvName, EnvValue
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.subjects import opened, require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

SECRETS_MAX: Final = 200
"""Secrets of one account."""


class Secret(msgspec.Struct, frozen=True):
    """What is sealed: a name and its value."""

    name: EnvName
    value: EnvValue


class KeptSecret(NamedTuple):
    """A secret of an account; its name is none once it was erased."""

    secret_id: int
    name: str | None
    value: str | None
    set_at: int


def set_secret(unit: Unit, account_id: int, name: str, value: str) -> int:
    """Keep a value under a name, or another value; returns its id. The same again changes nothing.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
        RejectedError: `invalid_args`, or `too_many_secrets`.
    """
    subject = require_subject(unit.connection, account_id)
    text = msgspec.json.encode(_checked(name, value))
    name_hash = unit.vault.keyed_hash(f"secret/{name}")
    value_hash = unit.vault.keyed_hash(f"secret-value/{text.decode()}")
    row = unit.connection.execute(
        "SELECT secret_id, reference, value_hash FROM account_secrets"
        " WHERE account_id = %s AND name_hash = %s",
        [account_id, name_hash],
    ).fetchone()
    if row is not None and row[2] == value_hash:
        return int(row[0])
    if row is None:
        _require_room(unit, account_id)
        secret_id = unit.next_id("secret")
        reference = f"{subject}/secret-{secret_id}"
    else:
        secret_id, reference = int(row[0]), row[1]
    unit.vault.put(unit.connection, subject, reference.partition("/")[2], text)
    unit.append(
        account_stream(account_id),
        SecretSet(
            account_id=account_id,
            secret_id=secret_id,
            reference=reference,
            name_hash=name_hash,
            value_hash=value_hash,
            set_at=unit.now,
        ),
    )
    return secret_id


def remove_secret(unit: Unit, account_id: int, name: str) -> None:
    """Destroy a secret; launches that were made with it keep its value.

    Raises:
        NotFoundError: `no_such_secret`.
    """
    row = unit.connection.execute(
        "SELECT secret_id, reference FROM account_secrets WHERE account_id = %s AND name_hash = %s",
        [account_id, unit.vault.keyed_hash(f"secret/{name}")],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_secret", f"there is no secret {name!r}")
    subject, _, item = row[1].partition("/")
    unit.vault.remove(unit.connection, subject, [item])
    unit.append(
        account_stream(account_id),
        SecretRemoved(account_id=account_id, secret_id=row[0], removed_at=unit.now),
    )


def secrets_of(connection: Connection, vault: Vault, account_id: int) -> list[KeptSecret]:
    """An account's secrets, in the order in which they were first set."""
    rows = connection.execute(
        "SELECT secret_id, reference, set_at FROM account_secrets WHERE account_id = %s"
        " ORDER BY secret_id",
        [account_id],
    ).fetchall()
    found = []
    for secret_id, reference, set_at in rows:
        text = opened(connection, vault, reference)
        secret = None if text is None else msgspec.json.decode(text, type=Secret)
        name, value = (None, None) if secret is None else (secret.name, secret.value)
        found.append(KeptSecret(secret_id, name, value, set_at))
    return found


def environment_of(connection: Connection, vault: Vault, account_id: int) -> dict[str, str]:
    """An account's secrets as an environment."""
    return {
        one.name: one.value
        for one in secrets_of(connection, vault, account_id)
        if one.name is not None and one.value is not None
    }


def _checked(name: str, value: str) -> Secret:
    try:
        return msgspec.convert({"name": name, "value": value}, Secret)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid_args", f"secret: {error}") from None


def _require_room(unit: Unit, account_id: int) -> None:
    row = unit.connection.execute(
        "SELECT count(*) FROM account_secrets WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    if row[0] >= SECRETS_MAX:
        raise RejectedError("too_many_secrets", f"an account has at most {SECRETS_MAX} secrets")
