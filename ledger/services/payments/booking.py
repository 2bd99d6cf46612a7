"""What the processor says of an object becomes facts: the state of the object decides.

Booking looks at what is booked already and appends the difference, so it can be done any number of
times, in any order, by several processes. What is not ours is left alone.
"""

from __future__ import annotations

from typing import assert_never

from ledger.domain.events import (
    CardDetached,
    CardSaved,
    CardSetupEnded,
    CheckoutOpened,
    Fact,
    PayerRegistered,
    PaymentFailed,
    PaymentSettled,
    PayoutAccountChanged,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT
from ledger.domain.payment import TOP_UP_PREFIX
from ledger.services import deposits, tax_invoices, top_up
from ledger.services.ledger import Unit
from ledger.services.payments import returns
from ledger.services.payments.gateway import (
    BankPayoutSeen,
    CardSeen,
    ChargebackSeen,
    CheckoutSeen,
    Declined,
    Outcome,
    PaymentSeen,
    PayoutAccountSeen,
    RefundSeen,
    Seen,
    Settled,
    outcome_of,
)
from ledger.services.payouts import paying


def book(unit: Unit, seen: Seen) -> bool:
    """Book an object as it is now; False where it belongs to nothing of ours."""
    match seen:
        case PaymentSeen():
            return book_payment(unit, seen)
        case CheckoutSeen():
            return _checkout(unit, seen)
        case CardSeen():
            return _card(unit, seen)
        case RefundSeen():
            return returns.book_refund(unit, seen)
        case ChargebackSeen():
            return returns.book_chargeback(unit, seen)
        case PayoutAccountSeen():
            return _payout_account(unit, seen)
        case BankPayoutSeen():
            return paying.book_bank_payout(unit, seen)
        case _:
            assert_never(seen)


def register_payer(unit: Unit, account_id: int, customer: str) -> None:
    """Note the processor's name of an account, the first one."""
    row = unit.connection.execute(
        "SELECT 1 FROM payers WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        fact = PayerRegistered(account_id=account_id, customer=customer, registered_at=unit.now)
        unit.append(account_stream(account_id), fact)


def note_page(unit: Unit, account_id: int, reference: str, session: str) -> None:
    """Note the page that a payment or a card setup waits on, the first one."""
    row = unit.connection.execute(
        "SELECT 1 FROM payments WHERE payment_id = %(id)s AND status = 'ordered' UNION ALL"
        " SELECT 1 FROM card_setups WHERE setup_id = %(id)s AND status = 'begun'",
        {"id": reference},
    ).fetchone()
    if row is not None:
        unit.append(
            account_stream(account_id),
            CheckoutOpened(
                account_id=account_id, reference=reference, session=session, opened_at=unit.now
            ),
        )


def finish_payment(unit: Unit, payment_id: str, outcome: Outcome, cents: int | None = None) -> bool:
    """Book what became of a payment; booking it again changes nothing.

    What came in is booked whatever was thought before: a payment taken for failed that did go
    through becomes credit. The tax profile at the second of settlement divides what came in.

    Args:
        unit: The transaction.
        payment_id: Which payment.
        outcome: What the processor says.
        cents: What came in; by default what was ordered.

    Returns:
        False where there is no such payment.
    """
    row = unit.connection.execute(
        "SELECT account_id, method, status, credit, tax FROM payments WHERE payment_id = %s",
        [payment_id],
    ).fetchone()
    if row is None:
        return False
    account_id, method, status, credit, tax = row[0], row[1], row[2], int(row[3]), int(row[4])
    if payment_id.startswith(TOP_UP_PREFIX):
        top_up.finish(unit, account_id, int(payment_id.rpartition("-")[2]), outcome, cents)
        return True
    stream = account_stream(account_id)
    match outcome:
        case Settled() if status != "settled":
            gross = credit + tax if cents is None else cents * NANOS_PER_CENT
            came = tax_invoices.split_gross(unit.connection, account_id, gross)
            deposits.deposit(unit, account_id, came.net, payment_id, source=method, tax=came.tax)
            settled = PaymentSettled(
                account_id=account_id,
                payment_id=payment_id,
                payment=outcome.payment,
                credit=came.net,
                tax=came.tax,
                settled_at=unit.now,
            )
            unit.append(stream, settled)
        case Declined() if status in {"ordered", "open"}:
            failed = PaymentFailed(
                account_id=account_id,
                payment_id=payment_id,
                reason=outcome.reason,
                failed_at=unit.now,
            )
            unit.append(stream, failed)
        case _:
            pass
    return True


def book_payment(unit: Unit, seen: PaymentSeen) -> bool:
    """Book a payment as it is now."""
    if seen.reference is None:
        return False
    outcome = outcome_of(seen.status, seen.payment, seen.reason or "payment_failed")
    return finish_payment(unit, seen.reference, outcome, seen.cents)


def _checkout(unit: Unit, seen: CheckoutSeen) -> bool:
    if seen.reference is None:
        return False
    if seen.payment is not None and seen.payment.status == "settled":
        return book_payment(unit, seen.payment)
    setup = unit.connection.execute(
        "SELECT account_id, status FROM card_setups WHERE setup_id = %s", [seen.reference]
    ).fetchone()
    if seen.is_open or (seen.payment is not None and seen.payment.status == "pending"):
        return True
    if setup is None:
        return finish_payment(unit, seen.reference, Declined("expired"))
    account_id, status = setup
    if status in {"saved", "ended"}:
        return True
    end: Fact = CardSetupEnded(
        account_id=account_id, setup_id=seen.reference, reason="expired", ended_at=unit.now
    )
    if seen.card is not None:
        end = CardSaved(
            account_id=account_id, setup_id=seen.reference, card=seen.card, saved_at=unit.now
        )
    unit.append(account_stream(account_id), end)
    return True


def _card(unit: Unit, seen: CardSeen) -> bool:
    row = unit.connection.execute(
        "SELECT account_id, status FROM cards WHERE card = %s", [seen.card]
    ).fetchone()
    if row is None:
        return False
    if not seen.is_attached and row[1] != "detached":
        fact = CardDetached(account_id=row[0], card=seen.card, detached_at=unit.now)
        unit.append(account_stream(row[0]), fact)
    return True


def _payout_account(unit: Unit, seen: PayoutAccountSeen) -> bool:
    row = unit.connection.execute(
        "SELECT account_id, is_enabled FROM payout_accounts WHERE payout_account = %s",
        [seen.payout_account],
    ).fetchone()
    if row is None:
        return False
    if row[1] != seen.is_enabled:
        fact = PayoutAccountChanged(
            account_id=row[0], is_enabled=seen.is_enabled, changed_at=unit.now
        )
        unit.append(account_stream(row[0]), fact)
    return True
