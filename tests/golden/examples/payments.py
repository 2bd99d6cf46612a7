"""One fact of every kind about payments and payouts."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

CENT: Final = 10_000_000

PAYMENTS: Final[tuple[e.AnyFact, ...]] = (
    e.PayerRegistered(account_id=7, customer="cus_Nffrft3n9Y", registered_at=T),
    e.CardSetupBegun(account_id=7, setup_id="setup-1", terms="card-terms-2026-03", begun_at=T),
    e.CheckoutOpened(account_id=7, reference="pay-3", session="cs_test_a11YYuf", opened_at=T + 1),
    e.CardSetupEnded(account_id=7, setup_id="setup-1", reason="expired", ended_at=T + 86_400),
    e.CardSaved(account_id=7, setup_id="setup-1", card="pm_1MqLiJ", saved_at=T + 60),
    e.CardRemoved(account_id=7, card="pm_1MqLiJ", removed_at=T + 600),
    e.CardDetached(account_id=7, card="pm_1MqLiJ", detached_at=T + 601),
    e.PaymentOrdered(
        account_id=7,
        payment_id="pay-3",
        method="checkout",
        card=None,
        credit=5_000 * CENT,
        tax=413 * CENT,
        ordered_at=T,
    ),
    e.PaymentSettled(
        account_id=7,
        payment_id="pay-3",
        payment="pi_3MtwBwLkdIwHu7ix",
        credit=5_000 * CENT,
        tax=413 * CENT,
        settled_at=T + 90,
    ),
    e.PaymentFailed(account_id=7, payment_id="pay-4", reason="expired", failed_at=T + 86_400),
    e.RefundBegun(
        account_id=7,
        refund_id="refund-1",
        payment_id="pay-3",
        origin="ledger",
        credit=1_000 * CENT,
        tax=83 * CENT,
        difference=0,
        begun_at=T + 200,
    ),
    e.RefundSettled(account_id=7, refund_id="refund-1", refund="re_1Nispe", settled_at=T + 201),
    e.RefundFailed(
        account_id=7,
        refund_id="refund-1",
        payment_id="pay-3",
        credit=1_000 * CENT,
        tax=83 * CENT,
        difference=0,
        reason="expired_or_canceled_card",
        failed_at=T + 300_000,
    ),
    e.ChargebackOpened(
        account_id=7,
        chargeback_id="du_1MtJUT",
        payment_id="pay-3",
        claimed=5_500 * CENT,
        reason="fraudulent",
        opened_at=T + 400_000,
    ),
    e.ChargebackMoved(
        account_id=7,
        chargeback_id="du_1MtJUT",
        payment_id="pay-3",
        withdrawn=5_500 * CENT,
        credit=5_000 * CENT,
        tax=413 * CENT,
        difference=87 * CENT,
        moved_at=T + 400_000,
    ),
    e.ChargebackClosed(
        account_id=7, chargeback_id="du_1MtJUT", outcome="lost", closed_at=T + 900_000
    ),
    e.PayoutAccountOrdered(account_id=8, country="US", ordered_at=T),
    e.PayoutAccountOpened(account_id=8, payout_account="acct_1Nv0FG", opened_at=T + 1),
    e.PayoutAccountChanged(account_id=8, is_enabled=True, changed_at=T + 3_600),
    e.PayoutRunHeld(friday=1_772_755_200, held_at=1_772_755_200),
    e.PayoutScheduled(
        payout_id=5,
        host_id=8,
        amount=2_550 * CENT,
        due_at=1_773_360_000,
        scheduled_at=1_772_755_200,
    ),
    e.PayoutCancelled(payout_id=4, host_id=8, reason="nothing_payable", cancelled_at=1_772_755_200),
    e.PayoutBegun(payout_id=5, host_id=8, amount=2_500 * CENT, begun_at=1_773_360_000),
    e.PayoutTransferred(payout_id=5, host_id=8, transfer="tr_1MiN3g", transferred_at=1_773_360_001),
    e.PayoutSent(payout_id=5, host_id=8, bank_payout="po_1OaFDb", sent_at=1_773_360_002),
    e.PayoutPaid(payout_id=5, host_id=8, paid_at=1_773_532_800),
    e.PayoutReturning(payout_id=5, host_id=8, reason="account_closed", returning_at=1_773_600_000),
    e.PayoutFailed(
        payout_id=5,
        host_id=8,
        amount=2_500 * CENT,
        reason="account_closed",
        reversal="trr_1Ix8f7",
        failed_at=1_773_600_001,
    ),
    e.ProcessorEntryBooked(
        entry="txn_1MiN3g",
        kind="charge",
        source="ch_3MmlLr",
        amount=5_413 * CENT,
        fee=187 * CENT,
        clearing="payment_clearing",
        reference="pay-3",
        account_id=7,
        created_at=T + 90,
        booked_at=T + 120,
    ),
)
"""Amounts are whole cents, as everything that crosses the processor's door."""
