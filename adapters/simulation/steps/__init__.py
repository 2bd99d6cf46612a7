"""The steps of scenarios, one module per part of the business; each step says its own keys."""

from __future__ import annotations

from adapters.simulation.steps import (
    accounts,
    disputes,
    hosts,
    machines,
    operations,
    payments,
    proof,
    rentals,
    safety,
    trust,
    volumes,
)
from adapters.simulation.steps.registry import STEPS

__all__ = [
    "STEPS",
    "accounts",
    "disputes",
    "hosts",
    "machines",
    "operations",
    "payments",
    "proof",
    "rentals",
    "safety",
    "trust",
    "volumes",
]
