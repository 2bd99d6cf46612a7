"""Adjustments and bad debt: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    RENTER_CREDIT,
    credited,
    moved,
    paid_to_host,
)
from ledger.projections.facts.change import Change
from ledger.projections.facts.disputes import HOST_RECEIVABLE, owed_by_host

BAD_DEBT: Final = "bad_debt"


def adjustment_changes(fact: e.AdjustmentFact, position: int) -> Iterator[Change]:
    """Money that an admin moved; a balanced row each."""
    match fact:
        case e.AccountAdjusted():
            yield from _adjusted(fact, position)
        case e.DebtWrittenOff():
            yield from _written_off(fact, position)


def _adjusted(fact: e.AccountAdjusted, position: int) -> Iterator[Change]:
    yield _row(
        fact,
        fact.adjustment_id,
        "adjustment",
        fact.against,
        fact.amount,
        fact.adjusted_at,
        position,
    )
    is_credit = fact.book == "credit"
    if is_credit:
        yield from credited(fact.account_id, fact.amount)
    else:
        yield paid_to_host(fact.account_id, fact.amount)
    theirs = (RENTER_CREDIT if is_credit else HOST_PAYABLE, fact.account_id)
    ours = (fact.against, None)
    debit, credit = (ours, theirs) if fact.amount > 0 else (theirs, ours)
    reference = f"adjustment-{fact.adjustment_id}"
    yield moved(
        position, "adjustment", reference, debit, credit, abs(fact.amount), fact.adjusted_at
    )


def _written_off(fact: e.DebtWrittenOff, position: int) -> Iterator[Change]:
    yield _row(
        fact, fact.write_off_id, "write_off", BAD_DEBT, fact.amount, fact.written_off_at, position
    )
    if fact.book == "credit":
        yield from credited(fact.account_id, fact.amount)
        theirs = (RENTER_CREDIT, fact.account_id)
    else:
        yield owed_by_host(fact.account_id, -fact.amount)
        theirs = (HOST_RECEIVABLE, fact.account_id)
    reference = f"write-off-{fact.write_off_id}"
    yield moved(
        position, "write_off", reference, (BAD_DEBT, None), theirs, fact.amount, fact.written_off_at
    )


def _row(
    fact: e.AdjustmentFact,
    adjustment_id: str,
    kind: str,
    against: str,
    amount: int,
    at: int,
    position: int,
) -> Change:
    return Change(
        "INSERT INTO adjustments VALUES"
        " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            adjustment_id,
            kind,
            fact.account_id,
            fact.book,
            against,
            amount,
            fact.reason,
            fact.period_from,
            fact.approved_by,
            fact.cause,
            fact.policy_version,
            fact.actor,
            fact.effective_at,
            at,
            position,
        ),
    )
