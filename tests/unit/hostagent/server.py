"""A ledger that fits on a page: it takes reports in sequence and can be told to misbehave."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec

from adapters.hostagent.client import UsageClient
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport
from ledger.domain.acknowledgement import Acknowledgement, ReportAnswer, UsageAnswer
from ledger.domain.usage import GENESIS_HASH, UsageReport, body_hash, decode_report

IDENTITY = HostIdentity.from_seed(bytes(32))
EPOCH = "9f" * 16
START = 1_798_761_600


def chain(machine: int = 4001, epoch: str = EPOCH) -> ReportChain:
    """A new chain with a known key."""
    return ReportChain(machine, IDENTITY, boot_id="b1", epoch=epoch)


def seal(reports: ReportChain, count: int) -> list[SealedReport]:
    """So many reports of 10 s without instances."""
    first = max(reports.sealed_until, START)
    return [reports.seal(first + 10 * index, 10) for index in range(count)]


class FakeLedger:
    """Answers `POST /v1/usage`; `faults` are answers given once, before it works as it should."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self.stored: dict[tuple[int, str], list[bytes]] = {}
        self.requests: list[list[int]] = []
        """The `seq`s of each request."""
        self.faults: list[httpx.Response | Exception] = []
        self.judge: Callable[[UsageReport], ReportAnswer | None] = lambda _: None
        """An answer for this report instead of the ordinary one; it is then not stored."""

    def client(self) -> UsageClient:
        """A client whose requests end here."""
        http = httpx.Client(transport=httpx.MockTransport(self.answer))
        return UsageClient("http://ledger.test/", http)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Take one request."""
        assert request.url == "http://ledger.test/v1/usage"
        assert request.headers["content-type"] == "application/msgpack"
        items = msgspec.msgpack.decode(request.content, type=list[tuple[str, bytes, bytes]])
        reports = [decode_report(body) for _, _, body in items]
        self.requests.append([report.seq for report in reports])
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        bodies = [body for _, _, body in items]
        answers = [
            self.judge(report) or self._store(report, body)
            for report, body in zip(reports, bodies, strict=True)
        ]
        acks = [
            Acknowledgement(machine=machine, epoch=epoch, acked_through=len(stored))
            for (machine, epoch), stored in self.stored.items()
        ]
        answer = UsageAnswer(server_time_ms=1_000, reports=answers, acks=acks)
        if request.headers["accept"] != "application/msgpack":
            return httpx.Response(200, json=msgspec.to_builtins(answer))
        return httpx.Response(
            200,
            content=msgspec.msgpack.encode(answer),
            headers={"content-type": "application/msgpack"},
        )

    def _store(self, report: UsageReport, body: bytes) -> ReportAnswer:
        stored = self.stored.setdefault((report.machine, report.epoch), [])
        if report.seq > len(stored) + 1:
            return answered(report, "sequence_gap", expected=len(stored) + 1)
        if report.seq <= len(stored):
            same = stored[report.seq - 1] == body
            return answered(report, "duplicate" if same else "conflict")
        head = body_hash(stored[-1]).hex() if stored else GENESIS_HASH
        stored.append(body)
        return answered(report, "accepted" if report.prev == head else "chain_fork")


def answered(
    report: UsageReport, status: str, *, code: str | None = None, expected: int | None = None
) -> ReportAnswer:
    """An answer to *report*."""
    return msgspec.convert(
        {
            "machine": report.machine,
            "epoch": report.epoch,
            "seq": report.seq,
            "status": status,
            "code": code,
            "expected": expected,
        },
        ReportAnswer,
    )


def problem(status: int, code: str, retry_after: str | None = None) -> httpx.Response:
    """A whole request refused."""
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = retry_after
    body = {"type": "about:blank", "title": code, "status": status, "detail": "no", "code": code}
    return httpx.Response(status, content=msgspec.json.encode(body), headers=headers)
