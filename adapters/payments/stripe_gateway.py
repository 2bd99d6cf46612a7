"""The port to the payment processor, carried out by Stripe.

Every object that we make carries our id of it, and that of the ledger, in its metadata: one Stripe
account may serve several ledgers, and each finds its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import stripe
from typing_extensions import override

from adapters.payments import reading, signature
from adapters.payments.calls import (
    PAGE,
    TIMEOUT_SECONDS,
    Orders,
    Refused,
    calling,
    later,
    listed,
    mine,
    required,
    retrieved,
    was_replayed,
)
from adapters.payments.settings import StripeSettings
from ledger.errors import RejectedError, UnavailableError
from ledger.services.ledger import Clock
from ledger.services.payments.gateway import (
    BankOrder,
    Entry,
    Event,
    Opened,
    Order,
    Outcome,
    Page,
    PaymentGateway,
    RefundOrder,
    ReversalOrder,
    Seen,
    Settled,
    Subject,
    TransferOrder,
)


class StripeGateway(PaymentGateway):
    """Stripe, for the ledger that *name* tells from others on the same Stripe account."""

    def __init__(self, settings: StripeSettings, name: str, clock: Clock) -> None:
        """Make no request yet."""
        self._settings = settings
        self._name = name
        self._orders = Orders(name, clock)
        self._client = stripe.StripeClient(
            settings.api_key,
            base_addresses={"api": settings.url},
            max_network_retries=0,  # The runner tries again, and knows how long to wait.
            http_client=stripe.RequestsClient(timeout=TIMEOUT_SECONDS),
        ).v1

    # --- money in --------------------------------------------------------------------------------

    @override
    def register(self, account_id: int) -> str:
        """A customer without a name or an address."""
        found = calling(
            lambda: self._client.customers.create(
                {"metadata": self._orders.metadata(f"payer-{account_id}", account_id)},
                self._orders.once(f"payer-{account_id}"),
            )
        )
        return found.id

    @override
    def charge(self, order: Order) -> Outcome:
        """A payment intent that is confirmed at once, without the payer."""
        params: Any = {
            "amount": order.cents,
            "currency": reading.CURRENCY,
            "customer": order.customer,
            "payment_method": order.reference,
            "allowed_payment_method_types": ["card"],
            "confirm": True,
            "off_session": True,
            "metadata": self._orders.metadata(order.key, order.account_id),
        }
        intents = self._client.payment_intents
        try:
            intent = self._orders.made(
                order,
                lambda: self._intents(order),
                lambda: intents.create(params, self._orders.once(order.key)),
                intents.retrieve,
            )
        except Refused as refused:
            return refused.outcome
        return reading.charged(intent, self._name)

    @override
    def outcome(self, order: Order) -> Outcome | None:
        """What Stripe has under our id."""
        found = mine(listed(lambda: self._intents(order)), self._name, order.key)
        return None if found is None else reading.charged(found, self._name)

    def _intents(self, order: Order) -> Any:
        return self._client.payment_intents.list(
            self._orders.since(order.ordered_at, customer=order.customer)
        )

    @override
    def open_payment(self, page: Page) -> Opened:
        """A checkout session for one sum."""
        metadata = self._orders.metadata(page.key, page.account_id)
        return self._session(
            page,
            {
                "mode": "payment",
                "line_items": [
                    {
                        "quantity": 1,
                        "price_data": {
                            "currency": reading.CURRENCY,
                            "unit_amount": page.cents,
                            "product_data": {"name": "Prepaid credit"},
                        },
                    }
                ],
                "payment_intent_data": {"metadata": {**metadata, "gpuledger_page": "1"}},
            },
            metadata,
        )

    @override
    def open_setup(self, page: Page) -> Opened:
        """A checkout session that saves a card for charges without the payer."""
        return self._session(
            page, {"mode": "setup"}, self._orders.metadata(page.key, page.account_id)
        )

    def _session(self, page: Page, parts: dict[str, Any], metadata: dict[str, str]) -> Opened:
        back = self._settings.return_url
        mark = "&" if "?" in back else "?"

        def create() -> Any:
            params: Any = {
                **parts,
                "customer": page.customer,
                "client_reference_id": page.key,
                "allowed_payment_method_types": ["card"],
                "success_url": f"{back}{mark}status=done",
                "cancel_url": f"{back}{mark}status=cancelled",
                "metadata": metadata,
            }
            return self._client.checkout.sessions.create(params, self._orders.once(page.key))

        session = self._orders.earlier(page.ordered_at, lambda: self._sessions(page), page.key)
        if session is None:
            session = required(create)
            if was_replayed(session):
                session = required(partial(self._client.checkout.sessions.retrieve, session.id))
        return Opened(session.id, session.url)

    def _sessions(self, page: Page) -> Any:
        return self._client.checkout.sessions.list(
            self._orders.since(page.ordered_at, customer=page.customer)
        )

    @override
    def forget_card(self, card: str) -> None:
        """Detach it from its customer; one that is gone is forgotten."""
        try:
            calling(lambda: self._client.payment_methods.detach(card))
        except Refused:
            found = retrieved(lambda: self._client.payment_methods.retrieve(card))
            if found is not None and found.customer is not None:
                raise UnavailableError("gateway_unavailable", "the card is still there") from None

    @override
    def refund(self, order: RefundOrder) -> Outcome:
        """A refund of a payment intent."""
        refunds = self._client.refunds
        params: Any = {
            "payment_intent": order.payment,
            "amount": order.cents,
            "metadata": self._orders.metadata(order.key),
        }
        try:
            found = self._orders.made(
                order,
                lambda: refunds.list({"payment_intent": order.payment, "limit": PAGE}),
                lambda: refunds.create(params, self._orders.once(f"refund/{order.key}")),
                refunds.retrieve,
            )
        except Refused as refused:
            return later(refused)
        return reading.refunded(found)

    # --- money out -------------------------------------------------------------------------------

    @override
    def open_payout_account(self, account_id: int, country: str, ordered_at: int) -> str:
        """A connected account that the platform answers for, paid only when we say so."""
        key = f"host-{account_id}"

        def create() -> Any:
            return self._client.accounts.create(
                {
                    "country": country,
                    "controller": {
                        "fees": {"payer": "application"},
                        "losses": {"payments": "application"},
                        "stripe_dashboard": {"type": "express"},
                    },
                    "capabilities": {"transfers": {"requested": True}},
                    "settings": {"payouts": {"schedule": {"interval": "manual"}}},
                    "metadata": self._orders.metadata(key, account_id),
                },
                self._orders.once(key),
            )

        found = self._orders.earlier(
            ordered_at, lambda: self._client.accounts.list(self._orders.since(ordered_at)), key
        )
        return str((found or required(create)).id)

    @override
    def onboarding_url(self, payout_account: str) -> str:
        """An account link."""
        back = self._settings.return_url
        link = required(
            lambda: self._client.account_links.create(
                {
                    "account": payout_account,
                    "type": "account_onboarding",
                    "refresh_url": back,
                    "return_url": back,
                }
            )
        )
        return str(link.url)

    @override
    def transfer(self, order: TransferOrder) -> Outcome:
        """A transfer to a connected account."""
        group = f"{self._name}-{order.key}"
        params: Any = {
            "amount": order.cents,
            "currency": reading.CURRENCY,
            "destination": order.payout_account,
            "transfer_group": group,
            "metadata": self._orders.metadata(order.key),
        }
        transfers = self._client.transfers
        try:
            found = self._orders.made(
                order,
                lambda: transfers.list({"transfer_group": group, "limit": PAGE}),
                lambda: transfers.create(params, self._orders.once(f"transfer/{order.key}")),
            )
        except Refused as refused:
            return later(refused)
        return Settled(found.id)

    @override
    def pay_bank(self, order: BankOrder) -> Outcome:
        """A payout of a connected account."""
        owner: Any = {"stripe_account": order.payout_account}
        params: Any = {
            "amount": order.cents,
            "currency": reading.CURRENCY,
            "metadata": self._orders.metadata(order.key),
        }
        payouts, once = self._client.payouts, self._orders.once(f"bank/{order.key}", **owner)
        try:
            found = self._orders.made(
                order,
                lambda: payouts.list(self._orders.since(order.ordered_at), owner),
                lambda: payouts.create(params, once),
                lambda name: payouts.retrieve(name, None, owner),
            )
        except Refused as refused:
            return later(refused)
        return reading.sent(found)

    @override
    def reverse(self, order: ReversalOrder) -> Outcome:
        """A reversal of a transfer."""
        params: Any = {"amount": order.cents, "metadata": self._orders.metadata(order.key)}
        reversals, once = self._client.transfers.reversals, f"reversal/{order.key}"
        try:
            found = self._orders.made(
                order,
                lambda: reversals.list(order.transfer, {"limit": PAGE}),
                lambda: reversals.create(order.transfer, params, self._orders.once(once)),
            )
        except Refused as refused:
            return later(refused)
        return Settled(found.id)

    # --- what is there ---------------------------------------------------------------------------

    @override
    def look(self, subject: Subject) -> Seen | None:
        """An object as it is now."""
        client, name = self._client, subject.object
        match subject.kind:
            case "payment":
                found = retrieved(lambda: client.payment_intents.retrieve(name))
                return None if found is None else reading.payment(found, self._name)
            case "checkout":
                wanted: Any = {"expand": ["payment_intent", "setup_intent"]}
                found = retrieved(lambda: client.checkout.sessions.retrieve(name, wanted))
                return None if found is None else reading.checkout(found, self._name)
            case "card":
                found = retrieved(lambda: client.payment_methods.retrieve(name))
                return None if found is None else reading.card(found)
            case "refund":
                wanted = {"expand": ["payment_intent"]}
                found = retrieved(lambda: client.refunds.retrieve(name, wanted))
                return None if found is None else reading.refund(found, self._name)
            case "chargeback":
                wanted = {"expand": ["payment_intent"]}
                found = retrieved(lambda: client.disputes.retrieve(name, wanted))
                return None if found is None else reading.chargeback(found, self._name)
            case "payout_account":
                found = retrieved(lambda: client.accounts.retrieve(name))
                return None if found is None else reading.payout_account(found, self._name)
            case "bank_payout":
                owner: Any = {"stripe_account": subject.owner}
                found = retrieved(lambda: client.payouts.retrieve(name, None, owner))
                return None if found is None else reading.bank_payout(found, self._name)
            case _:
                return None

    @override
    def read_event(self, body: bytes, signature_header: str, now: int) -> Event:
        """A signed event; one of the other mode is about nothing of ours."""
        signature.check(body, signature_header, self._settings.webhook_secrets, now)
        try:
            event = msgspec.json.decode(body)
            kind, name, created = event["type"], event["id"], event["created"]
            is_live, found = event["livemode"], event["data"]["object"]
            owner = event.get("account") or ""
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            raise RejectedError("undecodable", "this is no event of Stripe", status=400) from None
        subject = None
        if is_live == self._settings.is_live and isinstance(found, dict):
            subject = reading.subject_of(str(kind), found, str(owner))
        return Event(str(name), str(kind), subject, int(created))

    @override
    def events(self, since: int) -> Iterator[Event]:
        """The events of the last 30 days; Stripe keeps no older ones."""
        for one in listed(
            lambda: self._client.events.list({"created": {"gte": since}, "limit": PAGE})
        ):
            found = one.data.object
            raw = found.to_dict() if isinstance(found, stripe.StripeObject) else found
            owner = getattr(one, "account", None) or ""
            subject = reading.subject_of(one.type, raw, owner)
            yield Event(one.id, one.type, subject, one.created)

    @override
    def entries(self, since: int) -> Iterator[Entry]:
        """Balance transactions with what caused them."""
        for one in listed(
            lambda: self._client.balance_transactions.list(
                {"created": {"gte": since}, "limit": PAGE, "expand": ["data.source"]}
            )
        ):
            yield reading.entry(one, self._name)

    @override
    def balance(self) -> int:
        """Available and pending, in our currency."""
        found = required(self._client.balance.retrieve)
        return sum(
            int(part.amount)
            for parts in (found.available, found.pending)
            for part in parts
            if part.currency == reading.CURRENCY
        )
