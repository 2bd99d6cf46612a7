"""The life of a finding: opened once per thing, explained or corrected, and opened again if so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.domain.dispute import PLATFORM
from ledger.domain.events import (
    Fact,
    FindingCorrected,
    FindingExplained,
    FindingOpened,
    FindingReopened,
    JobName,
)
from ledger.errors import NotFoundError, RejectedError
from ledger.services.corrections import check_reason
from ledger.services.ledger import Unit
from ledger.services.reconciliation.difference import Difference

STREAM: Final = "reconciliation"
_NO_LONGER: Final = "a later comparison no longer found it"


class Recorded(NamedTuple):
    """What became of the differences of one comparison."""

    opened: int
    open: int
    """Those of them that nobody has explained."""


def record(
    unit: Unit, job: JobName, period_from: int, differences: Sequence[Difference]
) -> Recorded:
    """Open what is news, and close what this comparison no longer finds.

    The same thing is one finding for ever: while it is open nothing is written, and while it is
    explained nothing either, unless the numbers are no longer those that were explained.
    """
    known = {
        (row[1], row[2]): (row[0], row[3], (int(row[4]), int(row[5])))
        for row in unit.connection.execute(
            "SELECT finding_id, kind, about, state, expected, actual FROM findings"
            " WHERE job = %s AND period_from = %s",
            [job, period_from],
        )
    }
    new: list[Fact] = []
    opened = still_open = 0
    number = unit.next_id("finding")
    seen: set[tuple[str, str]] = set()
    for one in differences:
        key = one.kind, one.about
        if key in seen:
            continue
        seen.add(key)
        finding_id, state, numbers = known.get(key, (None, None, None))
        if state == "explained" and numbers == (one.expected, one.actual):
            continue
        still_open += 1
        if finding_id is None:
            new.append(_opened(unit, job, period_from, number, one))
            number += 1
            opened += 1
        elif state != "open":
            new.append(
                FindingReopened(
                    finding_id=finding_id,
                    expected=one.expected,
                    actual=one.actual,
                    reopened_at=unit.now,
                )
            )
            opened += 1
    for key, (finding_id, state, _) in known.items():
        if state == "open" and key not in seen:
            new.append(
                FindingCorrected(
                    finding_id=finding_id,
                    reason=_NO_LONGER,
                    correction=None,
                    actor=PLATFORM,
                    corrected_at=unit.now,
                )
            )
    if new:
        unit.append(STREAM, *new)
    return Recorded(opened, still_open)


def stands(unit: Unit, job: JobName) -> Recorded:
    """What is open of a comparison that could not be made."""
    row = unit.connection.execute(
        "SELECT count(*) FROM findings WHERE job = %s AND state = 'open'", [job]
    ).fetchone()
    assert row is not None
    return Recorded(0, row[0])


def explain(unit: Unit, finding_id: int, reason: str, actor: str) -> None:
    """Say why the sides may disagree: it is no longer open, and stays so when found again.

    Raises:
        NotFoundError: `no_such_finding`.
        RejectedError: `invalid_args`; `finding_closed` for one that was corrected.
    """
    check_reason(reason)
    state, known, _ = _require(unit, finding_id)
    if state == "explained" and known == reason:
        return
    if state == "corrected":
        message = "it was corrected; if it is found again it opens again"
        raise RejectedError("finding_closed", message)
    unit.append(
        STREAM,
        FindingExplained(finding_id=finding_id, reason=reason, actor=actor, explained_at=unit.now),
    )


def correct(unit: Unit, finding_id: int, reason: str, correction: str | None, actor: str) -> None:
    """Say that the sides were made to agree, and by what; found again it opens again.

    Raises:
        NotFoundError: `no_such_finding`.
        RejectedError: `invalid_args`.
    """
    check_reason(reason)
    if correction is not None:
        check_reason(correction)
    state, known, by = _require(unit, finding_id)
    if (state, known, by) == ("corrected", reason, correction):
        return
    unit.append(
        STREAM,
        FindingCorrected(
            finding_id=finding_id,
            reason=reason,
            correction=correction,
            actor=actor,
            corrected_at=unit.now,
        ),
    )


def _opened(
    unit: Unit, job: JobName, period_from: int, finding_id: int, one: Difference
) -> FindingOpened:
    return FindingOpened(
        finding_id=finding_id,
        job=job,
        kind=one.kind,
        about=one.about,
        period_from=period_from,
        expected=one.expected,
        actual=one.actual,
        unit=one.unit,
        detail=one.detail,
        opened_at=unit.now,
    )


def _require(unit: Unit, finding_id: int) -> tuple[str, str | None, str | None]:
    row = unit.connection.execute(
        "SELECT state, reason, correction FROM findings WHERE finding_id = %s", [finding_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_finding", f"there is no finding {finding_id}")
    return row[0], row[1], row[2]
