"""Payments and payouts over HTTP: pages, cards, refunds, messages; and who sees what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

from adapters.http.app import create_app
from ledger.domain.events import DepositSettled
from ledger.services import policies
from tests.http.conftest import Api
from tests.support.market import DOLLAR, Market
from tests.support.processors import StripeProcessor
from tests.support.stripe.messages import Message, sign


class Shop:
    """The API with Stripe's stand-in behind it."""

    def __init__(self, api: Api, stripe: StripeProcessor) -> None:
        """Put both together."""
        self.api = api
        self.stripe = stripe
        self.market = api.market

    def send(self, message: Message) -> Any:
        """A message arrives."""
        return self.api(
            None,
            "POST",
            "/v1/payment-events",
            message.body,
            **{"Stripe-Signature": message.signature},
        )

    def hear(self, times: int = 1) -> None:
        """Every waiting message arrives and is worked off."""

        def deliver(message: Message) -> None:
            assert self.send(message).status_code == 200

        self.stripe.server.messages.deliver(deliver, times=times)
        policies.pay(self.market.ledger, self.stripe.gateway)

    def session(self) -> str:
        """The last page."""
        return list(self.stripe.stripe.found["checkout.session"])[-1]

    def save_card(self, who: str) -> str:
        """A saved card."""
        made = self.api(who, "POST", "/v1/cards", {"consent": True, "terms": "t-1"})
        assert made.status_code == 201, made.text
        self.stripe.save_card(self.session())
        self.hear()
        card: str = self.api(who, "GET", "/v1/cards").json()["items"][-1]["card"]
        return card


@pytest.fixture
def shop(market: Market) -> Iterator[Shop]:
    """The API without a network in between, and a processor over one."""
    stripe = StripeProcessor(market.clock)
    with TestClient(create_app(market.ledger, market.usage, stripe.gateway)) as client:
        yield Shop(Api(market, client), stripe)
    stripe.close()


def test_a_payment_from_order_to_credit(shop: Shop) -> None:
    """Order, pay on the page, hear of it twice: one credit, one deposit, the page is used up."""
    api = shop.api
    made = api("alice", "POST", "/v1/payments", {"amount": "50"}, Idempotency_Key="k1")
    assert made.status_code == 201
    assert (made.json()["payment"]["status"], made.json()["url"][:8]) == ("open", "https://")
    again = api("alice", "POST", "/v1/payments", {"amount": "50"}, Idempotency_Key="k1")
    assert again.json() == made.json()
    assert again.headers["idempotency-replayed"] == "true"
    payment_id = made.json()["payment"]["payment_id"]
    page = api("alice", "POST", f"/v1/payments/{payment_id}/page")
    assert page.json()["url"] == made.json()["url"]
    shop.stripe.pay(shop.session())
    shop.hear(times=3)
    shown = api("alice", "GET", f"/v1/payments/{payment_id}").json()
    assert (shown["payment"]["status"], shown["refunds"]) == ("settled", [])
    assert api("alice", "GET", "/v1/balance").json()["available"] == "150"
    assert api("alice", "POST", f"/v1/payments/{payment_id}/page").json()["url"] is None
    late = api("alice", "POST", "/v1/payments", {"amount": "50"}, Idempotency_Key="k1")
    assert (late.json()["payment"]["status"], late.json()["url"]) == ("settled", None)
    deposits = [one for one in shop.market.facts() if isinstance(one, DepositSettled)]
    assert [one.deposit_id for one in deposits].count(payment_id) == 1


def test_a_card_is_saved_with_consent_only_and_charged_under_a_key_only(shop: Shop) -> None:
    """CRED-01, IDEM-05: no consent, no card; no key, no charge; a repeat charges once."""
    api = shop.api
    for body in ({"consent": False, "terms": "t-1"}, {"terms": "t-1"}, {"consent": True}):
        assert api("alice", "POST", "/v1/cards", body).status_code in {400, 422}
    card = shop.save_card("alice")
    bare = api("alice", "POST", "/v1/payments", {"amount": "5", "card": card})
    assert (bare.status_code, bare.json()["code"]) == (400, "invalid_args")
    for _ in range(2):
        paid = api(
            "alice", "POST", "/v1/payments", {"amount": "5", "card": card}, Idempotency_Key="c"
        )
        assert (paid.status_code, paid.json()["payment"]["status"]) == (201, "settled")
    assert [one.cents for one in shop.stripe.gateway.entries(0)] == [500]
    foreign = api(
        "carol", "POST", "/v1/payments", {"amount": "5", "card": card}, Idempotency_Key="c"
    )
    assert (foreign.status_code, foreign.json()["code"]) == (404, "no_such_card")
    removed = api("alice", "DELETE", f"/v1/cards/{card}")
    assert [one["status"] for one in removed.json()["items"]] == ["removed"]
    assert api("carol", "DELETE", f"/v1/cards/{card}").status_code == 404


def test_a_silent_processor_is_no_error_of_the_order(shop: Shop) -> None:
    """The answer was lost: the order stands, is finished by the next run, and is charged once."""
    api = shop.api
    card = shop.save_card("alice")
    shop.stripe.server.fail("after", "POST", "/v1/payment_intents")
    body = {"amount": "5", "card": card}
    made = api("alice", "POST", "/v1/payments", body, Idempotency_Key="c")
    assert (made.status_code, made.json()["payment"]["status"]) == (201, "ordered")
    policies.pay(shop.market.ledger, shop.stripe.gateway)
    again = api("alice", "POST", "/v1/payments", body, Idempotency_Key="c")
    assert again.json()["payment"]["status"] == "settled"
    assert [one.cents for one in shop.stripe.gateway.entries(0)] == [500]


def test_a_refund_over_http(shop: Shop) -> None:
    """An admin refunds unspent credit; more than is left is refused, a repeat is the same."""
    api = shop.api
    card = shop.save_card("alice")
    made = api("alice", "POST", "/v1/payments", {"amount": "50", "card": card}, Idempotency_Key="c")
    path = f"/v1/payments/{made.json()['payment']['payment_id']}/refund"
    for _ in range(2):
        answer = api("root", "POST", path, {"amount": "20", "id": "r1"})
        assert answer.status_code == 201
        assert [one["status"] for one in answer.json()["refunds"]] == ["settled"]
        assert answer.json()["payment"]["refunded"] == "20"
    more = api("root", "POST", path, {"amount": "30.01", "id": "r2"})
    assert (more.status_code, more.json()["code"]) == (422, "over_credit")
    part = api("root", "POST", path, {"amount": "0.001", "id": "r2"})
    assert (part.status_code, part.json()["code"]) == (422, "invalid_amount")
    assert api("alice", "POST", path, {"amount": "1", "id": "r3"}).status_code == 403
    old = {"account_id": api.accounts["alice"], "deposit_id": path.split("/")[3], "amount": "1",
           "id": "r4"}  # fmt: skip
    assert api("root", "POST", "/v1/refunds", old).json()["code"] == "paid_by_card"


def test_what_is_not_yours_does_not_exist(shop: Shop) -> None:
    """Payments of others are 404 for renters and hosts, and there for auditors and admins."""
    api = shop.api
    made = api("alice", "POST", "/v1/payments", {"amount": "50"})
    payment_id = made.json()["payment"]["payment_id"]
    for who in ("carol", "bob"):
        theirs = api(who, "GET", f"/v1/payments/{payment_id}")
        never = api(who, "GET", "/v1/payments/pay-999")
        assert theirs.status_code == never.status_code == 404
        assert theirs.json()["code"] == never.json()["code"] == "no_such_payment"
        assert api(who, "GET", "/v1/payments").json()["items"] == []
    assert api("carol", "POST", f"/v1/payments/{payment_id}/page").status_code == 404
    assert api("audrey", "GET", f"/v1/payments/{payment_id}").status_code == 200
    listed = api("root", "GET", f"/v1/payments?account_id={api.accounts['alice']}").json()
    assert [one["payment_id"] for one in listed["items"]] == [payment_id]


def test_pages_of_payments_repeat_and_skip_nothing(shop: Shop) -> None:
    """API-08: while payments are being added, every one is on exactly one page of two."""
    api = shop.api
    wanted = []
    for number in range(5):
        made = api("alice", "POST", "/v1/payments", {"amount": str(number + 1)})
        wanted.append(made.json()["payment"]["payment_id"])
    seen: list[str] = []
    cursor = ""
    while True:
        found = api("alice", "GET", f"/v1/payments?limit=2{cursor}").json()
        seen += [one["payment_id"] for one in found["items"]]
        if found["next_cursor"] is None:
            break
        if len(wanted) == 5:
            made = api("alice", "POST", "/v1/payments", {"amount": "9"})
            wanted.append(made.json()["payment"]["payment_id"])
        cursor = f"&cursor={found['next_cursor']}"
    assert seen == wanted


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"at": -301}, 401),
        ({"at": 301}, 401),
        ({"body": b"{}"}, 401),
        ({"header": ""}, 401),
        ({"secret": "whsec_wrong"}, 401),
    ],
)
def test_only_signed_messages_of_now_are_taken(
    shop: Shop, change: dict[str, Any], status: int
) -> None:
    """Old, future, changed and unsigned messages are 401 and change nothing at all."""
    now = shop.market.clock()
    body = json.dumps(
        {"id": "evt_1", "type": "payment_intent.succeeded", "created": now, "livemode": False,
         "data": {"object": {"id": "pi_1"}}}
    ).encode()  # fmt: skip
    header = sign(body, now + change.get("at", 0), change.get("secret", "whsec_standin"))
    message = Message(change.get("body", body), change.get("header", header))
    answer = shop.send(message)
    assert answer.status_code == status, answer.text
    row = shop.market.connection.execute("SELECT count(*) FROM payment_events").fetchone()
    shop.market.connection.commit()
    assert row == (1 if status == 200 else 0,)
    if status == 200:
        assert answer.json() == {"queued": True}
        assert shop.send(message).json() == {"queued": False}


def test_an_unknown_message_is_acknowledged(shop: Shop) -> None:
    """A kind that was invented yesterday is 200, queued nowhere, and no fact."""
    head = shop.market.head()
    now = shop.market.clock()
    body = json.dumps(
        {"id": "evt_1", "type": "quantum.entangled", "created": now, "livemode": False,
         "data": {"object": {"id": "q_1"}}}
    ).encode()  # fmt: skip
    answer = shop.send(Message(body, sign(body, now)))
    assert (answer.status_code, answer.json()) == (200, {"queued": False})
    assert shop.market.head() == head


def test_a_server_without_a_processor_says_so(api: Api) -> None:
    """No key was configured: every route that needs the processor refuses with one code."""
    for who, path, body in (
        ("alice", "/v1/payments", {"amount": "5"}),
        ("alice", "/v1/cards", {"consent": True, "terms": "t"}),
        ("bob", "/v1/payout-account", {"country": "US"}),
        (None, "/v1/payment-events", {}),
    ):
        answer = api(who, "POST", path, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "payments_not_configured")


def test_a_host_onboards_and_sees_payouts_and_earnings(shop: Shop) -> None:
    """Open, get the page, be enabled; earnings come per machine and UTC day and page by page."""
    api, market = shop.api, shop.market
    missing = api("bob", "POST", "/v1/payout-account/onboarding")
    assert missing.json()["code"] == "payout_method_missing"
    made = api("bob", "POST", "/v1/payout-account", {"country": "US"})
    assert (made.status_code, made.json()["is_enabled"]) == (201, False)
    url = api("bob", "POST", "/v1/payout-account/onboarding").json()["url"]
    assert url.startswith("https://")
    shop.stripe.stripe.onboard(next(iter(shop.stripe.stripe.found["account"])))
    shop.hear()
    assert api("bob", "GET", "/v1/payout-account").json()["is_enabled"] is True
    assert api("eve", "GET", "/v1/payout-account").status_code == 404
    machine = market.machine(host="bob", gpu_hour=DOLLAR)
    instance = market.rent(api.accounts["alice"], machine)
    market.confirm(machine, instance)
    market.run(machine, [instance], 3_600)
    market.project()
    found = api("bob", "GET", f"/v1/earnings?machine_id={machine}").json()["items"]
    assert len(found) == 1
    assert (found[0]["gpu_seconds"], found[0]["day"]) == (3_600, "2026-03-01T00:00:00Z")
    total = sum(market.charges(instance).values())
    assert round(float(found[0]["charged"]) * 10**9) == total
    payable = api("bob", "GET", "/v1/balance").json()["host_payable"]
    assert found[0]["earned"] == payable
    assert api("eve", "GET", "/v1/earnings").json()["items"] == []
    assert api("bob", "GET", "/v1/payouts").json() == {"items": [], "next_cursor": None}
