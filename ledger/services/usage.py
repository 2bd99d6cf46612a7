"""Usage reports: signature first, then decoding, then the log; the answer after the commit.

`UsageService.submit` is the whole way of a report through the server. What needs no lock (key,
signature, columns) is judged here; what needs the head of the stream in `ledger.store.intake`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.domain.acknowledgement import (
    Acknowledgement,
    Desired,
    Rejection,
    ReportAnswer,
    ReportStatus,
    UsageAnswer,
)
from ledger.domain.events import Fact
from ledger.domain.ids import usage_stream
from ledger.domain.usage import (
    MAX_BODY_BYTES,
    SIGNING_PREFIX,
    ReportFault,
    UsageReport,
    body_hash,
    decode_header,
    decode_report,
)
from ledger.services.checks import HandedOut, prove_early
from ledger.services.container_logs import newest_requests
from ledger.services.desired import DesiredStates, DesiredWatch, with_specs
from ledger.services.ledger import Ledger, Unit
from ledger.services.observations import absorb
from ledger.store.database import Connection, translating
from ledger.store.intake import Batch, Candidate, GroupCommit, Surroundings, append_reports
from ledger.store.log import Head, LogTransaction

_KNOWN_MACHINES_MAX = 100_000


class SignedReport(NamedTuple):
    """A report as it travels: key id, signature, and the bytes that were signed."""

    key_id: str
    signature: bytes
    body: bytes


class _Answered(NamedTuple):
    answer: ReportAnswer
    acked_through: int
    desired: Desired | None
    checks: list[dict[str, Any]]


class UsageService:
    """Takes reports from any number of requests and answers each when it is durable."""

    def __init__(self, ledger: Ledger) -> None:
        """Start the group commit on *ledger*."""
        self.on_commit: Callable[[int, float], None] = _ignore
        """Called with the ticks and the seconds of every group that was committed."""
        self._ledger = ledger
        self._keys = KeyRing()
        self._desired = DesiredStates(ledger)
        self.watch = DesiredWatch(ledger)
        """Tells machines that wait when what is wanted of them changed."""
        self._checks = HandedOut()
        self._surroundings = Surroundings(self._keys.is_valid, self._absorb, self._append_fact)
        self._group: GroupCommit[SignedReport, _Answered] = GroupCommit(
            ledger.database, self._write
        )

    def close(self) -> None:
        """Write what is waiting and stop."""
        self.watch.close()
        self._group.close()

    def submit(self, reports: Sequence[SignedReport]) -> Future[UsageAnswer]:
        """Hand *reports* to the group commit; the future is done after the commit.

        Verifying is left to the thread that commits: checking a signature lets other threads run,
        and whoever calls this, an event loop perhaps, waits for nothing.
        """
        result: Future[UsageAnswer] = Future()

        def done(group: Future[list[_Answered]]) -> None:
            error = group.exception()
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(_assembled(group.result()))

        self._group.submit(list(reports)).add_done_callback(done)
        return result

    def deliver(
        self, reports: Sequence[SignedReport], received_at: Sequence[int]
    ) -> list[ReportAnswer]:
        """Append *reports* at once, each as if received at its own second.

        This is the way in for a simulated clock: verification, judgement and log are the same, only
        the second of delivery is given instead of read.
        """
        judged = self.judge(reports)
        candidates = [
            one._replace(received_at=second)
            for one, second in zip(judged, received_at, strict=True)
            if isinstance(one, Candidate)
        ]
        with translating(), self._ledger.database.pool.connection() as connection:
            batch = append_reports(connection, candidates, self._ledger.clock, self._surroundings)
        answers = iter(batch.answers)
        return [next(answers) if isinstance(one, Candidate) else one for one in judged]

    def desired(self, machine_id: int, *, specs: bool = False) -> Desired:
        """What the server wants of a machine now; with *specs*, for the machine's own eyes."""
        with self._ledger.reading() as connection:
            found = self._desired.of(connection, [machine_id])[machine_id]
            if not specs:
                return found
            waits = newest_requests(connection, [machine_id], self._ledger.clock())
            return msgspec.structs.replace(
                with_specs(connection, self._ledger.vault, found),
                log_request=waits.get(machine_id, 0),
            )

    # --- before the log --------------------------------------------------------------------------

    def judge(self, reports: Sequence[SignedReport]) -> list[Candidate | ReportAnswer]:
        """Each report as a candidate for the log, or the answer that needs no log."""
        judged: list[Candidate | ReportAnswer] = []
        for report in reports:
            try:
                judged.append(self._candidate(report))
            except ReportFault as fault:
                status: ReportStatus = (
                    "unauthorized" if fault.code == "auth_error" else "undecodable"
                )
                judged.append(
                    ReportAnswer(
                        machine=0,
                        epoch="",
                        seq=0,
                        status=status,
                        code=fault.code,
                        reason=fault.reason,
                    )
                )
        return judged

    def _candidate(self, signed: SignedReport) -> Candidate:
        body = signed.body
        if len(body) > MAX_BODY_BYTES:
            raise ReportFault("too_large", f"a report is at most {MAX_BODY_BYTES} bytes")
        header = decode_header(body)
        key = self._keys.get(self._ledger, header.machine, signed.key_id)
        if key is None or not _is_signed(key, signed):
            raise ReportFault("auth_error", "the signature or its key is not that of this machine")
        report: UsageReport | None = None
        fault: ReportFault | None = None
        try:
            report = decode_report(body)
        except ReportFault as found:
            fault = found
        if report is not None and report.answers:
            prove_early(self._ledger, report.machine, report.answers)
        return Candidate(
            machine=header.machine,
            epoch=header.epoch,
            seq=header.seq,
            key_id=signed.key_id,
            body=body,
            signature=signed.signature,
            digest=body_hash(body),
            report=report,
            fault=fault,
        )

    # --- in the log's transaction ----------------------------------------------------------------

    def _write(self, connection: Connection, reports: list[SignedReport]) -> list[_Answered]:
        judged = self.judge(reports)
        candidates = [one for one in judged if isinstance(one, Candidate)]
        if not candidates:
            return [_Answered(one, 0, None, []) for one in judged if isinstance(one, ReportAnswer)]
        began = time.perf_counter()
        batch = append_reports(connection, candidates, self._ledger.clock, self._surroundings)
        self.on_commit(_ticks_stored(candidates, batch), time.perf_counter() - began)
        desired, checks = self._wanted(connection, batch)
        answers = iter(batch.answers)
        answered = []
        for one in judged:
            if isinstance(one, ReportAnswer):
                answered.append(_Answered(one, 0, None, []))
                continue
            answer = next(answers)
            stored = batch.heads.get(usage_stream(answer.machine, answer.epoch), 0)
            asked = checks.get(answer.machine, [])
            answered.append(_Answered(answer, stored, desired.get(answer.machine), asked))
        return answered

    def _wanted(
        self, connection: Connection, batch: Batch
    ) -> tuple[dict[int, Desired], dict[int, list[dict[str, Any]]]]:
        machines = {answer.machine for answer in batch.answers}
        with translating(), connection.transaction():
            desired = self._desired.of(connection, machines, batch.fact_position)
            return desired, self._checks.of(connection, machines, self._ledger.clock())

    def _absorb(
        self, log: LogTransaction, report: UsageReport, head: Head, received_at: int
    ) -> None:
        absorb(Unit(log, self._ledger.vault), report, head, received_at)

    def _append_fact(self, log: LogTransaction, stream: str, fact: Fact) -> None:
        Unit(log, self._ledger.vault).append(stream, fact)


def _ignore(_ticks: int, _seconds: float) -> None:
    """Nobody watches."""


def _ticks_stored(candidates: Sequence[Candidate], batch: Batch) -> int:
    return sum(
        one.report.ticks
        for one, answer in zip(candidates, batch.answers, strict=True)
        if answer.status == "accepted" and one.report is not None
    )


def _assembled(answered: Sequence[_Answered]) -> UsageAnswer:
    """One answer for a request: a status per report, an acknowledgement per machine and epoch."""
    reports: list[ReportAnswer] = []
    acks: dict[tuple[int, str], Acknowledgement] = {}
    for answer, acked_through, desired, checks in answered:
        reports.append(answer)
        if answer.machine == 0:
            continue  # It named no machine that could be believed.
        key = (answer.machine, answer.epoch)
        rejected = acks[key].rejected if key in acks else []
        if answer.status in {"rejected", "chain_fork", "conflict"}:
            code, reason = answer.code or "", answer.reason or ""
            rejected = [*rejected, Rejection(seq=answer.seq, code=code, reason=reason)]
        acks[key] = Acknowledgement(
            machine=answer.machine,
            epoch=answer.epoch,
            acked_through=acked_through,
            rejected=rejected,
            desired=desired,
            checks=checks,
        )
    return UsageAnswer(
        server_time_ms=time.time_ns() // 1_000_000,
        reports=reports,
        acks=list(acks.values()),
    )


def _is_signed(key: Ed25519PublicKey, signed: SignedReport) -> bool:
    try:
        key.verify(signed.signature, SIGNING_PREFIX + signed.body)
    except InvalidSignature:
        return False
    return True


class KeyRing:
    """Public keys of machines, kept in memory and checked against the log under its lock."""

    def __init__(self) -> None:
        """Begin empty."""
        self._keys: dict[tuple[int, str], Ed25519PublicKey] = {}
        self._checked_at: dict[tuple[int, str], int] = {}

    def get(self, ledger: Ledger, machine_id: int, key_id: str) -> Ed25519PublicKey | None:
        """The key, if the machine ever had it; whether it still may sign is judged later."""
        known = self._keys.get((machine_id, key_id))
        if known is None:
            with ledger.reading() as connection:
                row = connection.execute(
                    "SELECT public_key FROM machine_keys WHERE machine_id = %s AND key_id = %s"
                    " AND revoked_at IS NULL",
                    [machine_id, key_id],
                ).fetchone()
            if row is None:
                return None
            if len(self._keys) >= _KNOWN_MACHINES_MAX:
                self._keys.clear()
                self._checked_at.clear()
            known = Ed25519PublicKey.from_public_bytes(bytes(row[0]))
            self._keys[(machine_id, key_id)] = known
        return known

    def is_valid(
        self, connection: Connection, fact_position: int, machine_id: int, key_id: str
    ) -> bool:
        """True when no fact up to *fact_position* revoked it; asked again only after new facts."""
        key = (machine_id, key_id)
        if self._checked_at.get(key) == fact_position:
            return True
        row = connection.execute(
            "SELECT 1 FROM machine_keys WHERE machine_id = %s AND key_id = %s"
            " AND revoked_at IS NULL",
            [machine_id, key_id],
        ).fetchone()
        if row is None:
            self._keys.pop(key, None)
            return False
        self._checked_at[key] = fact_position
        return True
