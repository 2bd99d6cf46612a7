"""The processor's messages: late, twice, shuffled, at once, never (HOOK-01 to HOOK-04)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger.domain.events import DepositSettled
from ledger.services import reconciliation
from ledger.services.payments import inbox
from ledger.services.payments.gateway import Event, Subject
from ledger.services.payments.reconcile import comparison_with
from tests.support.market import DOLLAR
from tests.support.payments import CENT, Shop


def chance(seed: int) -> random.Random:
    """An order of arrival that a failing test can repeat."""
    return random.Random(seed)  # noqa: S311 - an order, no secret


def deposits(shop: Shop) -> list[tuple[int, str]]:
    """Amount and id of every deposit that the log holds."""
    return [
        (one.amount, one.deposit_id)
        for one in shop.market.facts()
        if isinstance(one, DepositSettled)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_any_order_and_any_number_credits_each_once(shop: Shop, seed: int) -> None:
    """HOOK-02: five payments, a refund and a chargeback, each message thrice and shuffled."""
    alice = shop.market.account("alice")
    names = [shop.order(alice, 1_000 * number) for number in range(1, 6)]
    for name in names:
        shop.processor.pay(shop.page(name).session)
    shop.hear(times=3, shuffle=chance(seed))
    shop.run()
    assert sorted(deposits(shop)) == [(10 * DOLLAR * n, names[n - 1]) for n in range(1, 6)]
    paid = [shop.history(name).payment.processor_payment for name in names]
    assert paid[0] is not None
    assert paid[1] is not None
    shop.processor.refund_outside(paid[0], 500)
    shop.processor.decide(shop.processor.dispute(paid[1], 2_000), "won")
    shop.hear(times=3, shuffle=chance(seed))
    shop.run()
    assert shop.available(alice) == 145 * DOLLAR
    shop.assert_settled()


def test_what_goes_back_may_be_heard_of_before_the_payment(shop: Shop) -> None:
    """HOOK-02: a chargeback whose payment nobody told of yet books the payment first."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000)
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(lose=lambda _: True)
    session = shop.market.connection.execute("SELECT session FROM payments").fetchone()
    assert session is not None
    seen = shop.gateway.look(Subject("checkout", session[0]))
    payment = seen.payment.payment  # type: ignore[union-attr]  # a page that was paid
    shop.processor.dispute(payment, 1_000)
    shop.hear(lose=lambda kind: "charge" not in kind)
    inbox.work_off(shop.market.ledger, shop.gateway)
    assert (shop.status(payment_id), shop.available(alice)) == ("settled", 0)
    assert len(deposits(shop)) == 1
    shop.assert_settled()


def test_a_lost_message_is_made_good_by_resync(shop: Shop) -> None:
    """Nothing arrived: `resync` reads what happened since, and again changes nothing."""
    alice = shop.market.account("alice")
    began = shop.market.clock()
    payment_id = shop.order(alice, 1_000)
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(lose=lambda _: True)
    inbox.work_off(shop.market.ledger, shop.gateway)
    assert shop.available(alice) == 0
    for _ in range(2):
        assert inbox.resync(shop.market.ledger, shop.gateway, began) > 0
        assert inbox.work_off(shop.market.ledger, shop.gateway).failed == 0
        assert shop.available(alice) == 10 * DOLLAR
    assert inbox.resync(shop.market.ledger, shop.gateway, began + 1) == 0
    shop.assert_settled()


def test_a_lost_message_is_made_good_by_the_hourly_look(shop: Shop) -> None:
    """Even without resync an open page is looked at once an hour."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000)
    shop.run()
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(lose=lambda _: True)
    shop.market.clock.move_to(shop.market.clock() + 3_600)
    shop.run()
    assert shop.available(alice) == 10 * DOLLAR


def test_the_same_event_id_is_one_message(shop: Shop) -> None:
    """HOOK-01: a message that is known is acknowledged, and worked off no second time."""
    event = Event("evt_1", "payment_intent.succeeded", Subject("payment", "pi_1"), 1)
    with shop.market.ledger.database.pool.connection() as connection:
        assert inbox.receive(connection, event, 10)
        assert not inbox.receive(connection, event, 11)
    assert inbox.work_off(shop.market.ledger, shop.gateway).booked == 1
    with shop.market.ledger.database.pool.connection() as connection:
        assert not inbox.receive(connection, event, 12)
    assert inbox.work_off(shop.market.ledger, shop.gateway).booked == 0


def test_what_is_nothing_of_ours_is_acknowledged_and_forgotten(shop: Shop) -> None:
    """A message without a subject is not kept; one about a stranger's object changes nothing."""
    head = shop.market.head()
    with shop.market.ledger.database.pool.connection() as connection:
        assert not inbox.receive(connection, Event("evt_1", "invoice.paid", None, 1), 10)
        stranger = Event("evt_2", "payment_intent.succeeded", Subject("payment", "pi_x"), 1)
        assert inbox.receive(connection, stranger, 10)
    worked = inbox.work_off(shop.market.ledger, shop.gateway)
    assert (worked.booked, worked.failed) == (1, 0)
    assert shop.market.head() == head


def test_a_burst_that_is_worked_off_in_parallel_loses_nothing(shop: Shop) -> None:
    """HOOK-03: twelve payments settle at once, four workers take the burst: no credit is lost."""
    alice = shop.market.account("alice")
    names = [shop.order(alice, 1_000) for _ in range(12)]
    for name in names:
        shop.processor.pay(shop.page(name).session)
    shop.hear(times=2, shuffle=chance(1))
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(inbox.work_off, shop.market.ledger, shop.gateway) for _ in range(4)]
        assert all(worker.result().failed == 0 for worker in workers)
    assert shop.available(alice) == 120 * DOLLAR
    assert sorted(name for _, name in deposits(shop)) == sorted(names)
    shop.assert_settled()


def test_a_message_that_comes_while_its_object_is_looked_at_is_not_lost(shop: Shop) -> None:
    """Only the messages that were waiting before the look are done after it."""
    first = Event("evt_1", "payment_intent.created", Subject("payment", "pi_x"), 1)
    second = Event("evt_2", "payment_intent.succeeded", Subject("payment", "pi_x"), 2)
    gateway = shop.gateway
    looked = []

    class Looking:
        def look(self, subject: Subject) -> object:
            looked.append(subject)
            if len(looked) == 1:
                with shop.market.ledger.database.pool.connection() as connection:
                    inbox.receive(connection, second, 11)
            return gateway.look(subject)

    with shop.market.ledger.database.pool.connection() as connection:
        inbox.receive(connection, first, 10)
    for _ in range(3):
        inbox.work_off(shop.market.ledger, Looking())  # type: ignore[arg-type]  # looks, no more
    assert looked == [Subject("payment", "pi_x")] * 2


def test_the_job_of_reconciliation_looks_until_a_line_is_right(shop: Shop) -> None:
    """A line that differs is found on its day, is open on the days after, and ends when right."""
    shop.buy(shop.market.account("alice"), 5_000)
    ledger, clock = shop.market.ledger, shop.market.clock
    day, compare = clock() // 86_400 * 86_400, comparison_with(shop.gateway)
    assert reconciliation.run(ledger, "processor", day, compare).is_clean
    for passed, cents in enumerate((1, 0, 0, -1)):
        clock.move_to(day + passed * 86_400 + 80_000)
        with ledger.database.connect("owner", autocommit=True) as owner:
            owner.execute("UPDATE processor_entries SET amount = amount + %s", [cents * CENT])
        outcome = reconciliation.run(ledger, "processor", day + passed * 86_400, compare)
        kinds = {one.kind for one in outcome.differences}
        assert ("entry_differs" in kinds) == (cents >= 0)
        assert outcome.is_clean == (cents < 0)
