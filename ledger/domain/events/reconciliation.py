"""Reconciliation: what was compared, and what did not agree.

A finding has a life: open, then explained (a person says why it is no fault) or corrected (the
books, or the other side, were put right). It is about one thing and is never opened twice for it;
what was corrected and is found again is opened anew under its number.
"""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

JobName = Literal["processor", "projections", "instances", "reports", "exclusivity", "money"]
FindingUnit = Literal["nanos", "seconds", "rows"]
FindingState = Literal["open", "explained", "corrected"]


class ReconciliationCompleted(Fact, tag="reconciliation.completed.v1"):
    """Both sides of *job* were compared for `[period_from, period_until)`.

    *found* of them disagree, *opened* of which were news. *note* says what the numbers cannot, such
    as that no payment processor is configured.
    """

    job: JobName
    period_from: int
    period_until: int
    found: int
    opened: int
    note: str
    completed_at: int


class FindingOpened(Fact, tag="finding.opened.v1"):
    """Two sides disagree about *about*: *expected* by one, *actual* by the other, in *unit*.

    *period_from* is the first second of the day that it is about, or 0 when it is about no day.
    """

    finding_id: int
    job: JobName
    kind: str
    about: str
    period_from: int
    expected: int
    actual: int
    unit: FindingUnit
    detail: str
    opened_at: int


class FindingReopened(Fact, tag="finding.reopened.v1"):
    """What had been corrected was found again, or what was explained, with other numbers."""

    finding_id: int
    expected: int
    actual: int
    reopened_at: int


class FindingExplained(Fact, tag="finding.explained.v1"):
    """Why the sides may disagree by these numbers."""

    finding_id: int
    reason: str
    actor: str
    explained_at: int


class FindingCorrected(Fact, tag="finding.corrected.v1"):
    """The sides agree again, or were made to: *correction* names the fact that did it, if any.

    `platform` is the actor when a later comparison no longer found it.
    """

    finding_id: int
    reason: str
    correction: str | None
    actor: str
    corrected_at: int


ReconciliationFact = (
    ReconciliationCompleted | FindingOpened | FindingReopened | FindingExplained | FindingCorrected
)
