"""A crash at any moment is finished by the next run, and never doubled: every moment is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledger.services import policies, top_up
from ledger.services.payments import orders
from ledger.services.policies import payouts as policy
from tests.services.test_payouts import FRIDAY, SECONDS_PER_WEEK, owe
from tests.support.crashes import Crashing, Killed
from tests.support.databases import Server
from tests.support.market import DOLLAR, Market
from tests.support.payments import Shop
from tests.support.processors import StripeProcessor

Prepare = Callable[[Shop], None]
Check = Callable[[Shop], None]


def alice_of(shop: Shop) -> int:
    """Who pays."""
    return shop.market.account("alice")


def card_ordered(shop: Shop) -> None:
    """A saved card is about to be charged $12.34."""
    alice = alice_of(shop)
    shop.order(alice, 1_234, card=shop.save_card(alice))


def card_charged(shop: Shop) -> None:
    """It was charged once and became credit once."""
    assert [one.cents for one in shop.gateway.entries(0)] == [1_234]
    assert shop.available(alice_of(shop)) == 12_340_000_000


def top_up_due(shop: Shop) -> None:
    """A consent asks for $6."""
    alice = alice_of(shop)
    consent = top_up.Consent(shop.save_card(alice), 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR)
    with shop.market.ledger.unit() as unit:
        top_up.consent(unit, alice, consent)


def topped_up(shop: Shop) -> None:
    """It was charged once and became credit once."""
    assert [one.cents for one in shop.gateway.entries(0)] == [600]
    assert shop.available(alice_of(shop)) == 6 * DOLLAR


def page_paid(shop: Shop) -> None:
    """A page was paid, its messages arrived, and nobody worked them off."""
    payment_id = shop.order(alice_of(shop), 5_000)
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(times=2)


def page_credited(shop: Shop) -> None:
    """The payment is one credit."""
    assert [one.cents for one in shop.gateway.entries(0)] == [5_000]
    assert shop.available(alice_of(shop)) == 50 * DOLLAR


def refund_decided(shop: Shop) -> None:
    """$20 of $50 are about to go back."""
    shop.refund(shop.buy(alice_of(shop), 5_000), 2_000)


def refunded(shop: Shop) -> None:
    """They went back once."""
    assert sorted(one.cents for one in shop.gateway.entries(0)) == [-2_000, 5_000]
    assert shop.available(alice_of(shop)) == 30 * DOLLAR


def payout_due(shop: Shop) -> None:
    """A host is about to be paid $25."""
    shop.buy(alice_of(shop), 100_000)
    host = shop.payable_host()
    owe(shop, host, 25 * DOLLAR + 5)
    shop.market.clock.move_to(FRIDAY)
    policy.pay_hosts(shop.market.ledger)
    shop.run()
    shop.market.clock.move_to(FRIDAY + SECONDS_PER_WEEK)


def paid_out(shop: Shop) -> None:
    """It was transferred once and sent once; five nanos stayed."""
    assert sorted(one.cents for one in shop.gateway.entries(0)) == [-2_500, 100_000]
    host = shop.market.account("bob")
    assert shop.payouts(host) == [(2_500, "sent")]
    assert shop.payable(host) == 5
    assert isinstance(shop.processor, StripeProcessor)
    assert len(shop.processor.stripe.found["payout"]) == 1


def payout_refused(shop: Shop) -> None:
    """A host's bank refused what was sent; nobody heard yet."""
    payout_due(shop)
    policy.pay_hosts(shop.market.ledger)
    shop.run()
    row = shop.market.connection.execute("SELECT bank_payout FROM payouts").fetchone()
    shop.market.connection.commit()
    assert row is not None
    shop.processor.settle_bank(row[0], "failed")
    shop.hear()


def owed_again(shop: Shop) -> None:
    """The transfer came back once, and the host is owed all of it."""
    assert sorted(one.cents for one in shop.gateway.entries(0)) == [-2_500, 2_500, 100_000]
    assert shop.payable(shop.market.account("bob")) == 25 * DOLLAR + 5


CASES: dict[str, tuple[Prepare, Check]] = {
    "card": (card_ordered, card_charged),
    "top-up": (top_up_due, topped_up),
    "page": (page_paid, page_credited),
    "refund": (refund_decided, refunded),
    "payout": (payout_due, paid_out),
    "return": (payout_refused, owed_again),
}


@pytest.fixture
def fresh(server: Server) -> Iterator[Callable[[], Shop]]:
    """A new marketplace with a new stand-in, as often as it is asked for."""
    opened: list[tuple[str, Market, StripeProcessor]] = []

    def make() -> Shop:
        dsn = server.copy()
        market = Market(dsn)
        processor = StripeProcessor(market.clock)
        opened.append((dsn, market, processor))
        return Shop(market, processor)

    yield make
    for dsn, market, processor in opened:
        processor.close()
        market.close()
        server.drop(dsn)


def go(shop: Shop, crashing: Crashing) -> None:
    """One run of everything that asks the processor, on a process that may die."""
    ledger = crashing.ledger(shop.market.ledger)
    policy.pay_hosts(ledger)
    policies.pay(ledger, crashing.gateway(shop.gateway))


@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_moment_is_finished_by_the_next_run(
    case: str, fresh: Callable[[], Shop]
) -> None:
    """Before and after each call and each commit: one charge, no loss, clearing zero."""
    prepare, check = CASES[case]
    shop = fresh()
    prepare(shop)
    counting = Crashing()
    go(shop, counting)
    assert counting.moments >= 6
    for moment in range(1, counting.moments + 1):
        shop = fresh()
        prepare(shop)
        with pytest.raises(Killed):
            go(shop, Crashing(moment))
        for _ in range(2):
            shop.market.clock.move_to(shop.market.clock() + 60)
            go(shop, Crashing())
        check(shop)
        compared = shop.compare()
        assert compared.is_clean, (moment, compared.findings)
        assert set(compared.clearing.values()) == {0}, moment


def test_a_crash_is_finished_a_week_later_too(fresh: Callable[[], Shop]) -> None:
    """The processor forgot every key meanwhile: what was done is found, and not done again."""
    for case in ("card", "refund", "payout"):
        prepare, check = CASES[case]
        counted = fresh()
        prepare(counted)
        counting = Crashing()
        go(counted, counting)
        for moment in range(1, counting.moments + 1):
            shop = fresh()
            prepare(shop)
            with pytest.raises(Killed):
                go(shop, Crashing(moment))
            assert isinstance(shop.processor, StripeProcessor)
            shop.processor.server.forget_keys()
            shop.market.clock.move_to(shop.market.clock() + SECONDS_PER_WEEK - 3_600)
            for _ in range(2):
                shop.market.clock.move_to(shop.market.clock() + 60)
                go(shop, Crashing())
            check(shop)
            assert shop.compare().is_clean, (case, moment)


def test_two_processes_at_once_do_it_once(fresh: Callable[[], Shop]) -> None:
    """Within the very call of one run another runs to its end: one charge, one credit."""
    shop = fresh()
    card_ordered(shop)
    crashing = Crashing()

    class Overtaken(Crashing):
        def moment(self) -> None:
            super().moment()
            if self.moments % 3 == 0:
                go(shop, crashing)

    go(shop, Overtaken())
    card_charged(shop)
    shop.assert_settled()


def test_an_order_is_in_the_log_before_anybody_is_asked(fresh: Callable[[], Shop]) -> None:
    """The intent is committed when the first call is made, whatever becomes of the call."""
    shop = fresh()
    alice = alice_of(shop)
    card = shop.save_card(alice)
    asked: list[int] = []

    class Watching(Crashing):
        def moment(self) -> None:
            super().moment()
            asked.append(shop.market.head())

    with shop.market.ledger.unit() as unit:
        payment_id = orders.order_payment(unit, alice, 5 * DOLLAR, card=card)
    ordered = shop.market.head()
    go(shop, Watching())
    assert asked
    assert min(asked) >= ordered
    assert shop.status(payment_id) == "settled"
