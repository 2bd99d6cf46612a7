"""A payment processor in memory: it does at once, and once for ever under one key, what is asked.

It keeps what a processor keeps: payments, pages, refunds, chargebacks, hosts' accounts, transfers,
and a line for every cent that came or went. The tests of the port hold it to what the real one
does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from typing_extensions import override

from ledger.errors import AuthError, RejectedError, UnavailableError
from ledger.services.payments.gateway import (
    BankOrder,
    BankPayoutSeen,
    CardSeen,
    ChargebackSeen,
    CheckoutSeen,
    Declined,
    Entry,
    Event,
    Opened,
    Order,
    Outcome,
    Page,
    PaymentGateway,
    PaymentSeen,
    PayoutAccountSeen,
    Pending,
    RefundOrder,
    RefundSeen,
    ReversalOrder,
    Seen,
    Settled,
    Standing,
    Subject,
    TransferOrder,
)

SIGNATURE: Final = "memory"
"""What signs a message here."""
_DISPUTE_FEE: Final = 1_500
_ANSWERS: Final[dict[str | None, Outcome]] = {
    "declined": Declined("card_declined"),
    "pending": Pending(),
}


@dataclass
class _Payment:
    name: str
    reference: str | None
    cents: int


@dataclass
class _Session:
    name: str
    page: Page
    status: str = "open"
    card: str | None = None
    payment: str | None = None


@dataclass
class _Refund:
    name: str
    reference: str | None
    payment: str
    cents: int
    status: Standing = "settled"


@dataclass
class _Chargeback:
    name: str
    payment: str
    claimed: int
    withdrawn: int
    outcome: Any = "open"


@dataclass
class _Account:
    name: str
    account_id: int
    is_enabled: bool = False
    cents: int = 0


@dataclass
class _Transfer:
    name: str
    reference: str
    account: str
    cents: int
    reversal: str | None = None


@dataclass
class _BankPayout:
    name: str
    reference: str
    account: str
    cents: int
    status: Standing = "settled"


@dataclass
class _Books:
    """Objects by name."""

    payments: dict[str, _Payment] = field(default_factory=dict)
    sessions: dict[str, _Session] = field(default_factory=dict)
    cards: dict[str, bool] = field(default_factory=dict)
    refunds: dict[str, _Refund] = field(default_factory=dict)
    chargebacks: dict[str, _Chargeback] = field(default_factory=dict)
    accounts: dict[str, _Account] = field(default_factory=dict)
    transfers: dict[str, _Transfer] = field(default_factory=dict)
    bank_payouts: dict[str, _BankPayout] = field(default_factory=dict)


class MemoryGateway(PaymentGateway):
    """Settles every order unless told otherwise, and keeps what it was asked.

    `answers` maps accounts to ``declined``, ``pending`` or ``lost``: the card is charged, and
    nobody hears of it. `charged` holds the orders that moved money, by key. Hosts can be paid as
    soon as they have an account, and banks pay at once, unless `banks_pay` is False.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        """Begin without orders; *clock* dates what happens."""
        self._clock = clock
        self._heard = 0
        self.answers: dict[int, str] = {}
        self.charged: dict[str, Order] = {}
        self.asked: list[Order] = []
        self.refund_answer: Declined | None = None
        self.transfer_answer: Declined | None = None
        self.bad_cards: set[str] = set()
        self.banks_pay = True
        self.lines: list[Entry] = []
        self._declined: set[str] = set()
        self._books = _Books()
        self._done: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._told: list[Event] = []

    # --- money in --------------------------------------------------------------------------------

    @override
    def register(self, account_id: int) -> str:
        """A name that follows from the account."""
        return f"payer-{account_id}"

    @override
    def charge(self, order: Order) -> Outcome:
        """Charge an order that was not charged or declined before."""
        self.asked.append(order)
        known = self.outcome(order)
        if known is not None:
            return known
        answer = self.answers.get(order.account_id)
        if order.reference in self.bad_cards:
            answer = "declined"
        if answer == "declined":
            self._declined.add(order.key)
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        self.charged[order.key] = order
        name = f"payment-{len(self.charged)}"
        self._paid(name, order.key, order.cents)
        if answer == "lost":
            raise UnavailableError("gateway_unavailable", "the payment processor did not answer")
        return Settled(name)

    @override
    def outcome(self, order: Order) -> Outcome | None:
        """What became of an order."""
        if order.key in self.charged:
            return Settled(f"payment-{list(self.charged).index(order.key) + 1}")
        return _ANSWERS["declined"] if order.key in self._declined else None

    @override
    def open_payment(self, page: Page) -> Opened:
        """A page that waits until `pay` or `expire`."""
        return self._page(page)

    @override
    def open_setup(self, page: Page) -> Opened:
        """A page that waits until `save_card` or `expire`."""
        return self._page(page)

    def _page(self, page: Page) -> Opened:
        name = f"page-{page.key}"
        session = self._books.sessions.setdefault(name, _Session(name, page))
        url = f"https://pay.invalid/{name}" if session.status == "open" else None
        return Opened(name, url)

    @override
    def forget_card(self, card: str) -> None:
        """It is no longer attached."""
        self._books.cards[card] = False

    @override
    def refund(self, order: RefundOrder) -> Outcome:
        """Send money back once."""
        if order.key in self._done:
            return Settled(self._done[order.key])
        if self.refund_answer is not None:
            return self.refund_answer
        return Settled(self._refund(order.payment, order.cents, order.key))

    # --- money out -------------------------------------------------------------------------------

    @override
    def open_payout_account(self, account_id: int, country: str, ordered_at: int) -> str:
        """An account that is asked nothing."""
        name = f"host-{account_id}"
        self._books.accounts.setdefault(name, _Account(name, account_id))
        return name

    @override
    def onboarding_url(self, payout_account: str) -> str:
        """Where `enable` would be pressed."""
        return f"https://pay.invalid/onboarding/{payout_account}"

    @override
    def transfer(self, order: TransferOrder) -> Outcome:
        """Move money once."""
        key = f"{order.key}/transfer"
        if key in self._done:
            return Settled(self._done[key])
        if self.transfer_answer is not None:
            return self.transfer_answer
        name = self._named("transfer")
        self._done[key] = name
        self._books.transfers[name] = _Transfer(name, order.key, order.payout_account, order.cents)
        self._books.accounts[order.payout_account].cents += order.cents
        self._line("transfer", name, -order.cents, Subject("transfer", name), order.key)
        return Settled(name)

    @override
    def pay_bank(self, order: BankOrder) -> Outcome:
        """Send money to a bank, which takes it at once."""
        key = f"{order.key}/bank"
        if key not in self._done:
            name = self._named("bank")
            status: Standing = "settled" if self.banks_pay else "pending"
            self._done[key] = name
            self._books.bank_payouts[name] = _BankPayout(
                name, order.key, order.payout_account, order.cents, status
            )
            self._books.accounts[order.payout_account].cents -= order.cents
        payout = self._books.bank_payouts[self._done[key]]
        match payout.status:
            case "settled":
                return Settled(payout.name)
            case "pending":
                return Pending(payout.name)
            case "failed":
                return Declined("bank_refused")

    @override
    def reverse(self, order: ReversalOrder) -> Outcome:
        """Take a transfer back once."""
        transfer = self._books.transfers[order.transfer]
        if transfer.reversal is None:
            transfer.reversal = self._named("reversal")
            self._books.accounts[transfer.account].cents -= order.cents
            subject = Subject("transfer", transfer.name)
            self._line("transfer_refund", transfer.reversal, order.cents, subject, order.key)
        return Settled(transfer.reversal)

    # --- what is there ---------------------------------------------------------------------------

    @override
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

    @override
    def read_event(self, body: bytes, signature: str, now: int) -> Event:
        """A message is the JSON of an `Event`, signed by one word."""
        if signature != SIGNATURE:
            raise AuthError("auth_error", "the signature is not the processor's")
        try:
            return msgspec.json.decode(body, type=Event)
        except msgspec.DecodeError as error:
            raise RejectedError("undecodable", f"no event: {error}", status=400) from None

    @override
    def events(self, since: int) -> Iterator[Event]:
        """Everything that was told."""
        yield from [one for one in self._told if one.created_at >= since]

    @override
    def entries(self, since: int) -> Iterator[Entry]:
        """Every line."""
        yield from [one for one in self.lines if one.created_at >= since]

    @override
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
        self._books.chargebacks[name] = _Chargeback(name, payment, cents, cents)
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
        self._books.payments[name] = _Payment(name, reference, cents)
        fee = (cents * 29 + 500) // 1_000 + 30
        self._line("charge", name, cents, Subject("payment", name), reference, fee=fee)

    def _refund(self, payment: str, cents: int, key: str | None) -> str:
        name = f"re_{next(self._numbers)}"
        self._books.refunds[name] = _Refund(name, key, payment, cents)
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
