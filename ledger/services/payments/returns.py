"""What goes back of payments: refunds that we make, refunds that others made, chargebacks.

A refund of ours takes the credit in the moment in which it is decided, so it cannot be spent
meanwhile, and gives it back if the processor refuses. What came from outside is booked whatever it
is, below zero too, and what exceeds its payment goes to an account of its own, for review.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import (
    ChargebackClosed,
    ChargebackMoved,
    ChargebackOpened,
    RefundBegun,
    RefundFailed,
    RefundOrigin,
    RefundSettled,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT, format_dollars
from ledger.domain.payment import NOTHING, Parts, require_cents, returned
from ledger.domain.tax import Split
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.movements import check_reference, require_own, require_same
from ledger.services.payments.gateway import (
    ChargebackSeen,
    Declined,
    Outcome,
    RefundOrder,
    RefundSeen,
    Settled,
    outcome_of,
)
from ledger.services.tax_invoices import Cause, TaxInvoice, divide, follow
from ledger.store.database import Connection

_RESERVED: Final = ("re_", "note-")
"""How ids of refunds begin that others chose: the processor, and credit notes of ours."""


class Paid(NamedTuple):
    """A payment and what went back of it so far."""

    payment_id: str
    account_id: int
    status: str
    credit: int
    tax: int
    before: Parts

    @property
    def left(self) -> int:
        """Gross nanos that can still go back."""
        return self.credit + self.tax - self.before.credit - self.before.tax

    def part(self, gross: int) -> Parts:
        """How *gross* more that goes back is divided."""
        return returned(self.credit, self.tax, self.before, gross)


def read_paid(connection: Connection, payment_id: str) -> Paid | None:
    """A payment; none if there is no such payment."""
    row = connection.execute(
        "SELECT payment_id, account_id, status, credit, tax, returned_credit, returned_tax,"
        " difference FROM payments WHERE payment_id = %s",
        [payment_id],
    ).fetchone()
    if row is None:
        return None
    before = Parts(*map(int, row[5:]))
    return Paid(row[0], row[1], row[2], int(row[3]), int(row[4]), before)


# --- refunds -------------------------------------------------------------------------------------


def refund(
    unit: Unit,
    account_id: int,
    payment_id: str,
    gross: int,
    refund_id: str,
    *,
    cause: Cause = Cause(),  # noqa: B008 - an immutable one
) -> list[str]:
    """Decide to send *gross* nanos of a payment back; the same id again is the same refund.

    Only the account's own credit goes back: what was given to it as a promotion stays. Returns the
    numbers of its credit notes, none where it was decided before.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another refund.
        NotFoundError: `no_such_payment`.
        RejectedError: `invalid_amount` unless it is whole cents; `over_credit` beyond what the
            payment has left.
        DeclinedError: `payment_not_settled`, `payment_disputed`, `insufficient_balance`.
    """
    require_cents(gross)
    check_reference(refund_id)
    if refund_id.startswith(_RESERVED):
        message = f"the id of a refund begins with none of {', '.join(_RESERVED)}"
        raise RejectedError("invalid_args", message)
    paid = read_paid(unit.connection, payment_id)
    if paid is None or paid.account_id != account_id:
        raise NotFoundError("no_such_payment", f"there is no payment {payment_id!r}")
    if _known(unit, paid, gross, refund_id):
        return []
    _require_returnable(unit, paid, gross)
    parts = paid.part(gross)
    require_own(unit, account_id, parts.credit)
    return _begin(unit, paid, refund_id, "ledger", parts, cause)


def refund_invoice(
    unit: Unit, account_id: int, invoice: TaxInvoice, gross: int, number: str, cause: Cause
) -> str:
    """Send *gross* nanos of one tax invoice of a payment back; returns its credit note, *number*.

    A payment may have several invoices, where a refund of it came back: this one alone is credited.

    Raises:
        RejectedError: `invalid_amount` unless it is whole cents; `over_credit` beyond what the
            invoice has left.
        DeclinedError: `payment_disputed`, `insufficient_balance`.
    """
    require_cents(gross)
    parts = Parts(*divide(invoice, gross), 0)
    paid = read_paid(unit.connection, invoice.deposit_id)
    assert paid is not None, invoice
    _require_returnable(unit, paid, gross)
    require_own(unit, account_id, parts.credit)
    (issued,) = _begin(unit, paid, f"note-{number}", "ledger", parts, cause, invoice)
    return issued


def _require_returnable(unit: Unit, paid: Paid, gross: int) -> None:
    payment_id = paid.payment_id
    if paid.status != "settled":
        raise DeclinedError("payment_not_settled", f"payment {payment_id!r} is {paid.status}")
    _require_undisputed(unit, payment_id)
    if gross > paid.left:
        left = format_dollars(paid.left)
        raise RejectedError("over_credit", f"only {left} of this payment is left", left=left)


def _known(unit: Unit, paid: Paid, gross: int, refund_id: str) -> bool:
    row = unit.connection.execute(
        "SELECT payment_id, credit + tax + difference FROM refunds WHERE refund_id = %s",
        [refund_id],
    ).fetchone()
    if row is None:
        return False
    require_same((row[0], int(row[1])) == (paid.payment_id, gross), "refund", refund_id)
    return True


def _require_undisputed(unit: Unit, payment_id: str) -> None:
    row = unit.connection.execute(
        "SELECT chargeback_id FROM chargebacks WHERE payment_id = %s AND status = 'open' LIMIT 1",
        [payment_id],
    ).fetchone()
    if row is not None:
        message = f"the payer's bank disputes this payment ({row[0]}): its decision comes first"
        raise DeclinedError("payment_disputed", message)


def _begin(
    unit: Unit,
    paid: Paid,
    refund_id: str,
    origin: RefundOrigin,
    parts: Parts,
    cause: Cause = Cause(),  # noqa: B008 - an immutable one
    invoice: TaxInvoice | None = None,
) -> list[str]:
    unit.append(
        account_stream(paid.account_id),
        RefundBegun(
            account_id=paid.account_id,
            refund_id=refund_id,
            payment_id=paid.payment_id,
            origin=origin,
            credit=parts.credit,
            tax=parts.tax,
            difference=parts.difference,
            begun_at=unit.now,
        ),
    )
    return _document(unit, paid.account_id, paid.payment_id, parts, refund_id, cause, invoice)


def _document(
    unit: Unit,
    account_id: int,
    payment_id: str,
    parts: Parts,
    reference: str,
    cause: Cause,
    invoice: TaxInvoice | None = None,
) -> list[str]:
    """The documents of what moved; what nobody bought, the difference, is on none."""
    split = Split(parts.credit, parts.tax)
    return follow(unit, account_id, payment_id, split, reference, cause, invoice)


def open_refunds(connection: Connection) -> list[RefundOrder]:
    """Every refund of ours whose end is not known, oldest first."""
    rows = connection.execute(
        "SELECT r.refund_id, p.payment, r.credit + r.tax, r.begun_at FROM refunds r"
        " JOIN payments p USING (payment_id) WHERE r.status = 'begun' AND r.origin = 'ledger'"
        " ORDER BY r.begun_at, r.refund_id"
    )
    return [RefundOrder(row[0], row[1], int(row[2]) // NANOS_PER_CENT, row[3]) for row in rows]


def finish_refund(unit: Unit, refund_id: str, outcome: Outcome) -> None:
    """Book what became of a refund; booking it again changes nothing.

    One that the payer's bank sent back after it had settled is credit again.
    """
    row = unit.connection.execute(
        "SELECT account_id, payment_id, status, credit, tax, difference FROM refunds"
        " WHERE refund_id = %s",
        [refund_id],
    ).fetchone()
    assert row is not None, refund_id
    account_id, payment_id, status = row[:3]
    match outcome:
        case Settled() if status == "begun":
            unit.append(
                account_stream(account_id),
                RefundSettled(
                    account_id=account_id,
                    refund_id=refund_id,
                    refund=outcome.payment,
                    settled_at=unit.now,
                ),
            )
        case Declined() if status in {"begun", "settled"}:
            unit.append(
                account_stream(account_id),
                RefundFailed(
                    account_id=account_id,
                    refund_id=refund_id,
                    payment_id=payment_id,
                    credit=int(row[3]),
                    tax=int(row[4]),
                    difference=int(row[5]),
                    reason=outcome.reason,
                    failed_at=unit.now,
                ),
            )
            again = NOTHING.minus(Parts(int(row[3]), int(row[4]), int(row[5])))
            _document(unit, account_id, payment_id, again, refund_id, Cause("refund_failed"))
        case _:
            return


def book_refund(unit: Unit, seen: RefundSeen) -> bool:
    """Book a refund as the processor has it; False where it belongs to no payment of ours."""
    outcome = outcome_of(seen.status, seen.refund, seen.reason or "refund_failed")
    row = unit.connection.execute(
        "SELECT refund_id FROM refunds WHERE refund_id = %s OR refund = %s OR refund_id = %s",
        [seen.reference, seen.refund, seen.refund],
    ).fetchone()
    if row is not None:
        finish_refund(unit, row[0], outcome)
        return True
    paid = None
    if seen.payment_reference is not None:
        paid = read_paid(unit.connection, seen.payment_reference)
    if paid is None or paid.status != "settled":
        return False
    if not isinstance(outcome, Declined):
        # Somebody made it in the processor's own pages: it happened, whatever our rules say.
        _begin(unit, paid, seen.refund, "processor", paid.part(seen.cents * NANOS_PER_CENT))
        finish_refund(unit, seen.refund, outcome)
    return True


# --- chargebacks ---------------------------------------------------------------------------------


def book_chargeback(unit: Unit, seen: ChargebackSeen) -> bool:
    """Book a dispute of a payer's bank as it stands; False where the payment is not ours.

    What moves is the difference between what the bank has now and what was booked, so neither the
    order nor the number of the messages about it matters.
    """
    paid = None
    if seen.payment_reference is not None:
        paid = read_paid(unit.connection, seen.payment_reference)
    if paid is None or paid.status != "settled":
        return False
    stream = account_stream(paid.account_id)
    row = unit.connection.execute(
        "SELECT withdrawn, credit, tax, difference, status FROM chargebacks"
        " WHERE chargeback_id = %s",
        [seen.chargeback],
    ).fetchone()
    if row is None:
        unit.append(
            stream,
            ChargebackOpened(
                account_id=paid.account_id,
                chargeback_id=seen.chargeback,
                payment_id=paid.payment_id,
                claimed=seen.claimed_cents * NANOS_PER_CENT,
                reason=seen.reason,
                opened_at=unit.now,
            ),
        )
        row = (0, 0, 0, 0, "open")
    change = seen.withdrawn_cents * NANOS_PER_CENT - int(row[0])
    if change:
        taken = Parts(*map(int, row[1:4]))
        parts = paid.part(change) if change > 0 else _given_back(taken, -change)
        unit.append(
            stream,
            ChargebackMoved(
                account_id=paid.account_id,
                chargeback_id=seen.chargeback,
                payment_id=paid.payment_id,
                withdrawn=seen.withdrawn_cents * NANOS_PER_CENT,
                credit=parts.credit,
                tax=parts.tax,
                difference=parts.difference,
                moved_at=unit.now,
            ),
        )
        _document(
            unit, paid.account_id, paid.payment_id, parts, seen.chargeback, Cause("chargeback")
        )
    if seen.outcome not in {"open", row[4]}:
        unit.append(
            stream,
            ChargebackClosed(
                account_id=paid.account_id,
                chargeback_id=seen.chargeback,
                outcome=seen.outcome,  # type: ignore[arg-type]  # `open` is excluded above
                closed_at=unit.now,
            ),
        )
    return True


def _given_back(taken: Parts, gross: int) -> Parts:
    """Parts below 0 for what the bank gave back of what it took: first what was nobody's."""
    difference = min(gross, taken.difference)
    own = returned(taken.credit, taken.tax, NOTHING, gross - difference)
    # More than it ever took is nobody's either.
    return Parts(-own.credit, -own.tax, -difference - own.difference)
