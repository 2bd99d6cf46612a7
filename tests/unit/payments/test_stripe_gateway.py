"""Stripe when the network fails: what was done is found again, what was not is done once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from adapters.payments.settings import StripeSettings
from adapters.payments.stripe_gateway import StripeGateway
from ledger.errors import AuthError, RejectedError, UnavailableError
from ledger.services.payments.gateway import (
    BankOrder,
    Declined,
    Event,
    Order,
    Outcome,
    Page,
    Pending,
    RefundOrder,
    Settled,
    Subject,
    TransferOrder,
)
from tests.support.processors import StripeProcessor
from tests.support.stripe.messages import sign
from tests.support.stripe.server import FaultKind

NOW = 1_772_323_200
DAY = 86_400


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        """Begin at `NOW`."""
        self.now = NOW

    def __call__(self) -> int:
        """The present second."""
        return self.now


@pytest.fixture
def stripe() -> Iterator[StripeProcessor]:
    """The gateway on the stand-in."""
    one = StripeProcessor(Clock())
    yield one
    one.close()


def later(stripe: StripeProcessor, seconds: int) -> None:
    """Time goes by."""
    clock = stripe.clock
    assert isinstance(clock, Clock)
    clock.now += seconds


def card_order(stripe: StripeProcessor, last4: str = "4242", key: str = "pay-1") -> Order:
    """A charge of $5 on a saved card that behaves as its digits say."""
    customer = stripe.gateway.register(7)
    method = stripe.stripe.attach(last4, customer)["id"]
    return Order(key, 7, method, 500, customer, NOW)


def charges(stripe: StripeProcessor) -> list[int]:
    """What came in."""
    return [one.cents for one in stripe.gateway.entries(0)]


@pytest.mark.parametrize("kind", ["before", "after", "error", "busy"])
def test_a_fault_is_unavailable_and_the_retry_charges_once(
    stripe: StripeProcessor, kind: FaultKind
) -> None:
    """Lost on the way there, lost on the way back, 500 or 429: the same order again is one."""
    order = card_order(stripe)
    stripe.server.fail(kind, "POST", "/v1/payment_intents")
    with pytest.raises(UnavailableError):
        stripe.gateway.charge(order)
    assert isinstance(stripe.gateway.charge(order), Settled)
    assert charges(stripe) == [500]


@pytest.mark.parametrize("seconds", [DAY + 1, 30 * DAY])
def test_a_key_that_was_forgotten_charges_once_all_the_same(
    stripe: StripeProcessor, seconds: int
) -> None:
    """After a day Stripe forgets a key; the order is found by our id among its own objects."""
    order = card_order(stripe)
    stripe.server.fail("after", "POST", "/v1/payment_intents")
    with pytest.raises(UnavailableError):
        stripe.gateway.charge(order)
    later(stripe, seconds)
    stripe.server.forget_keys()
    for _ in range(2):
        assert isinstance(stripe.gateway.charge(order), Settled)
    assert charges(stripe) == [500]


def test_more_objects_than_fit_a_page_are_all_looked_through(stripe: StripeProcessor) -> None:
    """The order that is looked for is the oldest of 230: three pages are read."""
    order = card_order(stripe)
    first = stripe.gateway.charge(order)
    for number in range(230):
        stripe.stripe.create_intent(
            {"amount": "100", "currency": "usd", "customer": order.customer,
             "metadata": {"gpuledger_id": f"pay-{number + 2}"}}
        )  # fmt: skip
    later(stripe, 2 * DAY)
    stripe.server.forget_keys()
    assert stripe.gateway.charge(order) == first
    assert len(list(stripe.gateway.events(0))) == len(stripe.stripe.found["event"])


@pytest.mark.parametrize(
    ("last4", "reason"),
    [
        ("0002", "generic_decline"),
        ("9995", "insufficient_funds"),
        ("0069", "expired_card"),
        ("3155", "authentication_required"),
    ],
)
def test_a_decline_has_its_reason_whenever_it_is_asked_for(
    stripe: StripeProcessor, last4: str, reason: str
) -> None:
    """At once, repeated, looked up, and a month later: declined, for the same reason."""
    order = card_order(stripe, last4)
    assert stripe.gateway.charge(order) == Declined(reason)
    assert stripe.gateway.charge(order) == Declined(reason)
    assert stripe.gateway.outcome(order) == Declined(reason)
    later(stripe, 30 * DAY)
    stripe.server.forget_keys()
    assert stripe.gateway.charge(order) == Declined(reason)
    assert charges(stripe) == []


def test_a_payment_that_takes_its_time_is_pending_until_it_settles(
    stripe: StripeProcessor,
) -> None:
    """The replayed answer says `processing` for ever; the object itself says what became of it."""
    order = card_order(stripe, "0077")
    pending = stripe.gateway.charge(order)
    assert isinstance(pending, Pending)
    assert stripe.gateway.charge(order) == pending
    stripe.stripe.settle_processing(pending.payment)
    assert stripe.gateway.charge(order) == Settled(pending.payment)
    assert charges(stripe) == [500]


def test_the_card_of_another_payer_is_not_charged(stripe: StripeProcessor) -> None:
    """A card that belongs to somebody else is declined, and nothing moved."""
    order = card_order(stripe)
    other = stripe.gateway.register(8)
    assert other != order.customer
    foreign = order._replace(customer=other, key="pay-2")
    assert stripe.gateway.charge(foreign) == Declined("payment_method_unexpected_state")
    assert charges(stripe) == []


def test_a_key_for_another_request_is_told_and_not_carried_out(stripe: StripeProcessor) -> None:
    """IDEM-04: the same key with another amount is a conflict, never a second charge."""
    order = card_order(stripe)
    stripe.gateway.charge(order)
    with pytest.raises(UnavailableError):
        stripe.gateway.charge(order._replace(cents=600))
    assert charges(stripe) == [500]


def test_a_refused_key_says_so_without_the_key(stripe: StripeProcessor) -> None:
    """A wrong API key is unavailable, and no message holds it."""
    settings = StripeSettings("sk_test_wrong", (), "https://market.example", stripe.server.url)
    gateway = StripeGateway(settings, "x", stripe.clock)
    with pytest.raises(UnavailableError) as refused:
        gateway.register(1)
    assert "sk_test" not in str(refused.value)


def test_two_ledgers_on_one_account_have_keys_of_their_own(stripe: StripeProcessor) -> None:
    """The first payment of each is `pay-1`: each is charged, and neither sees the other's."""
    order = card_order(stripe)
    other = stripe.another("another-ledger")
    assert isinstance(stripe.gateway.charge(order), Settled)
    assert other.outcome(order) is None
    assert isinstance(other.charge(order), Settled)
    assert charges(stripe) == [500, 500]
    assert [one.reference for one in other.entries(0)].count("pay-1") == 1


def test_a_page_is_one_page_however_long_it_takes(stripe: StripeProcessor) -> None:
    """Its answer lost, its key forgotten: the page that was made is found again."""
    customer = stripe.gateway.register(7)
    page = Page("pay-1", 7, customer, 2_000, NOW)
    stripe.server.fail("after", "POST", "/v1/checkout/sessions")
    with pytest.raises(UnavailableError):
        stripe.gateway.open_payment(page)
    later(stripe, 2 * DAY)
    stripe.server.forget_keys()
    opened = stripe.gateway.open_payment(page)
    assert len(stripe.stripe.found["checkout.session"]) == 1
    stripe.pay(opened.session)
    assert stripe.gateway.open_payment(page).url is None


def host_with(stripe: StripeProcessor, cents: int) -> str:
    """A host that can be paid, and a platform with money."""
    order = card_order(stripe)._replace(cents=cents)
    assert isinstance(stripe.gateway.charge(order), Settled)
    host = stripe.gateway.open_payout_account(8, "US", NOW)
    stripe.enable(8, host)
    return host


@pytest.mark.parametrize("forgotten", [False, True])
def test_every_step_of_money_out_is_done_once(stripe: StripeProcessor, forgotten: bool) -> None:
    """HOOK-04: transfer, bank and refund whose answers were lost count as done, days later too."""
    host = host_with(stripe, 50_000)
    payment = next(iter(stripe.stripe.found["payment_intent"]))
    transfer = TransferOrder("payout-1", host, 2_000, NOW)
    bank = BankOrder("payout-1", host, 2_000, NOW)
    refund = RefundOrder("refund-1", payment, 100, NOW)
    steps: list[tuple[str, Callable[[], Outcome]]] = [
        ("/v1/transfers", lambda: stripe.gateway.transfer(transfer)),
        ("/v1/payouts", lambda: stripe.gateway.pay_bank(bank)),
        ("/v1/refunds", lambda: stripe.gateway.refund(refund)),
    ]
    for path, step in steps:
        stripe.server.fail("after", "POST", path)
        with pytest.raises(UnavailableError):
            step()
        if forgotten:
            later(stripe, 2 * DAY)
            stripe.server.forget_keys()
        assert not isinstance(step(), Declined)
        assert not isinstance(step(), Declined)
    for kind in ("transfer", "payout", "refund"):
        assert len(stripe.stripe.found[kind]) == 1


def test_a_platform_short_of_money_pays_when_it_has_some(stripe: StripeProcessor) -> None:
    """Too little at the processor is no failure of the host: the transfer waits."""
    host = host_with(stripe, 1_000)
    order = TransferOrder("payout-1", host, 5_000, NOW)
    assert stripe.gateway.transfer(order) == Pending()
    stripe.gateway.charge(card_order(stripe, key="pay-2")._replace(cents=50_000))
    assert stripe.gateway.transfer(order) == Pending()
    later(stripe, DAY)
    assert isinstance(stripe.gateway.transfer(order), Settled)


def test_a_lock_of_a_running_request_is_waited_for(stripe: StripeProcessor) -> None:
    """409 while the first try runs: unavailable, and the next try is the first one's answer."""
    order = card_order(stripe)
    slot = (None, "ledger-under-test/pay-1")
    stripe.server._running.add(slot)
    with pytest.raises(UnavailableError):
        stripe.gateway.charge(order)
    stripe.server._running.discard(slot)
    assert isinstance(stripe.gateway.charge(order), Settled)


# --- messages ------------------------------------------------------------------------------------


def message(kind: str, found: object, **more: object) -> bytes:
    """An event as Stripe sends it."""
    return json.dumps(
        {"id": "evt_1", "object": "event", "type": kind, "created": NOW, "livemode": False,
         "data": {"object": found}, **more}
    ).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "owner", "subject"),
    [
        ("checkout.session.completed", "", Subject("checkout", "x_1")),
        ("checkout.session.async_payment_failed", "", Subject("checkout", "x_1")),
        ("payment_intent.succeeded", "", Subject("payment", "x_1")),
        ("refund.updated", "", Subject("refund", "x_1")),
        ("charge.dispute.funds_withdrawn", "", Subject("chargeback", "x_1")),
        ("payment_method.detached", "", Subject("card", "x_1")),
        ("account.updated", "", Subject("payout_account", "x_1")),
        ("account.updated", "acct_9", Subject("payout_account", "acct_9")),
        ("account.application.deauthorized", "acct_9", Subject("payout_account", "acct_9")),
        ("payout.failed", "acct_9", Subject("bank_payout", "x_1", "acct_9")),
        ("payout.paid", "", None),
        ("charge.succeeded", "", None),
        ("invoice.paid", "", None),
        ("made.up.yesterday", "acct_9", None),
    ],
)
def test_a_message_says_which_object_to_look_at(
    stripe: StripeProcessor, kind: str, owner: str, subject: Subject | None
) -> None:
    """Known kinds name an object, unknown ones nothing, and neither is an error."""
    body = message(kind, {"id": "x_1"}, **({"account": owner} if owner else {}))
    header = sign(body, NOW)
    assert stripe.gateway.read_event(body, header, NOW) == Event("evt_1", kind, subject, NOW)


def test_a_message_of_the_other_mode_is_about_nothing(stripe: StripeProcessor) -> None:
    """Live money never moves on the word of a test event, nor the other way round."""
    body = message("payment_intent.succeeded", {"id": "pi_1"}, livemode=True)
    assert stripe.gateway.read_event(body, sign(body, NOW), NOW).subject is None


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b"\xff", b'{"id": 1}', b'"x"'])
def test_signed_nonsense_is_undecodable(stripe: StripeProcessor, body: bytes) -> None:
    """What is signed and no event is told apart from what nobody signed."""
    with pytest.raises(RejectedError):
        stripe.gateway.read_event(body, sign(body, NOW), NOW)
    with pytest.raises(AuthError):
        stripe.gateway.read_event(body, "t=1,v1=0", NOW)
