"""A crash at any moment is finished by the next run, and never doubled: every moment is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.services import holds, policies, top_up
from ledger.services.payments import orders
from ledger.services.payments.reconcile import CLEARING
from ledger.services.policies import payouts as policy
from ledger.services.questions.balances import trial_balance
from tests.support.crashes import Crashing, Killed
from tests.support.market import DOLLAR, Market
from tests.support.payments import Shop, owe
from tests.support.processors import StripeProcessor

Prepare = Callable[[Shop], None]
Check = Callable[[Shop, int], None]


def alice_of(shop: Shop) -> int:
    """Who pays."""
    return shop.market.account("alice")


def card_of(shop: Shop) -> str:
    """Her card, saved when first asked for."""
    row = shop.market.connection.execute("SELECT card FROM cards").fetchone()
    shop.market.connection.commit()
    return shop.save_card(alice_of(shop)) if row is None else str(row[0])


def lines(shop: Shop) -> Counter[int]:
    """How many lines of each amount the processor has."""
    return Counter(one.cents for one in shop.gateway.entries(0))


def card_ordered(shop: Shop) -> None:
    """A saved card is about to be charged $12.34."""
    shop.order(alice_of(shop), 1_234, card=card_of(shop))


def card_charged(shop: Shop, times: int) -> None:
    """Each order was charged once and became credit once."""
    assert lines(shop) == {1_234: times}
    assert shop.available(alice_of(shop)) == times * 12_340_000_000


def top_up_due(shop: Shop) -> None:
    """A consent asks for $6, since all that there was is spent."""
    alice = alice_of(shop)
    left = shop.available(alice)
    consent = top_up.Consent(card_of(shop), 5 * DOLLAR, 2 * DOLLAR, 10**6 * DOLLAR)
    with shop.market.ledger.unit() as unit:
        if left:
            holds.place_hold(unit, alice, left, f"spent-{unit.now}")
            holds.capture_hold(unit, alice, f"spent-{unit.now}")
        top_up.consent(unit, alice, consent)


def topped_up(shop: Shop, times: int) -> None:
    """Each was charged once and became credit once."""
    assert lines(shop) == {600: times}
    assert shop.available(alice_of(shop)) == 6 * DOLLAR


def page_paid(shop: Shop) -> None:
    """A page was paid, its messages arrived, and nobody worked them off."""
    payment_id = shop.order(alice_of(shop), 5_000)
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(times=2)


def page_credited(shop: Shop, times: int) -> None:
    """Each payment is one credit."""
    assert lines(shop) == {5_000: times}
    assert shop.available(alice_of(shop)) == times * 50 * DOLLAR


def refund_decided(shop: Shop) -> None:
    """$20 of $50 are about to go back."""
    payment_id = shop.buy(alice_of(shop), 5_000)
    shop.refund(payment_id, 2_000, f"refund-of-{payment_id}")


def refunded(shop: Shop, times: int) -> None:
    """They went back once each."""
    assert lines(shop) == {-2_000: times, 5_000: times}
    assert shop.available(alice_of(shop)) == times * 30 * DOLLAR


def payout_due(shop: Shop) -> None:
    """A host is about to be paid $25."""
    if not lines(shop):
        shop.buy(alice_of(shop), 1_000_000)
        shop.payable_host()
    bank_pays(shop)
    owe(shop, shop.market.account("bob"), 25 * DOLLAR)
    for _ in range(2):
        shop.market.clock.move_to(friday_of(shop.market.clock()) + SECONDS_PER_WEEK)
        if not is_pending(shop):
            policy.pay_hosts(shop.market.ledger)


def bank_pays(shop: Shop) -> None:
    """What is on its way arrives, so that it is no longer looked at."""
    rows = shop.market.connection.execute(
        "SELECT bank_payout FROM payouts WHERE status = 'sent'"
    ).fetchall()
    shop.market.connection.commit()
    for (bank_payout,) in rows:
        shop.processor.settle_bank(bank_payout, "settled")
    shop.hear()
    shop.run()


def is_pending(shop: Shop) -> bool:
    """True while a payout waits for its Friday."""
    return "pending" in {status for _, status in shop.payouts(shop.market.account("bob"))}


def paid_out(shop: Shop, times: int) -> None:
    """Each was transferred once and sent once."""
    assert lines(shop) == {-2_500: times, 1_000_000: 1}
    before = [(2_500, "paid")] * (times - 1)
    assert shop.payouts(shop.market.account("bob")) == [*before, (2_500, "sent")]
    assert shop.payable(shop.market.account("bob")) == 0
    assert isinstance(shop.processor, StripeProcessor)
    assert len(shop.processor.stripe.found["payout"]) == times


def payout_refused(shop: Shop) -> None:
    """A host's bank refused what was sent; nobody worked that off yet."""
    host = shop.market.account("bob")
    if lines(shop):
        owe(shop, host, -25 * DOLLAR)  # What came back the last time.
    payout_due(shop)
    policy.pay_hosts(shop.market.ledger)
    shop.run()
    row = shop.market.connection.execute(
        "SELECT bank_payout FROM payouts WHERE status = 'sent'"
    ).fetchone()
    shop.market.connection.commit()
    assert row is not None
    shop.processor.settle_bank(row[0], "failed")
    shop.hear()


def owed_again(shop: Shop, times: int) -> None:
    """Each transfer came back once, and the host is owed all of the last one."""
    assert lines(shop) == {-2_500: times, 2_500: times, 1_000_000: 1}
    assert shop.payable(shop.market.account("bob")) == 25 * DOLLAR


CASES: dict[str, tuple[Prepare, Check]] = {
    "card": (card_ordered, card_charged),
    "top-up": (top_up_due, topped_up),
    "page": (page_paid, page_credited),
    "refund": (refund_decided, refunded),
    "payout": (payout_due, paid_out),
    "return": (payout_refused, owed_again),
}


@pytest.fixture
def shop(market: Market) -> Iterator[Shop]:
    """A marketplace on the stand-in for Stripe."""
    processor = StripeProcessor(market.clock)
    yield Shop(market, processor)
    processor.close()


def go(shop: Shop, crashing: Crashing) -> None:
    """One run of everything that asks the processor, on a process that may die."""
    ledger = crashing.ledger(shop.market.ledger)
    policy.pay_hosts(ledger)
    policies.pay(ledger, crashing.gateway(shop.gateway))


def later(shop: Shop, seconds: int) -> None:
    """Time goes by."""
    shop.market.clock.move_to(shop.market.clock() + seconds)


def clearing(shop: Shop) -> dict[str, int]:
    """Accounts that should be empty after every run, and are not."""
    with shop.market.ledger.reading() as connection:
        books = {row.ledger_account: row.debit - row.credit for row in trial_balance(connection)}
    return {name: books[name] for name in CLEARING if books.get(name)}


def crash_everywhere(shop: Shop, case: str, recover: Callable[[], None]) -> int:
    """Do a case again and again, each time dying a moment later; returns how many moments."""
    prepare, check = CASES[case]
    moment, died = 0, True
    while died:
        moment += 1
        prepare(shop)
        later(shop, 60)
        try:
            go(shop, Crashing(moment))
        except Killed:
            recover()
        else:
            died = False
        for _ in range(2):
            later(shop, 60)
            go(shop, Crashing())
        check(shop, moment)
        assert clearing(shop) == {}, moment
    shop.assert_settled()
    return moment - 1


def sample(cases: Collection[str], first: str) -> list[Any]:
    """All of them in the long tests, one of them in the suite: each dies dozens of times."""
    return [case if case == first else pytest.param(case, marks=pytest.mark.soak) for case in cases]


@pytest.mark.parametrize("case", sample(CASES, "card"))
def test_a_crash_at_any_moment_is_finished_by_the_next_run(case: str, shop: Shop) -> None:
    """Before and after each call and each commit: one charge, no loss, clearing zero."""
    assert crash_everywhere(shop, case, lambda: None) >= 6


@pytest.mark.parametrize("case", sample(["card", "refund"], "refund"))
def test_a_crash_is_finished_days_later_too(case: str, shop: Shop) -> None:
    """HOOK-04: the processor forgot every key: what was done is found, and not done again."""

    def recover() -> None:
        assert isinstance(shop.processor, StripeProcessor)
        shop.processor.server.forget_keys()
        later(shop, 2 * 86_400)

    assert crash_everywhere(shop, case, recover) >= 6


def test_two_processes_at_once_do_it_once(shop: Shop) -> None:
    """Within the very call of one run another runs to its end: one charge, one credit."""
    card_ordered(shop)
    crashing = Crashing()

    class Overtaken(Crashing):
        def moment(self, *, holds: bool = False) -> None:
            super().moment()
            if not holds:
                go(shop, crashing)

    go(shop, Overtaken())
    card_charged(shop, 1)
    shop.assert_settled()


def test_an_order_is_in_the_log_before_anybody_is_asked(shop: Shop) -> None:
    """The intent is committed when the first call is made, whatever becomes of the call."""
    alice = alice_of(shop)
    card = shop.save_card(alice)
    asked: list[int] = []

    class Watching(Crashing):
        def moment(self, *, holds: bool = False) -> None:
            super().moment()
            asked.append(shop.market.head())

    with shop.market.ledger.unit() as unit:
        payment_id = orders.order_payment(unit, alice, 5 * DOLLAR, card=card)
    ordered = shop.market.head()
    go(shop, Watching())
    assert asked
    assert min(asked) >= ordered
    assert shop.status(payment_id) == "settled"
