"""Reconciliation: two sides that must agree, compared day by day, and findings where they do not.

`jobs` names every comparison, `runner` carries one out once per job and day, `findings` is the life
of what was found. Nothing here changes what it compares.
"""

from __future__ import annotations

from ledger.services.reconciliation.findings import correct, explain
from ledger.services.reconciliation.jobs import JOBS
from ledger.services.reconciliation.processor import Comparison, ProcessorComparison
from ledger.services.reconciliation.runner import Outcome, due, last_ready, run, run_due

__all__ = [
    "JOBS",
    "Comparison",
    "Outcome",
    "ProcessorComparison",
    "correct",
    "due",
    "explain",
    "last_ready",
    "run",
    "run_due",
]
