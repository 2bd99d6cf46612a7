"""Accounts and their keys."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.domain.events import Grant
from ledger.domain.permissions import show_permissions
from ledger.errors import NotFoundError
from ledger.services.subjects import opened
from ledger.store.database import Connection
from ledger.store.vault import Vault


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account; its name is none once it was erased."""

    account_id: int
    name: str | None
    opened_at: int
    erased_at: int | None


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret."""

    key_id: str
    account_id: int
    role: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    name: str | None = None
    """What people call it; none too where the names were not asked for."""
    permissions: dict[str, Any] | None = None
    """What it may do; none: all that its role may."""
    instance_id: int | None = None
    """Whose key it is, where it is that of an instance."""


def accounts(
    connection: Connection, vault: Vault, *, after: int = 0, limit: int = 100
) -> list[Account]:
    """Accounts by id."""
    rows = connection.execute(
        "SELECT account_id, subject, opened_at, erased_at FROM accounts WHERE account_id > %s"
        " ORDER BY account_id LIMIT %s",
        [after, limit],
    ).fetchall()
    names = vault.names(connection, [row[1] for row in rows])
    return [
        Account(account_id=row[0], name=names.get(row[1]), opened_at=row[2], erased_at=row[3])
        for row in rows
    ]


def account(connection: Connection, vault: Vault, account_id: int) -> Account:
    """One account.

    Raises:
        NotFoundError: `no_such_account`.
    """
    found = accounts(connection, vault, after=account_id - 1, limit=1)
    if not found or found[0].account_id != account_id:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    return found[0]


def find_account(connection: Connection, vault: Vault, name_or_id: str) -> int:
    """The id of an account given by its name or its id.

    Raises:
        NotFoundError: `no_such_account`.
    """
    is_id = name_or_id.isdecimal()
    if is_id and len(name_or_id) >= 19:  # noqa: PLR2004 - digits of a bigint
        row = None
    else:
        row = connection.execute(
            f"SELECT account_id FROM accounts WHERE {'account_id' if is_id else 'name_hash'} = %s",  # noqa: S608 - two constants
            [int(name_or_id) if is_id else vault.keyed_hash(name_or_id)],
        ).fetchone()
    if row is None:
        message = f"there is no account {name_or_id!r}; `gpuledger accounts` lists them"
        raise NotFoundError("no_such_account", message)
    return int(row[0])


def api_keys(
    connection: Connection,
    account_id: int | None,
    *,
    vault: Vault | None = None,
    after: tuple[int, str] = (-1, ""),
    limit: int | None = None,
) -> list[ApiKey]:
    """The keys of an account, or of all (none), oldest first; *after* is (created_at, key_id).

    With a *vault* their names too.
    """
    rows = connection.execute(
        "SELECT k.key_id, k.account_id, k.role, k.created_at, k.expires_at, k.revoked_at,"
        " s.last_used_at, n.reference, g.grants, g.instance_id FROM api_keys k"
        " JOIN key_secrets s USING (key_id) LEFT JOIN api_key_names n USING (key_id)"
        " LEFT JOIN api_key_grants g USING (key_id)"
        " WHERE (%s::bigint IS NULL OR k.account_id = %s) AND (k.created_at, k.key_id) > (%s, %s)"
        " ORDER BY k.created_at, k.key_id LIMIT %s",
        [account_id, account_id, *after, limit],
    ).fetchall()
    return [
        ApiKey(
            key_id=row[0],
            account_id=row[1],
            role=row[2],
            created_at=row[3],
            expires_at=row[4],
            revoked_at=row[5],
            last_used_at=row[6],
            name=None if vault is None else _name(connection, vault, row[7]),
            permissions=None if row[8] is None else _permissions(row[8]),
            instance_id=row[9],
        )
        for row in rows
    ]


def _name(connection: Connection, vault: Vault, reference: str | None) -> str | None:
    text = opened(connection, vault, reference)
    return None if text is None else text.decode()


def _permissions(stored: Any) -> dict[str, Any]:
    return show_permissions(msgspec.convert(stored, list[Grant]))
