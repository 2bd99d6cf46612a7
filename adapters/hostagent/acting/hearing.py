"""What the server says: taken from other threads, and understood at the loop's next turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

import structlog

from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.acting.wanted import Wanted
from adapters.hostagent.delivery import Heard
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.acknowledgement import Desired
from ledger.errors import UnavailableError

log = structlog.get_logger("gpuledger.agent")


class Wish(NamedTuple):
    """What the server wants, and when it was asked and heard; monotonic nanoseconds."""

    desired: Desired
    sent_ns: int
    received_ns: int


class Hearing:
    """Knows what is wanted, and when the server was last heard.

    `contact_at` is the monotonic second of the last answer; null before the first of this run.
    """

    def __init__(
        self,
        spool: SqliteSpool,
        senses: Senses,
        answerer: Answerer,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know what the agent before kept in *spool*; tell *senses* the time.

        Checks are handed to *answerer*.
        """
        self._spool, self._senses, self._answerer = spool, senses, answerer
        self._monotonic = monotonic
        self._untaken: SimpleQueue[Heard | Wish] = SimpleQueue()
        self._began_at = monotonic()
        self._may_be_behind = True
        self.wanted = Wanted(spool.load("desired"))
        self.contact_at: float | None = None

    def put(self, heard: Heard | Wish) -> None:
        """Something was heard; on any thread."""
        self._untaken.put(heard)

    @property
    def silent_seconds(self) -> float:
        """Since the last answer of the server, or the beginning."""
        contact = self._began_at if self.contact_at is None else self.contact_at
        return self._monotonic() - contact

    def take(self) -> None:
        """Take in what was heard since the last call."""
        is_news = False
        while True:
            try:
                heard = self._untaken.get_nowait()
            except Empty:
                break
            self.contact_at = self._monotonic()
            if isinstance(heard, Wish):
                is_news |= self._take_wish(heard)
            else:
                is_news |= self._take_answer(heard)
        if self._may_be_behind:
            self._go_on_if_behind()
            self._may_be_behind = False
        if is_news:
            with contextlib.suppress(UnavailableError):
                self._spool.save("desired", self.wanted.stored())

    def _take_wish(self, wish: Wish) -> bool:
        desired = wish.desired
        if desired.server_time_ms is not None:
            # After a long wait it says little; the smallest round trip wins.
            self._senses.contact(wish.sent_ns, wish.received_ns, desired.server_time_ms)
        return self.wanted.take(desired)

    def _take_answer(self, heard: Heard) -> bool:
        is_news = False
        self._senses.contact(heard.sent_ns, heard.received_ns, heard.answer.server_time_ms)
        for ack in heard.answer.acks:
            if ack.machine != self._spool.machine:
                continue
            if ack.desired is not None:
                is_news |= self.wanted.take(ack.desired)
            self._answerer.ask(ack.checks)
        self._may_be_behind = True
        return is_news

    def _go_on_if_behind(self) -> None:
        """Only an acknowledgement can show that the spool is an old copy, of this run or before."""
        if self._spool.is_behind():
            log.error("the spool is an old copy; going on under a new epoch")
            self._spool.begin_epoch()
