"""Refunds and chargebacks: never more than was paid, external facts always booked (INV-11)."""

from __future__ import annotations

import pytest

from ledger.domain.dispute import Authority
from ledger.services import approvals, credit_notes, deposits, grants, holds
from ledger.services.payments import returns
from tests.support.market import DOLLAR
from tests.support.payments import CENT, Shop, refused


def spend(shop: Shop, account: int, nanos: int) -> None:
    """Let an account spend credit for good."""
    with shop.market.ledger.unit() as unit:
        holds.place_hold(unit, account, nanos, "spent")
        holds.capture_hold(unit, account, "spent")


def send_back(shop: Shop) -> None:
    """The payer's bank sends the one refund back that settled."""
    row = shop.market.connection.execute(
        "SELECT refund FROM refunds WHERE status = 'settled'"
    ).fetchone()
    shop.market.connection.commit()
    assert row is not None
    shop.processor.fail_refund(row[0])
    shop.hear(times=2)
    shop.run()


def credits(shop: Shop) -> list[tuple[str, str, int, int]]:
    """Number, credited document, and cents of net and tax, of every credit note."""
    rows = shop.market.connection.execute(
        "SELECT number, document, net, tax FROM tax_credits ORDER BY position"
    ).fetchall()
    shop.market.connection.commit()
    return [(row[0], row[1], int(row[2]) // CENT, int(row[3]) // CENT) for row in rows]


def note(shop: Shop, account: int, document: str, cents: int, *, voids: bool = False) -> str:
    """An admin credits a tax invoice; a second one has agreed where that *voids* it."""
    with shop.market.ledger.unit() as unit:
        if voids:
            approvals.approve(unit, f"void {document}", "account-901")
        by = Authority("account-900", 1)
        number = credit_notes.credit_note(
            unit, account, document, cents * CENT, "mistake", by, voids=voids
        )
    shop.run()
    return number


def test_a_refund_takes_the_credit_first_and_sends_it_once(shop: Shop) -> None:
    """LEDG-01: the credit is gone before the processor is asked; a repeat changes nothing."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    shop.refund(payment_id, 2_000)
    assert shop.available(alice) == 30 * DOLLAR
    shop.refund(payment_id, 2_000)
    shop.run()
    shop.run()
    shop.hear(times=3)
    shop.run()
    assert shop.available(alice) == 30 * DOLLAR
    assert [one.status for one in shop.history(payment_id).refunds] == ["settled"]
    assert sum(one.cents for one in shop.gateway.entries(0)) == 3_000
    assert refused(lambda: shop.refund(payment_id, 1_000)) == "idempotency_conflict"
    shop.assert_settled()


def test_all_refunds_together_never_exceed_the_payment(shop: Shop) -> None:
    """INV-04, LEDG-01: what was given back cannot be given back again, in whatever parts."""
    alice = shop.market.account("alice", 100 * DOLLAR)
    payment_id = shop.buy(alice, 5_000)
    shop.refund(payment_id, 3_000, "a")
    assert refused(lambda: shop.refund(payment_id, 2_001, "b")) == "over_credit"
    shop.refund(payment_id, 2_000, "c")
    assert refused(lambda: shop.refund(payment_id, 1, "d")) == "over_credit"
    shop.run()
    assert shop.history(payment_id).payment.refunded == 50 * DOLLAR
    shop.assert_settled()


def test_spent_credit_is_not_refunded(shop: Shop) -> None:
    """Only what is not spent goes back, to the cent that is there."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    spend(shop, alice, 20 * DOLLAR + 1)
    assert refused(lambda: shop.refund(payment_id, 3_000)) == "insufficient_balance"
    shop.refund(payment_id, 2_999)
    assert shop.available(alice) == CENT - 1


@pytest.mark.parametrize("nanos", [CENT + 1, 1, 0, -CENT])
def test_only_whole_cents_leave(shop: Shop, nanos: int) -> None:
    """A refund of a part of a cent is refused and changes nothing."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)

    def refund() -> None:
        with shop.market.ledger.unit() as unit:
            returns.refund(unit, alice, payment_id, nanos, "r")

    head = shop.market.head()
    assert refused(refund) == "invalid_amount"
    assert shop.market.head() == head


def test_another_accounts_payment_does_not_exist(shop: Shop) -> None:
    """A refund names the account whose payment it is; any other is not found."""
    alice, carol = shop.market.account("alice"), shop.market.account("carol")
    payment_id = shop.buy(alice, 5_000)
    for account, name in ((carol, payment_id), (alice, "pay-99")):

        def refund(account: int = account, name: str = name) -> None:
            with shop.market.ledger.unit() as unit:
                returns.refund(unit, account, name, CENT, "r")

        assert refused(refund) == "no_such_payment"


def test_an_unpaid_payment_is_not_refunded(shop: Shop) -> None:
    """What was ordered and not paid has nothing to give back."""
    alice = shop.market.account("alice", 100 * DOLLAR)
    payment_id = shop.order(alice, 5_000)
    assert refused(lambda: shop.refund(payment_id, 100)) == "payment_not_settled"


def test_a_refund_that_comes_back_is_credit_again(shop: Shop) -> None:
    """The payer's bank sends it back days later: the credit is whole, and it can be tried anew."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000, tax_bp=1_000)
    shop.refund(payment_id, 1_100)
    shop.run()
    assert shop.documents(alice)[1:] == [("CN-00000001", 1_000, 100)]
    send_back(shop)
    assert shop.available(alice) == 50 * DOLLAR
    assert shop.history(payment_id).payment.refunded == 0
    shop.refund(payment_id, 5_500, "again")
    shop.run()
    assert shop.available(alice) == 0
    assert shop.documents(alice) == [
        ("INV-00000001", 5_000, 500),
        ("CN-00000001", 1_000, 100),
        ("INV-00000002", 1_000, 100),
        ("CN-00000002", 4_000, 400),
        ("CN-00000003", 1_000, 100),
    ]
    assert [document for _, document, _, _ in credits(shop)] == [
        "INV-00000001",
        "INV-00000001",
        "INV-00000002",
    ]
    shop.assert_settled()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize(("cents", "tax_bp", "back"), [(1_000, 700, 333), (50, 10_000, 1)])
def test_each_invoice_of_a_payment_is_voided_by_itself(
    shop: Shop, cents: int, tax_bp: int, back: int, order: tuple[int, int]
) -> None:
    """INV-06, INV-10: a refund came back, so there are two: one note each, over all it has left."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, cents, tax_bp=tax_bp)
    shop.refund(payment_id, back)
    shop.run()
    send_back(shop)
    (_, net, tax), (_, back_net, back_tax), again = shop.documents(alice)
    assert (net + tax, back_net + back_tax, again) == (
        cents * (10_000 + tax_bp) // 10_000,
        back,
        ("INV-00000002", back_net, back_tax),
    )
    left = {1: (net - back_net, tax - back_tax), 2: (back_net, back_tax)}
    for number in order:
        note(shop, alice, f"INV-0000000{number}", sum(left[number]), voids=True)
    assert credits(shop)[1:] == [
        (f"CN-0000000{place}", f"INV-0000000{number}", *left[number])
        for place, number in enumerate(order, 2)
    ]
    assert shop.available(alice) == 0
    assert sum(one.cents for one in shop.gateway.entries(0)) == 0
    shop.assert_settled()


def test_voiding_a_card_payment_sends_the_money_back_through_the_processor(shop: Shop) -> None:
    """INV-06: two people, the whole remainder, unspent credit; then the document is closed."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000, tax_bp=1_900)
    document = "INV-00000001"
    assert note(shop, alice, document, 950) == "CN-00000001"
    by = Authority("account-900", 1)

    def void(cents: int) -> None:
        with shop.market.ledger.unit() as unit:
            credit_notes.credit_note(unit, alice, document, cents * CENT, "mistake", by, voids=True)

    assert refused(lambda: void(4_999)) == "invalid_args"
    assert refused(lambda: void(5_000)) == "second_approval_required"
    spend(shop, alice, DOLLAR)
    assert refused(lambda: note(shop, alice, document, 5_000, voids=True)) == "insufficient_balance"
    with shop.market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "more")
    assert note(shop, alice, document, 5_000, voids=True) == "CN-00000002"
    shop.run()
    assert credits(shop) == [
        ("CN-00000001", document, 798, 152),
        ("CN-00000002", document, 4_202, 798),
    ]
    assert sorted(one.cents for one in shop.gateway.entries(0)) == [-5_000, -950, 5_950]
    assert [one.status for one in shop.history(payment_id).refunds] == ["settled", "settled"]
    assert refused(lambda: note(shop, alice, document, 1)) == "over_credit"
    assert refused(lambda: shop.refund(payment_id, 1)) == "over_credit"
    shop.assert_settled()


def test_ids_of_credit_notes_are_not_for_other_refunds(shop: Shop) -> None:
    """Nobody can take the id under which a credit note sends its money back."""
    payment_id = shop.buy(shop.market.account("alice"), 5_000)
    for refund_id in ("note-CN-00000001", "re_1"):

        def refund(refund_id: str = refund_id) -> None:
            shop.refund(payment_id, 100, refund_id)

        assert refused(refund) == "invalid_args"


def test_promotional_credit_is_not_sent_to_a_card(shop: Shop) -> None:
    """INV-04, CRED-06: the payment is spent; what a grant gave since is credit, and stays that."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    spend(shop, alice, 45 * DOLLAR)
    with shop.market.ledger.unit() as unit:
        grants.grant(unit, alice, 20 * DOLLAR, unit.now + 86_400, "g", "welcome")
    assert shop.available(alice) == 25 * DOLLAR
    assert refused(lambda: shop.refund(payment_id, 501)) == "insufficient_balance"
    assert refused(lambda: note(shop, alice, "INV-00000001", 501)) == "insufficient_balance"
    shop.refund(payment_id, 500)
    shop.run()
    assert shop.available(alice) == 20 * DOLLAR
    shop.assert_settled()


def test_a_refund_made_at_the_processor_is_booked(shop: Shop) -> None:
    """INV-11: somebody pressed the button there; our rules do not matter, below zero neither."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    spend(shop, alice, 45 * DOLLAR)
    row = shop.history(payment_id).payment.processor_payment
    assert row is not None
    shop.processor.refund_outside(row, 2_000)
    shop.hear(times=2)
    shop.run()
    assert shop.available(alice) == -15 * DOLLAR
    assert [one.origin for one in shop.history(payment_id).refunds] == ["processor"]
    assert refused(lambda: shop.refund(payment_id, 3_001)) == "over_credit"
    shop.assert_settled()


def test_tax_goes_back_in_its_share_and_ends_exactly(shop: Shop) -> None:
    """Three refunds of a taxed payment: cent by cent the tax follows, and the end is exact."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 1_000, tax_bp=700)
    for number, cents in enumerate((333, 333, 404)):
        shop.refund(payment_id, cents, f"r{number}")
        shop.run()
    parts = [(one.credit // CENT, one.tax // CENT) for one in shop.history(payment_id).refunds]
    assert parts == [(311, 22), (311, 22), (378, 26)]
    assert shop.available(alice) == 0
    shop.assert_settled()


@pytest.mark.parametrize(("outcome", "credit"), [("won", 50), ("lost", 0)])
def test_a_chargeback_takes_credit_until_it_is_won(shop: Shop, outcome: str, credit: int) -> None:
    """The bank's money is gone at once; it comes back only if the bank says so."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    chargeback = shop.processor.dispute(name, 5_000)
    shop.hear(times=2)
    shop.run()
    assert shop.available(alice) == 0
    assert refused(lambda: shop.refund(payment_id, 100)) == "payment_disputed"
    shop.processor.decide(chargeback, outcome)
    shop.hear()
    shop.run()
    assert shop.available(alice) == credit * DOLLAR
    assert [one.status for one in shop.history(payment_id).chargebacks] == [outcome]
    shop.assert_settled()


@pytest.mark.parametrize("outcome", ["won", "lost"])
@pytest.mark.parametrize(
    ("cents", "net", "tax"), [(1_000, 840, 160), (5_950, 5_000, 950), (7_000, 5_000, 950)]
)
def test_what_a_bank_takes_is_credited_and_what_it_gives_back_invoiced(
    shop: Shop, cents: int, net: int, tax: int, outcome: str
) -> None:
    """INV-11: a note of what was bought and is gone, an invoice when it is won; no more on either.

    What exceeds the payment was bought by nobody, so it is on no document.
    """
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000, tax_bp=1_900)
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    chargeback = shop.processor.dispute(name, cents)
    shop.hear(times=3)
    shop.run()
    assert credits(shop) == [("CN-00000001", "INV-00000001", net, tax)]
    assert shop.owed_tax() == shop.documented_tax() == (950 - tax) * CENT
    shop.processor.decide(chargeback, outcome)
    shop.hear(times=3)
    shop.run()
    won = outcome == "won"
    assert shop.documents(alice)[2:] == ([("INV-00000002", net, tax)] if won else [])
    assert shop.owed_tax() == shop.documented_tax() == (950 if won else 950 - tax) * CENT
    assert shop.available(alice) == (5_000 if won else 5_000 - net) * CENT
    assert shop.market.rebuild().equal


@pytest.mark.parametrize("cents", [5_001, 5_250, 20_000])
@pytest.mark.parametrize("refunded", [0, 2_000])
def test_a_chargeback_larger_than_the_payment_is_booked(
    shop: Shop, cents: int, refunded: int
) -> None:
    """INV-11: what exceeds the payment is nobody's credit but an account of its own, for review."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    if refunded:
        shop.refund(payment_id, refunded)
        shop.run()
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    chargeback = shop.processor.dispute(name, cents)
    shop.hear()
    shop.run()
    assert shop.available(alice) == 0
    found = shop.history(payment_id).payment
    assert (found.refunded, found.difference) == (
        50 * DOLLAR,
        (cents - 5_000 + refunded) * CENT,
    )
    compared = shop.compare()
    assert [one.kind for one in compared.findings] == ["excess"]
    assert set(compared.clearing.values()) == {0}
    shop.processor.decide(chargeback, "won")
    shop.hear()
    shop.run()
    assert shop.history(payment_id).payment.difference == 0
    assert shop.available(alice) == (5_000 - refunded) * CENT
    shop.assert_settled()


def test_a_chargeback_of_spent_credit_is_a_debt(shop: Shop) -> None:
    """What was spent before the bank took it back is owed: the balance is below zero, exactly."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)
    spend(shop, alice, 50 * DOLLAR)
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    shop.processor.dispute(name, 5_000)
    shop.hear()
    shop.run()
    assert shop.available(alice) == -50 * DOLLAR
    shop.assert_settled()


def test_a_deposit_paid_by_card_goes_back_through_the_processor_only(shop: Shop) -> None:
    """An admin cannot book away what only the processor can send back."""
    alice = shop.market.account("alice")
    payment_id = shop.buy(alice, 5_000)

    def refund() -> None:
        with shop.market.ledger.unit() as unit:
            deposits.refund(unit, alice, payment_id, DOLLAR, "r")

    assert refused(refund) == "paid_by_card"
