"""Webhooks, what waits to be sent to them, and what was given up."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ledger.domain.webhooks import TEST_EVENT, event_id
from ledger.errors import NotFoundError
from ledger.services.webhooks.vaulted import url_of
from ledger.store.database import Connection
from ledger.store.vault import Vault

DeliveryState = Literal["pending", "delivered", "dead"]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook; `codes` is none for all notices, `url` for who may not see it.

    `pending` counts what waits to be sent or sent again, `dead` what was given up and not asked for
    again.
    """

    webhook_id: int
    account_id: int
    url: str | None
    codes: list[str] | None
    overlap_until: int | None
    registered_at: int
    pending: int
    dead: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way to one webhook.

    `status` and `excerpt` are the last answer, `reason` is a code such as `http_500` or `timeout`.
    `due_at` is when it is tried next, none once it ended.
    """

    webhook_id: int
    position: int
    event_id: str
    type: str
    about: str
    state: str
    attempts: int
    attempted_at: int | None
    due_at: int | None
    ended_at: int | None
    status: int | None
    reason: str | None
    excerpt: str | None


_WEBHOOKS: Final = """
SELECT w.webhook_id, w.account_id, w.codes, w.overlap_until, w.registered_at,
       (SELECT count(*) FROM webhook_deliveries d
        WHERE d.webhook_id = w.webhook_id AND d.state = 'pending'),
       (SELECT count(*) FROM webhook_dead_letters l
        WHERE l.webhook_id = w.webhook_id AND l.replayed_at IS NULL)
FROM webhooks w WHERE w.removed_at IS NULL AND w.webhook_id > %s
  AND (%s::bigint IS NULL OR w.account_id = %s) ORDER BY w.webhook_id LIMIT %s
"""
_QUEUED: Final = """
SELECT d.position, n.code, n.about, d.state, d.attempts, d.attempted_at,
       CASE WHEN d.state = 'pending' THEN d.due_at END, d.ended_at, d.status, d.reason, d.excerpt
FROM webhook_deliveries d LEFT JOIN notices n USING (position)
WHERE d.webhook_id = %s AND d.state = %s AND d.position > %s ORDER BY d.position LIMIT %s
"""
# The fact says that it is dead; the queue may still know what the receiver said.
_DEAD: Final = """
SELECT l.event, n.code, n.about, 'dead', l.attempts, d.attempted_at, NULL, l.dead_at, d.status,
       l.reason, d.excerpt
FROM webhook_dead_letters l LEFT JOIN notices n ON n.position = l.event
LEFT JOIN webhook_deliveries d ON d.webhook_id = l.webhook_id AND d.position = l.event
WHERE l.webhook_id = %s AND l.replayed_at IS NULL AND l.event > %s ORDER BY l.event LIMIT %s
"""


def webhooks(
    connection: Connection,
    vault: Vault | None,
    *,
    account_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[Webhook]:
    """Webhooks of one account or all (none), by id; without a *vault*, without their addresses."""
    rows = connection.execute(_WEBHOOKS, [after, account_id, account_id, limit]).fetchall()
    return [
        Webhook(
            webhook_id=row[0],
            account_id=row[1],
            url=None if vault is None else url_of(connection, vault, row[0]),
            codes=row[2],
            overlap_until=row[3],
            registered_at=row[4],
            pending=row[5],
            dead=row[6],
        )
        for row in rows
    ]


def webhook(
    connection: Connection, vault: Vault | None, webhook_id: int, account_id: int | None
) -> Webhook:
    """One webhook, of this account if one is named.

    Raises:
        NotFoundError: `no_such_webhook`, also for somebody else's.
    """
    found = webhooks(connection, vault, account_id=account_id, after=webhook_id - 1, limit=1)
    if not found or found[0].webhook_id != webhook_id:
        raise NotFoundError("no_such_webhook", f"there is no webhook {webhook_id}")
    return found[0]


def deliveries(
    connection: Connection,
    webhook_id: int,
    state: DeliveryState,
    *,
    after: int = 0,
    limit: int = 100,
) -> list[Delivery]:
    """Deliveries to a webhook in one state, by event; those that arrived for 30 days."""
    if state == "dead":
        rows = connection.execute(_DEAD, [webhook_id, after, limit])
    else:
        rows = connection.execute(_QUEUED, [webhook_id, state, after, limit])
    return [
        Delivery(
            webhook_id=webhook_id,
            position=row[0],
            event_id=event_id(row[0]),
            type=row[1] or TEST_EVENT,
            about=row[2] or f"webhook-{webhook_id}",
            state=row[3],
            attempts=row[4],
            attempted_at=row[5],
            due_at=row[6],
            ended_at=row[7],
            status=row[8],
            reason=row[9],
            excerpt=row[10],
        )
        for row in rows
    ]
