"""Usage reports on their way into the log: group commit, and the judgement that needs the lock.

A report is the next event of the stream of its machine and epoch. Signature, decoding and
validation are done before; here one transaction takes up to a few hundred reports, judges each
against the head of its stream, and answers after the commit, never before.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from ledger.domain.acknowledgement import ReportAnswer
from ledger.domain.events import (
    USAGE_REPORTED,
    AgentEquivocated,
    Fact,
    UsageForked,
    UsageRejected,
    topic_of,
)
from ledger.domain.ids import machine_stream, usage_stream
from ledger.domain.usage import GENESIS_HASH, ReportFault, UsageReport, body_hash
from ledger.errors import LedgerError, UnavailableError
from ledger.store.codec import decode_fact, encode_fact
from ledger.store.database import Connection, Database
from ledger.store.log import NO_HEAD, Clock, Head, LogTransaction, Row, appending, read_stream

MAX_BATCH = 256
EARLY_SECONDS = 2
"""A window that ends this little ahead of receipt is asked for again instead of refused."""


class Candidate(NamedTuple):
    """A report whose signature is good and whose body names its place in the log."""

    machine: int
    epoch: str
    seq: int
    key_id: str
    body: bytes
    signature: bytes
    digest: bytes
    report: UsageReport | None
    """None when the body has a fault that *fault* names."""
    fault: ReportFault | None = None
    received_at: int | None = None
    """The second of delivery under a simulated clock; otherwise that of the transaction."""


class Surroundings(NamedTuple):
    """What the services do for the intake, inside its transaction."""

    key_is_valid: Callable[[Connection, int, int, str], bool]
    """(connection, fact position, machine, key id) → the key may still sign."""
    absorb: Callable[[LogTransaction, UsageReport, Head, int], None]
    """Decide and append the facts that a report's observations cause, before the report itself."""
    append_fact: Callable[[LogTransaction, str, Fact], None]
    """Append one fact to a stream and fold it."""


class Batch(NamedTuple):
    """What became of a group of reports."""

    answers: list[ReportAnswer]
    heads: dict[str, int]
    """Stream → last stored version."""
    fact_position: int


def append_reports(
    connection: Connection,
    candidates: Sequence[Candidate],
    clock: Clock,
    surroundings: Surroundings,
) -> Batch:
    """Append *candidates* in one transaction; each has an answer, none fails its neighbours."""
    with appending(connection, clock) as log:
        judge = _Judge(log, candidates, surroundings)
        for candidate in candidates:
            judge.take(candidate)
        judge.flush()
    heads = {stream: head.version for stream, head in judge.heads.items()}
    return Batch(judge.answers, heads, log.fact_position)


class _Judge:
    """Goes through a batch in order, with the heads as the batch itself moves them."""

    def __init__(
        self, log: LogTransaction, candidates: Sequence[Candidate], surroundings: Surroundings
    ) -> None:
        self._log = log
        self._around = surroundings
        streams = {usage_stream(one.machine, one.epoch) for one in candidates}
        self.heads = log.heads(list(streams))
        self.answers: list[ReportAnswer] = []
        self._rows: list[Row] = []
        self._waiting: list[int] = []

    def take(self, one: Candidate) -> None:
        """Judge one report and answer it."""
        stream = usage_stream(one.machine, one.epoch)
        head = self.heads.get(stream, NO_HEAD)
        log = self._log
        if not self._around.key_is_valid(
            log.connection, log.fact_position, one.machine, one.key_id
        ):
            self._answer(one, "unauthorized", "auth_error", "the key is unknown or was revoked")
        elif one.seq <= head.version:
            self._repeat(one, stream, head)
        elif one.seq > head.version + 1:
            self._answer(one, "sequence_gap", "sequence_gap", expected=head.version + 1)
        else:
            self._next(one, stream, head)

    def _repeat(self, one: Candidate, stream: str, head: Head) -> None:
        stored_hash = head.body_hash
        if one.seq < head.version:
            self.flush()
            stored_hash = _stored_hash(self._log.connection, stream, one.seq)
        if stored_hash == one.digest:
            self._answer(one, "duplicate")
            return
        self.flush()
        if not _is_known_equivocation(self._log.connection, one):
            self._around.append_fact(
                self._log,
                machine_stream(one.machine),
                AgentEquivocated(
                    machine_id=one.machine,
                    epoch=one.epoch,
                    seq=one.seq,
                    first_hash=stored_hash.hex(),
                    second_hash=one.digest.hex(),
                    second_body=one.body,
                    second_signature=one.signature,
                    equivocated_at=one.received_at or self._log.now,
                ),
            )
        reason = f"report {one.seq} of this epoch is stored with another body, and that one stands"
        self._answer(one, "conflict", "equivocation", reason)

    def _next(self, one: Candidate, stream: str, head: Head) -> None:
        received_at = one.received_at or self._log.now
        report, fault = one.report, one.fault
        expected = head.body_hash.hex() if head.version else GENESIS_HASH
        if report is not None and report.prev != expected:
            forked = UsageForked(
                machine_id=one.machine,
                epoch=one.epoch,
                seq=one.seq,
                expected_prev=expected,
                body=one.body,
                forked_at=received_at,
            )
            self._store(one, stream, head, forked, received_at)
            reason = "prev is not the hash of the report before; stored, flagged and not billed"
            self._answer(one, "chain_fork", "chain_fork", reason, stored=True)
            return
        if report is not None:
            fault = _window_fault(report, head, received_at)
            if fault is None and report.count and report.until > received_at:
                self._answer(one, "too_early", "too_early", "send it again in a second")
                return
        if fault is not None:
            rejected = UsageRejected(
                machine_id=one.machine,
                epoch=one.epoch,
                seq=one.seq,
                code=fault.code,
                reason=fault.reason,
                body=one.body,
                rejected_at=received_at,
            )
            self._store(one, stream, head, rejected, received_at)
            self._answer(one, "rejected", fault.code, fault.reason, stored=True)
            return
        assert report is not None
        if report.brings_news or report.boot_id != head.boot_id:
            self.flush()
            self._log.now = max(self._log.now, received_at)
            self._around.absorb(self._log, report, head, received_at)
        self._rows.append(
            Row(
                stream_id=stream,
                version=one.seq,
                topic=USAGE_REPORTED,
                state=one.body,
                recorded_at=received_at,
                count=max(1, report.ticks),
                signature=one.signature,
                body_hash=one.digest,
                machine_id=one.machine,
                until=max(report.until, head.until or 0),
                boot_id=report.boot_id,
            )
        )
        until = max(report.until, head.until or 0)
        self.heads[stream] = Head(
            one.seq, one.digest, received_at, one.machine, until, report.boot_id
        )
        self._answer(one, "accepted", stored=True)

    def _store(
        self,
        one: Candidate,
        stream: str,
        head: Head,
        fact: UsageRejected | UsageForked,
        received_at: int,
    ) -> None:
        self._rows.append(
            Row(
                stream_id=stream,
                version=one.seq,
                topic=topic_of(fact),
                state=encode_fact(fact),
                recorded_at=received_at,
                signature=one.signature,
                body_hash=one.digest,
                machine_id=one.machine,
            )
        )
        self.heads[stream] = head._replace(
            version=one.seq, body_hash=one.digest, recorded_at=received_at
        )

    def _answer(
        self,
        one: Candidate,
        status: Any,
        code: str | None = None,
        reason: str | None = None,
        *,
        expected: int | None = None,
        stored: bool = False,
    ) -> None:
        if stored:
            self._waiting.append(len(self.answers))
        self.answers.append(
            ReportAnswer(
                machine=one.machine,
                epoch=one.epoch,
                seq=one.seq,
                status=status,
                code=code,
                reason=reason,
                expected=expected,
                hash=one.digest.hex(),
            )
        )

    def flush(self) -> None:
        """Append what was accepted so far and fill the positions into its answers."""
        positions = self._log.append(self._rows)
        for index, position in zip(self._waiting, positions, strict=True):
            answer = self.answers[index]
            self.answers[index] = ReportAnswer(
                machine=answer.machine,
                epoch=answer.epoch,
                seq=answer.seq,
                status=answer.status,
                code=answer.code,
                reason=answer.reason,
                position=position,
                hash=answer.hash,
            )
        self._rows, self._waiting = [], []


def _window_fault(report: UsageReport, head: Head, received_at: int) -> ReportFault | None:
    if head.until is not None and report.start < head.until:
        reason = f"second {report.start} was attested before; this epoch continues at {head.until}"
        return ReportFault("overlap", reason)
    if report.until > received_at + EARLY_SECONDS:
        return ReportFault("future", f"second {report.until - 1} is not over yet")
    if any(seen.at > received_at + EARLY_SECONDS for seen in report.observed):
        return ReportFault("future", "an observation lies in the future")
    return None


def _stored_hash(connection: Connection, stream: str, seq: int) -> bytes:
    stored = read_stream(connection, stream, above=seq - 1, through=seq)[0]
    if stored.topic == USAGE_REPORTED:
        return body_hash(stored.state)
    fact = decode_fact(stored.topic, stored.state)
    assert isinstance(fact, UsageRejected | UsageForked)
    return body_hash(fact.body)


def _is_known_equivocation(connection: Connection, one: Candidate) -> bool:
    """True when this very body was recorded as a second one before; a repeat adds nothing."""
    row = connection.execute(
        "SELECT 1 FROM events WHERE stream_id = %s AND topic = %s"
        " AND convert_from(state, 'UTF8')::jsonb ->> 'second_hash' = %s LIMIT 1",
        [machine_stream(one.machine), AgentEquivocated.__struct_config__.tag, one.digest.hex()],
    ).fetchone()
    return row is not None


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """Collects reports from many requests and appends them in one transaction.

    One thread writes; a group is what has gathered while the group before was being written, at
    most `MAX_BATCH` reports and one request more. `submit` may be called from any thread.
    """

    def __init__(
        self,
        database: Database,
        write: Callable[[Connection, list[Item]], list[Answer]],
    ) -> None:
        """Write groups by *write*, which returns one answer per item."""
        self._database = database
        self._write = write
        self._queue: queue.SimpleQueue[tuple[list[Item], Future[list[Answer]]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._connection: Connection | None = None
        self._thread.start()

    def submit(self, items: list[Item]) -> Future[list[Answer]]:
        """Answers in the order of *items*, once they are durable.

        The future raises `UnavailableError` when the database did not answer; nothing is lost then,
        because a repeat of the same reports finds out what was stored.
        """
        future: Future[list[Answer]] = Future()
        self._queue.put((items, future))
        return future

    def close(self) -> None:
        """Write what is waiting, then stop."""
        self._queue.put(None)
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            size = len(first[0])
            stopping = False
            while size < MAX_BATCH:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    stopping = True
                    break
                group.append(item)
                size += len(item[0])
            self._commit(group)
            if stopping:
                return

    def _commit(self, group: list[tuple[list[Item], Future[list[Answer]]]]) -> None:
        items = [one for members, _ in group for one in members]
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._database.connect()
            answers = self._write(self._connection, items)
        except BaseException as error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if not isinstance(error, UnavailableError) and len(group) > 1:
                # One request must not fail its neighbours: find out which one it was.
                for item in group:
                    self._commit([item])
                return
            shown = error
            if not isinstance(error, LedgerError):
                message = "the group of reports could not be written; send them again"
                shown = UnavailableError("database_unavailable", message)
                shown.__cause__ = error
            for _, future in group:
                future.set_exception(shown)
            return
        at = 0
        for members, future in group:
            future.set_result(answers[at : at + len(members)])
            at += len(members)
