"""Who called what, when, and from which address: a table of operation, bounded in age.

No bodies, no secrets: the endpoint, the path with its numbers, the status. Addresses are personal;
they are sealed under the account's subject, found again by a keyed hash, and destroyed with the
account's personal data. Entries are written in batches, behind the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.errors import LedgerError, NotFoundError
from ledger.services.ledger import Ledger
from ledger.services.subjects import require_subject
from ledger.store.database import Connection, translating
from ledger.store.vault import Vault

KEEP_SECONDS: Final = 90 * 86_400


class Entry(NamedTuple):
    """One call by somebody whose key was checked."""

    at: int
    account_id: int
    key_id: str
    role: str
    endpoint: str
    method: str
    path: str
    status: int
    address: str | None


class Called(NamedTuple):
    """One entry as it is shown; the address is none for those who may not see it, and once erased.

    `entry_id` rises with time, to about a second.
    """

    entry_id: int
    at: int
    account_id: int
    key_id: str
    role: str
    endpoint: str
    method: str
    path: str
    status: int
    address: str | None


class SeenAddress(NamedTuple):
    """An address from which an account was used."""

    address_id: int
    account_id: int
    address: str | None
    first_seen: int
    last_seen: int


def write(ledger: Ledger, entries: Sequence[Entry]) -> None:
    """Keep entries; a crash may lose the last second of them.

    Raises:
        UnavailableError: The database takes no writes now.
    """
    if not entries:
        return
    with translating(), ledger.database.pool.connection() as connection:
        connection.execute("SET LOCAL synchronous_commit = off")
        known: dict[tuple[int, str], int | None] = {}
        rows = []
        for one in entries:
            address_id = None
            if one.address is not None:
                place = (one.account_id, one.address)
                if place not in known:
                    known[place] = _address(connection, ledger.vault, one)
                address_id = known[place]
            rows.append((*one[:8], address_id))
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO access_log (at, account_id, key_id, role, endpoint, method, path,"
                " status, address_id) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                rows,
            )


def prune(ledger: Ledger) -> None:
    """Drop what is older than 90 days, addresses that nobody used since included.

    Raises:
        UnavailableError: The database takes no writes now.
    """
    before = ledger.clock() - KEEP_SECONDS
    with translating(), ledger.database.pool.connection() as connection:
        connection.execute("DELETE FROM access_log WHERE at < %s", [before])
        connection.execute("DELETE FROM access_addresses WHERE last_seen < %s", [before])


def _address(connection: Connection, vault: Vault, one: Entry) -> int | None:
    """The id of an address of an account; none where it cannot be sealed."""
    assert one.address is not None
    try:
        subject = require_subject(connection, one.account_id)
        address_hash = vault.keyed_hash(f"address/{one.account_id}/{one.address}")
        sealed = vault.seal(connection, subject, "address", one.address.encode())
    except LedgerError:
        return None  # Erased, or the vault's key is away: the call itself is kept all the same.
    row = connection.execute(
        "INSERT INTO access_addresses (account_id, address_hash, sealed, first_seen, last_seen)"
        " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (account_id, address_hash) DO UPDATE SET"
        " last_seen = greatest(access_addresses.last_seen, EXCLUDED.last_seen)"
        " RETURNING address_id",
        [one.account_id, address_hash, sealed, one.at, one.at],
    ).fetchone()
    assert row is not None
    return int(row[0])


def audit_log(
    connection: Connection,
    vault: Vault | None,
    account_id: int | None,
    *,
    before: int | None = None,
    limit: int = 100,
) -> list[Called]:
    """Calls in an account's name (none: in anybody's), the newest first.

    With a *vault* the addresses too. *before* is the `entry_id` of the last one that was seen.
    """
    rows = connection.execute(
        "SELECT l.entry_id, l.at, l.account_id, l.key_id, l.role, l.endpoint, l.method, l.path,"
        " l.status, s.subject, d.sealed FROM access_log l JOIN accounts s USING (account_id)"
        " LEFT JOIN access_addresses d USING (address_id)"
        " WHERE (%s::bigint IS NULL OR l.account_id = %s)"
        " AND (%s::bigint IS NULL OR l.entry_id < %s) ORDER BY l.entry_id DESC LIMIT %s",
        [account_id, account_id, before, before, limit],
    ).fetchall()
    found = []
    for *called, subject, sealed in rows:
        found.append(Called._make([*called, _opened(connection, vault, subject, sealed)]))
    return found


def addresses(
    connection: Connection,
    vault: Vault,
    account_id: int | None,
    *,
    after: int = 0,
    limit: int = 100,
) -> list[SeenAddress]:
    """The addresses from which an account (none: anybody) was used, by their ids."""
    rows = connection.execute(
        "SELECT d.address_id, d.account_id, s.subject, d.sealed, d.first_seen, d.last_seen"
        " FROM access_addresses d JOIN accounts s USING (account_id) WHERE d.address_id > %s"
        " AND (%s::bigint IS NULL OR d.account_id = %s) ORDER BY d.address_id LIMIT %s",
        [after, account_id, account_id, limit],
    ).fetchall()
    return [
        SeenAddress(row[0], row[1], _opened(connection, vault, row[2], row[3]), row[4], row[5])
        for row in rows
    ]


def _opened(
    connection: Connection, vault: Vault | None, subject: str, sealed: bytes | None
) -> str | None:
    if vault is None or sealed is None:
        return None
    try:
        return vault.unseal(connection, subject, "address", bytes(sealed)).decode()
    except NotFoundError:
        return None
