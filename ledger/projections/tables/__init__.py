"""Every read model's tables: made by the migrations and again by a rebuild.

The order of columns is part of the canonical dump that a rebuild compares. Amounts are nanos,
instants Unix seconds, positions places in the log.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Table

from ledger.projections.tables import (
    accounts,
    adjustments,
    budgets,
    disputes,
    documents,
    instances,
    launches,
    machines,
    mail,
    market,
    operations,
    payments,
    reconciliation,
    safety,
    trust,
    usage,
    volumes,
    webhooks,
)
from ledger.projections.tables.base import FACTS, USAGE, metadata

__all__ = [
    "FACTS",
    "GENERATION",
    "USAGE",
    "accounts",
    "adjustments",
    "budgets",
    "disputes",
    "documents",
    "instances",
    "launches",
    "machines",
    "mail",
    "market",
    "metadata",
    "operations",
    "payments",
    "reconciliation",
    "safety",
    "tables_of",
    "trust",
    "usage",
    "volumes",
    "webhooks",
]

GENERATION: Final = 6
"""Raise it when a fold changes; the program then asks for a rebuild before it serves."""


def tables_of(group: str) -> list[Table]:
    """The tables of one group, in a stable order."""
    return [table for table in metadata.sorted_tables if table.info["group"] == group]
