"""What the owners of webhooks do: register, change, rotate the secret, remove, test.

The address and the secrets lie in the vault of the account's subject, under the webhook's id; an
erased subject takes them with it. A secret is shown once, when it is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, get_args

from ledger.domain.events import (
    NoticeCode,
    WebhookChanged,
    WebhookRegistered,
    WebhookRemoved,
    WebhookSecretRotated,
    WebhookTested,
)
from ledger.domain.ids import account_stream
from ledger.domain.webhook_targets import Reach, parse_target
from ledger.domain.webhooks import OVERLAP_SECONDS, event_id
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.subjects import require_subject
from ledger.services.webhooks.queue import begin_queue, enqueue, put_in_queue
from ledger.services.webhooks.vaulted import old_secret_name, secret_name, url_name

WEBHOOKS_MAX: Final = 10
"""Webhooks of one account."""
_CODES: Final[frozenset[str]] = frozenset(get_args(NoticeCode))


class Registered(NamedTuple):
    """A new webhook and the secret that signs what is sent to it."""

    webhook_id: int
    secret: str


class Rotated(NamedTuple):
    """A new secret, and the second up to which the old one signs too."""

    secret: str
    overlap_until: int


def register(
    unit: Unit,
    account_id: int,
    url: str,
    codes: Sequence[str] | None = None,
    *,
    reach: Collection[Reach] = (),
) -> Registered:
    """Send the notices of an account, those of *codes* or all, to *url* from here on.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
        RejectedError: `invalid_url`, `invalid_args` for a code that there is not,
            `webhook_exists` for an address that has one, `too_many_webhooks`.
    """
    parse_target(url, reach)
    wanted = _checked(codes)
    subject = require_subject(unit.connection, account_id)
    url_hash = unit.vault.keyed_hash(url)
    count = _require_new_address(unit, account_id, url_hash)
    if count >= WEBHOOKS_MAX:
        raise RejectedError("too_many_webhooks", f"an account has at most {WEBHOOKS_MAX} webhooks")
    webhook_id = unit.next_id("webhook")
    secret = _new_secret()
    unit.vault.put(unit.connection, subject, url_name(webhook_id), url.encode())
    unit.vault.put(unit.connection, subject, secret_name(webhook_id), secret.encode())
    (position,) = unit.append(
        account_stream(account_id),
        WebhookRegistered(
            account_id=account_id,
            webhook_id=webhook_id,
            url=f"{subject}/{url_name(webhook_id)}",
            url_hash=url_hash,
            codes=wanted,
            registered_at=unit.now,
        ),
    )
    begin_queue(unit.connection, position)
    return Registered(webhook_id, secret)


def change(
    unit: Unit,
    account_id: int,
    webhook_id: int,
    url: str,
    codes: Sequence[str] | None = None,
    *,
    reach: Collection[Reach] = (),
) -> None:
    """Give a webhook this address and these codes; what was noticed before follows the old codes.

    Raises:
        NotFoundError: `no_such_webhook`.
        RejectedError: `invalid_url`, `invalid_args`, `webhook_exists`.
    """
    reference, known_hash, known_codes = _require(unit, account_id, webhook_id)
    parse_target(url, reach)
    wanted = _checked(codes)
    url_hash = unit.vault.keyed_hash(url)
    if url_hash == known_hash and wanted == known_codes:
        return
    if url_hash != known_hash:
        _require_new_address(unit, account_id, url_hash)
        subject, _, name = reference.partition("/")
        unit.vault.put(unit.connection, subject, name, url.encode())
    enqueue(unit.connection, unit.now, everything=True)
    unit.append(
        account_stream(account_id),
        WebhookChanged(
            account_id=account_id,
            webhook_id=webhook_id,
            url=reference,
            url_hash=url_hash,
            codes=wanted,
            changed_at=unit.now,
        ),
    )


def rotate(unit: Unit, account_id: int, webhook_id: int) -> Rotated:
    """Sign with a new secret from here on, and for a day with the one before it as well.

    A second rotation within that day ends the oldest one at once.

    Raises:
        NotFoundError: `no_such_webhook`.
    """
    reference, _, _ = _require(unit, account_id, webhook_id)
    subject = reference.partition("/")[0]
    connection, vault = unit.connection, unit.vault
    secret = _new_secret()
    before = vault.get(connection, subject, secret_name(webhook_id))
    vault.put(connection, subject, old_secret_name(webhook_id), before)
    vault.put(connection, subject, secret_name(webhook_id), secret.encode())
    overlap_until = unit.now + OVERLAP_SECONDS
    unit.append(
        account_stream(account_id),
        WebhookSecretRotated(
            account_id=account_id,
            webhook_id=webhook_id,
            overlap_until=overlap_until,
            rotated_at=unit.now,
        ),
    )
    return Rotated(secret, overlap_until)


def remove(unit: Unit, account_id: int, webhook_id: int) -> None:
    """Send nothing there any more, what waits included; its address and secrets are destroyed.

    Removing it again changes nothing.

    Raises:
        NotFoundError: `no_such_webhook`.
    """
    row = unit.connection.execute(
        "SELECT url, removed_at FROM webhooks WHERE webhook_id = %s AND account_id = %s",
        [webhook_id, account_id],
    ).fetchone()
    if row is None:
        raise _no_such_webhook(webhook_id)
    if row[1] is not None:
        return
    names = [url_name(webhook_id), secret_name(webhook_id), old_secret_name(webhook_id)]
    unit.vault.remove(unit.connection, row[0].partition("/")[0], names)
    unit.connection.execute(
        "DELETE FROM webhook_deliveries WHERE webhook_id = %s AND state = 'pending'", [webhook_id]
    )
    unit.append(
        account_stream(account_id),
        WebhookRemoved(account_id=account_id, webhook_id=webhook_id, removed_at=unit.now),
    )


def send_test(unit: Unit, account_id: int, webhook_id: int) -> str:
    """Send an event that means nothing; returns its id.

    Raises:
        NotFoundError: `no_such_webhook`.
    """
    _require(unit, account_id, webhook_id)
    (position,) = unit.append(
        account_stream(account_id),
        WebhookTested(account_id=account_id, webhook_id=webhook_id, tested_at=unit.now),
    )
    put_in_queue(unit.connection, webhook_id, [position], unit.now)
    return event_id(position)


def _new_secret() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def _checked(codes: Sequence[str] | None) -> list[NoticeCode] | None:
    """The codes in one order, each once: the same wish is the same fact.

    Raises:
        RejectedError: `invalid_args`.
    """
    if codes is None:
        return None
    unknown = sorted(set(codes) - _CODES)
    if unknown or not codes:
        shown = ", ".join(sorted(_CODES))
        what = f"{unknown[0]!r} is no notice" if unknown else "name at least one notice, or none"
        raise RejectedError("invalid_args", f"codes: {what}; there are {shown}")
    return [code for code in get_args(NoticeCode) if code in codes]


def _require_new_address(unit: Unit, account_id: int, url_hash: str) -> int:
    """How many webhooks the account has, none of which has this address.

    Raises:
        RejectedError: `webhook_exists`.
    """
    rows = unit.connection.execute(
        "SELECT webhook_id, url_hash FROM webhooks WHERE account_id = %s AND removed_at IS NULL",
        [account_id],
    ).fetchall()
    for webhook_id, known in rows:
        if known == url_hash:
            message = f"webhook {webhook_id} has this address: change it, or rotate its secret"
            raise RejectedError("webhook_exists", message, webhook_id=webhook_id)
    return len(rows)


def _require(
    unit: Unit, account_id: int, webhook_id: int
) -> tuple[str, str, list[NoticeCode] | None]:
    """Reference and hash of the address, and the codes, of a webhook that this account has."""
    row = unit.connection.execute(
        "SELECT url, url_hash, codes FROM webhooks WHERE webhook_id = %s AND account_id = %s"
        " AND removed_at IS NULL",
        [webhook_id, account_id],
    ).fetchone()
    if row is None:
        raise _no_such_webhook(webhook_id)
    return row[0], row[1], row[2]


def _no_such_webhook(webhook_id: int) -> NotFoundError:
    return NotFoundError("no_such_webhook", f"there is no webhook {webhook_id}")
