"""The queue of messages: one row per notice that somebody wants by mail.

Notices are queued behind the log by a cursor, so no command waits for mail. A claim counts the
attempt before anything is sent: whoever dies in between leaves a row that is sent again, under the
same Message-ID. Nothing here is read by a decision, and nothing of it is rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ledger.domain.events import MailRequeued
from ledger.domain.ids import account_stream
from ledger.domain.webhooks import event_position
from ledger.errors import NotFoundError
from ledger.services import news
from ledger.services.ledger import Unit
from ledger.services.mail.messages import Attachments, Message, compose, no_attachments
from ledger.store.database import Connection
from ledger.store.vault import Vault

LEASE_SECONDS: Final = 300
"""How long an attempt is waited for, by a process that may have died."""
STALE_SECONDS: Final = 3 * 86_400
"""What happened longer ago than this is not told by mail any more: mail may have been off."""
_CURSOR: Final = "mail"
_TABLE: Final = "mail_messages"


def begin_queue(connection: Connection, position: int) -> None:
    """Let the cursor begin at the first setting; before it there is nothing to look for."""
    news.begin(connection, _CURSOR, position)


def enqueue(connection: Connection, now: int, *, everything: bool = False) -> int:
    """Queue what was noticed since the last time; returns how many messages.

    With *everything* it goes on up to the last notice; otherwise one page will do. The caller
    commits.
    """

    def put(after: int, last: int) -> int:
        return connection.execute(
            "INSERT INTO mail_messages (account_id, position, queued_at, due_at)"
            " SELECT n.account_id, n.position, %s, %s FROM notices n"
            " JOIN mail_settings m ON m.account_id = n.account_id AND m.position < n.position"
            " AND (m.codes IS NULL OR n.code = ANY(m.codes))"
            " WHERE n.position > %s AND n.position <= %s AND n.issued_at > %s"
            " ORDER BY n.position ON CONFLICT DO NOTHING",
            [now, now, after, last, now - STALE_SECONDS],
        ).rowcount

    return news.follow(connection, _CURSOR, put, everything=everything)


_CLAIM: Final = """
UPDATE mail_messages m SET claimed = true, attempts = m.attempts + 1, tries = m.tries + 1,
    attempted_at = %(now)s, due_at = %(now)s + %(lease)s
FROM (SELECT account_id, position FROM mail_messages WHERE state = 'pending' AND due_at <= %(now)s
      ORDER BY due_at, position LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS one
WHERE m.account_id = one.account_id AND m.position = one.position
RETURNING m.account_id, m.position, m.attempts, m.tries
"""


def claim(
    connection: Connection,
    vault: Vault,
    now: int,
    limit: int,
    attachments: Attachments = no_attachments,
) -> list[Message]:
    """Claim up to *limit* messages that are due; the caller commits before it sends any."""
    values = {"now": now, "lease": LEASE_SECONDS, "limit": limit}
    claimed = sorted(connection.execute(_CLAIM, values).fetchall(), key=lambda row: row[1])
    ready = []
    for account_id, position, attempt, tries in claimed:
        message = compose(connection, vault, account_id, position, attempt, tries, now, attachments)
        if message is None:  # The address was erased with its account's personal data.
            connection.execute(
                "DELETE FROM mail_messages WHERE account_id = %s AND state = 'pending'",
                [account_id],
            )
        else:
            ready.append(message)
    return ready


def requeue(unit: Unit, account_id: int, event: str) -> None:
    """Send a notice of the account again, whatever became of it before.

    Raises:
        NotFoundError: `no_mail` for an account without an address; `no_such_event`, also for
            somebody else's.
    """
    known = unit.connection.execute(
        "SELECT 1 FROM mail_settings WHERE account_id = %s", [account_id]
    ).fetchone()
    if known is None:
        raise NotFoundError("no_mail", "this account gets no mail: set an address first")
    position = event_position(event)
    row = None
    if position is not None:
        row = unit.connection.execute(
            "SELECT 1 FROM notices WHERE position = %s AND account_id = %s", [position, account_id]
        ).fetchone()
    if position is None or row is None:
        raise NotFoundError("no_such_event", f"there is no event {event!r}")
    _put(unit.connection, account_id, [position], unit.now)
    unit.append(
        account_stream(account_id),
        MailRequeued(account_id=account_id, events=[position], requeued_at=unit.now),
    )


def _put(connection: Connection, account_id: int, positions: Collection[int], now: int) -> None:
    connection.execute(
        "INSERT INTO mail_messages (account_id, position, queued_at, due_at)"
        " SELECT %s, p, %s, %s FROM unnest(%s::int8[]) AS p ORDER BY p"
        " ON CONFLICT (account_id, position) DO UPDATE SET state = 'pending', tries = 0,"
        " due_at = EXCLUDED.due_at, claimed = false, ended_at = NULL",
        [account_id, now, now, list(positions)],
    )


def release(connection: Connection, now: int) -> int:
    """Make what somebody else claimed due at once; the caller commits, and gets how many."""
    return news.release(connection, _TABLE, now)


def tidy(connection: Connection, now: int) -> int:
    """Forget messages that ended a month ago; the caller commits."""
    return news.tidy(connection, _TABLE, now)
