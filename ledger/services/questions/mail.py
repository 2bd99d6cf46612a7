"""Messages on their way to an account's address, those that arrived, and those given up."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.webhooks import event_id
from ledger.store.database import Connection

MessageState = Literal["pending", "sent", "dead"]


class MailMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A notice on its way by mail; `reason` is a code such as `smtp_550`."""

    event_id: str
    position: int
    account_id: int
    code: str
    about: str
    state: str
    attempts: int
    attempted_at: int | None
    due_at: int | None
    ended_at: int | None
    reason: str | None


def messages(
    connection: Connection,
    state: MessageState,
    *,
    account_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[MailMessage]:
    """Messages in one state by event: those of one account, or all.

    What was given up is a fact and stays listed when its row in the queue was tidied away.
    """
    if state == "dead":
        rows = connection.execute(
            "SELECT n.position, d.account_id, n.code, n.about, 'dead', d.attempts, NULL::bigint,"
            " NULL::bigint, d.dead_at, d.reason FROM mail_dead_letters d"
            " JOIN notices n ON n.position = d.event WHERE d.requeued_at IS NULL"
            " AND (%s::bigint IS NULL OR d.account_id = %s) AND n.position > %s"
            " ORDER BY n.position LIMIT %s",
            [account_id, account_id, after, limit],
        )
    else:
        rows = connection.execute(
            "SELECT m.position, m.account_id, n.code, n.about, m.state, m.attempts,"
            " m.attempted_at, CASE WHEN m.state = 'pending' THEN m.due_at END, m.ended_at, m.reason"
            " FROM mail_messages m JOIN notices n USING (position) WHERE m.state = %s"
            " AND (%s::bigint IS NULL OR m.account_id = %s) AND m.position > %s"
            " ORDER BY m.position LIMIT %s",
            [state, account_id, account_id, after, limit],
        )
    return [
        MailMessage(
            event_id=event_id(row[0]),
            position=row[0],
            account_id=row[1],
            code=row[2],
            about=row[3],
            state=row[4],
            attempts=row[5],
            attempted_at=row[6],
            due_at=row[7],
            ended_at=row[8],
            reason=row[9],
        )
        for row in rows
    ]
