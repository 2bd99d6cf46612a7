"""Usage statements: daily, proven line by line, complete whatever arrives late, never changed."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.merkle import verify_inclusion
from ledger.errors import NotFoundError
from ledger.services import rentals, statements
from ledger.services.questions import statements as ask
from tests.support.disputes import DAY, HOUR, late, ran, rented, run_due
from tests.support.market import START, Market

FIRST_DAY = START // DAY * DAY
ONE_OCLOCK = FIRST_DAY + DAY + HOUR


def stated(market: Market) -> list[tuple[int, int]]:
    """Account and day of every statement, in the order of issue."""
    return [
        (one.account_id, (one.day - FIRST_DAY) // DAY) for one in ask.statements(market.connection)
    ]


def lines(market: Market, account: int, day: int) -> list[Any]:
    """The lines of one statement."""
    return ask.statement(market.connection, account, FIRST_DAY + day * DAY)[1]


def test_a_statement_comes_at_one_in_the_morning_and_not_before(market: Market) -> None:
    """§15: the day's statement comes at 01:00 UTC of the next day, to whoever used anything."""
    alice = rented(market)
    idle = market.account("idle", 1)
    ran(market, alice, HOUR)
    run_due(market, ONE_OCLOCK - 1)
    assert stated(market) == []
    run_due(market, ONE_OCLOCK)
    assert stated(market) == [(alice.renter, 0)]
    assert idle not in {account for account, _ in stated(market)}
    (line,) = lines(market, alice.renter, 0)
    assert (line.charge, line.quantity, line.amount, line.fee) == (
        f"instance-{alice.instance}.gpu.1",
        3_600,
        400_000_000,
        60_000_000,
    )
    assert market.rebuild().equal


def test_issuing_again_changes_nothing_even_without_the_mark(market: Market) -> None:
    """One statement per account and day: a lost mark makes it look again, and find it."""
    alice = rented(market)
    ran(market, alice, 600)
    run_due(market, ONE_OCLOCK)
    market.connection.execute(
        "UPDATE projection_positions SET position = %s WHERE name = 'statements'",
        [FIRST_DAY // DAY - 1],
    )
    run_due(market, ONE_OCLOCK + 1)
    assert stated(market) == [(alice.renter, 0)]


def test_every_line_is_proven_under_the_root(market: Market) -> None:
    """The proof of each line verifies with the bytes that it carries, and with nothing else."""
    alice = rented(market, storage=150_000_000, up=3_000_000, down=2_000_000)
    ran(market, alice, HOUR, up=5_000_000, down=7_000_000)
    run_due(market, ONE_OCLOCK)
    count = len(lines(market, alice.renter, 0))
    assert count == 4
    for number in range(count):
        proof = ask.proof(market.connection, alice.renter, FIRST_DAY, number)
        path = [bytes.fromhex(one) for one in proof.path]
        root = bytes.fromhex(proof.merkle_root)
        assert verify_inclusion(root, proof.bytes.encode(), number, count, path)
        forged = proof.bytes.replace('"amount":', '"amount":1')
        assert not verify_inclusion(root, forged.encode(), number, count, path)
    with pytest.raises(NotFoundError):
        ask.proof(market.connection, alice.renter, FIRST_DAY, count)
    with pytest.raises(NotFoundError):
        ask.proof(market.connection, alice.host, FIRST_DAY, 0)


def test_late_usage_is_a_late_line_of_a_later_statement(market: Market) -> None:
    """ING-04: what arrives after its day's statement keeps its day, and no line changes."""
    alice = rented(market)
    ran(market, alice, 600)
    run_due(market, ONE_OCLOCK)
    before = lines(market, alice.renter, 0)
    late(market, alice, START + 600, 600)
    run_due(market, ONE_OCLOCK + DAY)
    assert lines(market, alice.renter, 0) == before
    (line,) = lines(market, alice.renter, 1)
    assert (line.late, line.used_day, line.quantity) == (True, FIRST_DAY, 600)
    assert before[0].amount + line.amount == market.charges(alice.instance)["gpu"]
    assert before[0].fee + line.fee == market.charges(alice.instance)["gpu"] * 15 // 100


def test_the_lines_of_all_days_add_up_to_the_charges(market: Market) -> None:
    """LIFE-09: over midnights, stops and late ticks the statements say what was charged, once."""
    alice = rented(market, storage=150_000_000)
    ran(market, alice, 3 * HOUR)
    market.clock.move_to(FIRST_DAY + DAY - HOUR)
    ran(market, alice, 2 * HOUR)
    run_due(market, ONE_OCLOCK)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, alice.instance)
    run_due(market, FIRST_DAY + 6 * DAY)
    total = sum(
        line.amount for account, day in stated(market) for line in lines(market, account, day)
    )
    assert total == sum(market.charges(alice.instance).values())
    assert stated(market) == [(alice.renter, 0), (alice.renter, 1)]


def test_a_statement_waits_until_its_day_is_folded(market: Market) -> None:
    """A lagging projection never makes a statement that misses what was already received."""
    alice = rented(market)
    ran(market, alice, 600)
    market.clock.move_to(ONE_OCLOCK)
    assert statements.issue_due(market.ledger) == 0
    assert stated(market) == []
    market.project()
    assert statements.issue_due(market.ledger) == 1


def test_days_that_were_missed_are_made_up_one_by_one(market: Market) -> None:
    """After a long stop of the platform every day gets its own statement, in order."""
    alice = rented(market, storage=150_000_000)
    for day in range(1, 4):
        ran(market, alice, 600, state="stopped")
        market.clock.move_to(FIRST_DAY + day * DAY)
    run_due(market, FIRST_DAY + 10 * DAY)
    assert [day for _, day in stated(market)] == [0, 1, 2]


def test_the_clock_is_told_to_stop_at_one_while_usage_can_come(market: Market) -> None:
    """A simulation stops at 01:00 while an instance lives or its last ticks may still be late."""
    assert statements.next_due(market.connection, START) is None
    alice = rented(market)
    assert statements.next_due(market.connection, START) == ONE_OCLOCK
    assert statements.next_due(market.connection, ONE_OCLOCK) == ONE_OCLOCK + DAY
    with market.ledger.unit() as unit:
        rentals.destroy(unit, alice.instance)
    assert statements.next_due(market.connection, START + 3 * DAY) is not None
    assert statements.next_due(market.connection, START + 30 * DAY) is None
