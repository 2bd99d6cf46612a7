"""Accounts: opened under a name that is kept in the vault, and found by it."""

from __future__ import annotations

import re
from typing import Final

from ledger.domain.events import AccountOpened
from ledger.domain.ids import account_stream
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.store.database import Connection

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


def open_account(unit: Unit, name: str, *, currency: str = "USD") -> int:
    """Open an account under a name that no other account has, and return its id.

    Raises:
        RejectedError: `invalid_args`, `currency_not_supported` or `name_taken`.
    """
    if not _NAME.fullmatch(name) or name != name.strip():
        message = "a name is 1 to 64 printable characters without spaces at its ends"
        raise RejectedError("invalid_args", message)
    if name.isdecimal():
        # Where people may give a name or an id, a number is always an id.
        raise RejectedError("invalid_args", "a name of digits alone would be taken for an id")
    if currency != "USD":
        message = f"accounts are kept in USD; {currency!r} is not supported"
        raise RejectedError("currency_not_supported", message)
    if find_account(unit, name) is not None:
        raise RejectedError("name_taken", f"there already is an account named {name!r}")
    account_id = unit.next_id("account")
    subject = unit.vault.new_subject(unit.connection)
    unit.vault.put(unit.connection, subject, "name", name.encode())
    unit.append(
        account_stream(account_id),
        AccountOpened(
            account_id=account_id,
            subject=subject,
            name_hash=unit.vault.keyed_hash(name),
            currency=currency,
            opened_at=unit.now,
        ),
    )
    return account_id


def find_account(unit: Unit, name: str) -> int | None:
    """The id of the account with this name; none if there is no such account."""
    row = unit.connection.execute(
        "SELECT account_id FROM accounts WHERE name_hash = %s", [unit.vault.keyed_hash(name)]
    ).fetchone()
    return None if row is None else int(row[0])


def ensure_account(unit: Unit, name: str) -> int:
    """The id of the account with this name, opened now if it did not exist."""
    found = find_account(unit, name)
    return open_account(unit, name) if found is None else found


def account_exists(connection: Connection, account_id: int) -> bool:
    """Whether there is such an account, also one whose personal data were erased."""
    row = connection.execute(
        "SELECT 1 FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    return row is not None


def require_account(connection: Connection, account_id: int) -> None:
    """Refuse an account that there is not.

    Raises:
        NotFoundError: `no_such_account`.
    """
    if not account_exists(connection, account_id):
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
