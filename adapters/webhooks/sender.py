"""The job that sends: it queues new notices, claims what is due, and writes down what became of it.

One process leads and sends. Attempts run side by side, a few per webhook and one while it fails, so
that a slow receiver delays nobody but itself. The database is asked by one thread at a time, never
by an attempt. A process that dies leaves claims; the next leader sends them again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import structlog

from adapters.webhooks.client import Client
from ledger.domain.webhook_targets import Reach
from ledger.domain.webhooks import event_id
from ledger.errors import LedgerError
from ledger.services import webhooks
from ledger.services.leadership import Leader
from ledger.services.ledger import Ledger
from ledger.services.webhooks import Delivery, Outcome
from ledger.store.database import translating

ATTEMPTS_AT_ONCE: Final = 64
PER_WEBHOOK: Final = 4
"""Attempts of one webhook at once, while it takes what it gets."""
_POLL_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 2.0
"""How long attempts may still take when the program ends; the others are made again."""
_TIDY_SECONDS: Final = 3_600

log = structlog.get_logger("gpuledger")


class Sender:
    """Sends what is due, turn by turn, within one event loop."""

    def __init__(self, ledger: Ledger, client: Client, attempts: int = ATTEMPTS_AT_ONCE) -> None:
        """Make at most *attempts* at once."""
        self._ledger = ledger
        self._client = client
        self._attempts = attempts
        self._running: dict[asyncio.Task[Outcome], Delivery] = {}
        self._ended: list[Outcome] = []
        self._failing: set[int] = set()
        self._news = asyncio.Event()
        self._tidied_at = 0

    @property
    def is_idle(self) -> bool:
        """True when no attempt is being made and none waits to be written down."""
        return not self._running and not self._ended

    async def turn(self) -> int:
        """Write down what ended, queue what is new, begin what is due; returns how many began."""
        due = await asyncio.to_thread(self._work)
        for delivery in due:
            task = asyncio.create_task(self._client.attempt(delivery))
            self._running[task] = delivery
            task.add_done_callback(self._on_done)
        return len(due)

    async def wait(self, seconds: float) -> None:
        """Return when an attempt has ended, or after *seconds*."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    async def take_over(self) -> None:
        """Make everything due that a leader before this one had begun."""
        await asyncio.to_thread(self._release)

    async def end(self) -> None:
        """Give the attempts a moment, write down what became of them, and leave the others."""
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_SECONDS)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await asyncio.to_thread(self._write_down)

    # --- in the loop -----------------------------------------------------------------------------

    def _on_done(self, task: asyncio.Task[Outcome]) -> None:
        delivery = self._running.pop(task)
        self._news.set()
        if task.cancelled():
            return  # Its claim is found by the next leader.
        error = task.exception()
        if error is not None:
            log.error("webhook attempt failed", webhook=delivery.webhook_id, exc_info=error)
            outcome = Outcome(delivery, taken=False, reason="not_sent")
        else:
            outcome = task.result()
        self._ended.append(outcome)
        if outcome.taken:
            self._failing.discard(delivery.webhook_id)
        else:
            self._failing.add(delivery.webhook_id)

    # --- in a thread of its own, one call at a time ----------------------------------------------

    def _work(self) -> list[Delivery]:
        self._write_down()
        now = self._ledger.clock()
        busy = Counter(delivery.webhook_id for delivery in list(self._running.values()))

        def room(webhook_id: int) -> int:
            most = 1 if webhook_id in self._failing else PER_WEBHOOK
            return most - busy[webhook_id]

        free = self._attempts - len(self._running)
        with translating(), self._ledger.database.pool.connection() as connection:
            webhooks.enqueue(connection, now)
            if now >= self._tidied_at + _TIDY_SECONDS:
                webhooks.tidy(connection, now)
                self._tidied_at = now
            connection.commit()
            if free < 1:
                return []
            return webhooks.claim(connection, self._ledger.vault, now, free, room)

    def _write_down(self) -> None:
        ended = list(self._ended)
        if not ended:
            return
        for lost in webhooks.record(self._ledger, ended):
            log.warning(
                "webhook delivery given up",
                webhook=lost.delivery.webhook_id,
                event_id=event_id(lost.delivery.position),
                attempts=lost.delivery.attempt,
                reason=lost.reason,
            )
        # Only now: what could not be written down is written down with the next turn.
        del self._ended[: len(ended)]

    def _release(self) -> None:
        with translating(), self._ledger.database.pool.connection() as connection:
            webhooks.release(connection, self._ledger.clock())


async def send_until(ledger: Ledger, client: Client, leader: Leader, stop: threading.Event) -> None:
    """Send whatever is due, as long as this process leads, until *stop* is set."""
    sender = Sender(ledger, client)
    leads = False
    while not stop.is_set():
        pause = _POLL_SECONDS
        try:
            if not await asyncio.to_thread(leader.held):
                leads, pause = False, _RETRY_SECONDS
            elif not leads:
                if sender.is_idle:  # Its own attempts are not those of a leader before.
                    await sender.take_over()
                    leads, pause = True, 0
            elif await sender.turn():
                pause = 0
        except LedgerError as error:
            log.warning("webhooks paused", code=error.code, reason=error.message)
            leads, pause = False, _RETRY_SECONDS
        except Exception as error:
            # A defect of ours must not end the job for good: it is told, again and again.
            log.exception("webhooks failed", exc_info=error)
            leads, pause = False, _RETRY_SECONDS
        await sender.wait(pause)
    with suppress(LedgerError):
        await sender.end()


def run_webhooks(
    ledger: Ledger, leader: Leader, stop: threading.Event, reach: Collection[Reach] = ()
) -> None:
    """Send webhooks from this thread until *stop* is set, also to what *reach* allows."""

    async def run() -> None:
        client = Client(reach)
        try:
            await send_until(ledger, client, leader, stop)
        finally:
            await client.close()

    asyncio.run(run())
    leader.release()
