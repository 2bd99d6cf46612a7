"""Payments, what goes back of them, payouts, the processor's entries: what those facts change.

A payment waits in `payment_clearing`, a payout in `payout_clearing`, until the processor's own
entry for it is booked; then both are empty again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    PAYMENT_CLEARING,
    RENTER_CREDIT,
    TAX_PAYABLE,
    credited,
    paid_to_host,
)
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.disputes import Leg, legs
from ledger.projections.facts.notices import told

PAYOUT_CLEARING: Final = "payout_clearing"
CHARGEBACK_DIFFERENCE: Final = "chargeback_difference"
PROCESSOR_BALANCE: Final = "processor_balance"
PROCESSOR_FEES: Final = "processor_fees"


def payment_changes(fact: e.PaymentFact, position: int) -> Iterator[Change]:
    """Payers, cards, and money in."""
    match fact:
        case e.PayerRegistered():
            yield Change(
                "INSERT INTO payers VALUES (%s, %s, %s)",
                (fact.account_id, fact.customer, fact.registered_at),
            )
        case e.CardSetupBegun():
            yield Change(
                "INSERT INTO card_setups VALUES (%s, %s, %s, NULL, 'begun', NULL, %s, NULL)",
                (fact.setup_id, fact.account_id, fact.terms, fact.begun_at),
            )
            yield counted("card_setup", int(fact.setup_id.rpartition("-")[2]))
        case e.CheckoutOpened():
            yield Change(
                "UPDATE payments SET status = 'open', session = %s"
                " WHERE payment_id = %s AND status = 'ordered'",
                (fact.session, fact.reference),
            )
            yield Change(
                "UPDATE card_setups SET status = 'open', session = %s"
                " WHERE setup_id = %s AND status = 'begun'",
                (fact.session, fact.reference),
            )
        case e.CardSetupEnded():
            yield _setup_closed(fact.setup_id, "ended", fact.reason, fact.ended_at)
        case e.CardSaved():
            yield _setup_closed(fact.setup_id, "saved", None, fact.saved_at)
            yield Change(
                "INSERT INTO cards VALUES (%s, %s, %s, 'saved', %s, NULL)",
                (fact.card, fact.account_id, fact.setup_id, fact.saved_at),
            )
        case e.CardRemoved():
            yield Change(
                "UPDATE cards SET status = 'removed', removed_at = %s WHERE card = %s",
                (fact.removed_at, fact.card),
            )
        case e.CardDetached():
            yield Change(
                "UPDATE cards SET status = 'detached', removed_at = coalesce(removed_at, %s)"
                " WHERE card = %s",
                (fact.detached_at, fact.card),
            )
        case _:
            yield from _payment(fact, position)


def _setup_closed(setup_id: str, status: str, reason: str | None, at: int) -> Change:
    return Change(
        "UPDATE card_setups SET status = %s, reason = %s, closed_at = %s WHERE setup_id = %s",
        (status, reason, at, setup_id),
    )


def _payment(
    fact: e.PaymentOrdered | e.PaymentSettled | e.PaymentFailed, position: int
) -> Iterator[Change]:
    match fact:
        case e.PaymentOrdered():
            yield payment_ordered(
                fact.payment_id,
                fact.account_id,
                (fact.method, fact.card, fact.credit, fact.tax),
                fact.ordered_at,
                position,
            )
            yield counted("payment", int(fact.payment_id.rpartition("-")[2]))
        case e.PaymentSettled():
            yield payment_settled(
                fact.payment_id, fact.payment, fact.credit, fact.tax, fact.settled_at
            )
            yield from tax_paid(fact.payment_id, fact.tax, fact.settled_at, position)
        case e.PaymentFailed():
            yield payment_failed(fact.payment_id, fact.reason, fact.failed_at)
            yield told(position, fact.account_id, "payment_failed", fact.payment_id, fact.failed_at)


def tax_paid(payment_id: str, tax: int, at: int, position: int) -> Iterator[Change]:
    """The tax that came in beside the credit."""
    yield from legs(
        position, "tax", payment_id, at, [((PAYMENT_CLEARING, None), (TAX_PAYABLE, None), tax)]
    )


def payment_ordered(
    payment_id: str,
    account_id: int,
    terms: tuple[str, str | None, int, int],
    at: int,
    position: int,
) -> Change:
    """A payment that may come in; *terms* are its method, card, net and tax."""
    return Change(
        "INSERT INTO payments (payment_id, account_id, method, card, credit, tax, status,"
        " ordered_at, position) VALUES (%s, %s, %s, %s, %s, %s, 'ordered', %s, %s)",
        (payment_id, account_id, *terms, at, position),
    )


def payment_settled(payment_id: str, payment: str, credit: int, tax: int, at: int) -> Change:
    """A payment that came in, for what came in."""
    return Change(
        "UPDATE payments SET status = 'settled', payment = %s, credit = %s, tax = %s,"
        " reason = NULL, closed_at = %s WHERE payment_id = %s",
        (payment, credit, tax, at, payment_id),
    )


def payment_failed(payment_id: str, reason: str, at: int) -> Change:
    """A payment that does not come in."""
    return Change(
        "UPDATE payments SET status = 'failed', reason = %s, closed_at = %s WHERE payment_id = %s",
        (reason, at, payment_id),
    )


# --- what goes back ------------------------------------------------------------------------------


def return_changes(fact: e.ReturnFact, position: int) -> Iterator[Change]:
    """Refunds and chargebacks."""
    match fact:
        case e.RefundBegun():
            yield Change(
                "INSERT INTO refunds VALUES"
                " (%s, %s, %s, %s, %s, %s, %s, 'begun', NULL, NULL, %s, NULL)",
                (
                    fact.refund_id,
                    fact.account_id,
                    fact.payment_id,
                    fact.origin,
                    fact.credit,
                    fact.tax,
                    fact.difference,
                    fact.begun_at,
                ),
            )
            yield from _taken(fact, fact.refund_id, "refund", 1, fact.begun_at, position)
        case e.RefundSettled():
            yield Change(
                "UPDATE refunds SET status = 'settled', refund = %s, closed_at = %s"
                " WHERE refund_id = %s",
                (fact.refund, fact.settled_at, fact.refund_id),
            )
        case e.RefundFailed():
            yield Change(
                "UPDATE refunds SET status = 'failed', reason = %s, closed_at = %s"
                " WHERE refund_id = %s",
                (fact.reason, fact.failed_at, fact.refund_id),
            )
            yield from _taken(fact, fact.refund_id, "refund_failed", -1, fact.failed_at, position)
        case e.ChargebackOpened():
            yield Change(
                "INSERT INTO chargebacks (chargeback_id, account_id, payment_id, claimed, reason,"
                " status, opened_at) VALUES (%s, %s, %s, %s, %s, 'open', %s)",
                (
                    fact.chargeback_id,
                    fact.account_id,
                    fact.payment_id,
                    fact.claimed,
                    fact.reason,
                    fact.opened_at,
                ),
            )
            yield told(position, fact.account_id, "chargeback", fact.payment_id, fact.opened_at)
        case e.ChargebackMoved():
            yield Change(
                "UPDATE chargebacks SET withdrawn = %s, credit = credit + %s, tax = tax + %s,"
                " difference = difference + %s WHERE chargeback_id = %s",
                (fact.withdrawn, fact.credit, fact.tax, fact.difference, fact.chargeback_id),
            )
            yield from _taken(fact, fact.chargeback_id, "chargeback", 1, fact.moved_at, position)
        case e.ChargebackClosed():
            yield Change(
                "UPDATE chargebacks SET status = %s, closed_at = %s WHERE chargeback_id = %s",
                (fact.outcome, fact.closed_at, fact.chargeback_id),
            )


_Taking = e.RefundBegun | e.RefundFailed | e.ChargebackMoved


def _taken(
    fact: _Taking, reference: str, kind: str, sign: int, at: int, position: int
) -> Iterator[Change]:
    """The parts of a payment that leave it, or come back where they are below 0."""
    credit, tax, difference = sign * fact.credit, sign * fact.tax, sign * fact.difference
    yield Change(
        "UPDATE payments SET returned_credit = returned_credit + %s,"
        " returned_tax = returned_tax + %s, difference = difference + %s WHERE payment_id = %s",
        (credit, tax, difference, fact.payment_id),
    )
    yield Change(
        "UPDATE deposits SET refunded = refunded + %s WHERE account_id = %s AND deposit_id = %s",
        (credit, fact.account_id, fact.payment_id),
    )
    yield from credited(fact.account_id, -credit)
    clearing = (PAYMENT_CLEARING, None)
    yield from legs(
        position,
        kind,
        reference,
        at,
        [
            _directed((RENTER_CREDIT, fact.account_id), clearing, credit),
            _directed((TAX_PAYABLE, None), clearing, tax),
            _directed((CHARGEBACK_DIFFERENCE, None), clearing, difference),
        ],
    )


def _directed(debit: tuple[str, int | None], credit: tuple[str, int | None], amount: int) -> Leg:
    """A leg whose amount is above 0; one below goes the other way."""
    return (debit, credit, amount) if amount >= 0 else (credit, debit, -amount)


# --- payouts -------------------------------------------------------------------------------------


def payout_changes(fact: e.PayoutFact, position: int) -> Iterator[Change]:
    """How hosts are paid."""
    match fact:
        case e.PayoutAccountOrdered():
            yield Change(
                "INSERT INTO payout_accounts VALUES (%s, %s, NULL, false, %s, NULL)",
                (fact.account_id, fact.country, fact.ordered_at),
            )
        case e.PayoutAccountOpened():
            yield Change(
                "UPDATE payout_accounts SET payout_account = %s WHERE account_id = %s",
                (fact.payout_account, fact.account_id),
            )
        case e.PayoutAccountChanged():
            yield Change(
                "UPDATE payout_accounts SET is_enabled = %s,"
                " enabled_at = CASE WHEN %s THEN %s::bigint END WHERE account_id = %s",
                (fact.is_enabled, fact.is_enabled, fact.changed_at, fact.account_id),
            )
        case e.PayoutRunHeld():
            yield Change("INSERT INTO payout_runs VALUES (%s, %s)", (fact.friday, fact.held_at))
        case e.PayoutScheduled():
            yield Change(
                "INSERT INTO payouts (payout_id, host_id, amount, status, due_at, scheduled_at)"
                " VALUES (%s, %s, %s, 'pending', %s, %s)",
                (fact.payout_id, fact.host_id, fact.amount, fact.due_at, fact.scheduled_at),
            )
            yield counted("payout", fact.payout_id)
        case _:
            yield from _payout(fact, position)


_Progress = (
    e.PayoutCancelled
    | e.PayoutBegun
    | e.PayoutTransferred
    | e.PayoutSent
    | e.PayoutPaid
    | e.PayoutReturning
    | e.PayoutFailed
)


def _payout(fact: _Progress, position: int) -> Iterator[Change]:
    host = (HOST_PAYABLE, fact.host_id)
    reference = f"payout-{fact.payout_id}"
    match fact:
        case e.PayoutCancelled():
            yield Change(
                "UPDATE payouts SET status = 'cancelled', reason = %s, closed_at = %s"
                " WHERE payout_id = %s",
                (fact.reason, fact.cancelled_at, fact.payout_id),
            )
        case e.PayoutBegun():
            yield Change(
                "UPDATE payouts SET status = 'begun', amount = %s, begun_at = %s"
                " WHERE payout_id = %s",
                (fact.amount, fact.begun_at, fact.payout_id),
            )
            yield paid_to_host(fact.host_id, -fact.amount)
            yield from legs(
                position,
                "payout",
                reference,
                fact.begun_at,
                [(host, (PAYOUT_CLEARING, None), fact.amount)],
            )
        case e.PayoutTransferred():
            yield Change(
                "UPDATE payouts SET status = 'transferred', transfer = %s WHERE payout_id = %s",
                (fact.transfer, fact.payout_id),
            )
        case e.PayoutSent():
            yield Change(
                "UPDATE payouts SET status = 'sent', bank_payout = %s WHERE payout_id = %s",
                (fact.bank_payout, fact.payout_id),
            )
        case e.PayoutPaid():
            yield Change(
                "UPDATE payouts SET status = 'paid', closed_at = %s WHERE payout_id = %s",
                (fact.paid_at, fact.payout_id),
            )
            yield told(position, fact.host_id, "payout_paid", reference, fact.paid_at)
        case e.PayoutReturning():
            yield Change(
                "UPDATE payouts SET status = 'returning', reason = %s, closed_at = NULL"
                " WHERE payout_id = %s",
                (fact.reason, fact.payout_id),
            )
        case e.PayoutFailed():
            yield Change(
                "UPDATE payouts SET status = 'failed', reason = %s, reversal = %s, closed_at = %s"
                " WHERE payout_id = %s",
                (fact.reason, fact.reversal, fact.failed_at, fact.payout_id),
            )
            yield told(position, fact.host_id, "payout_failed", reference, fact.failed_at)
            yield paid_to_host(fact.host_id, fact.amount)
            yield from legs(
                position,
                "payout_failed",
                reference,
                fact.failed_at,
                [((PAYOUT_CLEARING, None), host, fact.amount)],
            )


def entry_changes(fact: e.ProcessorEntryBooked, position: int) -> Iterator[Change]:
    """One line of the processor's account: what waited for it is settled."""
    yield Change(
        "INSERT INTO processor_entries VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.entry,
            fact.kind,
            fact.source,
            fact.amount,
            fact.fee,
            fact.clearing,
            fact.reference,
            fact.account_id,
            fact.created_at,
            fact.booked_at,
            position,
        ),
    )
    balance = (PROCESSOR_BALANCE, None)
    yield from legs(
        position,
        "processor_entry",
        fact.entry,
        fact.created_at,
        [
            _directed(balance, (fact.clearing, None), fact.amount),
            _directed((PROCESSOR_FEES, None), balance, fact.fee),
        ],
    )
