"""Budgets: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change


def budget_changes(fact: e.BudgetFact, position: int) -> Iterator[Change]:
    """What is watched under which label; a new amount is told of anew."""
    del position
    match fact:
        case e.BudgetSet():
            yield Change(
                "INSERT INTO budgets (account_id, label, amount, set_at) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (account_id, label) DO UPDATE SET amount = EXCLUDED.amount,"
                " set_at = EXCLUDED.set_at, month_from = 0, percent = 0",
                (fact.account_id, fact.label, fact.amount, fact.set_at),
            )
        case e.BudgetRemoved():
            yield Change(
                "DELETE FROM budgets WHERE account_id = %s AND label = %s",
                (fact.account_id, fact.label),
            )
        case e.BudgetReached():
            yield Change(
                "UPDATE budgets SET month_from = %s, percent = %s"
                " WHERE account_id = %s AND label = %s",
                (fact.month_from, fact.percent, fact.account_id, fact.label),
            )
