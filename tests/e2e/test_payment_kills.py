"""kill -9 in the middle of paying: no charge is doubled, no payment is lost, clearing is zero."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.services.policies import payouts
from tests.support.market import DOLLAR, Market
from tests.support.payments import Shop, owe
from tests.support.processors import StripeProcessor


class Killing:
    """A marketplace whose paying process can be killed while the processor is asked."""

    def __init__(self, market: Market, dsn: str) -> None:
        """Begin with nothing to pay."""
        self.dsn = dsn
        self.market = market
        self.stripe = StripeProcessor(market.clock)
        self.shop = Shop(market, self.stripe)

    def run(self, path: str | None = None, when: str = "before") -> int:
        """One run in a process of its own; killed at the first request to *path*, if given."""
        self.market.clock.move_to(self.market.clock() + 60)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.paying"),
                *(self.dsn, self.stripe.server.url, str(self.market.clock())),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

        def kill(method: str, asked: str, stage: str) -> None:
            if (method, asked, stage) == ("POST", path, when):
                os.kill(process.pid, signal.SIGKILL)
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        self.stripe.server.on_request = kill
        out, _ = process.communicate(timeout=120)
        self.stripe.server.on_request = lambda *_: None
        assert (out == "done\n") == (process.returncode == 0)
        return process.returncode


@pytest.fixture
def killing(market: Market, dsn: str) -> Iterator[Killing]:
    """A fresh marketplace."""
    one = Killing(market, dsn)
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
