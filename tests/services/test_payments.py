"""Buying credit: pages, saved cards, consents; never without one, never twice (CRED-01)."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.events import PaymentOrdered, PaymentSettled
from ledger.errors import RejectedError
from ledger.services import billing, deposits, policies, top_up
from ledger.services.payments import booking, orders
from ledger.services.payments.gateway import Declined, Page, PaymentSeen, Settled
from tests.support.market import DOLLAR
from tests.support.payments import CENT, Shop, refused
from tests.support.processors import StripeProcessor


def test_a_paid_page_becomes_credit_once(shop: Shop) -> None:
    """Ordered, opened, paid: the credit is there, the deposit has the payment's id, books agree."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 5_000)
    assert (shop.status(payment_id), shop.available(alice)) == ("ordered", 0)
    opened = shop.page(payment_id)
    assert (shop.status(payment_id), shop.page(payment_id)) == ("open", opened)
    shop.processor.pay(opened.session)
    shop.hear()
    shop.run()
    shop.run()
    assert (shop.status(payment_id), shop.available(alice)) == ("settled", 50 * DOLLAR)
    row = shop.market.connection.execute(
        "SELECT amount, source FROM deposits WHERE deposit_id = %s", [payment_id]
    ).fetchone()
    assert row == (50 * DOLLAR, "checkout")
    shop.assert_settled()


def test_an_expired_page_is_a_failed_payment(shop: Shop) -> None:
    """Nobody came: the payment failed, there is no credit, and nothing is open any more."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 5_000)
    shop.processor.expire(shop.page(payment_id).session)
    shop.hear()
    shop.run()
    found = shop.history(payment_id).payment
    assert (found.status, found.reason, shop.available(alice)) == ("failed", "expired", 0)
    shop.assert_settled()


def test_a_saved_card_is_charged_once_under_its_order(shop: Shop) -> None:
    """A saved card pays without a page; running again charges nothing more."""
    alice = shop.market.account("alice")
    card = shop.save_card(alice)
    payment_id = shop.order(alice, 1_234, card=card)
    shop.run()
    shop.run()
    assert (shop.status(payment_id), shop.available(alice)) == ("settled", 1_234 * CENT)
    assert [one.cents for one in shop.gateway.entries(0)] == [1_234]
    shop.assert_settled()


def test_a_declined_card_is_a_failed_payment_with_its_reason(shop: Shop) -> None:
    """A decline is a fact with a reason, moves nothing, and is not tried again."""
    alice = shop.market.account("alice")
    card = shop.save_card(alice, is_good=False)
    payment_id = shop.order(alice, 1_234, card=card)
    shop.run()
    shop.next_round()
    found = shop.history(payment_id).payment
    assert (found.status, shop.available(alice)) == ("failed", 0)
    assert found.reason in {"card_declined", "generic_decline"}
    shop.assert_settled()


def test_another_accounts_card_does_not_exist(shop: Shop) -> None:
    """Nobody pays with, removes, or consents to the card of somebody else."""
    alice, carol = shop.market.account("alice"), shop.market.account("carol")
    card = shop.save_card(alice)
    head = shop.market.head()

    def consent() -> None:
        given = top_up.Consent(card, 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR)
        with shop.market.ledger.unit() as unit:
            top_up.consent(unit, carol, given)

    def remove() -> None:
        with shop.market.ledger.unit() as unit:
            orders.remove_card(unit, carol, card)

    assert refused(lambda: shop.order(carol, 500, card=card)) == "no_such_card"
    assert refused(remove) == "no_such_card"
    assert refused(consent) == "no_such_card"
    assert shop.market.head() == head


def test_a_removed_card_is_never_charged(shop: Shop) -> None:
    """CRED-01: a card can be removed; automatic charges end with it, and the processor forgets."""
    alice = shop.market.account("alice")
    card = shop.save_card(alice)
    with shop.market.ledger.unit() as unit:
        top_up.consent(unit, alice, top_up.Consent(card, 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR))
    pending = shop.order(alice, 500, card=card)
    with shop.market.ledger.unit() as unit:
        orders.remove_card(unit, alice, card)
        orders.remove_card(unit, alice, card)
    policies.pay(shop.market.ledger, shop.gateway)
    shop.next_round()
    assert shop.history(pending).payment.reason == "card_removed"
    assert shop.available(alice) == 0
    assert list(shop.gateway.entries(0)) == []
    assert refused(lambda: shop.order(alice, 500, card=card)) == "no_such_card"
    rows = shop.market.connection.execute("SELECT status FROM cards").fetchall()
    assert rows == [("detached",)]


def test_an_automatic_top_up_charges_the_saved_card(shop: Shop) -> None:
    """The consent names a saved card; below its line one charge brings the credit up (CRED-01)."""
    alice = shop.market.account("alice")
    card = shop.save_card(alice)
    with shop.market.ledger.unit() as unit:
        top_up.consent(unit, alice, top_up.Consent(card, 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR))
    for _ in range(3):
        policies.pay(shop.market.ledger, shop.gateway)
    shop.hear(times=2)
    shop.run()
    assert shop.available(alice) == 6 * DOLLAR
    assert [one.cents for one in shop.gateway.entries(0)] == [600]
    with shop.market.ledger.reading() as connection:
        row = connection.execute("SELECT payment_id, method, status FROM payments").fetchone()
    assert row is not None
    assert (row[0][:9], row[1], row[2]) == (f"top-up-{alice}-", "auto_top_up", "settled")
    shop.assert_settled()


def test_an_automatic_top_up_is_what_came_in(shop: Shop) -> None:
    """A charge that brought less than was asked for is that much credit, whoever asked."""
    alice = shop.market.account("alice")
    card = shop.save_card(alice)
    with shop.market.ledger.unit() as unit:
        top_up.consent(unit, alice, top_up.Consent(card, 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR))
        standing = top_up.read_standing(unit.connection, alice)
        assert standing is not None
        top_up.request(unit, standing, 6 * DOLLAR)
    with shop.market.ledger.reading() as connection:
        (asked,) = top_up.open_requests(connection)
    seen = PaymentSeen(asked.order.key, "pi_partial", "settled", 450)
    for _ in range(2):
        with shop.market.ledger.unit() as unit:
            booking.book(unit, seen)
    assert shop.available(alice) == 450 * CENT


def test_tax_is_paid_on_top_and_is_no_credit(shop: Shop) -> None:
    """$10.33 at 8.25 % cost $11.18: the credit is net, 85 cents are owed to the state."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 1_033, tax_bp=825)
    found = shop.history(payment_id).payment
    assert (found.credit, found.tax, found.total) == (1_033 * CENT, 85 * CENT, 1_118 * CENT)
    assert shop.available(alice) == 1_033 * CENT
    assert [one.cents for one in shop.gateway.entries(0)] == [1_118]
    row = shop.market.connection.execute(
        "SELECT amount FROM movements WHERE credit = 'tax_payable'"
    ).fetchone()
    assert row == (85 * CENT,)
    shop.assert_settled()


def test_a_card_payment_has_one_tax_invoice_however_often_it_is_told(shop: Shop) -> None:
    """HOOK-01: messages thrice and runs again issue nothing more; what failed has no document."""
    alice = shop.market.account("alice")
    failed = shop.order(alice, 1_033, tax_bp=825)
    shop.processor.expire(shop.page(failed).session)
    payment_id = shop.order(alice, 1_033)
    assert shop.documents(alice) == []
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(times=3)
    for _ in range(3):
        shop.run()
    with shop.market.ledger.unit() as unit:
        booking.finish_payment(unit, payment_id, Settled("pi_other"))
    assert (shop.status(failed), shop.status(payment_id)) == ("failed", "settled")
    assert shop.documents(alice) == [("INV-00000001", 1_033, 85)]
    shop.assert_settled()


@pytest.mark.parametrize(
    ("profile", "net", "tax"),
    [
        ({"rate_bp": 2_500}, 880, 220),
        ({"rate_bp": 0}, 1_100, 0),
        ({"rate_bp": 1_000, "treatment": "exempt"}, 1_100, 0),
        ({"rate_bp": 825}, 1_016, 84),
    ],
)
def test_what_came_in_is_divided_by_the_profile_at_settlement(
    shop: Shop, profile: dict[str, Any], net: int, tax: int
) -> None:
    """PRICE-11: $10 ordered at 10 % are $11 paid; the rate of the moment it arrives divides it."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000, tax_bp=1_000)
    session = shop.page(payment_id).session
    with shop.market.ledger.unit() as unit:
        billing.set_tax(unit, alice, **profile)
    shop.processor.pay(session)
    shop.hear()
    shop.run()
    assert [one.cents for one in shop.gateway.entries(0)] == [1_100]
    found = shop.history(payment_id).payment
    assert (found.credit, found.tax) == (net * CENT, tax * CENT)
    assert shop.available(alice) == net * CENT
    assert shop.documents(alice) == [("INV-00000001", net, tax)]
    shop.assert_settled()


@pytest.mark.parametrize(
    ("nanos", "code"),
    [
        (0, "invalid_amount"),
        (-CENT, "invalid_amount"),
        (50 * CENT + 1, "invalid_amount"),
        (49 * CENT, "amount_too_small"),
        (10**18 + CENT, "invalid_amount"),
    ],
)
def test_what_no_card_can_be_charged_is_refused(shop: Shop, nanos: int, code: str) -> None:
    """Only whole cents within a posting's bound, and not below the processor's least, are sold."""
    alice = shop.market.account("alice")
    head = shop.market.head()

    def order() -> None:
        with shop.market.ledger.unit() as unit:
            orders.order_payment(unit, alice, nanos)

    assert refused(order) == code
    assert shop.market.head() == head


def test_what_came_in_is_booked_whatever_was_ordered(shop: Shop) -> None:
    """A payment that brought less than was ordered becomes that much credit, and not more."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000, tax_bp=1_000)
    seen = PaymentSeen(payment_id, "pi_partial", "settled", 550)
    for _ in range(2):
        with shop.market.ledger.unit() as unit:
            booking.book(unit, seen)
    found = shop.history(payment_id).payment
    assert (found.credit, found.tax) == (500 * CENT, 50 * CENT)
    assert shop.available(alice) == 500 * CENT


def test_a_failed_payment_that_went_through_is_credit(shop: Shop) -> None:
    """Taken for expired, and paid after all: the processor's word is the last."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000)
    opened = shop.page(payment_id)
    with shop.market.ledger.unit() as unit:
        booking.finish_payment(unit, payment_id, Declined("expired"))
    assert shop.status(payment_id) == "failed"
    shop.processor.pay(opened.session)
    shop.hear()
    shop.run()
    assert (shop.status(payment_id), shop.available(alice)) == ("settled", 10 * DOLLAR)
    shop.assert_settled()


def test_ids_of_payments_are_not_for_other_deposits(shop: Shop) -> None:
    """IDEM-03: an admin cannot book under an id that a card payment will have."""
    alice = shop.market.account("alice")
    for deposit_id in ("pay-1", f"top-up-{alice}-3"):
        with pytest.raises(RejectedError), shop.market.ledger.unit() as unit:
            deposits.deposit(unit, alice, DOLLAR, deposit_id)


def test_every_credit_traces_to_its_order(shop: Shop) -> None:
    """The log holds the order before the outcome, and the outcome beside its deposit."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 1_000)
    facts = shop.market.facts(f"account-{alice}")
    ordered = [one for one in facts if isinstance(one, PaymentOrdered)]
    settled = [one for one in facts if isinstance(one, PaymentSettled)]
    assert [one.payment_id for one in ordered] == [payment_id]
    assert [one.payment_id for one in settled] == [payment_id]
    assert facts.index(ordered[0]) < facts.index(settled[0])


def test_a_foreign_payment_is_nothing_of_ours(shop: Shop) -> None:
    """Two ledgers on one account: what the other one made changes nothing here."""
    if not isinstance(shop.processor, StripeProcessor):
        with shop.market.ledger.unit() as unit:
            assert not booking.book(unit, PaymentSeen("pay-77", "pi_1", "settled", 100))
        return
    other = shop.processor.another("another-ledger")
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 1_000)
    customer = other.register(alice)
    page = other.open_payment(Page(payment_id, alice, customer, 1_000, shop.market.clock()))
    shop.processor.pay(page.session)
    shop.hear()
    shop.run()
    assert (shop.status(payment_id), shop.available(alice)) == ("open", 0)


def test_settling_twice_under_one_id_is_once(shop: Shop) -> None:
    """HOOK-02: the same payment by its order, by its page and by itself is one credit."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 1_000)
    with shop.market.ledger.unit() as unit:
        booking.finish_payment(unit, payment_id, Settled("pi_other"))
        booking.book(unit, PaymentSeen(payment_id, "pi_other", "settled", 1_000))
    assert shop.available(alice) == 10 * DOLLAR
