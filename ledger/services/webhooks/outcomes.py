"""What became of attempts: delivered, to be tried again, or given up for good.

An outcome counts only for the attempt that it is of: one that comes after its delivery was claimed
or asked for anew changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.domain.events import WebhookDeadLettered
from ledger.domain.ids import account_stream
from ledger.domain.webhooks import pause_seconds
from ledger.services.ledger import Ledger
from ledger.services.webhooks.queue import Delivery
from ledger.store.database import Connection, translating

EXCERPT_BYTES_MAX: Final = 1_024
"""How much is kept of what a receiver answered to a delivery that it did not take."""


class Outcome(NamedTuple):
    """What became of an attempt: taken, or why not. *reason* is a code such as `http_500`."""

    delivery: Delivery
    taken: bool
    status: int | None = None
    reason: str | None = None
    excerpt: str | None = None


_RECORD: Final = """
UPDATE webhook_deliveries d SET state = %s, claimed = false, due_at = coalesce(%s, d.due_at),
    ended_at = %s, status = %s, reason = %s, excerpt = %s
WHERE d.webhook_id = %s AND d.position = %s AND d.attempts = %s AND d.claimed
  AND d.state = 'pending'
RETURNING (SELECT w.account_id FROM webhooks w WHERE w.webhook_id = d.webhook_id)
"""


def record(ledger: Ledger, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Write down what became of attempts; returns those whose delivery was given up.

    A failure is tried again after a pause that grows (`domain.webhooks.pause_seconds`); the last
    one makes a dead letter, which is a fact.
    """
    now = ledger.clock()
    lost: list[Outcome] = []
    ordered = sorted(outcomes, key=lambda one: (one.delivery.webhook_id, one.delivery.position))
    with translating(), ledger.database.pool.connection() as connection:
        for one in ordered:
            sent = one.delivery
            if one.taken:
                _write(connection, one, "delivered", ended_at=now)
                continue
            pause = pause_seconds(sent.tries, f"{sent.webhook_id}/{sent.position}")
            if pause is None:
                lost.append(one)
            else:
                _write(connection, one, "pending", due_at=now + pause)
    return _bury(ledger, lost) if lost else []


def _bury(ledger: Ledger, lost: Sequence[Outcome]) -> list[Outcome]:
    buried = []
    with ledger.unit() as unit:
        for one in lost:
            account_id = _write(unit.connection, one, "dead", ended_at=unit.now)
            if account_id is None:
                continue  # It was removed, or asked for again meanwhile.
            unit.append(
                account_stream(account_id),
                WebhookDeadLettered(
                    account_id=account_id,
                    webhook_id=one.delivery.webhook_id,
                    event=one.delivery.position,
                    attempts=one.delivery.attempt,
                    reason=one.reason or "unknown",
                    dead_at=unit.now,
                ),
            )
            buried.append(one)
    return buried


def _write(
    connection: Connection,
    one: Outcome,
    state: str,
    *,
    due_at: int | None = None,
    ended_at: int | None = None,
) -> int | None:
    """Write one outcome; returns the account, or none where the attempt is no longer the last."""
    sent = one.delivery
    row = connection.execute(
        _RECORD,
        [
            *(state, due_at, ended_at, one.status, one.reason, one.excerpt),
            *(sent.webhook_id, sent.position, sent.attempt),
        ],
    ).fetchone()
    return None if row is None else row[0]
