"""Webhooks against a real receiver that fails, hangs, hangs up, and a sender that is killed.

HOOK-01, HOOK-02.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.domain.webhooks import TRIES
from ledger.services import webhooks
from ledger.services.webhooks import REACH_VARIABLE
from tests.e2e.serving import ROOT, Serving, books_equal_a_rebuild, wait_for
from tests.support.market import DOLLAR, START, Market
from tests.support.webhooks import Driven, Receiver, register, shown, stored, tell

SENDER = """
import signal, sys, threading
from adapters.jobs import WEBHOOKS_LOCK
from ledger.services.leadership import Leadership
from adapters.webhooks.sender import run_webhooks
from ledger.services.ledger import Ledger, SystemClock
from ledger.store.database import Database
from ledger.store.vault import Vault
ledger = Ledger(Database.open(None, sys.argv[1], migrate=False), Vault(bytes(32)), SystemClock())
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run_webhooks(ledger, Leadership(ledger, WEBHOOKS_LOCK), stop, {"loopback"})
ledger.close()
"""
"""The job as `gpuledger serve` runs it, on the database of a test."""


@pytest.fixture
def alice(market: Market) -> int:
    """A renter."""
    return market.account("alice", 100 * DOLLAR)


@pytest.fixture
def senders(dsn: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts sending processes, and ends those that a test leaves."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", SENDER, dsn], cwd=ROOT)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.wait(20)


def kill(process: subprocess.Popen[bytes]) -> None:
    """`kill -9`, and wait for the end."""
    process.kill()
    process.wait(10)


# --- a receiver that does not do what it should ---------------------------------------------------


def test_a_failing_receiver_gets_it_later_signed_anew(market: Market, alice: int) -> None:
    """500, a hang-up and a redirect are tried again after growing pauses, under one event id."""
    with Receiver("500", "close", "redirect") as receiver:
        made = register(market.ledger, alice, receiver.url)
        driven = Driven(market.ledger)
        tell(market.ledger, alice, "outbid")
        pauses = []
        for reason in ("http_500", "closed", "http_302"):
            assert driven.send() == 1
            (waits,) = stored(market.ledger, made.webhook_id, "pending")
            assert waits.reason == reason
            assert waits.due_at is not None
            pauses.append(waits.due_at - market.clock())
            assert driven.send() == 0
            market.clock.move_to(waits.due_at)
        assert driven.send() == 1
        assert 8 <= pauses[0] <= 12
        assert pauses == sorted(pauses)
        moments = [START, START + pauses[0], START + sum(pauses[:2]), START + sum(pauses)]
        events = [
            one.verified(made.secret, second)
            for one, second in zip(receiver.received, moments, strict=True)
        ]
        assert len({event["id"] for event in events}) == 1
        assert [event["attempt"] for event in events] == [1, 2, 3, 4]
        assert [one.headers["x-gpuledger-attempt"] for one in receiver.received] == list("1234")
        assert {event["at"] for event in events} == {"2026-03-01T10:00:00Z"}
        assert (shown(market.ledger, made.webhook_id).pending) == 0
        (arrived,) = stored(market.ledger, made.webhook_id, "delivered")
        assert (arrived.attempts, arrived.status) == (4, 204)
    assert market.rebuild().equal


def test_a_receiver_that_is_gone_makes_a_dead_letter_that_can_be_sent_again(
    market: Market, alice: int
) -> None:
    """After the last try it is dead and seen; a replay delivers it under the same event id."""
    with Receiver(otherwise="503") as receiver:
        made = register(market.ledger, alice, receiver.url)
        driven = Driven(market.ledger)
        tell(market.ledger, alice, "outbid")
        for _ in range(TRIES):
            assert driven.send() == 1
            for waits in stored(market.ledger, made.webhook_id, "pending"):
                market.clock.move_to(waits.due_at or 0)
        (dead,) = stored(market.ledger, made.webhook_id, "dead")
        assert (dead.attempts, dead.reason, dead.status) == (TRIES, "http_503", 503)
        assert 2 * 86_400 < (dead.ended_at or 0) - START < 4 * 86_400
        receiver.otherwise = "ok"
        market.clock.move_to(market.clock() + 30 * 86_400)
        assert driven.send() == 0
        with market.ledger.unit() as unit:
            webhooks.replay(unit, alice, made.webhook_id, dead.event_id)
        assert driven.send() == 1
        assert {event["id"] for event in receiver.events} == {dead.event_id}
        assert receiver.events[-1]["attempt"] == TRIES + 1
    assert market.rebuild().equal


def test_a_slow_receiver_delays_nobody_else(market: Market, alice: int) -> None:
    """While every attempt of one webhook hangs, forty events of the others arrive."""
    carol = market.account("carol")
    with Receiver(otherwise="hang") as slow, Receiver() as fast:
        stuck = register(market.ledger, alice, slow.url, ["outbid"]).webhook_id
        own = register(market.ledger, alice, fast.url, ["idle"]).webhook_id
        hers = register(market.ledger, carol, fast.url).webhook_id
        for _ in range(20):
            tell(market.ledger, alice, "outbid", "idle")
            tell(market.ledger, carol, "idle")
        sending = threading.Thread(target=Driven(market.ledger, timeout_seconds=60).send)
        sending.start()
        fast.wait_for(40, seconds=60)
        # Four are on their way, none came to an end, and no more begin.
        slow.wait_for(4)
        waiting = stored(market.ledger, stuck, "pending")
        assert [one.attempts for one in waiting] == [1] * 4 + [0] * 16
        slow.let_go()
        sending.join()
        assert {one.reason for one in stored(market.ledger, stuck, "pending")} == {"closed"}
        assert len(slow.received) == 20
        for webhook in (own, hers):
            assert len(stored(market.ledger, webhook, "delivered")) == 20
        assert set(Counter(event["id"] for event in fast.events).values()) == {1}


def test_hook_02_a_receiver_that_hung_up_too_early_gets_it_twice_and_counts_it_once(
    market: Market, alice: int
) -> None:
    """HOOK-02: taken but not answered, an event comes again; by its id the receiver knows it."""
    with Receiver("close", "close", "ok", "close") as receiver:
        register(market.ledger, alice, receiver.url)
        driven = Driven(market.ledger)
        tell(market.ledger, alice, "extended", "idle", "outbid")
        for _ in range(4):
            driven.send()
            market.clock.move_to(market.clock() + 3_000)
        done: dict[str, str] = {}
        for event in receiver.events:
            done.setdefault(event["id"], event["type"])
        assert sorted(done.values()) == ["extended", "idle", "outbid"]
        assert len(receiver.received) == 6


# --- a sender that dies ---------------------------------------------------------------------------


def test_a_sender_killed_between_sending_and_writing_down_sends_it_again(
    market: Market, alice: int, senders: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """Killed after the receiver took an event, the job delivers it again under the same id."""
    with Receiver("hang") as receiver:
        made = register(market.ledger, alice, receiver.url)
        tell(market.ledger, alice, "outbid")
        first = senders()
        receiver.wait_for(1)
        kill(first)
        receiver.let_go()
        second = senders()
        receiver.wait_for(2)
        wait_for(lambda: stored(market.ledger, made.webhook_id, "delivered"), 10, "the delivery")
        before, after = receiver.received
        now = int(time.time())
        assert before.verified(made.secret, now)["id"] == after.verified(made.secret, now)["id"]
        assert (before.event["attempt"], after.event["attempt"]) == (1, 2)
        second.terminate()
        assert second.wait(20) == 0
        assert len(receiver.received) == 2
    assert market.rebuild().equal


def test_of_two_senders_one_sends_and_the_other_takes_over(
    market: Market, alice: int, senders: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """Two processes send nothing twice; when the leader is killed, the other goes on."""
    with Receiver() as receiver:
        webhook = register(market.ledger, alice, receiver.url).webhook_id
        both = [senders(), senders()]
        for _ in range(10):
            tell(market.ledger, alice, "idle")
        receiver.wait_for(10)
        wait_for(lambda: len(stored(market.ledger, webhook, "delivered")) == 10, 10, "the results")
        kill(both[0])
        for _ in range(10):
            tell(market.ledger, alice, "outbid")
        receiver.wait_for(20)
        wait_for(lambda: len(stored(market.ledger, webhook, "delivered")) == 20, 10, "the results")
        kill(both[1])
        counted = Counter(event["id"] for event in receiver.events)
        assert len(counted) == 20
        assert set(counted.values()) == {1}


def test_a_sender_that_is_told_to_stop_leaves_what_hangs_to_the_next(
    market: Market, alice: int, senders: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """SIGTERM ends the job in seconds, though a receiver hangs; the next job sends it again."""
    with Receiver("hang") as receiver:
        webhook = register(market.ledger, alice, receiver.url).webhook_id
        tell(market.ledger, alice, "idle")
        first = senders()
        receiver.wait_for(1)
        began = time.monotonic()
        first.terminate()
        assert first.wait(20) == 0
        assert time.monotonic() - began < 8
        senders()
        receiver.wait_for(2)
        wait_for(lambda: stored(market.ledger, webhook, "delivered"), 10, "the delivery")
        assert len({event["id"] for event in receiver.events}) == 1


# --- the whole program ----------------------------------------------------------------------------


def test_a_renter_is_told_what_happens_though_the_job_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`gpuledger serve` sends what a renter asked for; killed in the middle, it sends it again."""
    monkeypatch.setenv(REACH_VARIABLE, "loopback")
    with Serving(workers=1) as serving, Receiver() as receiver:
        renter = serving.person("rita", "renter", "100")
        made = serving.call(
            "POST", "/v1/webhooks", {"url": receiver.url, "codes": ["created"]}, key=renter
        )
        path = f"/v1/webhooks/{made['webhook_id']}"
        event = serving.call("POST", f"{path}/test", key=renter)["event_id"]
        (got,) = receiver.wait_for(1)
        assert got.verified(made["secret"], int(time.time()))["id"] == event

        def killing(_: Any) -> str:
            with contextlib.suppress(ProcessLookupError):
                os.kill(serving.background(), signal.SIGKILL)
            return "ok"

        receiver.script.append(killing)
        again = serving.call("POST", f"{path}/test", key=renter)["event_id"]
        _, *both = receiver.wait_for(3, seconds=40)
        assert [one.event["id"] for one in both] == [again, again]
        assert [one.event["attempt"] for one in both] == [1, 2]
        wait_for(
            lambda: not serving.call("GET", f"{path}/deliveries", key=renter)["items"],
            20,
            "the result",
        )
        arrived = serving.call("GET", f"{path}/deliveries?state=delivered", key=renter)["items"]
        assert [(one["event_id"], one["attempts"]) for one in arrived] == [(event, 1), (again, 2)]
        with serving.database() as database:
            books_equal_a_rebuild(database)
