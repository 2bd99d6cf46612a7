"""The comparisons: their names, what they compare, and when a day is ready for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ledger.domain.events import JobName
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.services.ledger import Ledger
from ledger.services.reconciliation.difference import Compared
from ledger.services.reconciliation.exclusivity import compare_exclusivity
from ledger.services.reconciliation.hosts import compare_instances, compare_reports
from ledger.services.reconciliation.money import compare_money
from ledger.services.reconciliation.processor import ProcessorComparison, compare_processor
from ledger.services.reconciliation.projections import compare_projections

Compare = Callable[[Ledger, int, int], Compared]


class Job(NamedTuple):
    """One comparison.

    A job of days finds things of its day; the others find what is so now, whatever day they run
    for. `late`: it waits until nothing late can come for its day.
    """

    name: JobName
    sides: str
    of_days: bool
    late: bool = False

    def due_seconds(self, late_usage_seconds: int) -> int:
        """How long after the end of a day it may run."""
        return SECONDS_PER_HOUR + (late_usage_seconds if self.late else 0)


JOBS: Final[dict[JobName, Job]] = {
    job.name: job
    for job in (
        Job("money", "sums against sums: conserved, to the nano", of_days=False),
        Job("exclusivity", "GPU seconds against GPU seconds: none sold twice", of_days=True),
        Job("instances", "what hosts show against what we bill", of_days=True, late=True),
        Job("reports", "reports that came against days with contracts", of_days=True, late=True),
        Job("processor", "the payment processor against the ledger", of_days=False),
        Job("projections", "read models against a replay of the log", of_days=False),
    )
}


def compare(
    ledger: Ledger, name: JobName, start: int, until: int, processor: ProcessorComparison | None
) -> Compared:
    """Carry out one comparison; nothing is written."""
    if name == "processor":
        return compare_processor(ledger, start, until, processor)
    return _COMPARE[name](ledger, start, until)


_COMPARE: Final[dict[JobName, Compare]] = {
    "money": compare_money,
    "exclusivity": compare_exclusivity,
    "instances": compare_instances,
    "reports": compare_reports,
    "projections": compare_projections,
}
