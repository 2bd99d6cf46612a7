"""Disputes, what they do to a host's money, and what witnesses say: what those facts change.

A hold moves the host's share between accounts; the renter's balance moves with a reversal only
(`corrections`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    moved,
    paid_to_host,
)
from ledger.projections.facts.change import Change, counted

DISPUTED_HOLD: Final = "disputed_hold"
HOST_RECEIVABLE: Final = "host_receivable"

_Side = tuple[str, int | None]
Leg = tuple[_Side, _Side, int]
"""Debit, credit, nanos."""


def dispute_changes(fact: e.DisputeFact, position: int) -> Iterator[Change]:
    """The life of a dispute."""
    match fact:
        case e.DisputeOpened():
            yield from _opened(fact, position)
        case e.DisputeAnswered(by="host"):
            yield Change(
                "UPDATE disputes SET host_due_at = NULL, answered_at = %s,"
                " status = CASE WHEN question_due_at IS NULL THEN 'answered' ELSE 'questioned' END,"
                " evidence = evidence || %s::text[] WHERE dispute_id = %s",
                (fact.answered_at, fact.evidence, fact.dispute_id),
            )
        case e.DisputeAnswered():
            yield Change(
                "UPDATE disputes SET question_due_at = NULL,"
                " status = CASE WHEN host_due_at IS NULL THEN 'answered' ELSE 'open' END,"
                " evidence = evidence || %s::text[] WHERE dispute_id = %s",
                (fact.evidence, fact.dispute_id),
            )
        case e.DisputeQuestioned():
            yield Change(
                "UPDATE disputes SET status = 'questioned', question_due_at = %s"
                " WHERE dispute_id = %s",
                (fact.answer_due_at, fact.dispute_id),
            )
        case e.DisputeResolved():
            yield Change(
                "UPDATE disputes SET status = %s, host_due_at = NULL, question_due_at = NULL,"
                " amount = %s, rule_id = %s, decided_by = %s, resolved_at = %s"
                " WHERE dispute_id = %s",
                (
                    fact.outcome,
                    fact.amount,
                    fact.rule_id,
                    fact.decided_by,
                    fact.resolved_at,
                    fact.dispute_id,
                ),
            )


def _opened(fact: e.DisputeOpened, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO disputes (dispute_id, account_id, host_id, instance_id, machine_id, filed_by,"
        " reason, status, claimed, seconds_from, seconds_until, evidence, statement, as_of,"
        " host_due_at, actor, policy_version, opened_at, position)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, 'open', %s, %s, %s, %s::text[], %s, %s, %s, %s, %s,"
        " %s, %s)",
        (
            fact.dispute_id,
            fact.account_id,
            fact.host_id,
            fact.instance_id,
            fact.machine_id,
            fact.by,
            fact.reason,
            fact.claimed,
            min(part.start for part in fact.seconds),
            max(part.until for part in fact.seconds),
            fact.evidence,
            fact.statement,
            fact.as_of,
            fact.answer_due_at,
            fact.actor,
            fact.policy_version,
            fact.opened_at,
            position,
        ),
    )
    yield counted("dispute", fact.dispute_id)
    for claim in fact.claims:
        yield Change(
            "INSERT INTO dispute_claims VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                fact.dispute_id,
                claim.charge,
                claim.meter,
                claim.quantity,
                claim.amount,
                claim.fee,
                claim.charged,
                claim.charged_fee,
            ),
        )
    for claim in fact.claims:
        for part in claim.seconds:
            yield Change(
                "INSERT INTO dispute_seconds VALUES (%s, %s, %s, %s)",
                (fact.dispute_id, claim.charge, part.start, part.until),
            )
    if fact.by == "platform":
        for part in fact.seconds:
            yield Change(
                "UPDATE witnesses SET dispute_id = %s WHERE instance_id = %s AND start >= %s"
                " AND until <= %s AND verdict = 'hold' AND dispute_id IS NULL",
                (fact.dispute_id, fact.instance_id, part.start, part.until),
            )


def earnings_changes(fact: e.EarningsFact, position: int) -> Iterator[Change]:
    """What a dispute sets aside of a host's earnings, gives back, or recovers."""
    match fact:
        case e.EarningsHeld():
            yield from _held(fact, position)
        case e.EarningsReleased():
            yield from _released(fact, position)
        case e.ReceivableRecovered():
            yield paid_to_host(fact.host_id, -fact.amount)
            yield owed_by_host(fact.host_id, -fact.amount)
            yield from legs(
                position,
                "clawback",
                f"host-{fact.host_id}",
                fact.recovered_at,
                [((HOST_PAYABLE, fact.host_id), (HOST_RECEIVABLE, fact.host_id), fact.amount)],
            )


def testimony_changes(fact: e.TestimonyFact, position: int) -> Iterator[Change]:
    """What witnesses and second people said."""
    match fact:
        case e.WitnessRecorded():
            yield Change(
                "INSERT INTO witnesses VALUES"
                " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL, %s, %s)",
                (
                    fact.instance_id,
                    fact.start,
                    fact.until,
                    fact.machine_id,
                    fact.account_id,
                    fact.renter,
                    fact.probe,
                    fact.probes_up,
                    fact.probes_down,
                    fact.verdict,
                    fact.recorded_at,
                    position,
                ),
            )
        case e.FilingRestricted():
            yield Change(
                "INSERT INTO filing_restrictions VALUES (%s, %s, %s, %s)",
                (fact.account_id, fact.rejected, fact.restricted_at, position),
            )
        case e.ApprovalGiven():
            yield Change(
                "INSERT INTO approvals VALUES (%s, %s, %s, %s)",
                (fact.subject, fact.actor, fact.given_at, position),
            )


def _held(fact: e.EarningsHeld, position: int) -> Iterator[Change]:
    host = fact.host_id
    yield Change(
        "UPDATE disputes SET held_payable = %s, held_receivable = %s WHERE dispute_id = %s",
        (fact.from_payable, fact.from_receivable, fact.dispute_id),
    )
    yield paid_to_host(host, -fact.from_payable)
    yield owed_by_host(host, fact.from_receivable)
    yield from legs(
        position,
        "dispute_hold",
        f"dispute-{fact.dispute_id}",
        fact.held_at,
        [
            ((HOST_PAYABLE, host), (DISPUTED_HOLD, host), fact.from_payable),
            ((HOST_RECEIVABLE, host), (DISPUTED_HOLD, host), fact.from_receivable),
        ],
    )


def _released(fact: e.EarningsReleased, position: int) -> Iterator[Change]:
    host = fact.host_id
    yield Change(
        "UPDATE disputes SET held_payable = 0, held_receivable = 0 WHERE dispute_id = %s",
        (fact.dispute_id,),
    )
    yield paid_to_host(host, fact.to_payable)
    yield owed_by_host(host, -fact.to_receivable)
    yield from legs(
        position,
        "dispute_release",
        f"dispute-{fact.dispute_id}",
        fact.released_at,
        [
            ((DISPUTED_HOLD, host), (HOST_PAYABLE, host), fact.to_payable),
            ((DISPUTED_HOLD, host), (HOST_RECEIVABLE, host), fact.to_receivable),
        ],
    )


def owed_by_host(host_id: int, amount: int) -> Change:
    """Nanos more that a host owes."""
    return Change(
        "INSERT INTO host_receivables AS stored (host_id, amount) VALUES (%s, %s)"
        " ON CONFLICT (host_id) DO UPDATE SET amount = stored.amount + EXCLUDED.amount",
        (host_id, amount),
    )


def legs(position: int, kind: str, reference: str, at: int, parts: list[Leg]) -> Iterator[Change]:
    """One balanced row for each leg that moves anything."""
    number = 0
    for debit, credit, amount in parts:
        if amount:
            number += 1
            yield moved(position, kind, reference, debit, credit, amount, at, leg=number)
