"""The port to the payment processor: what the ledger asks of it, and what it answers.

Whoever implements it promises two things. An order under the same `key` is carried out once for
ever, and the same order again is answered with what became of it, also after a crash and also a
week later. And every method raises `UnavailableError` when the processor does not answer, and
nothing else that is not named. Amounts are whole cents of US dollars; names of objects are the
processor's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

SubjectKind = Literal[
    "payment", "checkout", "card", "refund", "chargeback", "payout_account", "transfer",
    "bank_payout", "bank", "fee",
]  # fmt: skip
Standing = Literal["pending", "settled", "failed"]


class Subject(NamedTuple):
    """An object at the processor; `owner` is the host's account in which it lies, if it does."""

    kind: SubjectKind
    object: str
    owner: str = ""


# --- orders: what the processor is asked to do ---------------------------------------------------


class Order(NamedTuple):
    """One charge of a saved card, as the payment processor is asked for it.

    The same `key` again is the same charge: the processor answers with what became of it.
    `reference` names the card, or the agreement, `customer` whose it is, and `ordered_at` says how
    far back to look for an earlier try.
    """

    key: str
    account_id: int
    reference: str
    cents: int
    customer: str = ""
    ordered_at: int = 0


class Page(NamedTuple):
    """A page at the processor where a person pays *cents*, or saves a card (`cents` 0)."""

    key: str
    account_id: int
    customer: str
    cents: int
    ordered_at: int


class RefundOrder(NamedTuple):
    """Money back on one payment."""

    key: str
    payment: str
    cents: int
    ordered_at: int


class TransferOrder(NamedTuple):
    """Money from the platform to a host's account at the processor."""

    key: str
    payout_account: str
    cents: int
    ordered_at: int


class BankOrder(NamedTuple):
    """Money from a host's account at the processor to its bank."""

    key: str
    payout_account: str
    cents: int
    ordered_at: int


class ReversalOrder(NamedTuple):
    """A transfer taken back."""

    key: str
    transfer: str
    cents: int
    ordered_at: int


# --- outcomes ------------------------------------------------------------------------------------


class Settled(NamedTuple):
    """The money moved; `payment` names the movement at the processor."""

    payment: str


class Declined(NamedTuple):
    """It did not, and under this order it never will."""

    reason: str


class Pending(NamedTuple):
    """The processor does not know yet: it has to be asked again. `payment` may name it already."""

    payment: str = ""


Outcome = Settled | Declined | Pending


def outcome_of(status: Standing, name: str, reason: str) -> Outcome:
    """How an object called *name* stands, as an outcome; *reason* is why, where it failed."""
    match status:
        case "settled":
            return Settled(name)
        case "failed":
            return Declined(reason)
        case "pending":
            return Pending(name)


class Opened(NamedTuple):
    """A page that waits for a person; `url` is none once it is used or expired."""

    session: str
    url: str | None


# --- what the processor says of its objects ------------------------------------------------------


class PaymentSeen(NamedTuple):
    """A payment as it is now; `reference` is our id of it, none where it is not ours."""

    reference: str | None
    payment: str
    status: Standing
    cents: int
    reason: str | None = None


class CheckoutSeen(NamedTuple):
    """A page as it is now: `open`, or done (`payment` or `card` says how), or expired."""

    reference: str | None
    session: str
    is_open: bool
    payment: PaymentSeen | None
    card: str | None


class CardSeen(NamedTuple):
    """A saved card."""

    card: str
    is_attached: bool


class RefundSeen(NamedTuple):
    """A refund; `reference` is our id of it, none where it was made at the processor."""

    reference: str | None
    refund: str
    payment: str
    payment_reference: str | None
    status: Standing
    cents: int
    reason: str | None = None


class ChargebackSeen(NamedTuple):
    """A dispute of a payer's bank; `withdrawn_cents` is what the bank has now."""

    chargeback: str
    payment: str
    payment_reference: str | None
    claimed_cents: int
    withdrawn_cents: int
    reason: str
    outcome: Literal["open", "won", "lost", "withdrawn"]


class PayoutAccountSeen(NamedTuple):
    """A host's account at the processor."""

    account_id: int | None
    payout_account: str
    is_enabled: bool


class BankPayoutSeen(NamedTuple):
    """Money on its way from a host's account to its bank."""

    reference: str | None
    bank_payout: str
    status: Standing
    reason: str | None = None


Seen = (
    PaymentSeen
    | CheckoutSeen
    | CardSeen
    | RefundSeen
    | ChargebackSeen
    | PayoutAccountSeen
    | BankPayoutSeen
)


class Event(NamedTuple):
    """The processor says that something happened to an object; none where we do not care."""

    event_id: str
    type: str
    subject: Subject | None
    created_at: int


class Entry(NamedTuple):
    """A line of the processor's account of what it holds for the platform.

    `cents` came in, or went out where it is below 0; `fee_cents` was kept by the processor.
    `subject` is what it belongs to, and `reference` our id of that, where the processor knows.
    """

    entry: str
    kind: str
    source: str
    cents: int
    fee_cents: int
    created_at: int
    subject: Subject | None
    reference: str | None


class PaymentGateway(Protocol):
    """A payment processor."""

    # Money in.

    def register(self, account_id: int) -> str:
        """The processor's name for an account; made at the first call."""

    def charge(self, order: Order) -> Outcome:
        """Charge a saved card, once for ever for one `order.key`."""

    def outcome(self, order: Order) -> Outcome | None:
        """What became of a charge, without charging anything; none if it never arrived."""

    def open_payment(self, page: Page) -> Opened:
        """A page on which a person pays; one for ever for one `page.key`."""

    def open_setup(self, page: Page) -> Opened:
        """A page on which a person saves a card."""

    def forget_card(self, card: str) -> None:
        """No charge on this card is possible any more; again changes nothing."""

    def refund(self, order: RefundOrder) -> Outcome:
        """Send money of a payment back, once for ever for one `order.key`."""

    # Money out.

    def open_payout_account(self, account_id: int, country: str, ordered_at: int) -> str:
        """The name of a host's account; made at the first call, one for ever."""

    def onboarding_url(self, payout_account: str) -> str:
        """A page on which a host says who it is and where its bank is; valid for minutes."""

    def transfer(self, order: TransferOrder) -> Outcome:
        """Move money to a host's account, once for ever for one `order.key`."""

    def pay_bank(self, order: BankOrder) -> Outcome:
        """Send a host's money to its bank; `Pending` with a name while it is on its way."""

    def reverse(self, order: ReversalOrder) -> Outcome:
        """Take a transfer back, once for ever for one `order.key`."""

    # What is there.

    def look(self, subject: Subject) -> Seen | None:
        """An object as it is now; none if there is none, or none that we care about."""

    def read_event(self, body: bytes, signature: str, now: int) -> Event:
        """What a message says that claims to come from the processor.

        Raises:
            AuthError: `auth_error`: nobody signed it, or not now.
            RejectedError: `undecodable`: it is signed and no event.
        """

    def events(self, since: int) -> Iterator[Event]:
        """Everything that happened from second *since* on, in any order."""

    def entries(self, since: int) -> Iterator[Entry]:
        """Every line of the processor's account from second *since* on, in any order."""

    def balance(self) -> int:
        """Cents that the processor holds for the platform, available or not."""
