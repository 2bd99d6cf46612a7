"""What a payment processor has, and what people and banks do there without being asked by us.

It keeps payments, pages, refunds, chargebacks, hosts' accounts, transfers, and a line for every
cent that came or went.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ledger.services.payments.gateway import (
    BankPayoutSeen,
    CardSeen,
    ChargebackSeen,
    CheckoutSeen,
    Entry,
    Event,
    Page,
    PaymentSeen,
    PayoutAccountSeen,
    RefundSeen,
    Seen,
    Standing,
    Subject,
)

_DISPUTE_FEE: Final = 1_500


@dataclass
class Payment:
    """A card was charged."""

    name: str
    reference: str | None
    cents: int


@dataclass
class Session:
    """A page for a payer."""

    name: str
    page: Page
    status: str = "open"
    card: str | None = None
    payment: str | None = None


@dataclass
class Refund:
    """Money that goes back to a payer."""

    name: str
    reference: str | None
    payment: str
    cents: int
    status: Standing = "settled"


@dataclass
class Chargeback:
    """What a payer's bank took."""

    name: str
    payment: str
    claimed: int
    withdrawn: int
    outcome: Any = "open"


@dataclass
class Account:
    """A host's account."""

    name: str
    account_id: int
    is_enabled: bool = False
    cents: int = 0


@dataclass
class Transfer:
    """Money to a host's account."""

    name: str
    reference: str
    account: str
    cents: int
    reversal: str | None = None


@dataclass
class BankPayout:
    """Money from a host's account to its bank."""

    name: str
    reference: str
    account: str
    cents: int
    status: Standing = "settled"


@dataclass
class Books:
    """Objects by name."""

    payments: dict[str, Payment] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    cards: dict[str, bool] = field(default_factory=dict)
    refunds: dict[str, Refund] = field(default_factory=dict)
    chargebacks: dict[str, Chargeback] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    transfers: dict[str, Transfer] = field(default_factory=dict)
    bank_payouts: dict[str, BankPayout] = field(default_factory=dict)


class Processor:
    """Objects by name, lines, and what was told of them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin with nothing; *clock* dates what happens."""
        self._clock = clock
        self._heard = 0
        self.lines: list[Entry] = []
        self._books = Books()
        self._done: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._told: list[Event] = []

    # --- what is there ---------------------------------------------------------------------------

    def look(self, subject: Subject) -> Seen | None:
        """An object as it is now."""
        books, name = self._books, subject.object
        match subject.kind:
            case "payment" if name in books.payments:
                return self._payment(name)
            case "checkout" if name in books.sessions:
                session = books.sessions[name]
                payment = None if session.payment is None else self._payment(session.payment)
                is_open = session.status == "open"
                return CheckoutSeen(session.page.key, name, is_open, payment, session.card)
            case "card" if name in books.cards:
                return CardSeen(name, books.cards[name])
            case "refund" if name in books.refunds:
                refund = books.refunds[name]
                paid = books.payments[refund.payment].reference
                return RefundSeen(
                    refund.reference, name, refund.payment, paid, refund.status, refund.cents
                )
            case "chargeback" if name in books.chargebacks:
                one = books.chargebacks[name]
                paid = books.payments[one.payment].reference
                return ChargebackSeen(
                    name, one.payment, paid, one.claimed, one.withdrawn, "fraudulent", one.outcome
                )
            case "payout_account" if name in books.accounts:
                account = books.accounts[name]
                return PayoutAccountSeen(account.account_id, name, account.is_enabled)
            case "bank_payout" if name in books.bank_payouts:
                payout = books.bank_payouts[name]
                return BankPayoutSeen(payout.reference, name, payout.status)
            case _:
                return None

    def _payment(self, name: str) -> PaymentSeen:
        one = self._books.payments[name]
        return PaymentSeen(one.reference, name, "settled", one.cents)

    def events(self, since: int) -> Iterator[Event]:
        """Everything that was told."""
        yield from [one for one in self._told if one.created_at >= since]

    def entries(self, since: int) -> Iterator[Entry]:
        """Every line."""
        yield from [one for one in self.lines if one.created_at >= since]

    def balance(self) -> int:
        """Cents that are here."""
        return sum(one.cents - one.fee_cents for one in self.lines)

    def news(self) -> list[Event]:
        """What was told since the last time."""
        heard, self._heard = self._heard, len(self._told)
        return self._told[heard:]

    # --- what others do --------------------------------------------------------------------------

    def pay(self, session: str) -> None:
        """A person pays on a page."""
        page = self._books.sessions[session]
        assert page.status == "open", page
        page.status, page.payment = "complete", self._named("payment")
        self._paid(page.payment, page.page.key, page.page.cents)
        self._tell("checkout.completed", Subject("checkout", session))

    def save_card(self, session: str) -> str:
        """A person saves a card on a page."""
        page = self._books.sessions[session]
        page.status, page.card = "complete", self._named("card")
        self._books.cards[page.card] = True
        self._tell("checkout.completed", Subject("checkout", session))
        return page.card

    def expire(self, session: str) -> None:
        """Nobody came."""
        self._books.sessions[session].status = "expired"
        self._tell("checkout.expired", Subject("checkout", session))

    def refund_outside(self, payment: str, cents: int) -> str:
        """Somebody refunds a payment in the processor's own pages."""
        name = self._refund(payment, cents, None)
        self._tell("refund.created", Subject("refund", name))
        return name

    def fail_refund(self, refund: str) -> None:
        """The payer's bank sends a refund back."""
        one = self._books.refunds[refund]
        one.status = "failed"
        self._line("refund_failure", refund, one.cents, Subject("refund", refund), one.reference)
        self._tell("refund.failed", Subject("refund", refund))

    def dispute(self, payment: str, cents: int) -> str:
        """A payer's bank takes *cents* of a payment."""
        name = self._named("dispute")
        self._books.chargebacks[name] = Chargeback(name, payment, cents, cents)
        subject = Subject("chargeback", name)
        self._line("adjustment", name, -cents, subject, None, fee=_DISPUTE_FEE)
        self._tell("chargeback.created", subject)
        return name

    def decide(self, chargeback: str, outcome: str) -> None:
        """The bank decides: what it took comes back when it was `won`."""
        one = self._books.chargebacks[chargeback]
        one.outcome = outcome
        subject = Subject("chargeback", chargeback)
        if outcome == "won":
            self._line("adjustment", chargeback, one.withdrawn, subject, None)
            one.withdrawn = 0
        self._tell("chargeback.closed", subject)

    def enable(self, account_id: int, *, is_enabled: bool = True) -> None:
        """A host said who it is."""
        name = f"host-{account_id}"
        self._books.accounts[name].is_enabled = is_enabled
        self._tell("account.updated", Subject("payout_account", name))

    def settle_bank(self, bank_payout: str, status: Standing) -> None:
        """A host's bank says what it did."""
        one = self._books.bank_payouts[bank_payout]
        one.status = status
        if status == "failed":
            self._books.accounts[one.account].cents += one.cents
        self._tell("payout.updated", Subject("bank_payout", bank_payout, one.account))

    def stranger(self, cents: int) -> None:
        """A line that nothing of ours explains."""
        name = self._named("stranger")
        self._line("charge", name, cents, Subject("payment", name), None)

    # --- inside ----------------------------------------------------------------------------------

    def _named(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def _paid(self, name: str, reference: str, cents: int) -> None:
        self._books.payments[name] = Payment(name, reference, cents)
        fee = (cents * 29 + 500) // 1_000 + 30
        self._line("charge", name, cents, Subject("payment", name), reference, fee=fee)

    def _refund(self, payment: str, cents: int, key: str | None) -> str:
        name = f"re_{next(self._numbers)}"
        self._books.refunds[name] = Refund(name, key, payment, cents)
        if key is not None:
            self._done[key] = name
        self._line("refund", name, -cents, Subject("refund", name), key)
        return name

    def _line(
        self,
        kind: str,
        source: str,
        cents: int,
        subject: Subject,
        reference: str | None,
        *,
        fee: int = 0,
    ) -> None:
        name = f"line-{len(self.lines) + 1}"
        self.lines.append(Entry(name, kind, source, cents, fee, self._clock(), subject, reference))

    def _tell(self, kind: str, subject: Subject) -> None:
        name = f"event-{len(self._told) + 1}"
        self._told.append(Event(name, kind, subject, self._clock()))
