"""The job that sends mail: it queues new notices, claims what is due, and writes down what became.

One process leads and sends, a batch at a time over one connection. A process that dies leaves
claims; the next leader sends them again, under the same Message-ID.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from adapters.mail.smtp import SmtpClient
from ledger.domain.webhooks import event_id
from ledger.errors import LedgerError
from ledger.services import mail
from ledger.services.leadership import Leader
from ledger.services.ledger import Ledger
from ledger.services.mail import Attachments, no_attachments
from ledger.store.database import translating

BATCH: Final = 20
"""Messages of one connection; each has at most half a minute, and the lease is five."""
_POLL_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 5.0
_TIDY_SECONDS: Final = 3_600

log = structlog.get_logger("gpuledger")


class Sender:
    """Sends what is due, turn by turn."""

    def __init__(
        self, ledger: Ledger, client: SmtpClient, attachments: Attachments = no_attachments
    ) -> None:
        """Send from *ledger* through *client*, with the documents that *attachments* finds."""
        self._ledger = ledger
        self._client = client
        self._attachments = attachments
        self._tidied_at = 0

    def take_over(self) -> None:
        """Make everything due that a leader before this one had begun."""
        with translating(), self._ledger.database.pool.connection() as connection:
            mail.release(connection, self._ledger.clock())

    def turn(self) -> int:
        """Queue what is new, send what is due, write down what became of it; returns how many."""
        now = self._ledger.clock()
        with translating(), self._ledger.database.pool.connection() as connection:
            mail.enqueue(connection, now)
            if now >= self._tidied_at + _TIDY_SECONDS:
                mail.tidy(connection, now)
                self._tidied_at = now
            connection.commit()
            due = mail.claim(connection, self._ledger.vault, now, BATCH, self._attachments)
        if not due:
            return 0
        for lost in mail.record(self._ledger, self._client.send(due)):
            log.warning(
                "mail given up",
                account=lost.message.account_id,
                event_id=event_id(lost.message.position),
                attempts=lost.message.attempt,
                reason=lost.reason,
            )
        return len(due)


def run_mail(
    ledger: Ledger,
    leader: Leader,
    stop: threading.Event,
    client: SmtpClient,
    attachments: Attachments = no_attachments,
) -> None:
    """Send mail from this thread until *stop* is set, as long as this process leads."""
    sender = Sender(ledger, client, attachments)
    leads = False
    while not stop.is_set():
        pause = _POLL_SECONDS
        try:
            if not leader.held():
                leads, pause = False, _RETRY_SECONDS
            elif not leads:
                sender.take_over()
                leads, pause = True, 0
            elif sender.turn():
                pause = 0
        except LedgerError as error:
            log.warning("mail paused", code=error.code, reason=error.message)
            leads, pause = False, _RETRY_SECONDS
        except Exception as error:
            # A defect of ours must not end the job for good: it is told, again and again.
            log.exception("mail failed", exc_info=error)
            leads, pause = False, _RETRY_SECONDS
        stop.wait(pause)
    leader.release()
