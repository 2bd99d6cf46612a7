"""Changing a bid over HTTP, and what an instance says of terms that are agreed and not in force."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.services import policies, rentals
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START

CENT = DOLLAR // 100


class Bidder:
    """Alice bids on bob's machine."""

    def __init__(self, api: Api) -> None:
        """One GPU, a floor of $0.10, alice at $0.25."""
        self.api = api
        self.market = api.market
        self.machine = api.market.machine(host="bob", floor=10 * CENT)
        self.instance = self.market.rent(
            api.accounts["alice"], self.machine, bid=25 * CENT, disk_gb=10
        )
        self.market.confirm(self.machine, self.instance)

    @property
    def path(self) -> str:
        """Where the instance lies."""
        return f"/v1/instances/{self.instance}"

    def bid(self, price: str | None, **headers: str) -> Any:
        """The answer to another bid."""
        return self.api("alice", "PUT", f"{self.path}/bid", {"price": price}, **headers)

    def pass_time(self, seconds: int) -> None:
        """Time in which the instance runs; what is due happens."""
        self.market.run(self.machine, [self.instance], seconds)
        policies.run_due(self.market.ledger)


@pytest.fixture
def bidder(api: Api) -> Bidder:
    """A running bid."""
    return Bidder(api)


def test_a_bid_changes_in_the_next_second(bidder: Bidder) -> None:
    """The answer names the new bid and its second; until then the instance says what is paid."""
    bidder.pass_time(10)
    answer = bidder.bid("0.30")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["new_bid"], shown["effective_at"]) == ("0.3", "2026-03-01T10:00:11Z")
    assert (shown["bid"], shown["gpu_rate"], shown["terms_due_at"]) == (
        "0.25",
        "0.25",
        "2026-03-01T10:00:11Z",
    )
    assert [(one["effective_at"], one["gpu_rate"]) for one in shown["coming"]] == [
        ("2026-03-01T10:00:11Z", "0.3")
    ]
    bidder.pass_time(1)
    later = bidder.api("alice", "GET", bidder.path).json()
    assert (later["bid"], later["gpu_rate"]) == ("0.3", "0.3")
    assert (later["bid_effective_at"], later["coming"]) == ("2026-03-01T10:00:11Z", [])
    assert later["dph_total"] == "0.302083333"


def test_the_charges_follow_the_bid(bidder: Bidder) -> None:
    """§5.2: $0.25 for 37 minutes, then $0.30 for 23, as two lines of interruptible use."""
    bidder.pass_time(37 * 60 - 1)
    bidder.bid("0.30")
    bidder.pass_time(1)
    bidder.pass_time(23 * 60)
    bidder.market.project()
    lines = bidder.api("alice", "GET", "/v1/charges").json()["items"]
    gpu = [one for one in lines if one["item"] == "gpu"]
    assert [(one["rate"], one["quantity"], one["amount"]) for one in gpu] == [
        ("0.25", 2_220, "0.154166666"),
        ("0.3", 1_380, "0.115"),
    ]
    assert {one["kind"] for one in lines} == {"interruptible"}


def test_no_price_is_the_smallest_that_would_run(bidder: Bidder) -> None:
    """§8.1: null bids what it takes, computed without one's own bid, and not below the floor."""
    assert bidder.bid(None).json()["new_bid"] == "0.1"
    bidder.pass_time(1)
    rival = bidder.market.rent(
        bidder.api.accounts["carol"], bidder.machine, bid=40 * CENT, disk_gb=10
    )
    shown = bidder.api("alice", "GET", bidder.path).json()
    assert (shown["status"], shown["reason"]) == ("scheduling", "outbid")
    assert shown["waiting_since"] == "2026-03-01T10:00:01Z"
    assert bidder.bid(None).json()["new_bid"] == "0.400000001"
    bidder.market.clock.move_to(START + 2)
    policies.run_due(bidder.market.ledger)
    assert bidder.market.status(bidder.instance) == "loading"
    assert bidder.market.status(rival) == "scheduling"
    shown = bidder.api("carol", "GET", f"/v1/instances/{rival}").json()
    assert (shown["reason"], shown["waiting_since"]) == ("outbid", "2026-03-01T10:00:02Z")
    assert bidder.market.rebuild().equal


def test_the_same_bid_again_changes_nothing(bidder: Bidder) -> None:
    """Idempotent by state: with or without a key, before and after its second."""
    assert bidder.bid("0.25").json()["effective_at"] == "2026-03-01T10:00:00Z"
    first = bidder.bid("0.30").json()
    head = bidder.market.head()
    assert bidder.bid("0.3000").json() == first
    assert bidder.bid("0.30", Idempotency_Key="k").json() == first
    assert bidder.bid("0.30", Idempotency_Key="k").json() == first
    other = bidder.bid("0.31", Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert bidder.market.head() == head
    bidder.pass_time(1)
    head = bidder.market.head()
    assert bidder.bid("0.30").json()["effective_at"] == "2026-03-01T10:00:01Z"
    assert bidder.market.head() == head


def test_a_bid_that_cannot_be_is_refused(bidder: Bidder) -> None:
    """Below the floor, on demand, expired, destroyed, or where no bid runs: each has its code."""
    market, alice = bidder.market, bidder.api.accounts["alice"]
    head = market.head()
    low = bidder.bid("0.099999999")
    assert (low.status_code, low.json()["code"], low.json()["floor"]) == (
        422,
        "invalid_price",
        "0.1",
    )
    assert market.head() == head
    fixed = market.rent(alice, market.machine(), disk_gb=10)
    answer = bidder.api("alice", "PUT", f"/v1/instances/{fixed}/bid", {"price": "1"})
    assert (answer.status_code, answer.json()["code"]) == (422, "not_interruptible")
    market.rent(bidder.api.accounts["carol"], bidder.machine, disk_gb=10)
    shown = bidder.api("alice", "GET", bidder.path).json()
    assert (shown["status"], shown["reason"]) == ("scheduling", "on_demand_arrival")
    none = bidder.bid(None)
    assert (none.status_code, none.json()["code"]) == (409, "no_capacity")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, bidder.instance)
    gone = bidder.bid("1")
    assert (gone.status_code, gone.json()["code"]) == (404, "no_such_instance")


def test_an_expired_contract_takes_no_bid(api: Api) -> None:
    """After its end date an instance bids no more."""
    market = api.market
    machine = market.machine(floor=CENT, until=START + 60)
    one = market.rent(api.accounts["alice"], machine, bid=5 * CENT, disk_gb=1)
    market.clock.move_to(START + 60)
    policies.run_due(market.ledger)
    answer = api("alice", "PUT", f"/v1/instances/{one}/bid", {"price": "1"})
    assert (answer.status_code, answer.json()["code"]) == (422, "contract_expired")


def test_a_host_s_withdrawn_floor_takes_no_new_bid(bidder: Bidder) -> None:
    """A listing without a floor refuses bids; the running one goes on."""
    bidder.market.list_again(bidder.machine)
    answer = bidder.bid("1")
    assert (answer.status_code, answer.json()["code"]) == (422, "bids_not_accepted")
    assert bidder.api("alice", "GET", bidder.path).json()["status"] == "running"


def test_a_silent_machine_shows_in_its_instances(bidder: Bidder) -> None:
    """`offline` is an overlay: the state stays, the instance says since when nothing is billed."""
    bidder.pass_time(30)
    bidder.market.clock.move_to(START + 120)
    policies.run_due(bidder.market.ledger)
    shown = bidder.api("alice", "GET", bidder.path).json()
    assert shown["status"] == "running"
    assert shown["offline_since"] == "2026-03-01T10:01:30Z"
    bidder.market.run(bidder.machine, [bidder.instance], 10)
    policies.run_due(bidder.market.ledger)
    assert bidder.api("alice", "GET", bidder.path).json()["offline_since"] is None
