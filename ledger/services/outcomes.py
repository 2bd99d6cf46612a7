"""What became of attempts to tell news: taken, to be tried again, or given up for good.

By webhook and by mail alike. An outcome counts only for the attempt that it is of: one that comes
after its row was claimed or asked for anew changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from ledger.domain.events import Fact
from ledger.domain.ids import account_stream
from ledger.domain.webhooks import pause_seconds
from ledger.services.ledger import Ledger
from ledger.store.database import Connection, translating


class Ended(Protocol):
    """What became of one attempt."""

    @property
    def taken(self) -> bool:
        """Whether the other side took it."""

    @property
    def final(self) -> bool:
        """The other side will never take it, so it is not tried again."""

    @property
    def tries(self) -> int:
        """How many attempts were made in a row, this one included."""

    @property
    def row(self) -> tuple[int, int]:
        """The row of the queue: whose it is, and the position of the notice."""


T = TypeVar("T", bound=Ended)


class Queue(ABC, Generic[T]):
    """A table of rows that wait, were taken, or were given up."""

    taken: ClassVar[str]
    """What it calls the state of a row that was taken."""
    seed: ClassVar[str] = ""
    """What its pauses are spread by, beside the row."""

    @abstractmethod
    def write(
        self,
        connection: Connection,
        one: T,
        state: str,
        *,
        due_at: int | None = None,
        ended_at: int | None = None,
    ) -> int | None:
        """Write one outcome; returns the account, none where the attempt is no longer the last."""

    @abstractmethod
    def dead_letter(self, one: T, account_id: int, now: int) -> Fact:
        """The fact that a row was given up."""

    def record(self, ledger: Ledger, outcomes: Sequence[T]) -> list[T]:
        """Write down what became of attempts; returns those that were given up.

        A failure is tried again after a pause that grows (`domain.webhooks.pause_seconds`); the
        last one, or one that is final, makes a dead letter, which is a fact.
        """
        now = ledger.clock()
        lost: list[T] = []
        with translating(), ledger.database.pool.connection() as connection:
            for one in sorted(outcomes, key=lambda one: one.row):
                if one.taken:
                    self.write(connection, one, self.taken, ended_at=now)
                    continue
                owner, position = one.row
                pause = pause_seconds(one.tries, f"{self.seed}{owner}/{position}")
                if one.final or pause is None:
                    lost.append(one)
                else:
                    self.write(connection, one, "pending", due_at=now + pause)
        return self._bury(ledger, lost) if lost else []

    def _bury(self, ledger: Ledger, lost: Sequence[T]) -> list[T]:
        buried = []
        with ledger.unit() as unit:
            for one in lost:
                account_id = self.write(unit.connection, one, "dead", ended_at=unit.now)
                if account_id is None:
                    continue  # It was asked for again, or is not wanted any more.
                fact = self.dead_letter(one, account_id, unit.now)
                unit.append(account_stream(account_id), fact)
                buried.append(one)
        return buried
