"""Usage statements, reversals, replacements and credit notes: what those facts change.

Money moves in balanced legs; a credit note moves none, the reversals that it names did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    PLATFORM_FEE,
    RENTER_CREDIT,
    credited,
    paid_to_host,
    posted,
)
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.disputes import HOST_RECEIVABLE, legs, owed_by_host
from ledger.projections.facts.notices import told


def correction_changes(fact: e.CorrectionFact, position: int) -> Iterator[Change]:
    """What was charged, as it was stated and as it was corrected."""
    match fact:
        case e.UsageStatementIssued():
            yield from _statement(fact, position)
        case e.ChargeReversed():
            yield from _reversed(fact, position)
        case e.ChargePosted():
            yield from _replaced(fact, position)
        case e.CreditNoteIssued():
            yield from _credit_note(fact, position)


def _statement(fact: e.UsageStatementIssued, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO statements VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.account_id,
            fact.period_from,
            len(fact.lines),
            fact.total,
            fact.merkle_root,
            fact.cause,
            fact.policy_version,
            fact.issued_at,
            position,
        ),
    )
    for number, line in enumerate(fact.lines):
        yield Change(
            "INSERT INTO statement_lines VALUES"
            " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                fact.account_id,
                fact.period_from,
                number,
                line.charge,
                line.instance_id,
                line.meter,
                line.kind,
                line.segment_from,
                line.rate,
                line.quantity,
                line.amount,
                line.fee,
                line.late,
                line.used_day,
                line.used_from,
                line.used_until,
                fact.issued_at,
            ),
        )


def _reversed(fact: e.ChargeReversed, position: int) -> Iterator[Change]:
    host = fact.host_id
    renter = (RENTER_CREDIT, fact.account_id)
    yield Change(
        _CORRECTION,
        (
            fact.correction_id,
            "reversal",
            fact.reverses,
            fact.account_id,
            host,
            fact.instance_id,
            fact.meter,
            fact.quantity,
            fact.amount,
            fact.fee,
            fact.depth,
            fact.dispute_id,
            fact.reason,
            fact.period_from,
            fact.actor,
            fact.approved_by,
            fact.cause,
            fact.policy_version,
            fact.effective_at,
            fact.reversed_at,
            position,
        ),
    )
    yield counted("correction", fact.correction_id)
    yield from credited(fact.account_id, fact.amount)
    yield paid_to_host(host, -fact.from_payable)
    yield owed_by_host(host, fact.from_receivable)
    yield from legs(
        position,
        "reversal",
        f"correction-{fact.correction_id}",
        fact.reversed_at,
        [
            ((HOST_PAYABLE, host), renter, fact.from_payable),
            ((HOST_RECEIVABLE, host), renter, fact.from_receivable),
            ((PLATFORM_FEE, None), renter, fact.fee),
        ],
    )


def _replaced(fact: e.ChargePosted, position: int) -> Iterator[Change]:
    renter = (RENTER_CREDIT, fact.account_id)
    share = fact.amount - fact.fee
    yield Change(
        _CORRECTION,
        (
            fact.correction_id,
            "charge",
            fact.corrects,
            fact.account_id,
            fact.host_id,
            fact.instance_id,
            fact.meter,
            0,
            fact.amount,
            fact.fee,
            fact.depth,
            None,
            fact.reason,
            fact.period_from,
            fact.actor,
            fact.approved_by,
            fact.cause,
            fact.policy_version,
            fact.effective_at,
            fact.posted_at,
            position,
        ),
    )
    yield counted("correction", fact.correction_id)
    yield posted(fact.account_id, -fact.amount)
    yield paid_to_host(fact.host_id, share)
    yield from legs(
        position,
        "correction",
        f"correction-{fact.correction_id}",
        fact.posted_at,
        [
            (renter, (HOST_PAYABLE, fact.host_id), share),
            (renter, (PLATFORM_FEE, None), fact.fee),
        ],
    )


_CORRECTION: Final = (
    "INSERT INTO corrections VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
    " %s, %s, %s, %s, %s, %s)"
)


def _credit_note(fact: e.CreditNoteIssued, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO credit_notes VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.number,
            fact.account_id,
            fact.document,
            fact.total,
            fact.reason,
            fact.voids,
            fact.actor,
            fact.approved_by,
            fact.cause,
            fact.policy_version,
            fact.effective_at,
            fact.issued_at,
            position,
        ),
    )
    if fact.voids:
        yield Change("UPDATE invoices SET voided = true WHERE number = %s", (fact.document,))
    yield counted("credit_note", int(fact.number.rpartition("-")[2]))
    yield told(position, fact.account_id, "credit_note", fact.number, fact.issued_at)
    for number, line in enumerate(fact.lines, 1):
        yield Change(
            "INSERT INTO credit_note_lines VALUES (%s, %s, %s, %s, %s, %s)",
            (
                fact.number,
                number,
                fact.document,
                line.document_line,
                line.correction_id,
                line.amount,
            ),
        )
