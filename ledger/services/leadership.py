"""Of several processes one is the leader: by an advisory lock that its connection holds.

When it dies, the lock is free and another one takes over.
"""

from __future__ import annotations

from typing import Protocol

from ledger.errors import LedgerError
from ledger.services.ledger import Ledger
from ledger.store.database import Connection, translating


class Leader(Protocol):
    """Says whether this process is the one that acts."""

    def held(self) -> bool:
        """True while it is."""

    def release(self) -> None:
        """Let another one be it."""


class Leadership(Leader):
    """A connection that holds an advisory lock for as long as it lives."""

    def __init__(self, ledger: Ledger, lock: int) -> None:
        """Want the lock; `held` says whether this process has it."""
        self._ledger = ledger
        self._lock = lock
        self._connection: Connection | None = None

    def held(self) -> bool:
        """True when this process is the leader now; tries to become it otherwise."""
        if self._connection is not None:
            try:
                with translating():
                    self._connection.execute("SELECT 1")
            except LedgerError:
                self.release()
            else:
                return True
        connection = self._ledger.database.connect(autocommit=True)
        with translating():
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", [self._lock]).fetchone()
        if row is None or not row[0]:
            connection.close()
            return False
        self._connection = connection
        return True

    def release(self) -> None:
        """Let another process lead."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
