"""Credit notes (`CN-`): documents that correct one usage invoice each, which stays as it was.

A credit note moves no money itself: it names the reversals that did. Numbers are handed out as the
last step under the log's lock, so the series has no gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.charge import Metered
from ledger.domain.dispute import Authority
from ledger.domain.events import CreditNoteIssued, CreditNoteLine
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT, format_dollars, split
from ledger.domain.payment import is_processed
from ledger.errors import NotFoundError, RejectedError
from ledger.services import deposits, tax_invoices
from ledger.services.approvals import approval
from ledger.services.corrections import Charge, Done, Order, check_reason, load_charge, reverse
from ledger.services.ledger import Unit
from ledger.services.payments import returns
from ledger.store.database import Connection

SERIES: Final = "CN"


def note_reversals(unit: Unit, reversals: Sequence[Done], order: Order) -> list[str]:
    """Issue a credit note for each invoice that charged any of what went back; their numbers.

    The invoice whose line holds the corrected second comes first; what was not invoiced yet needs
    no document, as the next invoice shows the reversal among its movements.
    """
    lines: dict[str, list[CreditNoteLine]] = {}
    for done in reversals:
        left = done.amount
        for document, number, amount in _invoiced(unit.connection, done.charge, order.effective_at):
            part = min(left, amount - _on_line(lines, document, number))
            if part > 0:
                left -= part
                lines.setdefault(document, []).append(
                    CreditNoteLine(
                        document_line=number, correction_id=done.correction_id, amount=part
                    )
                )
    cause = reversals[-1].position if reversals else order.by.cause
    return [
        _issue(
            unit,
            reversals[0].charge.account_id,
            document,
            found,
            order,
            cause=cause,
        )
        for document, found in sorted(lines.items())
    ]


def credit_note(
    unit: Unit,
    account_id: int,
    document: str,
    amount: int,
    reason: str,
    by: Authority,
    *,
    voids: bool = False,
) -> str:
    """Give back *amount* of an invoice, over its lines in proportion; returns the note's number.

    Of a tax invoice the amount is gross, and goes back to the payer out of unspent credit.

    With *voids* the invoice ends: that takes its whole remainder, and a second person.

    Raises:
        NotFoundError: `no_such_invoice`.
        RejectedError: `over_credit`, `invalid_amount`, `invalid_args`, `second_approval_required`.
    """
    check_reason(reason)
    topped_up = tax_invoices.of_number(unit.connection, account_id, document)
    if topped_up is not None:
        return _refund(unit, account_id, topped_up, amount, reason, voids=voids, by=by)
    left = creditable(unit.connection, account_id, document)
    if amount < 1:
        raise RejectedError("invalid_amount", "a credit note is over at least one nano")
    charges = _lines(unit.connection, account_id, document)
    caps = [cap for _, _, cap, _ in charges]
    if amount > min(left, sum(caps)):
        least = format_dollars(min(left, sum(caps)))
        message = f"only {least} of {document} is left to credit"
        raise RejectedError("over_credit", message, left=least)
    if voids and amount < left:
        message = f"only a note over the whole remainder, {format_dollars(left)}, voids an invoice"
        raise RejectedError("invalid_args", message)
    approved_by = approval(unit, f"void {document}", by.actor, 0) if voids else None
    if voids and approved_by is None:
        message = f"voiding needs a second person: an approval of `void {document}`"
        raise RejectedError("second_approval_required", message)
    lines = []
    for (number, charge, _, used_from), part in zip(charges, split(amount, caps), strict=True):
        if part:
            order = Order(reason=reason, by=by, effective_at=used_from)
            now = load_charge(unit.connection, charge)
            done = reverse(unit, now, part, order)
            lines.append(
                CreditNoteLine(document_line=number, correction_id=done.correction_id, amount=part)
            )
            by = by._replace(cause=done.position)
    order = Order(reason=reason, by=by, effective_at=unit.now)
    return _issue(
        unit, account_id, document, lines, order, cause=by.cause, voids=voids, by=approved_by
    )


def _refund(
    unit: Unit,
    account_id: int,
    invoice: tax_invoices.TaxInvoice,
    amount: int,
    reason: str,
    *,
    voids: bool,
    by: Authority,
) -> str:
    """The credit note of a tax invoice: credit and its tax, back to the payer."""
    if amount < 1 or amount % NANOS_PER_CENT:
        raise RejectedError("invalid_amount", "a credit note of a tax invoice is in whole cents")
    if voids and amount < invoice.left:
        message = f"only a note over the whole remainder, {format_dollars(invoice.left)}, voids it"
        raise RejectedError("invalid_args", message)
    approved_by = approval(unit, f"void {invoice.number}", by.actor, 0) if voids else None
    if voids and approved_by is None:
        message = f"voiding needs a second person: an approval of `void {invoice.number}`"
        raise RejectedError("second_approval_required", message)
    cause = tax_invoices.Cause(reason, by.actor, approved_by, voids)
    number = f"{SERIES}-{unit.next_id('credit_note'):08d}"
    if is_processed(invoice.deposit_id):
        # The processor took it, so the processor gives it back.
        return returns.refund_invoice(unit, account_id, invoice, amount, number, cause)
    issued = deposits.refund(unit, account_id, invoice.deposit_id, amount, number, cause=cause)
    assert issued is not None
    return issued


def creditable(connection: Connection, account_id: int, document: str) -> int:
    """What no credit note took of an invoice yet; nanos.

    Raises:
        NotFoundError: `no_such_invoice`, also for somebody else's.
    """
    row = connection.execute(
        "SELECT i.total - coalesce((SELECT sum(c.total) FROM credit_notes c"
        " WHERE c.document = i.number), 0) FROM invoices i WHERE number = %s AND account_id = %s",
        [document, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_invoice", f"there is no invoice {document!r}")
    return int(row[0])


def _lines(
    connection: Connection, account_id: int, document: str
) -> list[tuple[int, str, int, int]]:
    """The lines of an invoice: number, charge, what can still go back of both, first second."""
    rows = connection.execute(
        "SELECT l.line, l.instance_id, l.meter, l.segment_from, l.used_from, l.amount"
        " - coalesce((SELECT sum(c.amount) FROM credit_note_lines c"
        "  WHERE c.document = l.number AND c.document_line = l.line), 0)"
        " FROM invoice_lines l JOIN invoices i USING (number)"
        " WHERE l.number = %s AND i.account_id = %s ORDER BY l.line",
        [document, account_id],
    ).fetchall()
    found = []
    taken: dict[str, int] = {}
    for line, instance_id, meter, since, used_from, left in rows:
        charge = _charge_of(connection, instance_id, meter, since)
        remaining = load_charge(connection, charge).charged.remaining - taken.get(charge, 0)
        cap = max(min(int(left), remaining), 0)
        taken[charge] = taken.get(charge, 0) + cap
        found.append((line, charge, cap, used_from))
    return found


def _charge_of(connection: Connection, instance_id: int, meter: str, since: int) -> str:
    """The charge of an invoice line: terms that were replaced at once charged nothing."""
    row = connection.execute(
        f"SELECT terms_no FROM rate_segments WHERE instance_id = %s AND since = %s"  # noqa: S608 - a meter of an invoice line
        f" AND {meter}_charge > 0 ORDER BY terms_no DESC LIMIT 1",
        [instance_id, since],
    ).fetchone()
    assert row is not None, (instance_id, meter, since)
    return f"instance-{instance_id}.{meter}.{row[0]}"


def _invoiced(
    connection: Connection, charge: Charge, effective_at: int
) -> list[tuple[str, int, int]]:
    """Lines that invoiced a charge: document, line, nanos that no credit note took yet."""
    if not isinstance(charge.name, Metered):
        return []
    rows = connection.execute(
        "SELECT l.number, l.line, l.amount - coalesce((SELECT sum(c.amount)"
        " FROM credit_note_lines c WHERE c.document = l.number AND c.document_line = l.line), 0)"
        " FROM invoice_lines l JOIN invoices i USING (number)"
        " WHERE i.account_id = %s AND l.instance_id = %s AND l.meter = %s AND l.segment_from = %s"
        " ORDER BY NOT (l.used_from <= %s AND l.used_until > %s), l.number, l.line",
        [
            charge.account_id,
            charge.instance_id,
            charge.meter,
            charge.segment_from,
            effective_at,
            effective_at,
        ],
    )
    return [(number, line, int(left)) for number, line, left in rows]


def _on_line(lines: dict[str, list[CreditNoteLine]], document: str, number: int) -> int:
    return sum(one.amount for one in lines.get(document, ()) if one.document_line == number)


def _issue(
    unit: Unit,
    account_id: int,
    document: str,
    lines: list[CreditNoteLine],
    order: Order,
    *,
    cause: int | None,
    voids: bool = False,
    by: str | None = None,
) -> str:
    number = f"{SERIES}-{unit.next_id('credit_note'):08d}"
    unit.append(
        account_stream(account_id),
        CreditNoteIssued(
            account_id=account_id,
            number=number,
            document=document,
            total=sum(line.amount for line in lines),
            lines=lines,
            reason=order.reason,
            voids=voids,
            approved_by=by,
            cause=cause,
            policy_version=order.by.policy_version,
            actor=order.by.actor,
            effective_at=order.effective_at,
            issued_at=unit.now,
        ),
    )
    return number
