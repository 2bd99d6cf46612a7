"""The processor against the ledger: every difference is found, and agreement is silence."""

from __future__ import annotations

from ledger.services.payments import entries, inbox
from ledger.services.payments.reconcile import reconcile
from tests.support.market import DOLLAR
from tests.support.payments import CENT, Shop
from tests.support.processors import StripeProcessor


def kinds(shop: Shop) -> list[str]:
    """What there is to find now, nothing booked before."""
    return [one.kind for one in reconcile(shop.market.ledger, shop.gateway).findings]


def test_agreement_is_silent(shop: Shop) -> None:
    """Payment, refund, chargeback and their fees: both balances are equal to the cent."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 10_000)
    shop.refund(payment_id, 1_000)
    shop.run()
    compared = shop.compare()
    assert compared.findings == []
    assert compared.entries == 2
    assert compared.ledger_balance == compared.processor_balance == (9_000 - 320) * CENT
    shop.assert_settled()


def test_a_line_that_is_not_booked_is_missing_and_so_is_its_money(shop: Shop) -> None:
    """Before the new lines are booked each of them is a finding, and clearing shows the sum."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 10_000)
    shop.page(payment_id)
    shop.run()
    session = shop.market.connection.execute("SELECT session FROM payments").fetchone()
    shop.market.connection.commit()
    assert session is not None
    shop.processor.pay(session[0])
    shop.hear()
    inbox.work_off(shop.market.ledger, shop.gateway)
    found = reconcile(shop.market.ledger, shop.gateway).findings
    assert [one.kind for one in found] == [
        "entry_missing",
        "unsettled",
        "clearing_not_zero",
        "balance_differs",
    ]
    assert (found[1].about, found[1].ledger, found[1].processor) == (payment_id, 100 * DOLLAR, 0)
    shop.assert_settled()


def test_a_line_of_nobody_is_an_orphan_and_the_balance_agrees(shop: Shop) -> None:
    """What nothing of ours explains waits in suspense, for a person, and is not lost."""
    if isinstance(shop.processor, StripeProcessor):
        customer = shop.processor.stripe.create_customer({})["id"]
        card = shop.processor.stripe.attach("4242", customer)["id"]
        shop.processor.stripe.create_intent(
            {"amount": "777", "currency": "usd", "customer": customer, "payment_method": card,
             "confirm": "true"}
        )  # fmt: skip
    else:
        shop.processor.memory.stranger(777)  # type: ignore[attr-defined]  # the other of the two
    compared = shop.compare()
    assert [one.kind for one in compared.findings] == ["orphan", "clearing_not_zero"]
    assert compared.clearing["processor_suspense"] == -777 * CENT
    assert compared.ledger_balance == compared.processor_balance
    assert shop.market.rebuild().equal


def test_a_line_whose_message_was_lost_is_matched_all_the_same(shop: Shop) -> None:
    """The line itself says what there is to look at: the payment is booked, then the line."""
    alice = shop.market.account("alice")
    payment_id = shop.order(alice, 10_000)
    shop.processor.pay(shop.page(payment_id).session)
    shop.hear(lose=lambda _: True)
    assert entries.book_new(shop.market.ledger, shop.gateway) == 1
    assert entries.book_new(shop.market.ledger, shop.gateway) == 0
    assert shop.available(alice) == 100 * DOLLAR
    shop.assert_settled()


def test_a_line_that_the_processor_does_not_have_is_found(shop: Shop) -> None:
    """A booked line that is gone, and one with another amount, are two kinds of finding."""
    shop.buy(shop.market.account("alice"), 10_000)
    shop.compare()
    gateway = shop.gateway
    lines = list(gateway.entries(0))
    changed = [[], [lines[0]._replace(cents=9_999)]]
    for left, kind in zip(changed, ("entry_unknown", "entry_differs"), strict=True):

        class Forgetful:
            def entries(self, since: int, left: list[object] = left) -> list[object]:  # type: ignore[assignment]  # bound now
                del since
                return left

            def balance(self) -> int:
                return gateway.balance()

        found = reconcile(shop.market.ledger, Forgetful()).findings  # type: ignore[arg-type]  # two questions
        assert [one.kind for one in found] == [kind]
    assert kinds(shop) == []


def test_fees_of_the_processor_are_costs_and_no_orphans(shop: Shop) -> None:
    """What it bills by itself is a line of its own, booked to fees."""
    shop.buy(shop.market.account("alice"), 10_000)
    if isinstance(shop.processor, StripeProcessor):
        shop.processor.stripe.take_fee(150)
        shop.assert_settled()
        row = shop.market.connection.execute(
            "SELECT sum(CASE WHEN debit = 'processor_fees' THEN amount ELSE -amount END)"
            " FROM movements WHERE 'processor_fees' IN (debit, credit)"
        ).fetchone()
        assert row == ((150 + 320) * CENT,)
    else:
        shop.assert_settled()
