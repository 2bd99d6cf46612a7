"""Reconciliation: what was compared, what did not agree, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from adapters.http.call import ADMIN, AUDITOR, Caller, allowed
from adapters.http.native.accounts import Cursor, Limit
from adapters.http.wire import Body, Instant, Page, decode_cursor, page, render
from ledger.domain.events import FindingState, JobName
from ledger.services import reconciliation
from ledger.services.disputes import account_actor
from ledger.services.ledger import Unit
from ledger.services.questions import findings as ask

StateFilter = Annotated[
    FindingState | None, QueryParameter(name="state", description="Findings in one state alone.")
]
JobFilter = Annotated[JobName | None, QueryParameter(description="Of one comparison alone.")]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides disagree: `expected` by one and `actual` by the other, in `unit`.

    Amounts are whole nanos, seconds or rows. `period_from` is the day it is about, if any.
    """

    finding_id: int
    job: str
    kind: str
    about: str
    period_from: Instant | None
    expected: int
    actual: int
    unit: str
    detail: str
    state: str
    reason: str | None
    correction: str | None
    actor: str | None
    opened_at: Instant
    closed_at: Instant | None


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The last comparison of a job for a UTC day; `note` says what numbers cannot."""

    job: str
    period_from: Instant
    period_until: Instant
    found: int
    opened: int
    note: str
    completed_at: Instant


class Explanation(Body):
    """Why the sides may disagree."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"reason": "host announced a power cut by phone"}

    reason: str


class Correction(Body):
    """What made the sides agree; `correction` names the movement, such as `adjustment-17`."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "reason": "fee was booked twice",
        "correction": "adjustment-17",
    }

    reason: str
    correction: str | None = None


@get("/v1/findings", opt=allowed(*AUDITOR), summary="List findings")
async def list_findings(
    call: Caller,
    wanted: StateFilter = None,
    job: JobFilter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Finding]:
    """List what did not agree, by number."""
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.findings(
            connection, state=wanted, job=job, after=after, limit=limit + 1
        )
    )
    return page(Finding, found, limit, lambda one: one.finding_id)


@get("/v1/findings/{finding_id:int}", opt=allowed(*AUDITOR), summary="Show a finding")
async def show_finding(call: Caller, finding_id: FromPath[int]) -> Finding:
    """Show one finding."""
    found = await call.question(lambda connection: ask.finding(connection, finding_id))
    return render(Finding, found)


@post(
    "/v1/findings/{finding_id:int}/explain",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Explain a finding",
)
async def explain_finding(
    call: Caller, finding_id: FromPath[int], data: JSONBody[Explanation]
) -> Response[Finding]:
    """Say why the sides may disagree; with other numbers it opens again."""
    actor = account_actor(call.principal.account_id)

    def do(unit: Unit) -> Finding:
        reconciliation.explain(unit, finding_id, data.reason, actor)
        return render(Finding, ask.finding(unit.connection, finding_id))

    return await call.command(do)


@post(
    "/v1/findings/{finding_id:int}/correct",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Say that a finding was corrected",
)
async def correct_finding(
    call: Caller, finding_id: FromPath[int], data: JSONBody[Correction]
) -> Response[Finding]:
    """Say what made the sides agree; when it is found again, it opens again."""
    actor = account_actor(call.principal.account_id)

    def do(unit: Unit) -> Finding:
        reconciliation.correct(unit, finding_id, data.reason, data.correction, actor)
        return render(Finding, ask.finding(unit.connection, finding_id))

    return await call.command(do)


@get("/v1/reconciliations", opt=allowed(*AUDITOR), summary="List comparisons")
async def list_reconciliations(
    call: Caller, job: JobFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Reconciliation]:
    """List what was compared for which day, in the order of the log."""
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.reconciliations(connection, job=job, after=after, limit=limit + 1)
    )
    return page(Reconciliation, found, limit, lambda one: one.position)


HANDLERS = [list_findings, show_finding, explain_finding, correct_finding, list_reconciliations]
