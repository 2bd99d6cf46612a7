"""Bids: who gets in at which price, who is displaced, and what is left when a bid is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ledger.domain import events as e
from ledger.errors import DeclinedError, RejectedError
from ledger.services import listings, policies, rentals
from ledger.services.ledger import Policy, Unit
from ledger.services.questions.balances import balance
from tests.support.market import DOLLAR, START, Market

CENT = DOLLAR // 100


def refused(market: Market, do: Callable[[Unit], object], code: str) -> dict[str, object]:
    """The command is refused with this code and leaves the log as it was; returns its detail."""
    head = market.head()
    with market.ledger.unit() as unit, pytest.raises((DeclinedError, RejectedError)) as error:
        do(unit)
    assert error.value.code == code
    assert market.head() == head
    return dict(error.value.detail)


def bid_on(market: Market, account: int, machine: int, bid: int, **options: object) -> int:
    """An interruptible instance on a whole machine unless told otherwise."""
    return market.rent(account, machine, bid=bid, disk_gb=10, **options)


def change(market: Market, instance: int, bid: int | None) -> int:
    """Bid another amount; it takes effect in the next second."""
    with market.ledger.unit() as unit:
        return rentals.change_bid(unit, instance, bid)


def later(market: Market, seconds: int = 1) -> None:
    """Time passes, and what is due happens."""
    market.clock.move_to(market.clock() + seconds)
    policies.run_due(market.ledger)


def admit_waiting(market: Market, margin: int = 0) -> None:
    """Adopt rules under which new bids may wait."""
    market.ledger.adopt_policy(
        Policy(2, 1500, 259_200, True, 60, admit_waiting_bids=True, displacement_margin=margin)
    )


# --- new bids -------------------------------------------------------------------------------------


def test_a_bid_is_for_the_slice_and_is_what_is_paid(market: Market) -> None:
    """AUC-03: 0.30 for eight GPUs is 0.30 an hour, never 2.40."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(gpus=8, floor=CENT)
    one = bid_on(market, alice, machine, 30 * CENT)
    market.confirm(machine, one)
    market.run(machine, [one], 3_600)
    assert market.charges(one)["gpu"] == 30 * CENT


def test_a_machine_without_a_floor_takes_no_bids(market: Market) -> None:
    """A host that set no floor rents on demand only."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    refused(
        market, lambda u: rentals.rent(u, alice, machine, disk_gb=1, bid=9), "bids_not_accepted"
    )


def test_no_floor_lets_anybody_run_for_nothing(market: Market) -> None:
    """A floor of 0 is refused as a price of 0 is, so the smallest bid is never 0."""
    machine = market.machine(floor=1)
    for floor in (0, -1):
        prices = listings.Prices(CENT, 0, min_bid_per_gpu=floor)
        listing = partial(listings.list_machine, machine_id=machine, prices=prices)
        refused(market, listing, "invalid_price")
    alice = market.account("alice", 10 * DOLLAR)
    refused(market, lambda u: rentals.rent(u, alice, machine, disk_gb=1, bid=0), "invalid_price")
    assert market.status(bid_on(market, alice, machine, 1)) == "loading"


def test_a_bid_below_the_floor_leaves_nothing(market: Market) -> None:
    """AUC-01: a refused bid creates no contract, no storage and no charge."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(gpus=2, floor=10 * CENT)
    detail = refused(
        market,
        lambda u: rentals.rent(u, alice, machine, disk_gb=100, bid=20 * CENT - 1, wait=True),
        "invalid_price",
    )
    assert detail["floor"] == "0.2"
    assert market.facts(f"instance-{1}") == []


def test_a_bid_below_what_would_run_is_refused_with_the_smallest_that_would(
    market: Market,
) -> None:
    """The refusal names the bid that wins now, and that bid wins."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    first = bid_on(market, alice, machine, 25 * CENT)
    bob = market.account("carol", 10 * DOLLAR)
    detail = refused(
        market,
        lambda u: rentals.rent(u, bob, machine, disk_gb=1, bid=25 * CENT, wait=True),
        "invalid_price",
    )
    assert detail["min_bid"] == "0.250000001"
    second = bid_on(market, bob, machine, 25 * CENT + 1)
    assert (market.status(first), market.status(second)) == ("scheduling", "loading")


def test_no_bid_takes_gpus_from_on_demand(market: Market) -> None:
    """A rented-out machine cannot be taken by a bid, however high."""
    alice, machine = market.account("alice", 99 * DOLLAR), market.machine(floor=CENT)
    tenant = market.rent(alice, machine)
    refused(market, lambda u: rentals.rent(u, alice, machine, disk_gb=1, bid=DOLLAR), "no_capacity")
    waiting = bid_on(market, alice, machine, DOLLAR, wait=True)
    assert (market.status(tenant), market.status(waiting)) == ("loading", "scheduling")


def test_where_bids_may_wait_a_low_one_waits(market: Market) -> None:
    """With `admit_waiting_bids` a bid at the floor is never refused and runs when it can."""
    admit_waiting(market)
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    high = bid_on(market, alice, machine, 50 * CENT)
    low = bid_on(market, alice, machine, 10 * CENT, wait=True)
    assert market.status(low) == "scheduling"
    with market.ledger.unit() as unit:
        rentals.stop(unit, high)
    assert market.status(low) == "loading"


def test_own_machine_competes_and_costs_nothing(market: Market) -> None:
    """A host's own bid takes part in the auction and posts no charge."""
    bob, machine = market.account("bob", DOLLAR), market.machine("bob", floor=10 * CENT)
    own = bid_on(market, bob, machine, 20 * CENT)
    market.confirm(machine, own)
    market.run(machine, [own], 60)
    assert change(market, own, 40 * CENT) == 40 * CENT
    later(market)
    carol = market.account("carol", 10 * DOLLAR)
    refused(
        market, lambda u: rentals.rent(u, carol, machine, disk_gb=1, bid=40 * CENT), "invalid_price"
    )
    assert set(market.charges(own).values()) == {0}


# --- displacement ---------------------------------------------------------------------------------


def test_displacement_is_a_fact_in_the_transaction_of_its_cause(market: Market) -> None:
    """The new tenant, the decision, the displaced one and its notice share one second, in order."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    carol = market.account("carol", 10 * DOLLAR)
    first = bid_on(market, alice, machine, 25 * CENT)
    market.confirm(machine, first)
    market.run(machine, [first], 30)
    before = market.head()
    bid_on(market, carol, machine, 30 * CENT)
    rows = market.connection.execute(
        "SELECT topic, recorded_at FROM events WHERE position > %s ORDER BY position", [before]
    ).fetchall()
    assert [row[0] for row in rows] == [
        "instance.created.v2",
        "notice.issued.v1",
        "offer.opened.v1",
        "allocation.decided.v1",
        "instance.displaced.v1",
        "gpus.assigned.v1",
        "notice.issued.v1",
    ]
    assert {row[1] for row in rows} == {START + 30}


def test_each_displacement_closes_one_interval_and_each_resume_opens_one(market: Market) -> None:
    """AUC-04: pauses and resumes give intervals that touch nowhere and overlap nowhere."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    carol = market.account("carol", 10 * DOLLAR)
    patient = bid_on(market, alice, machine, 20 * CENT)
    market.confirm(machine, patient)
    for round_ in range(1, 4):
        market.run(machine, [patient], 20)
        rude = bid_on(market, carol, machine, 30 * CENT)
        market.confirm(machine, rude)
        market.run(machine, [rude], 10)
        with market.ledger.unit() as unit:
            rentals.destroy(unit, rude)
        market.confirm(machine, patient, assignment=round_ + 1)
    market.project()
    spans = market.connection.execute(
        "SELECT start - %s, until - %s FROM gpu_intervals WHERE instance_id = %s ORDER BY start",
        [START, START, patient],
    ).fetchall()
    assert spans == [(0, 20), (30, 50), (60, 80), (90, None)]
    assert market.seconds(patient)[0] == 60
    assert market.rebuild().equal


def test_an_on_demand_arrival_displaces_what_no_longer_fits(market: Market) -> None:
    """§8.3: on eight GPUs an on-demand four leaves room for A's 1.00 and not for X's eight GPUs."""
    admit_waiting(market)
    rich = market.account("alice", 99 * DOLLAR)
    machine = market.machine(gpus=8, floor=10 * CENT)
    x = bid_on(market, rich, machine, 240 * CENT)
    a = bid_on(market, rich, machine, 100 * CENT, gpus=4, wait=True)
    c = bid_on(market, rich, machine, 60 * CENT, gpus=2, wait=True)
    market.rent(rich, machine, gpus=4)
    assert [market.status(one) for one in (x, a, c)] == ["scheduling", "loading", "scheduling"]
    market.rent(rich, machine, gpus=2)
    assert [market.status(one) for one in (x, a, c)] == ["scheduling", "scheduling", "loading"]
    reasons = {
        f.instance_id: f.reason for f in market.facts() if isinstance(f, e.InstanceDisplaced)
    }
    assert reasons == {x: "on_demand_arrival", a: "on_demand_arrival"}


def test_within_the_margin_nobody_is_displaced(market: Market) -> None:
    """§8.3: with a margin of $0.003 a gain of 0.002 displaces nobody and one of 0.004 does."""
    admit_waiting(market, margin=3_000_000)
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    p = bid_on(market, alice, machine, 300_000_000)
    q = bid_on(market, alice, machine, 302_000_000, wait=True)
    assert market.status(p) == "loading"
    change(market, q, 304_000_000)
    later(market)
    assert (market.status(p), market.status(q)) == ("scheduling", "loading")


def test_a_raised_floor_binds_resumes_and_not_who_runs(market: Market) -> None:
    """§8.3: grandfathered while running, waiting after a stop and a start."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    p = bid_on(market, alice, machine, 25 * CENT)
    market.list_again(machine, floor=30 * CENT)
    assert market.status(p) == "loading"
    with market.ledger.unit() as unit:
        rentals.stop(unit, p)
        rentals.start(unit, p)
    assert market.status(p) == "scheduling"
    change(market, p, 30 * CENT)
    later(market)
    assert market.status(p) == "loading"


# --- changing a bid -------------------------------------------------------------------------------


def test_a_bid_change_takes_effect_in_the_next_second(market: Market) -> None:
    """§5.2: $0.25 for 37 minutes, then $0.30 for 23, is 269,166,666 nanos in two segments."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    one = bid_on(market, alice, machine, 25 * CENT)
    market.confirm(machine, one)
    market.run(machine, [one], 37 * 60 - 1, report_seconds=37)
    change(market, one, 30 * CENT)
    market.run(machine, [one], 1)
    policies.run_due(market.ledger)
    market.run(machine, [one], 23 * 60)
    assert market.charges(one)["gpu"] == 154_166_666 + 115_000_000
    rows = market.connection.execute(
        "SELECT since - %s, gpu_rate, gpu_quantity FROM rate_segments ORDER BY terms_no", [START]
    ).fetchall()
    assert rows == [(0, 25 * CENT, 2_220), (2_220, 30 * CENT, 1_380)]
    assert market.rebuild().equal


def test_the_last_of_several_changes_in_one_second_governs(market: Market) -> None:
    """Earlier changes stay in the history with no second of their own."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    one = bid_on(market, alice, machine, 25 * CENT)
    market.confirm(machine, one)
    for bid in (40, 50, 30):
        change(market, one, bid * CENT)
    market.run(machine, [one], 1)
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_600)
    market.project()
    rows = market.connection.execute(
        "SELECT gpu_rate, gpu_quantity FROM rate_segments ORDER BY terms_no"
    ).fetchall()
    assert rows == [(25 * CENT, 1), (40 * CENT, 0), (50 * CENT, 0), (30 * CENT, 3_600)]
    assert len([one for one in market.facts() if isinstance(one, e.BidChanged)]) == 3
    assert market.rebuild().equal


def test_the_same_bid_again_changes_nothing(market: Market) -> None:
    """A repeated change leaves no fact, also while the first one waits for its second."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    one = bid_on(market, alice, machine, 25 * CENT)
    change(market, one, 30 * CENT)
    head = market.head()
    change(market, one, 30 * CENT)
    later(market)
    after = market.head()
    change(market, one, 30 * CENT)
    assert head < after == market.head()


def test_a_missing_price_is_the_smallest_that_would_run(market: Market) -> None:
    """It is computed without the instance's own bid, never below the floor, and it wins."""
    admit_waiting(market)
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    high = bid_on(market, alice, machine, 50 * CENT)
    low = bid_on(market, alice, machine, 20 * CENT, wait=True)
    assert change(market, low, None) == 50 * CENT + 1
    later(market)
    assert (market.status(high), market.status(low)) == ("scheduling", "loading")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, high)
    assert change(market, low, None) == 10 * CENT


@pytest.mark.parametrize(
    ("kind", "code"),
    [("on_demand", "not_interruptible"), ("stopped_listing", "bids_not_accepted")],
)
def test_who_cannot_bid_is_told_why(market: Market, kind: str, code: str) -> None:
    """An on-demand instance has no bid, and a host that withdrew its floor takes none."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=CENT)
    if kind == "on_demand":
        one = market.rent(alice, machine)
    else:
        one = bid_on(market, alice, machine, 5 * CENT)
        market.list_again(machine)
    refused(market, lambda unit: rentals.change_bid(unit, one, 9 * CENT), code)


def test_a_bid_below_the_floor_is_no_change(market: Market) -> None:
    """A change below floor × n is refused and the old bid goes on."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(floor=10 * CENT)
    one = bid_on(market, alice, machine, 25 * CENT)
    refused(market, lambda unit: rentals.change_bid(unit, one, 10 * CENT - 1), "invalid_price")


def test_a_raised_bid_is_worth_credit_from_its_second(market: Market) -> None:
    """Available credit accrues at the old rate up to the change and at the new one after it."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(storage=0, floor=CENT)
    one = bid_on(market, alice, machine, 36 * CENT)
    market.confirm(machine, one)
    market.clock.move_to(START + 9)
    change(market, one, 72 * CENT)
    market.clock.move_to(START + 20)
    policies.run_due(market.ledger)
    with market.ledger.reading() as connection:
        assert balance(connection, alice, START + 20).accrued == 10 * 100_000 + 10 * 200_000
    assert market.rebuild().equal
