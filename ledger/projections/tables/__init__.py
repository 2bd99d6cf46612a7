"""Every read model's tables: made by the migrations and again by a rebuild.

The order of columns is part of the canonical dump that a rebuild compares. Amounts are nanos,
instants Unix seconds, positions places in the log.
"""

from __future__ import annotations

from sqlalchemy import Table

from ledger.projections.groups import FACTS, USAGE
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
from ledger.projections.tables.base import metadata

__all__ = [
    "FACTS",
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


def tables_of(group: str) -> list[Table]:
    """The tables of one group, in a stable order."""
    return [table for table in metadata.sorted_tables if table.info["group"] == group]
