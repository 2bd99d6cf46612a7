"""What became of attempts to send a message by mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.domain.events import MailDeadLettered
from ledger.services import outcomes
from ledger.services.ledger import Ledger
from ledger.services.mail.messages import Message
from ledger.store.database import Connection


class Outcome(NamedTuple):
    """What became of an attempt.

    *final*: the server will never take it, so it is not tried again. *reason* is a code such as
    `smtp_550`, never the server's words, which may name people.
    """

    message: Message
    taken: bool
    reason: str | None = None
    final: bool = False

    @property
    def tries(self) -> int:
        """How many attempts were made in a row, this one included."""
        return self.message.tries

    @property
    def row(self) -> tuple[int, int]:
        """The account, and the position of the notice."""
        return self.message.account_id, self.message.position


_RECORD: Final = """
UPDATE mail_messages SET state = %s, claimed = false, due_at = coalesce(%s, due_at),
    ended_at = %s, reason = %s
WHERE account_id = %s AND position = %s AND attempts = %s AND claimed AND state = 'pending'
RETURNING account_id
"""


class _Messages(outcomes.Queue[Outcome]):
    """The rows of `mail_messages`."""

    taken = "sent"
    seed = "mail/"

    def write(
        self,
        connection: Connection,
        one: Outcome,
        state: str,
        *,
        due_at: int | None = None,
        ended_at: int | None = None,
    ) -> int | None:
        values = [state, due_at, ended_at, one.reason, *one.row, one.message.attempt]
        row = connection.execute(_RECORD, values).fetchone()
        return None if row is None else row[0]

    def dead_letter(self, one: Outcome, account_id: int, now: int) -> MailDeadLettered:
        return MailDeadLettered(
            account_id=account_id,
            event=one.message.position,
            attempts=one.message.attempt,
            reason=one.reason or "unknown",
            dead_at=now,
        )


def record(ledger: Ledger, ended: Sequence[Outcome]) -> list[Outcome]:
    """Write down what became of attempts; returns those whose message was given up."""
    return _Messages().record(ledger, ended)
