"""Follows the log: reads it in pages, folds a page in memory, writes rows and position at once.

A page and the group's new position are one transaction, which locks the position first and goes on
only from where it was, so every event is folded exactly once however often the process dies. The
order in the log is the only thing that matters: a rebuild in other pages gives the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import CorruptHistoryError, RejectedError
from ledger.projections.groups import GENERATION, USAGE
from ledger.projections.usage.fold import UsageFold
from ledger.projections.usage.writing import write
from ledger.store.log import CHANNEL, read_page

if TYPE_CHECKING:
    from ledger.store.database import Connection

PAGE_EVENTS = 1_000
"""Events in one page: enough that sets are large, few enough that freshness stays below 1 s."""


def position_of(connection: Connection, group: str = USAGE) -> int:
    """The position of the last event that the group has folded; 0 before the first."""
    row = connection.execute(
        "SELECT position FROM projection_positions WHERE name = %s", [group]
    ).fetchone()
    return 0 if row is None else int(row[0])


def require_generation(connection: Connection) -> None:
    """Refuse to go on with read models that another version of the folds has made.

    Raises:
        RejectedError: `rebuild_needed`.
    """
    row = connection.execute(
        "SELECT version FROM projection_positions WHERE name = %s", [USAGE]
    ).fetchone()
    if row is not None and row[0] != GENERATION:
        message = (
            f"the read models are of generation {row[0]} and this program folds generation"
            f" {GENERATION}: run `gpuledger rebuild`, then start again"
        )
        raise RejectedError("rebuild_needed", message)


class UsageRunner:
    """Keeps the usage group's tables up with the log."""

    def __init__(self, *, lock_accounts: bool = True, page_events: int = PAGE_EVENTS) -> None:
        """Begin with nothing in memory; the position is read from the database."""
        self._fold = UsageFold()
        self._lock_accounts = lock_accounts
        self._page_events = page_events
        self._position: int | None = None
        self.ticks = 0
        """Ticks folded by this runner so far."""

    def catch_up(self, connection: Connection, through: int | None = None) -> int:
        """Fold everything there is, up to position *through*; returns the new position."""
        while self.step(connection, through):
            pass
        return self._position or 0

    def step(self, connection: Connection, through: int | None = None) -> int:
        """Fold one page and commit it; returns how many events it had."""
        try:
            with connection.transaction():
                count, position = self._page(connection, through)
        except BaseException:
            self._fold.forget()
            self._position = None
            raise
        self._position = position
        self._fold.committed()
        return count

    def _page(self, connection: Connection, through: int | None) -> tuple[int, int]:
        if self._position is None:
            self._position = self._enter(connection)
        events = read_page(connection, self._position, self._page_events)
        if through is not None:
            events = [event for event in events if event.position <= through]
        if not events:
            return 0, self._position
        # Whoever else folds waits here, before it reads or writes a row, and then sees its error.
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = %s FOR UPDATE", [USAGE]
        ).fetchone()
        if row is None or row[0] != self._position:
            message = "another process folds the usage group at the same time"
            raise CorruptHistoryError("two_runners", message)
        page = self._fold.fold(connection, events)
        write(connection, page, lock_accounts=self._lock_accounts)
        last = events[-1].position
        connection.execute(
            "UPDATE projection_positions SET position = %s WHERE name = %s", [last, USAGE]
        )
        self.ticks += page.ticks
        return len(events), last

    @staticmethod
    def _enter(connection: Connection) -> int:
        connection.execute(
            "INSERT INTO projection_positions VALUES (%s, %s, 0) ON CONFLICT (name) DO NOTHING",
            [USAGE, GENERATION],
        )
        require_generation(connection)
        return position_of(connection)


def wait_for_events(connection: Connection, seconds: float) -> None:
    """Return when something was appended, or after *seconds*; *connection* is in autocommit."""
    connection.execute(f"LISTEN {CHANNEL}")
    for _ in connection.notifies(timeout=seconds, stop_after=1):
        return
