"""The delivery thread: it sends what is sealed, tells what it heard, and is woken, not polled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from adapters.hostagent.delivery import Delivery, Heard
from adapters.hostagent.reports import ReportChain, SealedReport
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.usage import UsageReport
from tests.unit.hostagent.server import IDENTITY, START, FakeLedger, answered, problem


class Post:
    """A spool, a server and the thread between them."""

    def __init__(self, path: Path) -> None:
        """Begin to deliver."""
        self.spool = SqliteSpool(path, 4001)
        self.server = FakeLedger()
        self.heard: list[Heard] = []
        self.delivery = Delivery(
            self.server.client(), self.spool, on_heard=self.heard.append, stand_in=lambda *_: None
        )
        self.delivery.start()

    def seal(self) -> None:
        """Seal ten seconds and wake the thread."""

        def ten(chain: ReportChain) -> SealedReport:
            return chain.seal(max(chain.sealed_until, START), 10)

        self.spool.seal(IDENTITY, "b1", START, ten)
        self.delivery.wake()


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    """Give a running delivery."""
    one = Post(tmp_path / "spool.db")
    yield one
    one.delivery.close()
    one.spool.close()


def wait(condition: Callable[[], object], seconds: float = 10.0) -> float:
    """Seconds until *condition* holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "waited in vain"
        time.sleep(0.005)
    return time.monotonic() - began


def test_what_is_sealed_is_on_its_way_at_once(post: Post) -> None:
    """A sealed report does not wait for the end of an idle pause."""
    time.sleep(0.1)
    post.seal()
    assert wait(lambda: len(post.spool) == 0) < 3
    (heard,) = post.heard
    assert 0 < heard.sent_ns <= heard.received_ns
    assert heard.answer.acks[0].acked_through == 1


def test_trouble_is_outlived(post: Post) -> None:
    """Errors of the network and of the server delay a report and never lose it."""
    post.server.faults = [httpx.ConnectError("down"), problem(503, "x"), httpx.ReadTimeout("slow")]
    post.seal()
    wait(lambda: len(post.spool) == 0, 20)
    assert len(post.server.requests) == 4


def test_a_refused_key_stops_sending_and_keeps_sealing(post: Post) -> None:
    """What the server does not take from this key stays in the spool, with one alarm."""

    def refuse(report: UsageReport) -> object:
        return answered(report, "unauthorized", code="auth_error")

    post.server.judge = refuse  # type: ignore[assignment]
    post.seal()
    wait(lambda: post.delivery.is_refused)
    post.seal()
    time.sleep(0.1)
    assert (len(post.spool), post.delivery.alarms) == (2, {"auth_error": 1})
    assert len(post.server.requests) == 1
