"""Asking for events again: one by its id, or those of a stretch of time.

A replay is a fact, because a receiver that gets an event again may ask why. The event keeps its id
and goes on counting its attempts.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events import WebhookReplayed
from ledger.domain.ids import account_stream
from ledger.domain.webhooks import event_position
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.webhooks.queue import put_in_queue

REPLAY_MAX: Final = 1_000
"""Events of one replay."""
_EVENT: Final = (
    "SELECT 1 FROM notices WHERE position = %(event)s AND account_id = %(account)s"
    " UNION ALL SELECT 1 FROM webhook_deliveries WHERE webhook_id = %(webhook)s"
    " AND position = %(event)s"
)
_DEAD: Final = (
    "SELECT l.event FROM webhook_dead_letters l WHERE l.webhook_id = %(webhook)s"
    " AND l.replayed_at IS NULL AND l.dead_at >= %(since)s"
    " AND (%(until)s::bigint IS NULL OR l.dead_at < %(until)s) ORDER BY l.event LIMIT %(limit)s"
)
_ALL: Final = (
    "SELECT n.position FROM notices n JOIN webhooks w USING (account_id)"
    " WHERE w.webhook_id = %(webhook)s AND (w.codes IS NULL OR n.code = ANY(w.codes))"
    " AND n.issued_at >= %(since)s AND (%(until)s::bigint IS NULL OR n.issued_at < %(until)s)"
    " ORDER BY n.position LIMIT %(limit)s"
)


def replay(unit: Unit, account_id: int, webhook_id: int, event: str) -> int:
    """Send one event of the account again, whatever became of it before; returns 1.

    Raises:
        NotFoundError: `no_such_webhook`, or `no_such_event`, also for somebody else's.
    """
    _require_webhook(unit, account_id, webhook_id)
    position = event_position(event)
    values = {"event": position, "account": account_id, "webhook": webhook_id}
    if position is None or unit.connection.execute(_EVENT, values).fetchone() is None:
        raise NotFoundError("no_such_event", f"there is no event {event!r}")
    return _replay(unit, account_id, webhook_id, [position])


def replay_since(
    unit: Unit,
    account_id: int,
    webhook_id: int,
    since: int,
    until: int | None = None,
    *,
    everything: bool = False,
) -> int:
    """Send again what was given up in `[since, until)`; returns how many events.

    With *everything*, all events of those seconds that the webhook is for: also what arrived, and
    what was noticed before the webhook was there.

    Raises:
        NotFoundError: `no_such_webhook`.
        RejectedError: `too_many_events` for more than a thousand at once.
    """
    _require_webhook(unit, account_id, webhook_id)
    values = {"webhook": webhook_id, "since": since, "until": until, "limit": REPLAY_MAX + 1}
    rows = unit.connection.execute(_ALL if everything else _DEAD, values).fetchall()
    if len(rows) > REPLAY_MAX:
        message = f"these are more than {REPLAY_MAX} events: ask for a shorter time, with `until`"
        raise RejectedError("too_many_events", message)
    return _replay(unit, account_id, webhook_id, [row[0] for row in rows])


def _replay(unit: Unit, account_id: int, webhook_id: int, positions: list[int]) -> int:
    if positions:
        put_in_queue(unit.connection, webhook_id, positions, unit.now)
        unit.append(
            account_stream(account_id),
            WebhookReplayed(
                account_id=account_id,
                webhook_id=webhook_id,
                events=positions,
                replayed_at=unit.now,
            ),
        )
    return len(positions)


def _require_webhook(unit: Unit, account_id: int, webhook_id: int) -> None:
    row = unit.connection.execute(
        "SELECT 1 FROM webhooks WHERE webhook_id = %s AND account_id = %s AND removed_at IS NULL",
        [webhook_id, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_webhook", f"there is no webhook {webhook_id}")
