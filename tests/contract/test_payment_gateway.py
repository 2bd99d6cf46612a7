"""The port to the payment processor: Stripe's library on the stand-in, and the twin in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.services.payments.gateway import (
    BankOrder,
    BankPayoutSeen,
    CardSeen,
    ChargebackSeen,
    CheckoutSeen,
    Declined,
    Order,
    Page,
    PaymentSeen,
    PayoutAccountSeen,
    Pending,
    RefundOrder,
    RefundSeen,
    ReversalOrder,
    Settled,
    Subject,
    TransferOrder,
)
from tests.support.processors import MemoryProcessor, Processor, StripeProcessor

NOW = 1_772_323_200
ALICE, BOB = 7, 8


@pytest.fixture(params=["memory", "stripe"])
def processor(request: pytest.FixtureRequest) -> Iterator[Processor]:
    """Each that implements the port."""
    if request.param == "memory":
        yield MemoryProcessor(lambda: NOW)
        return
    one = StripeProcessor(lambda: NOW)
    yield one
    one.close()


def saved_card(processor: Processor, *, is_good: bool = True) -> tuple[str, str]:
    """A payer and a saved card of theirs."""
    customer = processor.gateway.register(ALICE)
    opened = processor.gateway.open_setup(Page("setup-1", ALICE, customer, 0, NOW))
    (processor.save_card if is_good else processor.save_bad_card)(opened.session)
    seen = processor.gateway.look(Subject("checkout", opened.session))
    assert isinstance(seen, CheckoutSeen)
    assert (seen.reference, seen.is_open, seen.payment) == ("setup-1", False, None)
    assert seen.card is not None
    return customer, seen.card


def paid(processor: Processor, cents: int = 10_000, key: str = "pay-1") -> str:
    """A payment that settled; returns the processor's name of it."""
    customer, card = saved_card(processor)
    outcome = processor.gateway.charge(Order(key, ALICE, card, cents, customer, NOW))
    assert isinstance(outcome, Settled)
    return outcome.payment


def lines(processor: Processor) -> list[tuple[int, str]]:
    """Amount and kind of subject of every line, oldest first."""
    found = list(processor.gateway.entries(0))
    return sorted((one.cents, one.subject.kind if one.subject else "") for one in found)


def test_one_key_charges_once_for_ever(processor: Processor) -> None:
    """The same order is answered with the same payment, and one line says that money came in."""
    customer, card = saved_card(processor)
    order = Order("pay-1", ALICE, card, 12_345, customer, NOW)
    assert processor.gateway.outcome(order) is None
    first = processor.gateway.charge(order)
    assert isinstance(first, Settled)
    assert processor.gateway.charge(order) == first == processor.gateway.outcome(order)
    assert lines(processor) == [(12_345, "payment")]
    seen = processor.gateway.look(Subject("payment", first.payment))
    assert seen == PaymentSeen("pay-1", first.payment, "settled", 12_345)


def test_a_declined_charge_stays_declined(processor: Processor) -> None:
    """A card that is declined moved nothing, and the same order is declined again."""
    customer, card = saved_card(processor, is_good=False)
    order = Order("pay-1", ALICE, card, 500, customer, NOW)
    first = processor.gateway.charge(order)
    assert isinstance(first, Declined)
    assert isinstance(processor.gateway.charge(order), Declined)
    assert isinstance(processor.gateway.outcome(order), Declined)
    assert lines(processor) == []


def test_a_page_waits_and_is_paid_once(processor: Processor) -> None:
    """One key has one page; it is open until somebody pays, and then names the payment."""
    customer = processor.gateway.register(ALICE)
    page = Page("pay-1", ALICE, customer, 2_000, NOW)
    opened = processor.gateway.open_payment(page)
    assert opened.url is not None
    assert processor.gateway.open_payment(page) == opened
    seen = processor.gateway.look(Subject("checkout", opened.session))
    assert isinstance(seen, CheckoutSeen)
    assert (seen.reference, seen.is_open, seen.payment) == ("pay-1", True, None)
    processor.pay(opened.session)
    seen = processor.gateway.look(Subject("checkout", opened.session))
    assert isinstance(seen, CheckoutSeen)
    assert seen.payment is not None
    assert (seen.is_open, seen.payment.reference, seen.payment.cents) == (False, "pay-1", 2_000)
    assert processor.gateway.open_payment(page).url is None
    assert lines(processor) == [(2_000, "payment")]


def test_a_page_that_nobody_came_to_is_over(processor: Processor) -> None:
    """An expired page is neither open nor paid."""
    customer = processor.gateway.register(ALICE)
    opened = processor.gateway.open_payment(Page("pay-1", ALICE, customer, 2_000, NOW))
    processor.expire(opened.session)
    seen = processor.gateway.look(Subject("checkout", opened.session))
    assert isinstance(seen, CheckoutSeen)
    assert (seen.is_open, seen.payment, seen.card) == (False, None, None)


def test_a_card_is_forgotten_once_and_again(processor: Processor) -> None:
    """A forgotten card is no longer attached; to forget it again is no error."""
    _, card = saved_card(processor)
    assert processor.gateway.look(Subject("card", card)) == CardSeen(card, is_attached=True)
    processor.gateway.forget_card(card)
    processor.gateway.forget_card(card)
    assert processor.gateway.look(Subject("card", card)) == CardSeen(card, is_attached=False)


def test_one_key_refunds_once(processor: Processor) -> None:
    """The same refund again sends nothing; what it is of and who made it can be seen."""
    payment = paid(processor)
    order = RefundOrder("refund-1", payment, 2_500, NOW)
    first = processor.gateway.refund(order)
    assert isinstance(first, Settled)
    assert processor.gateway.refund(order) == first
    assert lines(processor) == [(-2_500, "refund"), (10_000, "payment")]
    seen = processor.gateway.look(Subject("refund", first.payment))
    assert seen == RefundSeen("refund-1", first.payment, payment, "pay-1", "settled", 2_500)
    outside = processor.refund_outside(payment, 100)
    seen = processor.gateway.look(Subject("refund", outside))
    assert seen == RefundSeen(None, outside, payment, "pay-1", "settled", 100)


def test_a_refund_that_comes_back_is_failed(processor: Processor) -> None:
    """The line of a refund that failed later is undone by another line."""
    payment = paid(processor)
    made = processor.gateway.refund(RefundOrder("refund-1", payment, 2_500, NOW))
    assert isinstance(made, Settled)
    processor.fail_refund(made.payment)
    seen = processor.gateway.look(Subject("refund", made.payment))
    assert isinstance(seen, RefundSeen)
    assert seen.status == "failed"
    assert sum(cents for cents, _ in lines(processor)) == 10_000


@pytest.mark.parametrize(("outcome", "left"), [("won", 0), ("lost", 12_000)])
def test_a_chargeback_says_what_the_bank_has(processor: Processor, outcome: str, left: int) -> None:
    """A bank may take more than the payment; what it has in the end depends on who wins."""
    payment = paid(processor)
    chargeback = processor.dispute(payment, 12_000)
    seen = processor.gateway.look(Subject("chargeback", chargeback))
    assert isinstance(seen, ChargebackSeen)
    assert (seen.payment_reference, seen.claimed_cents, seen.withdrawn_cents, seen.outcome) == (
        "pay-1",
        12_000,
        12_000,
        "open",
    )
    processor.decide(chargeback, outcome)
    seen = processor.gateway.look(Subject("chargeback", chargeback))
    assert isinstance(seen, ChargebackSeen)
    assert (seen.outcome, seen.withdrawn_cents) == (outcome, left)
    kinds = {kind for _, kind in lines(processor)}
    assert kinds == {"payment", "chargeback"}


def test_a_host_is_paid_step_by_step(processor: Processor) -> None:
    """Account, transfer and bank each happen once; the bank's word comes last."""
    gateway = processor.gateway
    paid(processor, 50_000)
    host = gateway.open_payout_account(BOB, "US", NOW)
    assert gateway.open_payout_account(BOB, "US", NOW) == host
    assert gateway.onboarding_url(host).startswith("https://")
    seen = gateway.look(Subject("payout_account", host))
    assert seen == PayoutAccountSeen(BOB, host, is_enabled=False)
    processor.enable(BOB, host)
    assert gateway.look(Subject("payout_account", host)) == PayoutAccountSeen(
        BOB, host, is_enabled=True
    )
    order = TransferOrder("payout-1", host, 2_000, NOW)
    moved = gateway.transfer(order)
    assert isinstance(moved, Settled)
    assert gateway.transfer(order) == moved
    sent = gateway.pay_bank(BankOrder("payout-1", host, 2_000, NOW))
    assert isinstance(sent, Pending)
    assert gateway.pay_bank(BankOrder("payout-1", host, 2_000, NOW)) == sent
    processor.settle_bank(sent.payment, "settled")
    seen = gateway.look(Subject("bank_payout", sent.payment, host))
    assert seen == BankPayoutSeen("payout-1", sent.payment, "settled", None)
    again = gateway.pay_bank(BankOrder("payout-1", host, 2_000, NOW))
    assert again == Settled(sent.payment)
    assert lines(processor) == [(-2_000, "transfer"), (50_000, "payment")]


def test_a_payout_that_the_bank_refuses_comes_back(processor: Processor) -> None:
    """A refused payout lies with the host's account again, and its transfer is reversed once."""
    gateway = processor.gateway
    paid(processor, 50_000)
    host = gateway.open_payout_account(BOB, "US", NOW)
    processor.enable(BOB, host)
    moved = gateway.transfer(TransferOrder("payout-1", host, 2_000, NOW))
    assert isinstance(moved, Settled)
    sent = gateway.pay_bank(BankOrder("payout-1", host, 2_000, NOW))
    assert isinstance(sent, Pending)
    processor.settle_bank(sent.payment, "failed")
    seen = gateway.look(Subject("bank_payout", sent.payment, host))
    assert isinstance(seen, BankPayoutSeen)
    assert seen.status == "failed"
    back = ReversalOrder("payout-1", moved.payment, 2_000, NOW)
    first = gateway.reverse(back)
    assert isinstance(first, Settled)
    assert gateway.reverse(back) == first
    assert lines(processor) == [(-2_000, "transfer"), (2_000, "transfer"), (50_000, "payment")]


def test_the_balance_is_the_sum_of_the_lines(processor: Processor) -> None:
    """What the processor holds is what its lines add up to, fees taken off."""
    payment = paid(processor)
    processor.gateway.refund(RefundOrder("refund-1", payment, 2_500, NOW))
    processor.dispute(payment, 7_500)
    found = list(processor.gateway.entries(0))
    assert processor.gateway.balance() == sum(one.cents - one.fee_cents for one in found)
    assert sum(one.fee_cents for one in found) == 320 + 1_500


def test_what_is_not_there_is_nothing(processor: Processor) -> None:
    """Names that nobody gave are no objects, and no error."""
    for kind in ("payment", "checkout", "card", "refund", "chargeback", "payout_account"):
        assert processor.gateway.look(Subject(kind, "nobody_1")) is None
