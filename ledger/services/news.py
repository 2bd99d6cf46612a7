"""A queue that follows the notices by a cursor: each is looked at once, none is passed over.

What is queued from it goes to webhooks or by mail: both queue in the same way, and send in theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ledger.store.database import Connection

KEEP_SECONDS: Final = 30 * 86_400
"""How long a row that ended stays in its list; a dead letter itself is a fact and stays."""
_NOTICES_MAX: Final = 5_000


def begin(connection: Connection, queue: str, position: int) -> None:
    """Let the cursor of *queue* begin at the first wish; before it there is nothing to look for."""
    connection.execute(
        "INSERT INTO projection_positions VALUES (%s, 0, %s) ON CONFLICT (name) DO NOTHING",
        [queue, position],
    )


def follow(
    connection: Connection, queue: str, put: Callable[[int, int], int], *, everything: bool
) -> int:
    """Queue what was noticed since the last time; returns how many rows *put* queued.

    The order of commits is that of positions, so the cursor passes no notice that comes later. The
    caller commits.

    Args:
        connection: Its transaction holds the cursor.
        queue: The name of the cursor.
        put: Queues the notices in `(after, last]` and returns how many rows that made.
        everything: Go on up to the last notice; otherwise one page will do.
    """
    queued = 0
    while True:
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = %s FOR UPDATE", [queue]
        ).fetchone()
        if row is None:
            return queued
        page = connection.execute(
            "SELECT max(position), count(*) FROM (SELECT position FROM notices WHERE position > %s"
            " ORDER BY position LIMIT %s) AS page",
            [row[0], _NOTICES_MAX],
        ).fetchone()
        assert page is not None
        last, count = page
        if last is None:
            return queued
        queued += put(row[0], last)
        connection.execute(
            "UPDATE projection_positions SET position = %s WHERE name = %s", [last, queue]
        )
        if not everything or count < _NOTICES_MAX:
            return queued


def release(connection: Connection, table: str, now: int) -> int:
    """Make what somebody else claimed due at once, for who is now the only one that sends.

    *table* is that of the queue. The caller commits; returns how many rows there were.
    """
    return connection.execute(
        f"UPDATE {table} SET claimed = false, due_at = %s WHERE claimed",  # noqa: S608 - own names
        [now],
    ).rowcount


def tidy(connection: Connection, table: str, now: int) -> int:
    """Forget rows that ended a month ago; the caller commits."""
    return connection.execute(
        f"DELETE FROM {table} WHERE ended_at IS NOT NULL AND ended_at <= %s",  # noqa: S608 - own names
        [now - KEEP_SECONDS],
    ).rowcount
