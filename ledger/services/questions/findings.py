"""What was found when two sides were compared, and what was compared when."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.errors import NotFoundError
from ledger.store.database import Connection


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A finding: `expected` by one side, `actual` by the other, in `unit` (nanos, seconds, rows).

    `period_from` is the day that it is about; none when it is about no day.
    """

    finding_id: int
    job: str
    kind: str
    about: str
    period_from: int | None
    expected: int
    actual: int
    unit: str
    detail: str
    state: str
    reason: str | None
    correction: str | None
    actor: str | None
    opened_at: int
    closed_at: int | None


class ReconciliationView(msgspec.Struct, frozen=True, kw_only=True):
    """The last comparison of a job for a day."""

    job: str
    period_from: int
    period_until: int
    found: int
    opened: int
    note: str
    completed_at: int
    position: int


_FIELDS: Final = ", ".join(FindingView.__struct_fields__)
_RUN_FIELDS: Final = ", ".join(ReconciliationView.__struct_fields__)


def findings(
    connection: Connection,
    *,
    state: str | None = None,
    job: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[FindingView]:
    """Findings by number: in one state or all (none), of one job or all (none)."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM findings WHERE finding_id > %s"  # noqa: S608 - constants
        " AND (%s::text IS NULL OR state = %s) AND (%s::text IS NULL OR job = %s)"
        " ORDER BY finding_id LIMIT %s",
        [after, state, state, job, job, limit],
    )
    return [_finding(row) for row in rows]


def finding(connection: Connection, finding_id: int) -> FindingView:
    """One finding.

    Raises:
        NotFoundError: `no_such_finding`.
    """
    row = connection.execute(
        f"SELECT {_FIELDS} FROM findings WHERE finding_id = %s",  # noqa: S608 - constants
        [finding_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_finding", f"there is no finding {finding_id}")
    return _finding(row)


def reconciliations(
    connection: Connection, *, job: str | None = None, after: int = 0, limit: int = 100
) -> list[ReconciliationView]:
    """What was compared, in the order of the log."""
    rows = connection.execute(
        f"SELECT {_RUN_FIELDS} FROM reconciliations WHERE position > %s"  # noqa: S608 - constants
        " AND (%s::text IS NULL OR job = %s) ORDER BY position LIMIT %s",
        [after, job, job, limit],
    )
    return [
        ReconciliationView(**dict(zip(ReconciliationView.__struct_fields__, row, strict=True)))
        for row in rows
    ]


def _finding(row: tuple[object, ...]) -> FindingView:
    values = dict(zip(FindingView.__struct_fields__, row, strict=True))
    values["expected"], values["actual"] = int(str(row[5])), int(str(row[6]))
    values["period_from"] = row[4] or None
    return FindingView(**values)  # type: ignore[arg-type]  # a row of the table holds its types
