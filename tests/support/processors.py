"""Payment processors under test, each with what payers, banks and hosts do there by themselves.

`StripeProcessor` is our gateway and Stripe's library over HTTP to the stand-in; `MemoryProcessor`
the twin in memory. Amounts are cents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from typing_extensions import override

from adapters.payments.settings import StripeSettings
from adapters.payments.stripe_gateway import StripeGateway
from adapters.simulation.gateway import SIGNATURE, MemoryGateway
from ledger.services.payments.gateway import PaymentGateway, Standing
from tests.support.stripe.messages import SECRET
from tests.support.stripe.server import API_KEY, StripeServer

RETURN_URL = "https://market.example/account"
LEDGER = "ledger-under-test"


class Processor(Protocol):
    """A payment processor, and the people behind it."""

    gateway: PaymentGateway

    def pay(self, session: str) -> None:
        """A payer pays on a page."""

    def save_card(self, session: str) -> None:
        """A payer saves a good card on a page."""

    def save_bad_card(self, session: str) -> None:
        """A payer saves a card that every later charge declines."""

    def expire(self, session: str) -> None:
        """Nobody comes to a page."""

    def refund_outside(self, payment: str, cents: int) -> str:
        """Somebody refunds a payment in the processor's own pages; returns the refund."""

    def fail_refund(self, refund: str) -> None:
        """The payer's bank sends a refund back."""

    def dispute(self, payment: str, cents: int) -> str:
        """A payer's bank takes money; returns the chargeback."""

    def decide(self, chargeback: str, outcome: str) -> None:
        """The bank decides."""

    def enable(self, account_id: int, payout_account: str, *, is_enabled: bool = True) -> None:
        """A host said who it is."""

    def settle_bank(self, bank_payout: str, status: Standing) -> None:
        """A host's bank says what it did."""


class MemoryProcessor(Processor):
    """The twin in memory."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin empty."""
        self.memory = MemoryGateway(clock)
        self.memory.banks_pay = False
        self.gateway = self.memory

    @override
    def pay(self, session: str) -> None:
        self.memory.pay(session)

    @override
    def save_card(self, session: str) -> None:
        self.memory.save_card(session)

    @override
    def save_bad_card(self, session: str) -> None:
        self.memory.bad_cards.add(self.memory.save_card(session))

    @override
    def expire(self, session: str) -> None:
        self.memory.expire(session)

    @override
    def refund_outside(self, payment: str, cents: int) -> str:
        return self.memory.refund_outside(payment, cents)

    @override
    def fail_refund(self, refund: str) -> None:
        self.memory.fail_refund(refund)

    @override
    def dispute(self, payment: str, cents: int) -> str:
        return self.memory.dispute(payment, cents)

    @override
    def decide(self, chargeback: str, outcome: str) -> None:
        self.memory.decide(chargeback, outcome)

    @override
    def enable(self, account_id: int, payout_account: str, *, is_enabled: bool = True) -> None:
        self.memory.enable(account_id, is_enabled=is_enabled)

    @override
    def settle_bank(self, bank_payout: str, status: Standing) -> None:
        self.memory.settle_bank(bank_payout, status)

    @property
    def signature(self) -> str:
        """What signs a message."""
        return SIGNATURE


class StripeProcessor(Processor):
    """Our gateway on the stand-in for Stripe."""

    def __init__(self, clock: Callable[[], int], ledger: str = LEDGER) -> None:
        """Start the stand-in; `close` stops it."""
        self.clock = clock
        self.server = StripeServer(clock)
        self.stripe = self.server.account
        self.gateway: StripeGateway = self.another(ledger)

    def another(self, ledger: str) -> StripeGateway:
        """A gateway of another process, or of another ledger, on the same account."""
        settings = StripeSettings(API_KEY, (SECRET,), RETURN_URL, self.server.url)
        return StripeGateway(settings, ledger, self.clock)

    def close(self) -> None:
        """Stop the stand-in."""
        self.server.close()

    @override
    def pay(self, session: str) -> None:
        self.stripe.complete(session)

    @override
    def save_card(self, session: str) -> None:
        self.stripe.complete(session)

    @override
    def save_bad_card(self, session: str) -> None:
        self.stripe.complete(session, "0002")

    @override
    def expire(self, session: str) -> None:
        self.stripe.expire(session)

    @override
    def refund_outside(self, payment: str, cents: int) -> str:
        made = self.stripe.create_refund({"payment_intent": payment, "amount": str(cents)})
        return str(made["id"])

    @override
    def fail_refund(self, refund: str) -> None:
        self.stripe.fail_refund(refund)

    @override
    def dispute(self, payment: str, cents: int) -> str:
        return str(self.stripe.open_dispute(payment, cents)["id"])

    @override
    def decide(self, chargeback: str, outcome: str) -> None:
        self.stripe.close_dispute(chargeback, outcome)

    @override
    def enable(self, account_id: int, payout_account: str, *, is_enabled: bool = True) -> None:
        self.stripe.onboard(payout_account, enabled=is_enabled)

    @override
    def settle_bank(self, bank_payout: str, status: Standing) -> None:
        self.stripe.bank_says(bank_payout, "paid" if status == "settled" else "failed")
