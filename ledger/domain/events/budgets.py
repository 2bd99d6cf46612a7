"""Budgets: what may be spent under a label in a UTC calendar month; they only tell, never stop."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

BudgetPercent = Literal[80, 100]


class BudgetSet(Fact, tag="budget.set.v1"):
    """*amount* nanos a month for what carries *label*."""

    account_id: int
    label: str
    amount: int
    set_at: int


class BudgetRemoved(Fact, tag="budget.removed.v1"):
    """Nothing is watched under this label any more."""

    account_id: int
    label: str
    removed_at: int


class BudgetReached(Fact, tag="budget.reached.v1"):
    """What carries *label* has cost *spent* since *month_from*: *percent* of *amount*, or more."""

    account_id: int
    label: str
    month_from: int
    percent: BudgetPercent
    amount: int
    spent: int
    reached_at: int


BudgetFact = BudgetSet | BudgetRemoved | BudgetReached
