"""Payments and payouts: what was asked of the payment processor, and what became of it.

Whatever moves money is an intent first (`…Ordered`, `…Begun`), in the log before the processor is
asked, and an outcome afterwards. What the processor did without being asked (a chargeback, a
refund made in its own pages) is a fact of its own. Names such as ``pi_…`` are the processor's;
nothing of a card, a bank account or a person is here. Amounts are nanos of whole cents.
"""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

PaymentMethod = Literal["checkout", "card"]
RefundOrigin = Literal["ledger", "processor"]
ChargebackOutcome = Literal["won", "lost", "withdrawn"]
EntryClearing = Literal[
    "payment_clearing", "payout_clearing", "bank", "processor_fees", "processor_suspense"
]


class PayerRegistered(Fact, tag="payer.registered.v1"):
    """The processor knows an account under the name *customer*."""

    account_id: int
    customer: str
    registered_at: int


class CardSetupBegun(Fact, tag="card_setup.begun.v1"):
    """A renter agreed to *terms* and is about to save a card at the processor.

    `terms` names the version of the text that was agreed to.
    """

    account_id: int
    setup_id: str
    terms: str
    begun_at: int


class CheckoutOpened(Fact, tag="checkout.opened.v1"):
    """The processor has a page for a payment or a card setup; *reference* says for which."""

    account_id: int
    reference: str
    session: str
    opened_at: int


class CardSetupEnded(Fact, tag="card_setup.ended.v1"):
    """No card was saved."""

    account_id: int
    setup_id: str
    reason: str
    ended_at: int


class CardSaved(Fact, tag="card.saved.v1"):
    """A card can be charged, under the consent that *setup_id* recorded."""

    account_id: int
    setup_id: str
    card: str
    saved_at: int


class CardRemoved(Fact, tag="card.removed.v1"):
    """No charge begins on this card any more; the processor is told to forget it."""

    account_id: int
    card: str
    removed_at: int


class CardDetached(Fact, tag="card.detached.v1"):
    """The processor forgot a card."""

    account_id: int
    card: str
    detached_at: int


class PaymentOrdered(Fact, tag="payment.ordered.v1"):
    """A renter is about to buy *credit*; the payer pays it and the *tax* on it."""

    account_id: int
    payment_id: str
    method: PaymentMethod
    card: str | None
    credit: int
    tax: int
    ordered_at: int


class PaymentSettled(Fact, tag="payment.settled.v1"):
    """The payer paid; the deposit is a fact of its own, in the same transaction.

    `payment` names it at the processor. The amounts are what came in.
    """

    account_id: int
    payment_id: str
    payment: str
    credit: int
    tax: int
    settled_at: int


class PaymentFailed(Fact, tag="payment.failed.v1"):
    """Nobody paid: it was declined, or its page expired."""

    account_id: int
    payment_id: str
    reason: str
    failed_at: int


class RefundBegun(Fact, tag="refund.begun.v1"):
    """What was paid is about to go back; the credit is gone from here on.

    A refund of ours is within the payment and the credit. One that was made at the processor is
    booked whatever it is; `difference` is what was more than the payment.
    """

    account_id: int
    refund_id: str
    payment_id: str
    origin: RefundOrigin
    credit: int
    tax: int
    difference: int
    begun_at: int


class RefundSettled(Fact, tag="refund.settled.v1"):
    """The processor sent the money back; *refund* is its name for it."""

    account_id: int
    refund_id: str
    refund: str
    settled_at: int


class RefundFailed(Fact, tag="refund.failed.v1"):
    """The money did not go back, and is credit again."""

    account_id: int
    refund_id: str
    payment_id: str
    credit: int
    tax: int
    difference: int
    reason: str
    failed_at: int


class ChargebackOpened(Fact, tag="chargeback.opened.v1"):
    """A payer disputes a payment at the bank, for an amount that may exceed it."""

    account_id: int
    chargeback_id: str
    payment_id: str
    claimed: int
    reason: str
    opened_at: int


class ChargebackMoved(Fact, tag="chargeback.moved.v1"):
    """The bank took money, or gave it back: *withdrawn* is what it has now.

    The other amounts are the changes: above 0 they were taken.
    """

    account_id: int
    chargeback_id: str
    payment_id: str
    withdrawn: int
    credit: int
    tax: int
    difference: int
    moved_at: int


class ChargebackClosed(Fact, tag="chargeback.closed.v1"):
    """The bank decided."""

    account_id: int
    chargeback_id: str
    outcome: ChargebackOutcome
    closed_at: int


class PayoutAccountOrdered(Fact, tag="payout_account.ordered.v1"):
    """A host wants to be paid; the processor is about to be asked for an account for it."""

    account_id: int
    country: str
    ordered_at: int


class PayoutAccountOpened(Fact, tag="payout_account.opened.v1"):
    """The processor has an account for a host, named *payout_account*."""

    account_id: int
    payout_account: str
    opened_at: int


class PayoutAccountChanged(Fact, tag="payout_account.changed.v1"):
    """The processor says whether this host can be paid."""

    account_id: int
    is_enabled: bool
    changed_at: int


class PayoutRunHeld(Fact, tag="payout_run.held.v1"):
    """The payouts of this Friday (its first second) were made: due ones begun, new ones set."""

    friday: int
    held_at: int


class PayoutScheduled(Fact, tag="payout.scheduled.v1"):
    """A host is to be paid at *due_at*, at most *amount*."""

    payout_id: int
    host_id: int
    amount: int
    due_at: int
    scheduled_at: int


class PayoutCancelled(Fact, tag="payout.cancelled.v1"):
    """When it was due there was nothing to pay any more."""

    payout_id: int
    host_id: int
    reason: str
    cancelled_at: int


class PayoutBegun(Fact, tag="payout.begun.v1"):
    """The amount left what the host is owed; the processor is about to be asked for a transfer."""

    payout_id: int
    host_id: int
    amount: int
    begun_at: int


class PayoutTransferred(Fact, tag="payout.transferred.v1"):
    """The amount is on the host's account at the processor; its bank is about to be sent it."""

    payout_id: int
    host_id: int
    transfer: str
    transferred_at: int


class PayoutSent(Fact, tag="payout.sent.v1"):
    """The processor sent it to the host's bank."""

    payout_id: int
    host_id: int
    bank_payout: str
    sent_at: int


class PayoutPaid(Fact, tag="payout.paid.v1"):
    """The host's bank has it."""

    payout_id: int
    host_id: int
    paid_at: int


class PayoutReturning(Fact, tag="payout.returning.v1"):
    """The host's bank did not take it; the transfer is about to be reversed."""

    payout_id: int
    host_id: int
    reason: str
    returning_at: int


class PayoutFailed(Fact, tag="payout.failed.v1"):
    """The host was not paid, and is owed the amount again.

    `reversal` names the reversal of its transfer, where there was one.
    """

    payout_id: int
    host_id: int
    amount: int
    reason: str
    reversal: str | None
    failed_at: int


class ProcessorEntryBooked(Fact, tag="processor_entry.booked.v1"):
    """One line of the processor's own account of what it holds for the platform.

    `amount` came in, or went out where it is below 0; `fee` was kept by the processor. `clearing`
    is the account that waited for it and `reference` what it belongs to; what belongs to nothing
    waits in `processor_suspense` for a person.
    """

    entry: str
    kind: str
    source: str
    amount: int
    fee: int
    clearing: EntryClearing
    reference: str | None
    account_id: int | None
    created_at: int
    booked_at: int


PaymentFact = (
    PayerRegistered
    | CardSetupBegun
    | CheckoutOpened
    | CardSetupEnded
    | CardSaved
    | CardRemoved
    | CardDetached
    | PaymentOrdered
    | PaymentSettled
    | PaymentFailed
)
"""A payer, its cards, and what it pays."""
ReturnFact = (
    RefundBegun
    | RefundSettled
    | RefundFailed
    | ChargebackOpened
    | ChargebackMoved
    | ChargebackClosed
)
"""What goes back of payments."""
PayoutFact = (
    PayoutAccountOrdered
    | PayoutAccountOpened
    | PayoutAccountChanged
    | PayoutRunHeld
    | PayoutScheduled
    | PayoutCancelled
    | PayoutBegun
    | PayoutTransferred
    | PayoutSent
    | PayoutPaid
    | PayoutReturning
    | PayoutFailed
)
"""How hosts are paid."""
