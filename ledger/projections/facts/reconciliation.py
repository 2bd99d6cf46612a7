"""Comparisons and findings: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted


def reconciliation_changes(fact: e.ReconciliationFact, position: int) -> Iterator[Change]:
    """What was compared, and how each finding stands."""
    match fact:
        case e.ReconciliationCompleted():
            yield Change(
                "INSERT INTO reconciliations VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (job, period_from) DO UPDATE SET found = EXCLUDED.found,"
                " opened = EXCLUDED.opened, note = EXCLUDED.note,"
                " completed_at = EXCLUDED.completed_at, position = EXCLUDED.position",
                (
                    fact.job,
                    fact.period_from,
                    fact.period_until,
                    fact.found,
                    fact.opened,
                    fact.note,
                    fact.completed_at,
                    position,
                ),
            )
        case e.FindingOpened():
            yield Change(
                "INSERT INTO findings (finding_id, job, kind, about, period_from, expected, actual,"
                " unit, detail, state, opened_at, position)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'open', %s, %s)",
                (
                    fact.finding_id,
                    fact.job,
                    fact.kind,
                    fact.about,
                    fact.period_from,
                    fact.expected,
                    fact.actual,
                    fact.unit,
                    fact.detail,
                    fact.opened_at,
                    position,
                ),
            )
            yield counted("finding", fact.finding_id)
        case e.FindingReopened():
            yield Change(
                "UPDATE findings SET state = 'open', expected = %s, actual = %s, reason = NULL,"
                " correction = NULL, actor = NULL, closed_at = NULL WHERE finding_id = %s",
                (fact.expected, fact.actual, fact.finding_id),
            )
        case e.FindingExplained():
            yield _closed(
                fact.finding_id, "explained", fact.reason, None, fact.actor, fact.explained_at
            )
        case e.FindingCorrected():
            yield _closed(
                fact.finding_id,
                "corrected",
                fact.reason,
                fact.correction,
                fact.actor,
                fact.corrected_at,
            )


def _closed(
    finding_id: int, state: str, reason: str, correction: str | None, actor: str, at: int
) -> Change:
    return Change(
        "UPDATE findings SET state = %s, reason = %s, correction = %s, actor = %s, closed_at = %s"
        " WHERE finding_id = %s",
        (state, reason, correction, actor, at, finding_id),
    )
