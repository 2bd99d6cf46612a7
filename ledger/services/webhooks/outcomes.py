"""What became of attempts to deliver an event to a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.domain.events import WebhookDeadLettered
from ledger.services import outcomes
from ledger.services.ledger import Ledger
from ledger.services.webhooks.queue import Delivery
from ledger.store.database import Connection

EXCERPT_BYTES_MAX: Final = 1_024
"""How much is kept of what a receiver answered to a delivery that it did not take."""


class Outcome(NamedTuple):
    """What became of an attempt: taken, or why not. *reason* is a code such as `http_500`."""

    delivery: Delivery
    taken: bool
    status: int | None = None
    reason: str | None = None
    excerpt: str | None = None

    @property
    def final(self) -> bool:
        """Never: a receiver may mend whatever made it refuse."""
        return False

    @property
    def tries(self) -> int:
        """How many attempts were made in a row, this one included."""
        return self.delivery.tries

    @property
    def row(self) -> tuple[int, int]:
        """The webhook, and the position of the notice."""
        return self.delivery.webhook_id, self.delivery.position


_RECORD: Final = """
UPDATE webhook_deliveries d SET state = %s, claimed = false, due_at = coalesce(%s, d.due_at),
    ended_at = %s, status = %s, reason = %s, excerpt = %s
WHERE d.webhook_id = %s AND d.position = %s AND d.attempts = %s AND d.claimed
  AND d.state = 'pending'
RETURNING (SELECT w.account_id FROM webhooks w WHERE w.webhook_id = d.webhook_id)
"""


class _Deliveries(outcomes.Queue[Outcome]):
    """The rows of `webhook_deliveries`."""

    taken = "delivered"

    def write(
        self,
        connection: Connection,
        one: Outcome,
        state: str,
        *,
        due_at: int | None = None,
        ended_at: int | None = None,
    ) -> int | None:
        answer = [one.status, one.reason, one.excerpt]
        values = [state, due_at, ended_at, *answer, *one.row, one.delivery.attempt]
        row = connection.execute(_RECORD, values).fetchone()
        return None if row is None else row[0]

    def dead_letter(self, one: Outcome, account_id: int, now: int) -> WebhookDeadLettered:
        return WebhookDeadLettered(
            account_id=account_id,
            webhook_id=one.delivery.webhook_id,
            event=one.delivery.position,
            attempts=one.delivery.attempt,
            reason=one.reason or "unknown",
            dead_at=now,
        )


def record(ledger: Ledger, ended: Sequence[Outcome]) -> list[Outcome]:
    """Write down what became of attempts; returns those whose delivery was given up."""
    return _Deliveries().record(ledger, ended)
