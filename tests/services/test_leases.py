"""Leases and spend limits: an instance that stops by itself, to the second (LIFE-08)."""

from __future__ import annotations

import pytest

from ledger.errors import DeclinedError, LedgerError, RejectedError
from ledger.services import leases, listings, rentals
from ledger.services.leases import Lease
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import act, act_until, next_due, notices, started, status, topics

HOUR = 3_600


def lease(
    market: Market, instance: int, until: int | None = None, spend: int | None = None
) -> None:
    """Give an instance a lease."""
    with market.ledger.unit() as unit:
        leases.set_lease(unit, instance, Lease(until, spend))


def start_refused(market: Market, instance: int) -> str:
    """The code with which a start is refused."""
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        rentals.start(unit, instance)
    return error.value.code


def test_a_lease_stops_at_its_second_and_the_disk_goes_on(market: Market) -> None:
    """3,600 s of GPU are billed and 3,660 s of storage; the reason is `lease`."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    lease(market, one, until=START + HOUR)
    assert next_due(market) == START + HOUR
    market.run(machine, [one], HOUR - 1, report_seconds=257)
    act(market)
    assert status(market, one) == ("running", "")
    market.run(machine, [one], 1)
    act(market)
    assert status(market, one) == ("stopped", "lease")
    market.run(machine, [one], 60, state="stopped")
    act(market)
    assert market.seconds(one) == (HOUR, HOUR + 60)
    assert topics(market, "lease.ended.v1") == 1
    assert market.rebuild().equal


def test_after_its_lease_an_instance_starts_only_with_another_one(market: Market) -> None:
    """A start that the lease would undo in the same second is refused with `lease_ended`."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    lease(market, one, until=START + 10)
    act(market, START + 10)
    assert start_refused(market, one) == "lease_ended"
    lease(market, one, until=START + 20)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    act(market, START + 20)
    assert status(market, one) == ("stopped", "lease")
    lease(market, one)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    act_until(market, START + 50)
    assert status(market, one)[0] == "loading"


def test_a_spend_limit_stops_at_the_second_in_which_it_is_spent(market: Market) -> None:
    """$0.36/h and 100 GB at $0.15 are 105,787.04 nanos a second: $0.01 is spent in second 95."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    lease(market, one, spend=10_000_000)
    assert next_due(market) == START + 95
    market.run(machine, [one], 94, report_seconds=47)
    act(market)
    assert status(market, one) == ("running", "")
    act(market, START + 95)
    assert status(market, one) == ("stopped", "spend_cap")
    assert notices(market, alice, "spend_cap") == [("spend_cap", START + 95)]
    assert start_refused(market, one) == "spend_rate_limit"
    lease(market, one, spend=20_000_000)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)


def test_a_spend_limit_counts_what_was_folded_and_what_was_not(market: Market) -> None:
    """Reports and projections in between move the second of the stop by nothing."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    one = started(market, alice, machine)
    lease(market, one, spend=36_000_000)
    for _ in range(5):
        market.run(machine, [one], 71, report_seconds=71)
        market.project()
        act(market)
    assert next_due(market) == START + 360
    assert status(market, one) == ("running", "")
    act(market, START + 360)
    assert status(market, one) == ("stopped", "spend_cap")
    assert market.rebuild().equal


def test_traffic_counts_towards_a_spend_limit(market: Market) -> None:
    """Bytes that a report attests are spent when it arrives."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    one = started(market, alice, machine)
    lease(market, one, spend=20_000_000)
    market.run(machine, [one], 10, up=1_000_000_000, report_seconds=10)
    market.project()
    act(market)
    assert status(market, one) == ("stopped", "spend_cap")


def test_a_lease_ends_what_waits_for_gpus_too(market: Market) -> None:
    """An instance in `scheduling` at the end of its lease does not start later."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    first = started(market, alice, machine)
    waiting = market.rent(alice, machine, wait=True)
    lease(market, waiting, until=START + 30)
    act(market, START + 30)
    assert status(market, waiting) == ("stopped", "lease")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, first)
    assert status(market, waiting) == ("stopped", "lease")


def test_the_gpus_of_a_lease_that_ended_go_to_who_waits(market: Market) -> None:
    """The decision of the auction follows in the same second."""
    alice, carol = market.account("alice", 100 * DOLLAR), market.account("carol", 100 * DOLLAR)
    machine = market.machine()
    with market.ledger.unit() as unit:
        listings.list_machine(unit, machine, listings.Prices(DOLLAR, 0, 0, 0, 10_000_000))
    leased = started(market, alice, machine)
    waiting = market.rent(carol, machine, wait=True)
    lease(market, leased, until=START + 30)
    act(market, START + 30)
    assert (status(market, leased)[0], status(market, waiting)[0]) == ("stopped", "loading")


def test_a_destroyed_instance_ends_its_lease_without_a_word(market: Market) -> None:
    """The lease of what is gone binds nothing: it is closed, and nobody is told."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    lease(market, one, until=START + HOUR, spend=DOLLAR)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    act(market, START + 1)
    assert topics(market, "lease.ended.v1") == 1
    assert notices(market, alice, "spend_cap") == []
    with pytest.raises(LedgerError) as error:
        lease(market, one, until=START + HOUR)
    assert error.value.code == "no_such_instance"


@pytest.mark.parametrize(
    ("until", "spend", "code"),
    [
        (START, None, "invalid_args"),
        (START - 5, None, "invalid_args"),
        (None, 0, "invalid_amount"),
        (None, -1, "invalid_amount"),
        (None, 10**18 + 1, "invalid_amount"),
    ],
)
def test_a_lease_that_cannot_be_meant_is_refused(
    market: Market, until: int | None, spend: int | None, code: str
) -> None:
    """A lease ends in the future, and its limit is an amount above 0."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    with pytest.raises(RejectedError) as error:
        lease(market, one, until=until, spend=spend)
    assert error.value.code == code


def test_the_same_lease_again_is_no_news(market: Market) -> None:
    """Repeating what was set appends nothing."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = started(market, alice, machine)
    lease(market, one)
    lease(market, one, until=START + HOUR)
    head = market.head()
    lease(market, one, until=START + HOUR)
    assert market.head() == head
