"""Closed periods, documents of the four series, and notices: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.domain.payment import is_processed
from ledger.projections.facts.accounts import BANK, TAX_PAYABLE, moved
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.notices import told


def document_changes(fact: e.DocumentFact, position: int) -> Iterator[Change]:
    """What was closed, and what was issued."""
    match fact:
        case e.PeriodClosed():
            yield Change(
                "UPDATE accounts SET closed_until = %s WHERE account_id = %s",
                (fact.period_until, fact.account_id),
            )
            yield Change(
                "INSERT INTO closed_periods (account_id, period_from, period_until, position)"
                " VALUES (%s, %s, %s, %s)",
                (fact.account_id, fact.period_from, fact.period_until, position),
            )
        case e.InvoiceIssued():
            yield from _usage_invoice(fact, position)
        case e.TaxInvoiceIssued():
            yield Change(
                "INSERT INTO tax_invoices (number, account_id, deposit_id, net, tax, country,"
                " rate_bp, treatment, issued_at, position)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.number,
                    fact.account_id,
                    fact.deposit_id,
                    fact.net,
                    fact.tax,
                    fact.country,
                    fact.rate_bp,
                    fact.treatment,
                    fact.issued_at,
                    position,
                ),
            )
            yield _numbered("tax_invoice", fact.number)
            yield told(position, fact.account_id, "receipt", fact.number, fact.issued_at)
            if fact.tax and not is_processed(fact.deposit_id):
                yield moved(
                    position,
                    "tax",
                    fact.number,
                    (BANK, None),
                    (TAX_PAYABLE, None),
                    fact.tax,
                    fact.issued_at,
                )
        case e.TaxInvoiceCredited():
            yield from _tax_credit(fact, position)
        case e.SelfBillingIssued():
            yield from _self_billing(fact, position)
        case e.NoticeIssued():
            yield told(position, fact.account_id, fact.code, fact.about, fact.issued_at)


def _numbered(kind: str, number: str) -> Change:
    return counted(kind, int(number.rpartition("-")[2]))


def _usage_invoice(fact: e.InvoiceIssued, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO invoices VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, false, %s, %s, %s)",
        (
            fact.number,
            fact.account_id,
            fact.period_from,
            fact.period_until,
            fact.opening,
            fact.movements,
            fact.total,
            fact.closing,
            fact.paid,
            fact.total - fact.paid,
            fact.promotional,
            fact.issued_at,
            position,
        ),
    )
    yield Change(
        "UPDATE closed_periods SET number = %s WHERE account_id = %s AND period_from = %s",
        (fact.number, fact.account_id, fact.period_from),
    )
    yield _numbered("invoice", fact.number)
    yield told(position, fact.account_id, "invoice", fact.number, fact.issued_at)
    for number, line in enumerate(fact.lines, 1):
        yield Change(
            "INSERT INTO invoice_lines VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                fact.number,
                number,
                line.instance_id,
                line.meter,
                line.segment_from,
                line.kind,
                line.rate,
                line.quantity,
                line.amount,
                line.late,
                line.period_from,
                line.used_from,
                line.used_until,
            ),
        )


def _tax_credit(fact: e.TaxInvoiceCredited, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO tax_credits VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.number,
            fact.account_id,
            fact.document,
            fact.refund_id,
            fact.net,
            fact.tax,
            fact.reason,
            fact.voids,
            fact.actor,
            fact.approved_by,
            fact.issued_at,
            position,
        ),
    )
    yield Change(
        "UPDATE tax_invoices SET credited_net = credited_net + %s,"
        " credited_tax = credited_tax + %s WHERE number = %s",
        (fact.net, fact.tax, fact.document),
    )
    yield _numbered("credit_note", fact.number)
    yield told(position, fact.account_id, "credit_note", fact.number, fact.issued_at)
    if fact.tax and not is_processed(fact.deposit_id):
        yield moved(
            position,
            "tax_refund",
            fact.number,
            (TAX_PAYABLE, None),
            (BANK, None),
            fact.tax,
            fact.issued_at,
        )


def _self_billing(fact: e.SelfBillingIssued, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO self_billings VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.number,
            fact.account_id,
            fact.period_from,
            fact.period_until,
            fact.adjustments,
            fact.total,
            fact.issued_at,
            position,
        ),
    )
    yield _numbered("self_billing", fact.number)
    yield told(position, fact.account_id, "self_billing", fact.number, fact.issued_at)
    for number, line in enumerate(fact.lines, 1):
        yield Change(
            "INSERT INTO self_billing_lines VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                fact.number,
                number,
                line.machine_id,
                line.meter,
                line.quantity,
                line.charged,
                line.fee,
                line.amount,
            ),
        )
