"""kill -9 in the middle of paying: no charge is doubled, no payment is lost, clearing is zero."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.services.policies import payouts
from tests.support.market import DOLLAR, Market
from tests.support.payments import Shop, owe
from tests.support.processors import StripeProcessor


class Payers:
    """Starts paying processes, one after the other."""

    def __init__(self) -> None:
        """Start what they are forked from."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.paying"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid: Future[int] = Future()

    def run(self, dsn: str, url: str, second: int) -> int:
        """One process, to its end; returns the exit code. Its id is in `pid` from its start on."""
        self.pid = Future()
        given, printed = self._process.stdin, self._process.stdout
        assert given is not None
        assert printed is not None
        given.write(f"{dsn}\t{url}\t{second}\n")
        given.flush()
        self.pid.set_result(int(printed.readline()))
        line = printed.readline()
        code = int(printed.readline() if line == "done\n" else line)
        assert (line == "done\n") == (code == 0)
        return code

    def kill(self) -> None:
        """`kill -9` of the process that runs; returns when it is gone."""
        pid = self.pid.result(60)
        gone = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            select.select([gone], [], [], 60)
        finally:
            os.close(gone)

    def close(self) -> None:
        """End what they are forked from."""
        self._process.communicate(timeout=60)


class Killing:
    """A marketplace whose paying process can be killed while the processor is asked."""

    def __init__(self, market: Market, dsn: str, payers: Payers) -> None:
        """Begin with nothing to pay."""
        self.dsn = dsn
        self.payers = payers
        self.market = market
        self.stripe = StripeProcessor(market.clock)
        self.shop = Shop(market, self.stripe)

    def run(self, path: str | None = None, when: str = "before") -> int:
        """One run in a process of its own; killed at the first request to *path*, if given."""
        self.market.clock.move_to(self.market.clock() + 60)

        def kill(method: str, asked: str, stage: str) -> None:
            if (method, asked, stage) == ("POST", path, when):
                self.payers.kill()

        self.stripe.server.on_request = kill
        code = self.payers.run(self.dsn, self.stripe.server.url, self.market.clock())
        self.stripe.server.on_request = lambda *_: None
        return code


@pytest.fixture(scope="module")
def payers() -> Iterator[Payers]:
    """Where the processes come from."""
    one = Payers()
    yield one
    one.close()


@pytest.fixture
def killing(market: Market, dsn: str, payers: Payers) -> Iterator[Killing]:
    """A fresh marketplace."""
    one = Killing(market, dsn, payers)
    yield one
    one.stripe.close()


def charge(killing: Killing) -> None:
    """A card is about to be charged."""
    alice = killing.market.account("alice")
    killing.shop.order(alice, 1_234, card=killing.shop.save_card(alice))


def refund(killing: Killing) -> None:
    """A refund is about to be sent."""
    payment_id = killing.shop.buy(killing.market.account("alice"), 5_000)
    killing.shop.refund(payment_id, 2_000)


def payout(killing: Killing) -> None:
    """A host is about to be paid."""
    shop = killing.shop
    shop.buy(killing.market.account("rich"), 100_000)
    host = shop.payable_host()
    owe(shop, host, 25 * DOLLAR)
    for _ in range(2):
        killing.market.clock.move_to(friday_of(killing.market.clock()) + SECONDS_PER_WEEK)
        payouts.pay_hosts(killing.market.ledger)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("prepare", "path", "lines"),
    [
        (charge, "/v1/payment_intents", [1_234]),
        (refund, "/v1/refunds", [-2_000, 5_000]),
        (payout, "/v1/transfers", [-2_500, 100_000]),
        (payout, "/v1/payouts", [-2_500, 100_000]),
    ],
    ids=["charge", "refund", "transfer", "bank"],
)
def test_a_killed_process_is_finished_by_the_next(
    killing: Killing, prepare: Callable[[Killing], None], path: str, lines: list[int], when: str
) -> None:
    """SIGKILL before and after the processor did it: the next process ends it, once."""
    prepare(killing)
    assert killing.run(path, when) == -signal.SIGKILL
    assert killing.run() == 0
    assert killing.run() == 0
    assert sorted(one.cents for one in killing.stripe.gateway.entries(0)) == lines
    assert len(killing.stripe.stripe.found["payout"]) == (1 if prepare is payout else 0)
    killing.shop.assert_settled()
