"""Delivery: oldest first and at least once, until the server has acknowledged.

The order of things is that of `host-agent.md` §12.2 and §12.3.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, Protocol

from adapters.hostagent.client import backoff_seconds, first_batch
from adapters.hostagent.reports import SealedReport
from ledger.domain.acknowledgement import ReportAnswer, UsageAnswer
from ledger.domain.usage import MAX_REPORTS_PER_REQUEST
from ledger.errors import AuthError, RejectedError, UnavailableError

TOO_EARLY_SECONDS: Final = 1.0
_TOO_LARGE: Final = 413


class Sender(Protocol):
    """Carries reports to the ledger; `UsageClient` over HTTP."""

    def post(self, reports: Sequence[SealedReport]) -> UsageAnswer:
        """One answer per report; raises as `UsageClient.post` does."""


class Spool(Protocol):
    """Sealed reports that wait for their acknowledgement, and the dead letters."""

    def put(self, report: SealedReport) -> None:
        """Keep *report*; nothing is sent before it is kept."""

    def oldest(self, limit: int, without: Container[int]) -> Sequence[SealedReport]:
        """Up to *limit* waiting reports, oldest first, of machines not in *without*."""

    def holds(self, machine: int, epoch: str, seq: int) -> bool:
        """True while that report waits."""

    def acknowledge(self, machine: int, epoch: str, through: int) -> int:
        """Forget the reports of one epoch up to and including *through*; returns how many."""

    def bury(self, machine: int, epoch: str, seq: int, code: str, reason: str) -> bool:
        """Make a waiting report a dead letter; false for one that does not wait."""

    def __len__(self) -> int:
        """How many reports wait."""


class DeadLetter(NamedTuple):
    """A report that the server will never bill, and why."""

    report: SealedReport
    code: str
    reason: str


class Alarm(NamedTuple):
    """Something that a person should see; `seq` is 0 when it is not about one report."""

    code: str
    machine: int
    epoch: str
    seq: int
    reason: str


class MemorySpool:
    """A spool that a restart empties: for simulated hosts and tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self._waiting: list[SealedReport] = []
        self._last_seq: dict[tuple[int, str], int] = {}
        self.dead_letters: list[DeadLetter] = []

    def put(self, report: SealedReport) -> None:
        """Keep *report* behind all others, but before later ones of its own epoch."""
        stream = (report.machine, report.epoch)
        if report.seq > self._last_seq.get(stream, 0):
            self._last_seq[stream] = report.seq
            self._waiting.append(report)
            return
        assert not self.holds(*stream, report.seq), report.seq
        later = (
            index
            for index, one in enumerate(self._waiting)
            if (one.machine, one.epoch) == stream and one.seq > report.seq
        )
        self._waiting.insert(next(later, len(self._waiting)), report)

    def oldest(self, limit: int, without: Container[int]) -> Sequence[SealedReport]:
        """Up to *limit* waiting reports, oldest first, of machines not in *without*."""
        found: list[SealedReport] = []
        for one in self._waiting:
            if len(found) == limit:
                break
            if one.machine not in without:
                found.append(one)
        return found

    def holds(self, machine: int, epoch: str, seq: int) -> bool:
        """True while that report waits."""
        return any(_is(one, machine, epoch, seq) for one in self._waiting)

    def acknowledge(self, machine: int, epoch: str, through: int) -> int:
        """Forget the reports of one epoch up to and including *through*; returns how many."""
        before = len(self._waiting)
        self._waiting = [
            one
            for one in self._waiting
            if one.seq > through or one.machine != machine or one.epoch != epoch
        ]
        return before - len(self._waiting)

    def bury(self, machine: int, epoch: str, seq: int, code: str, reason: str) -> bool:
        """Make a waiting report a dead letter; false for one that does not wait."""
        for index, one in enumerate(self._waiting):
            if _is(one, machine, epoch, seq):
                del self._waiting[index]
                self.dead_letters.append(DeadLetter(one, code, reason))
                return True
        return False

    def __len__(self) -> int:
        return len(self._waiting)


def _is(report: SealedReport, machine: int, epoch: str, seq: int) -> bool:
    return report.seq == seq and report.machine == machine and report.epoch == epoch


def _ignore(_: object) -> None:
    return None


def _no_stand_in(_first_waiting: SealedReport, _seq: int) -> SealedReport | None:
    return None


class Courier:
    """Empties a spool into the ledger; one request at a time.

    `stopped_machines` are those whose reports are kept and not sent: their key is refused, their
    request cannot be read, or a report of theirs is lost for good. Each was announced by an alarm;
    taking a machine out of the set sends again.
    """

    def __init__(
        self,
        sender: Sender,
        spool: Spool,
        *,
        on_answer: Callable[[UsageAnswer], None] = _ignore,
        on_alarm: Callable[[Alarm], None] = _ignore,
        stand_in: Callable[[SealedReport, int], SealedReport | None] = _no_stand_in,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Carry what *spool* holds.

        Args:
            sender: Posts one request.
            spool: What waits.
            on_answer: Told of every answer, after the spool has taken it in: desired state, checks
                and the server's time are in it.
            on_alarm: Told what a person should see.
            stand_in: Given the first waiting report and a lost `seq` before it, returns a signed
                empty report of that `seq` (`ReportChain.stand_in`), or null when it cannot.
            sleep: Waits that many seconds.
            uniform: Draws the jitter.
        """
        self._sender = sender
        self._spool = spool
        self._on_answer = on_answer
        self._on_alarm = on_alarm
        self._stand_in = stand_in
        self._sleep = sleep
        self._uniform = uniform
        self._limit = MAX_REPORTS_PER_REQUEST
        self.attempt = 0
        """Requests in a row that moved nothing."""
        self.stopped_machines: set[int] = set()

    def drain(self, give_up_after: int | None = None) -> bool:
        """Send until nothing is left to send, waiting where the server or the network asks for it.

        Returns:
            False when *give_up_after* requests in a row moved nothing; what waits stays.
        """
        while (delay := self.step()) is not None:
            if give_up_after is not None and self.attempt >= give_up_after:
                return False
            if delay > 0:
                self._sleep(delay)
        return True

    def step(self) -> float | None:
        """Send one request, the oldest reports first.

        Returns:
            Seconds to wait before the next; null when nothing is left to send.
        """
        batch = first_batch(self._spool.oldest(self._limit, self.stopped_machines))
        if not batch:
            return None
        try:
            answer = self._sender.post(batch)
        except UnavailableError as error:
            return self._wait(error.detail.get("retry_after_seconds", 0.0))
        except AuthError as error:
            self._stop(batch, error.code, error.message)
            return 0.0
        except RejectedError as error:
            if error.detail.get("status") == _TOO_LARGE:
                self._lighten(batch, error)
            else:
                self._stop(batch, error.code, error.message)
            return 0.0
        self._limit = MAX_REPORTS_PER_REQUEST
        return self._take_in(batch, answer)

    def _take_in(self, batch: Sequence[SealedReport], answer: UsageAnswer) -> float:
        # Counted, not measured: others may seal into the spool meanwhile.
        gone = 0
        is_early = False
        gaps: dict[tuple[int, str], tuple[SealedReport, ReportAnswer]] = {}
        for report, result in zip(batch, answer.reports, strict=True):
            match result.status:
                case "accepted" | "duplicate":
                    pass  # `acked_through` says how far the spool may forget.
                case "rejected":
                    gone += self._bury(report, result)
                case "conflict" | "chain_fork" | "undecodable":
                    gone += self._bury(report, result)
                    self._alarm(report, result.code or result.status, result.reason or "")
                case "too_early":
                    is_early = True
                case "sequence_gap":
                    gaps.setdefault((report.machine, report.epoch), (report, result))
                case "unauthorized":
                    if report.machine not in self.stopped_machines:
                        self._stop([report], result.code or result.status, result.reason or "")
        for ack in answer.acks:
            for one in ack.rejected:
                gone += self._spool.bury(ack.machine, ack.epoch, one.seq, one.code, one.reason)
            gone += self._spool.acknowledge(ack.machine, ack.epoch, ack.acked_through)
        is_moving = gone > 0
        for report, result in gaps.values():
            is_moving |= self._fill(report, result)
        is_moving |= any(one.machine in self.stopped_machines for one in batch)
        if is_moving:
            self.attempt = 0
        self._on_answer(answer)
        if is_moving:
            return TOO_EARLY_SECONDS if is_early else 0.0
        return self._wait(TOO_EARLY_SECONDS if is_early else 0.0)

    def _fill(self, report: SealedReport, gap: ReportAnswer) -> bool:
        """True when a lost report before *report* is replaced, or its machine given up.

        Where the spool still holds what the server expects, the next request begins with it.
        """
        machine, epoch, expected = report.machine, report.epoch, gap.expected
        if (
            expected is None
            or expected >= report.seq
            or self._spool.holds(machine, epoch, expected)
        ):
            return False
        empty = self._stand_in(report, expected)
        if empty is None:
            reason = f"the server waits for report {expected}, which is lost"
            self._stop([report], "lost_report", reason)
            return True
        assert (empty.machine, empty.epoch, empty.seq) == (machine, epoch, expected)
        self._spool.put(empty)
        return True

    def _lighten(self, batch: Sequence[SealedReport], error: RejectedError) -> None:
        if len(batch) > 1:
            self._limit = len(batch) // 2
            return
        (report,) = batch
        self._spool.bury(report.machine, report.epoch, report.seq, error.code, error.message)
        self._alarm(report, error.code, error.message)

    def _bury(self, report: SealedReport, result: ReportAnswer) -> bool:
        code, reason = result.code or result.status, result.reason or ""
        return self._spool.bury(report.machine, report.epoch, report.seq, code, reason)

    def _stop(self, batch: Sequence[SealedReport], code: str, reason: str) -> None:
        for machine, epoch in dict.fromkeys((one.machine, one.epoch) for one in batch):
            self.stopped_machines.add(machine)
            self._on_alarm(Alarm(code, machine, epoch, 0, reason))

    def _alarm(self, report: SealedReport, code: str, reason: str) -> None:
        self._on_alarm(Alarm(code, report.machine, report.epoch, report.seq, reason))

    def _wait(self, retry_after_seconds: float) -> float:
        delay = backoff_seconds(self.attempt, retry_after_seconds, self._uniform)
        self.attempt += 1
        return delay
