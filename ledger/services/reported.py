"""What a report brings beside ticks and observations: inventory, health, answers to checks.

Most reports bring none of it and never come here (`ledger.store.intake`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.services.checks import take_answers
from ledger.services.findings import take_inventory
from ledger.services.health import take_health
from ledger.services.incidents import Seen, judge_life

if TYPE_CHECKING:
    from ledger.domain.usage import UsageReport
    from ledger.services.ledger import Unit


def take(unit: Unit, report: UsageReport, seen: Sequence[Seen], attested_until: int) -> None:
    """Append what follows from *report* for the trust in its machine.

    Args:
        unit: The transaction that will append the report.
        report: The report.
        seen: What its observations caused.
        attested_until: The first second of the machine that no stored report attests yet.
    """
    if seen:
        judge_life(unit, seen)
    if report.health:
        take_health(unit, report.machine, report.health, attested_until)
    if report.inventory is not None:
        take_inventory(unit, report.machine, report.inventory)
    if report.answers:
        take_answers(unit, report.machine, report.answers)
