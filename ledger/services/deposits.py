"""Credit that is bought, and what of it goes back unspent to who paid.

Both have a document in the same transaction. What a card paid goes back by
`ledger.services.payments.returns`.
"""

from __future__ import annotations

from ledger.domain.events import CreditRefunded, DepositSettled
from ledger.domain.ids import account_stream
from ledger.domain.money import format_dollars
from ledger.domain.payment import PAYMENT_PREFIX, TOP_UP_PREFIX, is_processed
from ledger.domain.tax import Split
from ledger.errors import NotFoundError, RejectedError
from ledger.services import tax_invoices
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.services.movements import (
    check_amount,
    check_reference,
    require_own,
    require_same,
    was_made,
)
from ledger.store.codec import decode_fact


def deposit(
    unit: Unit,
    account_id: int,
    amount: int,
    deposit_id: str,
    *,
    source: str = "admin",
    tax: int | None = None,
) -> None:
    """Book a settled payment; the same id and amount again is the same payment.

    *amount* is what becomes credit; *tax* was paid beside it, by default what the account's tax
    profile says. Both are on the tax invoice.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another amount.
        RejectedError: `invalid_args` for an id that a card payment has, or may get;
            `invalid_amount` for a taxed amount that is not whole cents.
    """
    require_account(unit.connection, account_id)
    check_reference(deposit_id)
    check_amount(amount)
    if source == "admin" and is_processed(deposit_id):
        message = f"ids that begin with {PAYMENT_PREFIX} or {TOP_UP_PREFIX} are of card payments"
        raise RejectedError("invalid_args", message)
    row = unit.connection.execute(
        "SELECT amount FROM deposits WHERE account_id = %s AND deposit_id = %s",
        [account_id, deposit_id],
    ).fetchone()
    if row is not None:
        require_same(int(row[0]) == amount, "deposit", deposit_id)
        return
    split, profile = tax_invoices.tax_on(unit.connection, account_id, amount)
    if tax is not None:
        split = Split(amount, tax)
    unit.append(
        account_stream(account_id),
        DepositSettled(
            account_id=account_id,
            deposit_id=deposit_id,
            amount=amount,
            source=source,
            settled_at=unit.now,
        ),
    )
    tax_invoices.issue(unit, account_id, deposit_id, split, profile)


def refund(
    unit: Unit,
    account_id: int,
    deposit_id: str,
    amount: int,
    refund_id: str,
    *,
    cause: tax_invoices.Cause | None = None,
) -> str | None:
    """Give unspent credit of one deposit back to its payer; returns the number of the credit note.

    *amount* is gross: credit and the tax that was paid on it go back together.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another refund.
        NotFoundError: `no_such_deposit`.
        RejectedError: `over_credit` beyond what this deposit has left; `paid_by_card` where only
            the payment processor can give it back.
        DeclinedError: `insufficient_balance` beyond what the account has left.
    """
    check_reference(refund_id)
    check_amount(amount)
    documented = tax_invoices.refunded(unit.connection, account_id, refund_id)
    if documented is not None:
        require_same(documented == (deposit_id, amount), "refund", refund_id)
        return None
    if was_made(unit, account_id, "refund", refund_id, amount):
        require_same(_refunded(unit, account_id, refund_id) == deposit_id, "refund", refund_id)
        return None
    row = unit.connection.execute(
        "SELECT amount - refunded, source FROM deposits WHERE account_id = %s AND deposit_id = %s",
        [account_id, deposit_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_deposit", f"there is no deposit {deposit_id!r}")
    if row[1] != "admin":
        message = f"this deposit was paid by card: POST /v1/payments/{deposit_id}/refund"
        raise RejectedError("paid_by_card", message)
    invoice = tax_invoices.of_deposit(unit.connection, account_id, deposit_id)
    parts = Split(amount, 0) if invoice is None else tax_invoices.divide(invoice, amount)
    if parts.net > row[0]:
        message = f"only {format_dollars(int(row[0]))} of this deposit is left to refund"
        raise RejectedError("over_credit", message, left=format_dollars(int(row[0])))
    require_own(unit, account_id, parts.net)
    unit.append(
        account_stream(account_id),
        CreditRefunded(
            account_id=account_id,
            refund_id=refund_id,
            deposit_id=deposit_id,
            amount=parts.net,
            refunded_at=unit.now,
        ),
    )
    if invoice is None:
        return None
    return tax_invoices.credit(
        unit, account_id, invoice, parts, refund_id, cause or tax_invoices.Cause()
    )


def _refunded(unit: Unit, account_id: int, refund_id: str) -> str:
    """Of which deposit a refund was; only its fact says so."""
    row = unit.connection.execute(
        "SELECT e.topic, e.state FROM movements m JOIN events e USING (position)"
        " WHERE m.debit_account = %s AND m.kind = 'refund' AND m.reference = %s",
        [account_id, refund_id],
    ).fetchone()
    assert row is not None
    fact = decode_fact(row[0], row[1])
    assert isinstance(fact, CreditRefunded)
    return fact.deposit_id
