"""The queue of deliveries: one row per webhook and event, from the notice to its last attempt.

Notices are queued behind the log by a cursor, so no command waits for it. A claim makes a row due
again at the end of a lease and counts the attempt before anything is sent: whoever dies in between
leaves a row that is sent again, under the same event id. Nothing here is read by a decision, and
nothing of it is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from ledger.domain.webhooks import (
    ATTEMPT_HEADER,
    EVENT_HEADER,
    SIGNATURE_HEADER,
    body_of,
    signature_header,
)
from ledger.services import news
from ledger.services.webhooks.events import event_at
from ledger.services.webhooks.vaulted import address_of
from ledger.store.database import Connection
from ledger.store.vault import Vault

LEASE_SECONDS: Final = 60
"""How long an attempt is waited for, by a process that may have died; a request takes 10 s."""
_CURSOR: Final = "webhooks"
_TABLE: Final = "webhook_deliveries"
_PER_WEBHOOK: Final = 8


class Delivery(NamedTuple):
    """One attempt, ready to be sent."""

    webhook_id: int
    position: int
    attempt: int
    tries: int
    url: str
    headers: dict[str, str]
    body: bytes


# --- into the queue -------------------------------------------------------------------------------


def begin_queue(connection: Connection, position: int) -> None:
    """Let the cursor begin at the first registration; before it there is nothing to look for."""
    news.begin(connection, _CURSOR, position)


def enqueue(connection: Connection, now: int, *, everything: bool = False) -> int:
    """Queue what was noticed since the last time, once per webhook; returns how many rows.

    With *everything* it goes on up to the last notice; otherwise one page will do. The caller
    commits.
    """

    def put(after: int, last: int) -> int:
        return connection.execute(
            "INSERT INTO webhook_deliveries (webhook_id, position, queued_at, due_at)"
            " SELECT w.webhook_id, n.position, %s, %s FROM notices n"
            " JOIN webhooks w ON w.account_id = n.account_id AND w.removed_at IS NULL"
            " AND w.position < n.position AND (w.codes IS NULL OR n.code = ANY(w.codes))"
            " WHERE n.position > %s AND n.position <= %s ORDER BY w.webhook_id, n.position"
            " ON CONFLICT DO NOTHING",
            [now, now, after, last],
        ).rowcount

    return news.follow(connection, _CURSOR, put, everything=everything)


def put_in_queue(
    connection: Connection, webhook_id: int, positions: Collection[int], now: int
) -> None:
    """Queue these events, those that ended before as well; their attempts go on counting."""
    connection.execute(
        "INSERT INTO webhook_deliveries AS d (webhook_id, position, attempts, queued_at, due_at)"
        " SELECT %s, p, coalesce(l.attempts, 0), %s, %s FROM unnest(%s::int8[]) AS p"
        " LEFT JOIN webhook_dead_letters l ON l.webhook_id = %s AND l.event = p ORDER BY p"
        " ON CONFLICT (webhook_id, position) DO UPDATE SET state = 'pending', tries = 0,"
        " due_at = EXCLUDED.due_at, claimed = false, ended_at = NULL",
        [webhook_id, now, now, list(positions), webhook_id],
    )


# --- out of it ------------------------------------------------------------------------------------

# Which webhooks have something waiting is found by skipping from one to the next, so that a
# thousand rows of one broken receiver cost as much as one.
_DUE: Final = """
WITH RECURSIVE waiting AS (
    (SELECT webhook_id FROM webhook_deliveries WHERE state = 'pending'
     ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.webhook_id FROM webhook_deliveries d WHERE d.state = 'pending'
            AND d.webhook_id > w.webhook_id ORDER BY d.webhook_id LIMIT 1)
    FROM waiting w WHERE w.webhook_id IS NOT NULL
)
SELECT one.webhook_id, one.position FROM waiting w CROSS JOIN LATERAL (
    SELECT d.webhook_id, d.position, d.due_at FROM webhook_deliveries d
    WHERE d.webhook_id = w.webhook_id AND d.state = 'pending' AND d.due_at <= %s
    ORDER BY d.due_at, d.position LIMIT %s) AS one
ORDER BY one.due_at, one.position, one.webhook_id
"""
_CLAIM: Final = """
UPDATE webhook_deliveries d SET claimed = true, attempts = d.attempts + 1, tries = d.tries + 1,
    attempted_at = %(now)s, due_at = %(now)s + %(lease)s
FROM unnest(%(webhooks)s::int8[], %(positions)s::int8[]) AS one (webhook_id, position)
WHERE d.webhook_id = one.webhook_id AND d.position = one.position
  AND d.state = 'pending' AND d.due_at <= %(now)s
RETURNING d.webhook_id, d.position, d.attempts, d.tries
"""


def claim(
    connection: Connection,
    vault: Vault,
    now: int,
    limit: int,
    room: Callable[[int], int] | None = None,
) -> list[Delivery]:
    """Claim up to *limit* deliveries that are due; the caller commits before it sends any.

    Args:
        connection: Its transaction holds the claims.
        vault: Where addresses and secrets are.
        now: The second of the attempts, which is signed.
        limit: How many attempts may begin.
        room: How many of a webhook's may, for at most eight at once.
    """
    chosen: list[tuple[int, int]] = []
    left: dict[int, int] = {}
    for webhook_id, position in connection.execute(_DUE, [now, _PER_WEBHOOK]).fetchall():
        if webhook_id not in left:
            left[webhook_id] = _PER_WEBHOOK if room is None else room(webhook_id)
        if left[webhook_id] > 0 and len(chosen) < limit:
            left[webhook_id] -= 1
            chosen.append((webhook_id, position))
    if not chosen:
        return []
    values = {
        "now": now,
        "lease": LEASE_SECONDS,
        "webhooks": [webhook_id for webhook_id, _ in chosen],
        "positions": [position for _, position in chosen],
    }
    claimed = connection.execute(_CLAIM, values).fetchall()
    return _prepared(connection, vault, now, sorted(claimed, key=lambda row: row[1]))


def _prepared(
    connection: Connection, vault: Vault, now: int, claimed: Sequence[tuple[int, int, int, int]]
) -> list[Delivery]:
    known = {row[0]: address_of(connection, vault, row[0], now) for row in claimed}
    ready = []
    for webhook_id, position, attempt, tries in claimed:
        address = known[webhook_id]
        if address is None:
            connection.execute(
                "DELETE FROM webhook_deliveries WHERE webhook_id = %s AND state = 'pending'",
                [webhook_id],
            )
            continue
        url, secrets = address
        event = event_at(connection, position)
        body = body_of(event, attempt)
        headers = {
            "Content-Type": "application/json",
            SIGNATURE_HEADER: signature_header(secrets, now, body),
            EVENT_HEADER: event.id,
            ATTEMPT_HEADER: str(attempt),
        }
        ready.append(Delivery(webhook_id, position, attempt, tries, url, headers, body))
    return ready


def release(connection: Connection, now: int) -> int:
    """Make what somebody else claimed due at once; the caller commits, and gets how many."""
    return news.release(connection, _TABLE, now)


def tidy(connection: Connection, now: int) -> int:
    """Forget deliveries that ended a month ago; the caller commits."""
    return news.tidy(connection, _TABLE, now)
