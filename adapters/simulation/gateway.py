"""A payment processor in memory: it does at once, and once for ever under one key, what is asked.

The tests of the port hold it to what the real one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from typing_extensions import override

from adapters.simulation.processor import Account, BankPayout, Processor, Session, Transfer
from ledger.errors import AuthError, RejectedError, UnavailableError
from ledger.services.payments.gateway import (
    BankOrder,
    Declined,
    Event,
    Opened,
    Order,
    Outcome,
    Page,
    PaymentGateway,
    Pending,
    RefundOrder,
    ReversalOrder,
    Settled,
    Standing,
    Subject,
    TransferOrder,
    outcome_of,
)

SIGNATURE: Final = "memory"
"""What signs a message here."""
_ANSWERS: Final[dict[str | None, Outcome]] = {
    "declined": Declined("card_declined"),
    "pending": Pending(),
}


class MemoryGateway(Processor, PaymentGateway):
    """Settles every order unless told otherwise, and keeps what it was asked.

    `answers` maps accounts to ``declined``, ``pending`` or ``lost``: the card is charged, and
    nobody hears of it. `charged` holds the orders that moved money, by key. Hosts can be paid as
    soon as they have an account, and banks pay at once, unless `banks_pay` is False.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        """Begin without orders; *clock* dates what happens."""
        super().__init__(clock)
        self.answers: dict[int, str] = {}
        self.charged: dict[str, Order] = {}
        self.asked: list[Order] = []
        self.refund_answer: Declined | None = None
        self.transfer_answer: Declined | None = None
        self.bad_cards: set[str] = set()
        self.banks_pay = True
        self._declined: set[str] = set()

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
        session = self._books.sessions.setdefault(name, Session(name, page))
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
        self._books.accounts.setdefault(name, Account(name, account_id))
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
        self._books.transfers[name] = Transfer(name, order.key, order.payout_account, order.cents)
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
            self._books.bank_payouts[name] = BankPayout(
                name, order.key, order.payout_account, order.cents, status
            )
            self._books.accounts[order.payout_account].cents -= order.cents
        payout = self._books.bank_payouts[self._done[key]]
        return outcome_of(payout.status, payout.name, "bank_refused")

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

    # --- messages --------------------------------------------------------------------------------

    @override
    def read_event(self, body: bytes, signature: str, now: int) -> Event:
        """A message is the JSON of an `Event`, signed by one word."""
        if signature != SIGNATURE:
            raise AuthError("auth_error", "the signature is not the processor's")
        try:
            return msgspec.json.decode(body, type=Event)
        except msgspec.DecodeError as error:
            raise RejectedError("undecodable", f"no event: {error}", status=400) from None
