"""The thread that empties the spool: it never holds up whoever seals, and never gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from adapters.hostagent.courier import Alarm, Courier, Sender
from adapters.hostagent.reports import SealedReport
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.acknowledgement import UsageAnswer
from ledger.errors import LedgerError

IDLE_SECONDS: Final = 60.0
"""How long the thread sleeps over an empty spool, unless it is woken."""
REFUSED_SECONDS: Final = 300.0
"""A key that was refused may be enrolled anew by a person; it is tried again this much later."""

log = structlog.get_logger("gpuledger.agent")


class Heard(NamedTuple):
    """An answer of the server, and when its request left and it came; monotonic nanoseconds."""

    answer: UsageAnswer
    sent_ns: int
    received_ns: int


class _Timed:
    """A sender that remembers when the last request left."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.sent_ns = 0

    def post(self, reports: Sequence[SealedReport]) -> UsageAnswer:
        """Post, and note the time."""
        self.sent_ns = time.monotonic_ns()
        return self._sender.post(reports)


class Delivery:
    """Sends what the spool holds, oldest first, on a thread of its own.

    `heard_at` is the monotonic second of the last answer, `alarms` counts by code.
    """

    def __init__(
        self,
        sender: Sender,
        spool: SqliteSpool,
        *,
        on_heard: Callable[[Heard], None],
        stand_in: Callable[[SealedReport, int], SealedReport | None],
    ) -> None:
        """Deliver from *spool* through *sender*, once `start` is called."""
        self._spool = spool
        self._timed = _Timed(sender)
        self._on_heard = on_heard
        self._ending = threading.Event()
        self._woken = threading.Event()
        self._refused_at: float | None = None
        self.heard_at: float | None = None
        self.alarms: dict[str, int] = {}
        self._courier = Courier(
            self._timed, spool, on_answer=self._heard, on_alarm=self._alarm, stand_in=stand_in
        )
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """Something new waits in the spool."""
        self._woken.set()

    def close(self, seconds: float = 15.0) -> None:
        """Stop after the request that is under way; what is not acknowledged stays in the spool."""
        self._ending.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    @property
    def is_refused(self) -> bool:
        """True while the server refuses this machine's key or its reports."""
        return bool(self._courier.stopped_machines)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._woken.clear()
            try:
                delay = self._courier.step()
            except LedgerError as error:
                log.warning("delivery failed", code=error.code, reason=error.message)
                delay = 1.0
            except Exception:
                # An agent that stops to send is worse than one that tries again.
                log.exception("delivery failed")
                delay = 1.0
            self._try_again_when_refused()
            if delay is None:
                self._woken.wait(IDLE_SECONDS)
            elif delay > 0:
                self._ending.wait(delay)

    def _try_again_when_refused(self) -> None:
        if not self._courier.stopped_machines:
            self._refused_at = None
            return
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        elif now - self._refused_at >= REFUSED_SECONDS:
            self._refused_at = None
            self._courier.stopped_machines.clear()

    def _heard(self, answer: UsageAnswer) -> None:
        self.heard_at = time.monotonic()
        self._on_heard(Heard(answer, self._timed.sent_ns, time.monotonic_ns()))

    def _alarm(self, alarm: Alarm) -> None:
        self.alarms[alarm.code] = self.alarms.get(alarm.code, 0) + 1
        log.error("report refused", code=alarm.code, seq=alarm.seq, reason=alarm.reason)
