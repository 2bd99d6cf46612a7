"""What time alone brings to machines' trust: checks nobody answered, faults that last, papers."""

from __future__ import annotations

from typing import Final

from ledger.services import checks
from ledger.services.certifications import judge_tier, next_paper_due, tiers_due
from ledger.services.ledger import Ledger, read_policy
from ledger.services.policies.common import is_due
from ledger.services.verification import faults_due, next_fault_due, review
from ledger.store.database import Connection

CHECKS_DUE: Final = (
    "SELECT 1 FROM checks JOIN machines USING (machine_id)"
    " WHERE judged_at IS NULL AND deadline < %(now)s"
)


def judge_checks(ledger: Ledger) -> None:
    """Judge every check whose deadline has passed without an answer."""
    if not is_due(ledger, CHECKS_DUE):
        return
    while True:
        with ledger.unit() as unit:
            if not checks.judge_overdue(unit):
                return


def review_faults(ledger: Ledger) -> None:
    """Take the verification from machines that ended a slot being at fault."""
    with ledger.reading() as connection:
        if not faults_due(connection, ledger.clock()):
            return
    with ledger.unit() as unit:
        review(unit, faults_due(unit.connection, unit.now))


def keep_tiers(ledger: Ledger) -> None:
    """Put machines into the secure tier and take them out as their hosts' papers say."""
    with ledger.reading() as connection:
        requires_iso = read_policy(connection).secure_requires_iso
        due = tiers_due(connection, ledger.clock(), requires_iso=requires_iso)
    if not due:
        return
    with ledger.unit() as unit:
        iso = unit.policy.secure_requires_iso
        for host_id in tiers_due(unit.connection, unit.now, requires_iso=iso):
            judge_tier(unit, host_id)


def next_due(connection: Connection, now: int) -> int | None:
    """The next deadline of a check, end of a faulty slot, or second at which a paper counts."""
    row = connection.execute(
        "SELECT min(deadline) + 1 FROM checks JOIN machines USING (machine_id)"
        " WHERE judged_at IS NULL AND deadline >= %s",
        [now],
    ).fetchone()
    overdue = None if row is None else row[0]
    found = (overdue, next_fault_due(connection), next_paper_due(connection, now))
    return min((second for second in found if second is not None and second > now), default=None)
