"""Reconciliation at the command line: compare, list findings, say what became of them."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from adapters.cli.options import After, AsJson, Home, Id, Limit, instant, opened, reading

JobOption = Literal["processor", "projections", "instances", "reports", "exclusivity", "money"]


def reconcile(
    name: Annotated[
        JobOption | None, Parameter(help="One comparison; without it, all of them.")
    ] = None,
    *,
    date: Annotated[
        str | None,
        Parameter(help="A UTC day such as 2026-03-31; default: the last that is complete."),
    ] = None,
    home: Home = None,
    json: AsJson = False,
) -> int:
    """Compare sides that must agree, for one UTC day; exit 1 when a finding waits for a person.

    It may be repeated: the same thing is never opened twice.

    Example: gpuledger reconcile money --date 2026-03-31
    """
    from adapters.cli.output import print_rows
    from adapters.main import payment_gateway
    from ledger.services.payments.reconcile import comparison_with
    from ledger.services.reconciliation import JOBS, last_ready, run

    day = instant(None if date is None else f"{date}T00:00:00Z", "--date")
    with opened(home) as ledger:
        names = list(JOBS) if name is None else [name]
        gateway = payment_gateway(ledger)
        processor = None if gateway is None else comparison_with(gateway)
        outcomes = [
            run(ledger, one, last_ready(ledger, one) if day is None else day, processor)
            for one in names
        ]
    columns = ["job", "period_from", "found", "opened", "open", "note"]
    print_rows(outcomes, columns, as_json=json, title="reconciled", empty="nothing to compare")
    if not json:
        for outcome in outcomes:
            for one in outcome.differences:
                sys.stdout.write(
                    f"{outcome.job}: {one.kind} {one.about}: {one.expected} {one.unit} expected,"
                    f" {one.actual} found; {one.detail}\n"
                )
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


def listed(
    *,
    state: Annotated[
        Literal["open", "explained", "corrected"] | None,
        Parameter(help="Only those in this state."),
    ] = None,
    job: Annotated[JobOption | None, Parameter(help="Only of this comparison.")] = None,
    after: After = 0,
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List what did not agree, and what became of it.

    Example: gpuledger findings list --state open
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import findings as ask

    with reading(home) as (_, connection):
        found = ask.findings(connection, state=state, job=job, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.finding_id)
    columns = [
        "finding_id", "job", "kind", "about", "period_from", "expected", "actual", "unit", "state",
        "reason", "opened_at",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="findings", empty="no findings")


Reason = Annotated[str, Parameter(help="1 to 200 characters, nothing personal.")]
By = Annotated[str, Parameter(name="--by", help="The admin who says so, by name or id.")]


def explain(finding: Id, *, reason: Reason, by: By, home: Home = None) -> None:
    """Say why two sides may disagree; with other numbers the finding opens again.

    Example: gpuledger findings explain 7 --reason "power cut, announced" --by admin
    """
    _say(finding, reason, None, by, home, corrected=False)


def correct(
    finding: Id,
    *,
    reason: Reason,
    by: By,
    correction: Annotated[str | None, Parameter(help="What did it, such as adjustment-17.")] = None,
    home: Home = None,
) -> None:
    """Say that two sides were made to agree; when it is found again, it opens again.

    Example: gpuledger findings correct 7 --reason "booked twice" --by admin
    """
    _say(finding, reason, correction, by, home, corrected=True)


def _say(
    finding: int, reason: str, correction: str | None, by: str, home: Home, *, corrected: bool
) -> None:
    from ledger.services import reconciliation
    from ledger.services.disputes import account_actor
    from ledger.services.questions import accounts as ask

    with opened(home) as ledger, ledger.unit() as unit:
        actor = account_actor(ask.find_account(unit.connection, ledger.vault, by))
        if corrected:
            reconciliation.correct(unit, finding, reason, correction, actor)
        else:
            reconciliation.explain(unit, finding, reason, actor)
    sys.stdout.write(f"finding {finding} is {'corrected' if corrected else 'explained'}\n")
