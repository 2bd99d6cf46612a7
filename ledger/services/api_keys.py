"""API keys: made, named, given another secret, revoked; and who holds one that is shown.

A key is `glk_<id>_<secret>`. Its secret is shown once; what is kept is a hash, in no fact.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from ledger.domain.events import (
    ApiKeyCreated,
    ApiKeyNamed,
    ApiKeyReset,
    ApiKeyRestricted,
    ApiKeyRevoked,
    Grant,
    Role,
)
from ledger.domain.ids import account_stream
from ledger.domain.permissions import covers
from ledger.errors import (
    AuthError,
    ForbiddenError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from ledger.services.accounts import require_account
from ledger.services.ledger import Ledger, Unit
from ledger.services.subjects import opened, require_subject
from ledger.store.database import Connection, translating

_USE_SECONDS: Final = 60
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


class Principal(NamedTuple):
    """Who is asking, and in which role."""

    account_id: int
    role: Role
    key_id: str
    last_used_at: int | None
    """To about a minute, without this use."""
    expires_at: int | None = None
    grants: tuple[Grant, ...] | None = None
    """What the key may do; none: all that its role may."""
    instance_id: int | None = None
    """Whose key it is, where it is that of an instance."""


class KnownKey(NamedTuple):
    """A key of an account, as far as others may be compared with it."""

    key_id: str
    role: Role
    expires_at: int | None
    revoked_at: int | None
    grants: tuple[Grant, ...] | None
    instance_id: int | None


def create_key(
    unit: Unit,
    account_id: int,
    role: Role,
    *,
    expires_at: int | None = None,
    grants: Sequence[Grant] | None = None,
    name: str | None = None,
    instance_id: int | None = None,
) -> str:
    """Make an API key; the text returned is shown once and kept nowhere.

    Args:
        unit: The command's transaction.
        account_id: For whom it acts.
        role: In which role.
        expires_at: Its first dead second; never by default.
        grants: What it may do; all that its role may by default.
        name: What people call it.
        instance_id: Set for the key that an instance itself has.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args` when it would already be expired, or for a name that is none.
    """
    if expires_at is not None and expires_at <= unit.now:
        raise RejectedError("invalid_args", "a key must expire in the future")
    require_account(unit.connection, account_id)
    key_id = secrets.token_hex(8)
    secret = secrets.token_urlsafe(32)
    unit.append(
        account_stream(account_id),
        ApiKeyCreated(
            key_id=key_id,
            account_id=account_id,
            role=role,
            expires_at=expires_at,
            created_at=unit.now,
        ),
    )
    unit.connection.execute(
        "INSERT INTO key_secrets (key_id, secret_sha256) VALUES (%s, %s)",
        [key_id, hashlib.sha256(secret.encode()).digest()],
    )
    if grants is not None:
        unit.append(
            account_stream(account_id),
            ApiKeyRestricted(
                account_id=account_id,
                key_id=key_id,
                grants=list(grants),
                instance_id=instance_id,
                restricted_at=unit.now,
            ),
        )
    if name is not None:
        rename_key(unit, account_id, key_id, name)
    return f"glk_{key_id}_{secret}"


def rename_key(unit: Unit, account_id: int, key_id: str, name: str | None) -> None:
    """Call a key by another name, or by none; the name is sealed, and the same changes nothing.

    Raises:
        NotFoundError: `no_such_key`, or `erased`.
        RejectedError: `invalid_args`.
    """
    require_key(unit.connection, account_id, key_id)
    if name is not None and not _NAME.fullmatch(name):
        raise RejectedError("invalid_args", "a key's name is 1 to 64 printable characters")
    subject = require_subject(unit.connection, account_id)
    item = f"key-{key_id}-name"
    reference = f"{subject}/{item}"
    before = opened(unit.connection, unit.vault, reference)
    if (None if before is None else before.decode()) == name:
        return
    if name is None:
        unit.vault.remove(unit.connection, subject, [item])
    else:
        unit.vault.put(unit.connection, subject, item, name.encode())
    unit.append(
        account_stream(account_id),
        ApiKeyNamed(
            account_id=account_id,
            key_id=key_id,
            reference=None if name is None else reference,
            named_at=unit.now,
        ),
    )


def reset_key(unit: Unit, account_id: int, key_id: str) -> str:
    """Give a key another secret; the old text is dead at once, the new one shown this once.

    Raises:
        NotFoundError: `no_such_key`.
        RejectedError: `key_revoked`: a dead key stays dead.
    """
    if require_key(unit.connection, account_id, key_id).revoked_at is not None:
        raise RejectedError("key_revoked", "the key was revoked: make another one")
    secret = secrets.token_urlsafe(32)
    unit.connection.execute(
        "UPDATE key_secrets SET secret_sha256 = %s WHERE key_id = %s",
        [hashlib.sha256(secret.encode()).digest(), key_id],
    )
    unit.append(
        account_stream(account_id),
        ApiKeyReset(account_id=account_id, key_id=key_id, reset_at=unit.now),
    )
    return f"glk_{key_id}_{secret}"


def revoke_key(unit: Unit, account_id: int, key_id: str) -> None:
    """End a key of this account; revoking it again changes nothing.

    Raises:
        NotFoundError: `no_such_key`.
    """
    if require_key(unit.connection, account_id, key_id).revoked_at is None:
        unit.append(
            account_stream(account_id),
            ApiKeyRevoked(key_id=key_id, account_id=account_id, revoked_at=unit.now),
        )


def require_key(connection: Connection, account_id: int, key_id: str) -> KnownKey:
    """A key of this account, also one that was revoked.

    Raises:
        NotFoundError: `no_such_key`.
    """
    row = connection.execute(
        "SELECT k.key_id, k.role, k.expires_at, k.revoked_at, g.grants, g.instance_id"
        " FROM api_keys k LEFT JOIN api_key_grants g USING (key_id)"
        " WHERE k.key_id = %s AND k.account_id = %s",
        [key_id, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_key", f"there is no key {key_id!r}")
    return KnownKey(row[0], row[1], row[2], row[3], _grants(row[4]), row[5])


def require_not_more(
    principal: Principal,
    *,
    grants: Sequence[Grant] | None,
    expires_at: int | None,
) -> None:
    """Let a key make, reset or change another one only if that may no more than itself.

    Raises:
        ForbiddenError: `not_authorized`.
    """
    outlives = principal.expires_at is not None and (
        expires_at is None or expires_at > principal.expires_at
    )
    if outlives or not covers(principal.grants, grants):
        message = "a key makes and changes keys that may no more, and live no longer, than itself"
        raise ForbiddenError("not_authorized", message)


def authenticate(connection: Connection, key: str, now: int) -> Principal:
    """Who holds this key.

    Raises:
        AuthError: `auth_error`, whatever is wrong with it.
    """
    prefix, _, rest = key.partition("_")
    key_id, _, secret = rest.partition("_")
    row = connection.execute(
        "SELECT k.account_id, k.role, k.expires_at, k.revoked_at, s.secret_sha256, s.last_used_at,"
        " g.grants, g.instance_id FROM api_keys k JOIN key_secrets s USING (key_id)"
        " LEFT JOIN api_key_grants g USING (key_id) WHERE key_id = %s",
        [key_id],
    ).fetchone()
    digest = hashlib.sha256(secret.encode()).digest()
    expected = bytes(32) if row is None else bytes(row[4])
    matches = hmac.compare_digest(digest, expected)
    if prefix != "glk" or row is None or not matches:
        raise AuthError("auth_error", "the API key is not valid")
    if row[3] is not None or (row[2] is not None and row[2] <= now):
        raise AuthError("auth_error", "the API key has expired or was revoked")
    return Principal(row[0], row[1], key_id, row[5], row[2], _grants(row[6]), row[7])


def note_use(ledger: Ledger, principal: Principal, now: int) -> None:
    """Keep when a key was used, once a minute; a server that takes no writes is no obstacle."""
    if principal.last_used_at is not None and now < principal.last_used_at + _USE_SECONDS:
        return
    with suppress(UnavailableError), translating(), ledger.database.pool.connection() as connection:
        connection.execute(
            "UPDATE key_secrets SET last_used_at = %s WHERE key_id = %s"
            " AND (last_used_at IS NULL OR last_used_at < %s)",
            [now, principal.key_id, now],
        )


def _grants(stored: object) -> tuple[Grant, ...] | None:
    return None if stored is None else tuple(msgspec.convert(stored, list[Grant]))
