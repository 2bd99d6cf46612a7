"""Whose data lies where in the vault: the subject of an account, and references into it."""

from __future__ import annotations

from ledger.errors import NotFoundError
from ledger.store.database import Connection
from ledger.store.vault import Vault


def require_subject(connection: Connection, account_id: int) -> str:
    """The subject under which an account's texts are sealed.

    Raises:
        NotFoundError: `no_such_account`, or `erased` when its personal data were.
    """
    row = connection.execute(
        "SELECT subject, erased_at FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    if row[1] is not None:
        raise NotFoundError("erased", "this account's personal data were erased")
    return str(row[0])


def opened(connection: Connection, vault: Vault, reference: str | None) -> bytes | None:
    """What a reference of the log points at; none where nothing was kept, or it was erased."""
    if reference is None:
        return None
    subject, _, name = reference.partition("/")
    try:
        return vault.get(connection, subject, name)
    except NotFoundError:
        return None


def dropped(connection: Connection, vault: Vault, references: list[str | None]) -> None:
    """Destroy what references point at; nothing is no matter."""
    for reference in references:
        if reference is not None:
            subject, _, name = reference.partition("/")
            vault.remove(connection, subject, [name])
