"""Charges and budgets by label."""

from __future__ import annotations

import pytest

from ledger.domain.events import BudgetReached
from ledger.errors import LedgerError
from ledger.services import budgets
from ledger.services.budgets import remove_budget, set_budget, watch_budgets
from ledger.services.questions import notices
from ledger.services.questions.labels import charges_by_label
from tests.support.books import APRIL
from tests.support.market import DOLLAR, START, Market

HOUR = 3_600
DIME = DOLLAR // 10


def two_labels(market: Market) -> int:
    """Alice runs one GPU at $0.36 an hour under `train`, and one under none, without storage."""
    alice = market.account("alice", 100 * DOLLAR)
    machine = market.machine(gpus=2, storage=0)
    ours = [
        market.rent(alice, machine, gpus=1, label="train"),
        market.rent(alice, machine, gpus=1),
    ]
    for one in ours:
        market.confirm(machine, one)
    market.run(machine, ours, HOUR, report_seconds=300)
    market.project()
    return alice


def codes(market: Market, account: int) -> list[tuple[str, str]]:
    """The notices of budgets."""
    with market.ledger.reading() as connection:
        return [
            (one.code, one.about)
            for one in notices.notices(connection, account_id=account)
            if one.code.startswith("budget")
        ]


def test_charges_are_summed_by_label(market: Market) -> None:
    """Each label's charges are one row, what has none is the last, and all rows are all charges."""
    alice = two_labels(market)
    with market.ledger.reading() as connection:
        rows = charges_by_label(connection, alice)
        assert [(row.label, row.instances, row.gpu) for row in rows] == [
            ("train", 1, 360_000_000),
            (None, 1, 360_000_000),
        ]
        assert charges_by_label(connection, alice, after="train") == rows[1:]
        assert charges_by_label(connection, alice, start=START + HOUR) == []
        assert charges_by_label(connection, alice, start=START, until=START + HOUR) == rows
        assert charges_by_label(connection, market.account("carol")) == []
        with pytest.raises(LedgerError):
            charges_by_label(connection, alice, start=1)


def test_a_budget_tells_at_80_and_at_100_percent_once_a_month(market: Market) -> None:
    """CRED-04: below 80 % nothing is told, at 80 % and at 100 % once each, next month anew."""
    alice = two_labels(market)
    with market.ledger.unit() as unit:
        set_budget(unit, alice, "train", 450_000_001)
    watch_budgets(market.ledger)
    assert codes(market, alice) == []
    market.clock.move_to(market.clock() + 60)
    with market.ledger.unit() as unit:
        set_budget(unit, alice, "train", 450_000_000)
    watch_budgets(market.ledger)
    assert codes(market, alice) == [("budget_80", "label-train")]
    market.clock.move_to(market.clock() + 60)
    watch_budgets(market.ledger)
    assert len(codes(market, alice)) == 1
    market.clock.move_to(market.clock() + 60)
    with market.ledger.unit() as unit:
        set_budget(unit, alice, "train", 360_000_000)
    watch_budgets(market.ledger)
    assert [code for code, _ in codes(market, alice)] == ["budget_80", "budget_80", "budget_100"]
    market.clock.move_to(APRIL + 60)
    watch_budgets(market.ledger)
    assert len(codes(market, alice)) == 3
    (first, *_) = [one for one in market.facts() if isinstance(one, BudgetReached)]
    assert (first.percent, first.spent) == (80, 360_000_000)
    with market.ledger.reading() as connection:
        (now,) = budgets.budgets(connection, APRIL, account_id=alice)
        (then,) = budgets.budgets(connection, START, account_id=alice)
    assert (now.spent, then.spent) == (0, 360_000_000)
    assert market.rebuild().equal


def test_a_removed_budget_tells_nothing(market: Market) -> None:
    """After its removal nothing is told; removing it again changes nothing."""
    alice = two_labels(market)
    with market.ledger.unit() as unit:
        set_budget(unit, alice, "train", DIME)
        remove_budget(unit, alice, "train")
        remove_budget(unit, alice, "train")
    watch_budgets(market.ledger)
    assert codes(market, alice) == []


@pytest.mark.parametrize(("label", "amount"), [("", DIME), ("a\nb", DIME), ("a", 0)])
def test_a_budget_is_of_a_label_and_an_amount(market: Market, label: str, amount: int) -> None:
    """A label that cannot be shown, and a budget of nothing, are refused."""
    alice = market.account("alice")
    with market.ledger.unit() as unit, pytest.raises(LedgerError):
        set_budget(unit, alice, label, amount)


def test_a_budget_that_is_set_again_is_the_same_one(market: Market) -> None:
    """The same amount again appends nothing; there are so many budgets and no more."""
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        for number in range(budgets.BUDGETS_MAX):
            set_budget(unit, alice, f"label {number}", DIME)
    head = market.head()
    with market.ledger.unit() as unit:
        set_budget(unit, alice, "label 7", DIME)
        with pytest.raises(LedgerError) as error:
            set_budget(unit, alice, "one more", DIME)
    assert error.value.code == "too_many_budgets"
    assert market.head() == head
