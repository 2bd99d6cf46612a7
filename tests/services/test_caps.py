"""Spend caps: what an account may burn in an hour and be charged in a UTC day (CRED-05, API-01)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger.errors import DeclinedError, LedgerError, RejectedError
from ledger.services import caps, listings, rentals
from ledger.services.caps import Caps
from ledger.services.credit import read_credit
from ledger.services.ledger import read_policy
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import act, next_due, notices, started, status, topics

HOUR = 3_600
MIDNIGHT = START + 14 * HOUR


def cap(market: Market, account: int, **amounts: int | bool | None) -> None:
    """Put caps in force."""
    with market.ledger.unit() as unit:
        caps.set_caps(unit, account, Caps(**amounts))  # type: ignore[arg-type]  # by name


def refused(market: Market, account: int, machine: int, **options: int) -> str:
    """The code with which a rental is refused; it must leave nothing behind."""
    head = market.head()
    with pytest.raises(LedgerError) as error:
        market.rent(account, machine, **options)
    assert market.head() == head
    return error.value.code


def bidding_machine(market: Market, gpus: int = 2) -> int:
    """A machine that takes bids from a cent on."""
    machine = market.machine(gpus=gpus, gpu_hour=DOLLAR, storage=0)
    with market.ledger.unit() as unit:
        prices = listings.Prices(DOLLAR, 0, 0, 0, 10_000_000)
        listings.list_machine(unit, machine, prices)
    return machine


# $0.40 of GPUs and 100 GB at $0.15: 420,833,333.33 nanos an hour.
@pytest.mark.parametrize(("per_hour", "admitted"), [(420_833_334, True), (420_833_333, False)])
def test_the_cap_of_an_hour_is_exact(market: Market, per_hour: int, admitted: bool) -> None:
    """A burn of 420,833,333 and a third nanos an hour is above a cap of 420,833,333."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpu_hour=400_000_000)
    cap(market, alice, per_hour=per_hour)
    if admitted:
        market.rent(alice, machine)
    else:
        assert refused(market, alice, machine) == "spend_rate_limit"


def test_a_launch_storm_ends_at_the_cap_although_nothing_runs_yet(market: Market) -> None:
    """What loads counts as much as what runs: of 8 launches at $0.36 a cap of $1 lets 2 through."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=8, storage=0)
    cap(market, alice, per_hour=DOLLAR)
    for number in range(8):
        if number < 2:
            market.rent(alice, machine, gpus=1)
        else:
            assert refused(market, alice, machine, gpus=1) == "spend_rate_limit"
    assert market.rebuild().equal


def test_what_waits_for_gpus_counts(market: Market) -> None:
    """An instance in `scheduling` burns as soon as GPUs are free, so it takes its part of a cap."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    other = market.machine(host="dora", storage=0)
    cap(market, alice, per_hour=2 * 360_000_000)
    market.rent(alice, machine)
    waiting = market.rent(alice, machine, wait=True)
    assert status(market, waiting)[0] == "scheduling"
    assert refused(market, alice, other) == "spend_rate_limit"
    with market.ledger.unit() as unit:
        rentals.stop(unit, waiting)
    market.rent(alice, other)


def test_concurrent_starts_are_judged_one_after_the_other(market: Market) -> None:
    """Of eight starts at once exactly as many pass as the cap has room for (CRED-05)."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=8, storage=0)
    cap(market, alice, per_hour=3 * 360_000_000)

    def launch(_: int) -> str:
        try:
            market.rent(alice, machine, gpus=1)
        except DeclinedError as error:
            return error.code
        return "admitted"

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(launch, range(8)))
    assert answers == ["admitted"] * 3 + ["spend_rate_limit"] * 5


def test_a_start_counts_its_own_disk_once(market: Market) -> None:
    """A stopped instance's disk burns already: the cap it was created under lets it start again."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpu_hour=400_000_000)
    cap(market, alice, per_hour=420_833_334)
    one = market.rent(alice, machine)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
        rentals.start(unit, one)
        rentals.stop(unit, one)
    cap(market, alice, per_hour=420_833_333)
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        rentals.start(unit, one)
    assert error.value.code == "spend_rate_limit"
    assert error.value.detail["per"] == "hour"


def test_a_cap_stops_nothing_that_runs(market: Market) -> None:
    """Caps are checked at starts and bids: a cap below the present burn changes no state."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    one = started(market, alice, machine)
    cap(market, alice, per_hour=1)
    act(market, START + 10)
    assert status(market, one)[0] == "running"


def test_raising_a_bid_is_capped_and_lowering_it_never_is(market: Market) -> None:
    """A cap below the present burn must not keep a bid high."""
    alice, machine = market.account("alice", 100 * DOLLAR), bidding_machine(market)
    one = started(market, alice, machine, gpus=1, bid=200_000_000)
    cap(market, alice, per_hour=300_000_000)
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        rentals.change_bid(unit, one, 300_000_001)
    assert error.value.code == "spend_rate_limit"
    with market.ledger.unit() as unit:
        rentals.change_bid(unit, one, 300_000_000)
    cap(market, alice, per_hour=100_000_000)
    with market.ledger.unit() as unit:
        rentals.change_bid(unit, one, 250_000_000)


def test_a_bid_raised_in_this_second_counts_in_this_second(market: Market) -> None:
    """A higher bid applies from the next second on, and a start in between is judged with it."""
    alice, machine = market.account("alice", 100 * DOLLAR), bidding_machine(market)
    one = started(market, alice, machine, gpus=1, bid=100_000_000)
    cap(market, alice, per_hour=DOLLAR)
    with market.ledger.unit() as unit:
        rentals.change_bid(unit, one, 950_000_000)
    assert refused(market, alice, machine, gpus=1, bid=100_000_000) == "spend_rate_limit"


def test_the_cap_of_a_day_counts_what_was_charged_since_midnight_utc(market: Market) -> None:
    """After an hour at $0.36, $0.72 a day admits another hour of the same and $0.719999999 not."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2, storage=0)
    one = started(market, alice, machine, gpus=1)
    market.run(machine, [one], HOUR, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    cap(market, alice, per_day=719_999_999)
    assert refused(market, alice, machine, gpus=1) == "spend_rate_limit"
    market.project()
    assert refused(market, alice, machine, gpus=1) == "spend_rate_limit"
    cap(market, alice, per_day=720_000_000)
    market.rent(alice, machine, gpus=1)


def test_a_new_utc_day_begins_with_nothing_charged(market: Market) -> None:
    """Of 20 minutes around midnight the first 10 belong to the old day, folded or not."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    market.clock.move_to(MIDNIGHT - 600)
    market.deliver(market.seal(machine, MIDNIGHT - 601, 1))
    started(market, alice, machine)
    with market.ledger.reading() as connection:
        policy = read_policy(connection)
    for second, spent in ((MIDNIGHT - 1, 59_900_000), (MIDNIGHT, 0), (MIDNIGHT + 600, 60_000_000)):
        market.run(machine, [1], second - market.clock(), report_seconds=300)
        for _ in range(2):
            with market.ledger.reading() as connection:
                credit = read_credit(connection, [alice])[alice]
                assert caps.day_spend(connection, credit, second, policy) == spent
            market.project()


def test_a_soft_cap_of_a_day_is_told_once_and_stops_nothing(market: Market) -> None:
    """The second in which the charges reach the cap is told; the next day would be told again."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(storage=0)
    one = started(market, alice, machine)
    cap(market, alice, per_day=180_000_000)
    for _ in range(6):
        market.run(machine, [one], 600, report_seconds=300)
        act(market)
    assert notices(market, alice, "spend_cap") == [("spend_cap", START + 1_800)]
    assert status(market, one)[0] == "running"
    cap(market, alice, per_day=400_000_000)
    market.run(machine, [one], 600, report_seconds=300)
    act(market)
    assert len(notices(market, alice, "spend_cap")) == 2
    market.project()
    assert market.rebuild().equal


def test_a_hard_cap_stops_everything_in_its_very_second(market: Market) -> None:
    """Two instances stop at the predicted second with reason spend_cap; tomorrow they may start."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2, storage=0)
    tenants = [started(market, alice, machine, gpus=1) for _ in range(2)]
    cap(market, alice, per_day=200_000_000, hard=True)
    act(market)
    assert next_due(market) == START + 1_000
    market.run(machine, tenants, 999, report_seconds=111)
    act(market)
    assert {status(market, one) for one in tenants} == {("running", "")}
    act(market, START + 1_000)
    act(market, START + 1_010)
    assert {status(market, one) for one in tenants} == {("stopped", "spend_cap")}
    assert topics(market, "spend_caps.day_reached.v1") == 1
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        rentals.start(unit, tenants[0])
    assert (error.value.code, error.value.detail["per"]) == ("spend_rate_limit", "day")
    market.clock.move_to(MIDNIGHT)
    market.deliver(market.seal(machine, MIDNIGHT - 1, 1))
    cap(market, alice, per_day=360_000_000, hard=True)
    with market.ledger.unit() as unit:
        rentals.start(unit, tenants[0])
    assert market.rebuild().equal


def test_caps_that_cannot_be_meant_are_refused(market: Market) -> None:
    """A hard cap needs a cap on the day, no amount is negative, and the same again is no news."""
    alice = market.account("alice")
    for amounts, code in (
        ({"hard": True, "per_hour": 5}, "invalid_args"),
        ({"per_day": -1}, "invalid_amount"),
        ({"per_hour": 10**18 + 1}, "invalid_amount"),
    ):
        with pytest.raises(RejectedError) as error:
            cap(market, alice, **amounts)
        assert error.value.code == code
    cap(market, alice, per_hour=5)
    head = market.head()
    cap(market, alice, per_hour=5)
    assert market.head() == head
