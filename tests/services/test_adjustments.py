"""Movements by hand: a reason, a second person above a limit, never in a closed month."""

from __future__ import annotations

import pytest

from ledger.domain.dispute import Authority
from ledger.domain.events import AccountAdjusted, DebtWrittenOff
from ledger.errors import LedgerError
from ledger.services import approvals, reconciliation, rentals
from ledger.services.adjustments import Adjustment, WriteOff, adjust, write_off
from ledger.services.policies import close_periods, run_due
from ledger.services.questions.balances import balance, trial_balance
from tests.support.books import APRIL, DAY
from tests.support.market import DOLLAR, START, Market

BY = Authority("account-90", 1)
OTHER = "account-91"


def adjusted(market: Market, account: int, amount: int, **more: object) -> None:
    """One adjustment."""
    values: dict[str, object] = {"adjustment_id": "t-1", "reason": "goodwill", **more}
    with market.ledger.unit() as unit:
        adjust(unit, Adjustment(account_id=account, amount=amount, **values), BY)  # type: ignore[arg-type]


def refused(market: Market, account: int, amount: int, **more: object) -> str:
    """The code with which an adjustment is refused, having appended nothing."""
    head = market.head()
    with pytest.raises(LedgerError) as error:
        adjusted(market, account, amount, **more)
    assert market.head() == head
    return error.value.code


def available(market: Market, account: int) -> int:
    """What an account can spend."""
    with market.ledger.reading() as connection:
        return balance(connection, account, market.clock()).available


def books(market: Market) -> dict[str, int]:
    """Debits minus credits per ledger account."""
    with market.ledger.reading() as connection:
        return {row.ledger_account: row.debit - row.credit for row in trial_balance(connection)}


def test_an_adjustment_moves_money_once_with_its_reason(market: Market) -> None:
    """The amount is there once, however often the id is repeated, and the fact says why and who."""
    alice = market.account("alice")
    adjusted(market, alice, 5 * DOLLAR)
    head = market.head()
    adjusted(market, alice, 5 * DOLLAR)
    assert market.head() == head
    assert available(market, alice) == 5 * DOLLAR
    assert (books(market)["compensation"], books(market)["renter_credit"]) == (
        5 * DOLLAR,
        -5 * DOLLAR,
    )
    (fact,) = [one for one in market.facts() if isinstance(one, AccountAdjusted)]
    assert (fact.reason, fact.actor, fact.approved_by) == ("goodwill", "account-90", None)
    assert reconciliation.run(market.ledger, "money", START // DAY * DAY).is_clean
    assert market.rebuild().equal


def test_credit_can_be_taken_back_below_zero(market: Market) -> None:
    """What was given by mistake is taken back, also when it was spent."""
    alice = market.account("alice", DOLLAR)
    adjusted(market, alice, -3 * DOLLAR, against="bank")
    assert available(market, alice) == -2 * DOLLAR
    assert books(market)["bank"] == -2 * DOLLAR


def test_a_host_is_adjusted_on_what_it_is_owed(market: Market) -> None:
    """`payable` changes what a host is owed and not its credit."""
    bob = market.account("bob")
    adjusted(market, bob, DOLLAR, book="payable", against="platform_revenue")
    with market.ledger.reading() as connection:
        found = balance(connection, bob, market.clock())
    assert (found.host_payable, found.available) == (DOLLAR, 0)
    assert market.rebuild().equal


def test_above_the_limit_a_second_person_agrees_to_exactly_this(market: Market) -> None:
    """One nano above $100 needs somebody else's approval of this account and amount, once."""
    alice = market.account("alice")
    adjusted(market, alice, 100 * DOLLAR)
    more = 100 * DOLLAR + 1
    assert refused(market, alice, more, adjustment_id="t-2") == "second_approval_required"
    for subject, actor in (
        (f"adjust account-{alice}.100.000000001", "account-90"),
        (f"adjust account-{alice}.200", OTHER),
        (f"adjust account-{alice}.-100.000000001", OTHER),
    ):
        with market.ledger.unit() as unit:
            approvals.approve(unit, subject, actor)
        assert refused(market, alice, more, adjustment_id="t-2") == "second_approval_required"
    with market.ledger.unit() as unit:
        approvals.approve(unit, f"adjust account-{alice}.100.000000001", OTHER)
    adjusted(market, alice, more, adjustment_id="t-2")
    fact = [one for one in market.facts() if isinstance(one, AccountAdjusted)][-1]
    assert fact.approved_by == OTHER
    assert refused(market, alice, more, adjustment_id="t-3") == "second_approval_required"


def test_a_closed_month_is_named_and_takes_nothing(market: Market) -> None:
    """An adjustment of March that is made in April posts in April and names the period of March."""
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(APRIL + 3_600)
    close_periods(market.ledger)
    adjusted(market, alice, DOLLAR, effective_at=START)
    row = market.connection.execute(
        "SELECT period_from, effective_at, adjusted_at FROM adjustments"
    ).fetchone()
    assert row == (START, START, APRIL + 3_600)
    moved = market.connection.execute(
        "SELECT occurred_at FROM movements WHERE kind = 'adjustment'"
    ).fetchone()
    assert moved == (APRIL + 3_600,)


@pytest.mark.parametrize(
    ("amount", "more", "code"),
    [
        (0, {}, "invalid_amount"),
        (10**18 + 1, {}, "invalid_amount"),
        (1, {"reason": " "}, "invalid_args"),
        (1, {"adjustment_id": "no spaces"}, "invalid_args"),
        (1, {"effective_at": START + 1}, "invalid_args"),
    ],
)
def test_what_makes_no_sense_is_refused(
    market: Market, amount: int, more: dict[str, object], code: str
) -> None:
    """Nothing, too much, no reason, no id, a time to come: each is refused and changes nothing."""
    assert refused(market, market.account("alice"), amount, **more) == code


def test_an_id_stands_for_one_movement(market: Market) -> None:
    """The same id with another amount, or account, is a conflict."""
    alice, carol = market.account("alice"), market.account("carol")
    adjusted(market, alice, DOLLAR)
    assert refused(market, alice, 2 * DOLLAR) == "idempotency_conflict"
    assert refused(market, carol, DOLLAR) == "idempotency_conflict"
    assert refused(market, 77, DOLLAR, adjustment_id="t-9") == "no_such_account"


# --- debt ----------------------------------------------------------------------------------------


@pytest.fixture
def debtor(market: Market) -> int:
    """Alice owes for what she used after her credit was gone; her instance is destroyed."""
    alice = market.account("alice", DOLLAR)
    machine = market.machine(gpu_hour=36_000_000)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 7_200, report_seconds=300)
    market.project()
    run_due(market.ledger)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    market.run(machine, [one], 60, state="stopped")
    market.project()
    adjusted(market, alice, -5 * DOLLAR, adjustment_id="chargeback")
    return alice


def test_bad_debt_is_borne_by_the_platform(market: Market, debtor: int) -> None:
    """After the write-off the account stands at zero, and `bad_debt` at what it owed."""
    owed = -available(market, debtor)
    assert owed > 0
    with market.ledger.unit() as unit:
        wanted = WriteOff(write_off_id="w-1", account_id=debtor, reason="insolvent")
        assert write_off(unit, wanted, BY) == owed
        assert write_off(unit, wanted, BY) == owed
    assert available(market, debtor) == 0
    assert books(market)["bad_debt"] == owed
    assert sum(books(market).values()) == 0
    assert sum(isinstance(one, DebtWrittenOff) for one in market.facts()) == 1
    assert reconciliation.run(market.ledger, "money", START // DAY * DAY).is_clean
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("amount", "code"), [(10 * DOLLAR, "invalid_amount"), (0, "invalid_amount")]
)
def test_no_more_is_given_up_than_is_owed(
    market: Market, debtor: int, amount: int, code: str
) -> None:
    """More than the debt, or nothing, is refused."""
    with market.ledger.unit() as unit, pytest.raises(LedgerError) as error:
        write_off(
            unit, WriteOff(write_off_id="w", account_id=debtor, amount=amount, reason="x"), BY
        )
    assert error.value.code == code


def test_debt_that_still_grows_is_not_written_off(market: Market) -> None:
    """While there are instances, or no debt at all, nothing is written off."""
    alice = market.account("alice", DOLLAR)
    wanted = WriteOff(write_off_id="w", account_id=alice, reason="insolvent")
    with market.ledger.unit() as unit, pytest.raises(LedgerError) as error:
        write_off(unit, wanted, BY)
    assert error.value.code == "no_debt"
    market.rent(alice, market.machine())
    with market.ledger.unit() as unit, pytest.raises(LedgerError) as error:
        write_off(unit, wanted, BY)
    assert error.value.code == "has_contracts"
