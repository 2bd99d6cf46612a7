"""What webhooks say of documents, payments and payouts: one event per fact, with its data.

HOOK-01, HOOK-02.
"""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.dispute import Authority
from ledger.domain.events import NoticeIssued
from ledger.domain.ids import parse_rfc3339
from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.projections.facts import changes
from ledger.services import credit_notes, policies, rentals, webhooks
from ledger.services.policies import payouts
from tests.golden.examples import EXAMPLES
from tests.support.market import DOLLAR, START, Market
from tests.support.payments import CENT, Shop, owe
from tests.support.processors import MemoryProcessor
from tests.support.webhooks import claim, event_of, queue, register, take

HOUR = 3_600
APRIL = parse_rfc3339("2026-04-01T00:00:00Z")
FRIDAY = friday_of(START) + SECONDS_PER_WEEK
CODES = {
    "receipt", "invoice", "credit_note", "self_billing", "payment_failed", "chargeback",
    "payout_paid", "payout_failed",
}  # fmt: skip
"""The codes that a test here is about."""


@pytest.fixture
def shop(market: Market) -> Shop:
    """A marketplace whose processor is in memory."""
    return Shop(market, MemoryProcessor(market.clock))


def listening(shop: Shop, *names: str) -> list[int]:
    """Accounts that have a webhook for every code."""
    found = []
    for name in names:
        account = shop.market.account(name)
        register(shop.market.ledger, account, f"https://hooks.example/{name}")
        found.append(account)
    return found


def told(shop: Shop) -> list[dict[str, Any]]:
    """Every event that is due now and about money, taken by its receiver, without its id."""
    events: list[dict[str, Any]] = []
    while sent := claim(shop.market.ledger):
        take(shop.market.ledger, sent)
        events += [event_of(one) for one in sent]
    assert len({one["id"] for one in events}) == len(events)
    return [
        {key: value for key, value in one.items() if key not in {"id", "attempt"}}
        for one in events
        if one["type"] in CODES
    ]


def at(market: Market, second: int) -> None:
    """Move to a second, fold, and let the platform do what is due."""
    market.clock.move_to(second)
    for _ in range(2):
        market.project()
        policies.run_due(market.ledger)


def used_an_hour(shop: Shop, renter: int) -> None:
    """An hour of one GPU at $0.36, on a machine of bob."""
    market = shop.market
    machine = market.machine(storage=0, up=0, down=0)
    one = market.rent(renter, machine)
    market.confirm(machine, one)
    market.run(machine, [one], HOUR, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)


def test_each_fact_that_is_news_by_itself_has_a_test_here() -> None:
    """A code that some fact tells of, other than a notice, is one of those below."""
    news = {
        change.values[2]
        for fact in EXAMPLES
        if not isinstance(fact, NoticeIssued)
        for change in changes(fact, 1)
        if "INTO notices" in change.sql
    }
    assert news == CODES


def test_a_receipt_says_net_tax_and_total(shop: Shop) -> None:
    """`receipt`: the number of the tax invoice, and what was paid in its parts."""
    (alice,) = listening(shop, "alice")
    shop.buy(alice, 1_033, tax_bp=825)
    assert told(shop) == [
        {
            "type": "receipt",
            "account_id": alice,
            "about": "INV-00000001",
            "at": "2026-03-01T10:00:00Z",
            "data": {
                "number": "INV-00000001",
                "net": "10.33",
                "tax": "0.85",
                "total": "11.18",
                "version": 1,
            },
        }
    ]


def test_a_payment_that_is_told_again_is_no_second_receipt(shop: Shop) -> None:
    """HOOK-01: the processor says it thrice and is asked again; the event stays one, by its id."""
    (alice,) = listening(shop, "alice")
    payment_id = shop.order(alice, 5_000)
    shop.processor.pay(shop.page(payment_id).session)
    for _ in range(3):
        shop.hear(times=3)
        shop.run()
        queue(shop.market.ledger)
    first = claim(shop.market.ledger)
    take(shop.market.ledger, first)
    assert [event_of(one)["type"] for one in first] == ["receipt"]
    with shop.market.ledger.unit() as unit:
        webhooks.replay_since(unit, alice, first[0].webhook_id, 0, everything=True)
    again = claim(shop.market.ledger)
    assert [event_of(one)["id"] for one in again] == [event_of(first[0])["id"]]
    assert [event_of(one)["data"] for one in again] == [event_of(first[0])["data"]]


def test_an_invoice_says_its_total_and_what_is_due(shop: Shop) -> None:
    """`invoice`: once a period, however often the period is closed."""
    (alice,) = listening(shop, "alice")
    shop.buy(alice, 5_000)
    used_an_hour(shop, alice)
    for second in (APRIL + HOUR, APRIL + HOUR, APRIL + 2 * HOUR):
        at(shop.market, second)
    receipt, invoice = told(shop)
    assert receipt["type"] == "receipt"
    assert invoice == {
        "type": "invoice",
        "account_id": alice,
        "about": "USE-00000001",
        "at": "2026-04-01T01:00:00Z",
        "data": {"number": "USE-00000001", "due": "0", "total": "0.36", "version": 1},
    }


def test_credit_notes_name_what_they_credit_and_why(shop: Shop) -> None:
    """`credit_note`: of usage, of a refund, and of a chargeback, each with its reason and total."""
    (alice,) = listening(shop, "alice")
    payment_id = shop.buy(alice, 5_000, tax_bp=1_900)
    used_an_hour(shop, alice)
    at(shop.market, APRIL + HOUR)
    with shop.market.ledger.unit() as unit:
        credit_notes.credit_note(
            unit, alice, "USE-00000001", 12 * CENT, "goodwill", Authority("account-900", 1)
        )
    shop.refund(payment_id, 1_190)
    shop.run()
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    shop.processor.dispute(name, 595)
    shop.hear(times=2)
    shop.run()
    found = [one for one in told(shop) if one["type"] == "credit_note"]
    assert {one["about"]: one["data"] for one in found} == {
        number: {"number": number, "document": document, "reason": reason, "total": total}
        | {"version": 1}
        for number, document, reason, total in (
            ("CN-00000001", "USE-00000001", "goodwill", "0.12"),
            ("CN-00000002", "INV-00000001", "refund", "11.9"),
            ("CN-00000003", "INV-00000001", "chargeback", "5.95"),
        )
    }
    assert len(found) == 3


def test_self_billing_is_told_to_the_host(shop: Shop) -> None:
    """`self_billing`: to the host and to nobody else, when the month can change no more."""
    _, bob = listening(shop, "alice", "bob")
    alice = shop.market.account("alice", 10 * DOLLAR)
    used_an_hour(shop, alice)
    at(shop.market, APRIL + 73 * HOUR)
    found = [one for one in told(shop) if one["account_id"] == bob]
    assert found == [
        {
            "type": "self_billing",
            "account_id": bob,
            "about": "SB-00000001",
            "at": "2026-04-04T01:00:00Z",
            "data": {"number": "SB-00000001", "total": "0.306", "version": 1},
        }
    ]


def test_a_failed_payment_says_which_and_why(shop: Shop) -> None:
    """`payment_failed`: a page to which nobody came, told once."""
    (alice,) = listening(shop, "alice")
    payment_id = shop.order(alice, 5_000)
    shop.processor.expire(shop.page(payment_id).session)
    shop.hear(times=3)
    shop.run()
    shop.next_round()
    assert told(shop) == [
        {
            "type": "payment_failed",
            "account_id": alice,
            "about": payment_id,
            "at": "2026-03-01T10:00:00Z",
            "data": {"payment_id": payment_id, "reason": "expired", "version": 1},
        }
    ]


def test_a_chargeback_says_what_the_bank_claims(shop: Shop) -> None:
    """`chargeback`: the payment, the bank's reason and its claim, also beyond the payment."""
    (alice,) = listening(shop, "alice")
    payment_id = shop.buy(alice, 5_000)
    name = shop.history(payment_id).payment.processor_payment
    assert name is not None
    chargeback = shop.processor.dispute(name, 5_550)
    shop.hear(times=3)
    shop.run()
    shop.processor.decide(chargeback, "lost")
    shop.hear()
    shop.run()
    (found,) = [one for one in told(shop) if one["type"] == "chargeback"]
    (known,) = shop.history(payment_id).chargebacks
    assert (found["account_id"], found["about"]) == (alice, payment_id)
    assert found["data"] == {
        "payment_id": payment_id,
        "reason": known.reason,
        "amount": "55.5",
        "version": 1,
    }


@pytest.mark.parametrize("status", ["settled", "failed"])
def test_a_payout_says_what_became_of_it(shop: Shop, status: str) -> None:
    """`payout_paid` and `payout_failed`: the payout and its amount, once the bank has spoken."""
    shop.buy(shop.market.account("rich"), 1_000_000)
    host = shop.payable_host()
    listening(shop, "bob")
    owe(shop, host, 25 * DOLLAR + 1)
    for number in range(2):
        shop.market.clock.move_to(FRIDAY + number * SECONDS_PER_WEEK)
        payouts.pay_hosts(shop.market.ledger)
        shop.run()
    connection = shop.market.connection
    row = connection.execute("SELECT bank_payout FROM payouts").fetchone()
    connection.commit()
    assert row is not None
    assert told(shop) == []
    shop.processor.settle_bank(row[0], status)  # type: ignore[arg-type]  # one of two words
    for _ in range(2):
        shop.hear(times=2)
        shop.run()
    (found,) = told(shop)
    data = found["data"]
    assert (found["account_id"], found["about"]) == (host, "payout-1")
    assert (data["payout_id"], data["amount"]) == (1, "25")
    if status == "settled":
        assert (found["type"], data.keys()) == ("payout_paid", {"payout_id", "amount", "version"})
    else:
        row = connection.execute("SELECT reason FROM payouts").fetchone()
        assert (found["type"], row) == ("payout_failed", (data["reason"],))
