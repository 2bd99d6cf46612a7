"""Promotional credit: spent first, never paid out, and only its own unspent part is taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.hostagent.reports import constant_block
from ledger.errors import DeclinedError, IdempotencyError, NotFoundError, RejectedError
from ledger.services import deposits, grants, holds, policies, transfers
from ledger.services.ledger import Policy, Unit
from ledger.services.questions.balances import Balance, balance, trial_balance
from tests.support.market import DOLLAR, START, Market

HOUR = 3_600
LATE = 72 * HOUR
RATE = 360_000_000


def give(market: Market, account: int, dollars: int, seconds: int, grant_id: str = "g") -> None:
    """A grant that ends so many seconds from now."""
    with market.ledger.unit() as unit:
        grants.grant(unit, account, dollars * DOLLAR, unit.now + seconds, grant_id, "welcome")


def seen(market: Market, account: int) -> Balance:
    """The balance now, everything folded."""
    market.project()
    with market.ledger.reading() as connection:
        return balance(connection, account, market.clock())


def left(market: Market, account: int) -> dict[str, int]:
    """Unspent nanos per grant."""
    market.project()
    with market.ledger.reading() as connection:
        return {
            one.grant_id: one.unspent
            for one in grants.grants(connection, market.clock(), account_id=account)
        }


def rented(market: Market, account: int) -> tuple[int, int]:
    """A machine without prices for disk and traffic, and a confirmed instance on it."""
    machine = market.machine(storage=0, up=0, down=0)
    one = market.rent(account, machine)
    market.confirm(machine, one)
    return machine, one


def at(market: Market, second: int) -> None:
    """Move to a second, fold, and let the platform do what is due."""
    market.clock.move_to(second)
    market.project()
    policies.run_due(market.ledger)


def refused(market: Market, do: Callable[[Unit], object], code: str) -> None:
    """The command is refused with this code and leaves the log as it was."""
    head = market.head()
    with (
        market.ledger.unit() as unit,
        pytest.raises((DeclinedError, RejectedError, NotFoundError, IdempotencyError)) as error,
    ):
        do(unit)
    assert error.value.code == code
    assert market.head() == head


def test_a_grant_is_spent_before_own_credit_and_the_earliest_expiry_first(market: Market) -> None:
    """CRED-06: of two grants the one that ends first pays first, whichever came first."""
    alice = market.account("alice", 10 * DOLLAR)
    give(market, alice, 5, 30 * 86_400, "long")
    give(market, alice, 1, 86_400, "short")
    machine, one = rented(market, alice)
    market.run(machine, [one], HOUR, report_seconds=300)
    assert left(market, alice) == {"long": 5 * DOLLAR, "short": DOLLAR - RATE}
    market.run(machine, [one], 2 * HOUR, report_seconds=300)
    assert left(market, alice) == {"long": 6 * DOLLAR - 3 * RATE, "short": 0}
    shown = seen(market, alice)
    assert (shown.promotional, shown.lapsed) == (6 * DOLLAR - 3 * RATE, 0)
    assert shown.available == 16 * DOLLAR - 3 * RATE
    assert market.rebuild().equal


def test_a_late_revoke_takes_only_what_its_own_grant_gave(market: Market) -> None:
    """CRED-06: old credits 100, new grant 1000, late revoke of the old ones: 1000 are left."""
    alice = market.account("alice")
    give(market, alice, 100, 86_400, "old")
    give(market, alice, 1_000, 30 * 86_400, "new")
    with market.ledger.unit() as unit:
        grants.revoke(unit, alice, "old", "replaced")
    assert seen(market, alice).available == 1_000 * DOLLAR
    with market.ledger.unit() as unit:
        grants.revoke(unit, alice, "old", "again")
    assert seen(market, alice).available == 1_000 * DOLLAR
    at(market, START + LATE)
    assert (seen(market, alice).available, seen(market, alice).lapsed) == (1_000 * DOLLAR, 0)
    assert seen(market, alice).posted == 1_000 * DOLLAR
    assert market.rebuild().equal


def test_paid_credit_survives_what_happens_to_grants_and_listings(market: Market) -> None:
    """CRED-06: expiry, revocation and a new listing leave what was paid as it was."""
    alice = market.account("alice", 20 * DOLLAR)
    give(market, alice, 3, HOUR, "a")
    give(market, alice, 4, 2 * HOUR, "b")
    machine, one = rented(market, alice)
    market.run(machine, [one], HOUR, report_seconds=300)
    market.list_again(machine, gpu_hour=2 * RATE, storage=0)
    with market.ledger.unit() as unit:
        grants.revoke(unit, alice, "b", "over")
        deposits.deposit(unit, alice, DOLLAR, "more")
    assert seen(market, alice).available == 21 * DOLLAR
    assert left(market, alice) == {"a": 3 * DOLLAR - RATE, "b": 4 * DOLLAR}


def test_the_same_grant_again_is_one_however_much_happens_between(market: Market) -> None:
    """CRED-07: one application per id, whatever else falls between two of them."""
    alice = market.account("alice")
    for number in range(5):
        with market.ledger.unit() as unit:
            grants.grant(unit, alice, 7 * DOLLAR, START + 86_400, "2026-03", "monthly")
            deposits.deposit(unit, alice, DOLLAR, f"d{number}")
        market.clock.move_to(market.clock() + 60)
    assert seen(market, alice).available == 12 * DOLLAR
    refused(
        market,
        lambda unit: grants.grant(unit, alice, 8 * DOLLAR, START + 86_400, "2026-03", "m"),
        "idempotency_conflict",
    )


def test_what_expires_is_gone_in_its_second_and_goes_back_when_nothing_can_come(
    market: Market,
) -> None:
    """At the end only the unspent part lapses; 72 hours later it goes back to `promo_expense`."""
    alice = market.account("alice", 10 * DOLLAR)
    give(market, alice, 5, HOUR)
    machine, one = rented(market, alice)
    market.run(machine, [one], HOUR - 1, report_seconds=60)
    spent = RATE * (HOUR - 1) // HOUR
    assert seen(market, alice).available == 15 * DOLLAR - spent
    market.run(machine, [one], 1)
    shown = seen(market, alice)
    assert (shown.promotional, shown.lapsed) == (0, 5 * DOLLAR - RATE)
    assert shown.available == 10 * DOLLAR
    market.run(machine, [one], HOUR, report_seconds=300)
    assert seen(market, alice).available == 10 * DOLLAR - RATE
    at(market, START + HOUR + LATE - 1)
    before = seen(market, alice)
    assert before.lapsed == 5 * DOLLAR - RATE
    at(market, START + HOUR + LATE)
    after = seen(market, alice)
    assert (after.lapsed, before.posted - after.posted) == (0, 5 * DOLLAR - RATE)
    books = {row.ledger_account: row.debit - row.credit for row in trial_balance(market.connection)}
    assert books["promo_expense"] == RATE
    assert sum(books.values()) == 0
    assert market.rebuild().equal


@pytest.mark.parametrize("silent", [False, True])
def test_usage_that_arrives_late_is_still_paid_by_the_grant_of_its_seconds(
    market: Market, silent: bool
) -> None:
    """CRED-06: whether a host reported in time or after the expiry, the same is unspent."""
    alice = market.account("alice", 10 * DOLLAR)
    give(market, alice, 5, HOUR)
    machine, one = rented(market, alice)
    reports = []
    for start in range(START, START + 2 * HOUR, 300):
        block = constant_block(one, start, 300, "running", up=0, down=0, util=9)
        reports.append(market.seal(machine, start, 300, [block]))
        if not silent:
            market.clock.move_to(start + 300)
            market.deliver(reports[-1])
            market.project()
    market.clock.move_to(START + 3 * HOUR)
    if silent:
        market.deliver(*reports)
    assert left(market, alice) == {"g": 5 * DOLLAR - RATE}
    at(market, START + HOUR + LATE)
    assert seen(market, alice).posted == 10 * DOLLAR + RATE
    assert market.rebuild().equal


def test_a_fold_that_is_behind_delays_the_return_and_does_not_change_it(market: Market) -> None:
    """Usage in the log that is not folded yet is waited for, not taken for unspent."""
    alice = market.account("alice", 10 * DOLLAR)
    give(market, alice, 5, HOUR)
    machine, one = rented(market, alice)
    market.run(machine, [one], HOUR, report_seconds=300)
    market.clock.move_to(START + HOUR + LATE)
    policies.run_due(market.ledger)
    assert not any(type(fact).__name__ == "PromotionClosed" for fact in market.facts())
    market.project()
    policies.run_due(market.ledger)
    (closed,) = [fact for fact in market.facts() if type(fact).__name__ == "PromotionClosed"]
    assert closed.unspent == 5 * DOLLAR - RATE  # type: ignore[union-attr]  # by its name


def test_usage_before_a_grant_does_not_draw_on_it(market: Market) -> None:
    """TIME-06: seconds and captures before the grant, in the same minute, are paid by oneself."""
    alice = market.account("alice", 10 * DOLLAR)
    machine, one = rented(market, alice)
    market.run(machine, [one], 30, report_seconds=30)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "before")
        holds.capture_hold(unit, alice, "before")
        grants.grant(unit, alice, 5 * DOLLAR, unit.now + HOUR, "g", "welcome")
    assert left(market, alice) == {"g": 5 * DOLLAR}
    market.run(machine, [one], 30, report_seconds=30)
    assert left(market, alice) == {"g": 5 * DOLLAR - RATE * 60 // HOUR + RATE * 30 // HOUR}
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "after")
        holds.capture_hold(unit, alice, "after")
    assert left(market, alice) == {"g": 4 * DOLLAR - RATE * 60 // HOUR + RATE * 30 // HOUR}


def test_promotional_credit_is_neither_refunded_nor_transferred(market: Market) -> None:
    """What a grant has left stays; own credit beside it can leave."""
    alice, bob = market.account("alice", 3 * DOLLAR), market.account("bob")
    give(market, alice, 5, HOUR)
    more = 3 * DOLLAR + 1
    refused(
        market, lambda unit: transfers.transfer(unit, alice, bob, more, "t"), "insufficient_balance"
    )
    with market.ledger.unit() as unit:
        transfers.transfer(unit, alice, bob, DOLLAR, "t")
    refused(
        market,
        lambda unit: deposits.refund(unit, alice, f"opening-{alice}", 2 * DOLLAR + 1, "r"),
        "insufficient_balance",
    )
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, f"opening-{alice}", 2 * DOLLAR, "r")
    assert seen(market, alice).available == 5 * DOLLAR
    assert seen(market, bob).available == DOLLAR


def test_credit_that_lapses_exhausts_in_its_second(market: Market) -> None:
    """The second at which only lapsed credit is left is foreseen, and everything stops in it."""
    market.ledger.adopt_policy(Policy(2, 1500, LATE, admission=False, offline_after_seconds=60))
    alice = market.account("alice")
    give(market, alice, 5, 90)
    machine, one = rented(market, alice)
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START) == START + 90
    market.run(machine, [one], 89, report_seconds=89)
    policies.run_due(market.ledger)
    assert market.status(one) == "running"
    market.run(machine, [one], 1)
    market.project()
    policies.run_due(market.ledger)
    assert market.status(one) == "stopped"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"account_id": 99}, "no_such_account"),
        ({"amount": 0}, "invalid_amount"),
        ({"expires_at": START}, "invalid_args"),
        ({"grant_id": "two words"}, "invalid_args"),
        ({"reason": ""}, "invalid_args"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(
    market: Market, change: dict[str, object], code: str
) -> None:
    """Each mistake has its code and leaves nothing."""
    alice = market.account("alice")
    given: dict[str, object] = {
        "account_id": alice, "amount": DOLLAR, "expires_at": START + 1, "grant_id": "g",
        "reason": "welcome", **change,
    }  # fmt: skip
    refused(market, lambda unit: grants.grant(unit, **given), code)  # type: ignore[arg-type]


def test_an_expired_grant_cannot_be_revoked_and_an_unknown_one_is_not_found(
    market: Market,
) -> None:
    """Its end is final; somebody else's grant is no grant."""
    alice, bob = market.account("alice"), market.account("bob")
    give(market, alice, 1, 60)
    refused(market, lambda unit: grants.revoke(unit, bob, "g", "x"), "no_such_grant")
    market.clock.move_to(START + 60)
    refused(market, lambda unit: grants.revoke(unit, alice, "g", "x"), "grant_closed")
