"""What the vault holds of a webhook: its address and its secrets, under its account's subject."""

from __future__ import annotations

from ledger.errors import NotFoundError
from ledger.store.database import Connection
from ledger.store.vault import Vault


def url_name(webhook_id: int) -> str:
    """Under which name the address lies."""
    return f"webhook-{webhook_id}-url"


def secret_name(webhook_id: int) -> str:
    """Under which name the secret that signs lies."""
    return f"webhook-{webhook_id}-secret"


def old_secret_name(webhook_id: int) -> str:
    """Under which name the secret before that lies."""
    return f"webhook-{webhook_id}-secret-before"


def url_of(connection: Connection, vault: Vault, webhook_id: int) -> str | None:
    """The address of a webhook; none when it was erased with its account's personal data.

    Raises:
        UnavailableError: `vault_key_missing`.
    """
    row = connection.execute(
        "SELECT url FROM webhooks WHERE webhook_id = %s AND removed_at IS NULL", [webhook_id]
    ).fetchone()
    if row is None:
        return None
    subject, _, name = row[0].partition("/")
    try:
        return vault.get(connection, subject, name).decode()
    except NotFoundError:
        return None


def address_of(
    connection: Connection, vault: Vault, webhook_id: int, now: int
) -> tuple[str, list[str]] | None:
    """The address and the secrets that sign now, the newest first.

    None when the webhook was removed, or its account's personal data were erased, and it with them.

    Raises:
        UnavailableError: `vault_key_missing`.
    """
    row = connection.execute(
        "SELECT url, overlap_until FROM webhooks WHERE webhook_id = %s AND removed_at IS NULL",
        [webhook_id],
    ).fetchone()
    if row is None:
        return None
    subject, _, name = row[0].partition("/")
    names = [secret_name(webhook_id)]
    if row[1] is not None and now < row[1]:
        names.append(old_secret_name(webhook_id))
    try:
        url = vault.get(connection, subject, name).decode()
        return url, [vault.get(connection, subject, one).decode() for one in names]
    except NotFoundError:
        return None
