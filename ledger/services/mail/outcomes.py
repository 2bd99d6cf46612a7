"""What became of attempts: taken by the mail server, to be tried again, or given up for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.domain.events import MailDeadLettered
from ledger.domain.ids import account_stream
from ledger.domain.webhooks import pause_seconds
from ledger.services.ledger import Ledger
from ledger.services.mail.messages import Message
from ledger.store.database import Connection, translating


class Outcome(NamedTuple):
    """What became of an attempt.

    *final*: the server will never take it, so it is not tried again. *reason* is a code such as
    `smtp_550`, never the server's words, which may name people.
    """

    message: Message
    taken: bool
    reason: str | None = None
    final: bool = False


_RECORD: Final = """
UPDATE mail_messages SET state = %s, claimed = false, due_at = coalesce(%s, due_at),
    ended_at = %s, reason = %s
WHERE account_id = %s AND position = %s AND attempts = %s AND claimed AND state = 'pending'
"""


def record(ledger: Ledger, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Write down what became of attempts; returns those whose message was given up.

    A failure is tried again after a pause that grows, as with webhooks; the last one, or one that
    is final, makes a dead letter, which is a fact.
    """
    now = ledger.clock()
    lost: list[Outcome] = []
    with translating(), ledger.database.pool.connection() as connection:
        for one in outcomes:
            sent = one.message
            if one.taken:
                _write(connection, one, "sent", ended_at=now)
                continue
            pause = pause_seconds(sent.tries, f"mail/{sent.account_id}/{sent.position}")
            if one.final or pause is None:
                lost.append(one)
            else:
                _write(connection, one, "pending", due_at=now + pause)
    return _bury(ledger, lost) if lost else []


def _bury(ledger: Ledger, lost: Sequence[Outcome]) -> list[Outcome]:
    buried = []
    with ledger.unit() as unit:
        for one in lost:
            if not _write(unit.connection, one, "dead", ended_at=unit.now):
                continue  # It was asked for again, or mail was stopped meanwhile.
            unit.append(
                account_stream(one.message.account_id),
                MailDeadLettered(
                    account_id=one.message.account_id,
                    event=one.message.position,
                    attempts=one.message.attempt,
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
) -> bool:
    """Write one outcome; False where the attempt is no longer the last."""
    sent = one.message
    values = [state, due_at, ended_at, one.reason, sent.account_id, sent.position, sent.attempt]
    return connection.execute(_RECORD, values).rowcount == 1
