"""Offers: one open per slice size, what closes them, and what renting from one promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.domain.events import GpuHealthChanged
from ledger.domain.ids import machine_stream
from ledger.errors import DeclinedError, LedgerError, NotFoundError, RejectedError
from ledger.services import listings, machines, policies, rentals
from ledger.services.ledger import Unit
from ledger.services.questions.offers import OfferView, Search, offer, search
from ledger.services.slices import slice_sizes
from tests.support.market import DOLLAR, START, Market

CENT = DOLLAR // 100


def open_offers(market: Market, machine: int) -> dict[int, int]:
    """GPUs → offer id of a machine's open offers."""
    rows = market.connection.execute(
        "SELECT gpus, offer_id FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchall()
    return dict(rows)


def found(market: Market, **wish: object) -> list[OfferView]:
    """What a search finds, verified or not."""
    with market.ledger.reading() as connection:
        asked = Search(**{"verified_only": False, "disk_gb": 100, **wish})  # type: ignore[arg-type]
        return search(connection, asked, market.clock()).offers


def refused(market: Market, do: Callable[[Unit], object], code: str) -> None:
    """The command is refused with this code and leaves the log as it was."""
    head = market.head()
    with (
        market.ledger.unit() as unit,
        pytest.raises((DeclinedError, RejectedError, NotFoundError)) as error,
    ):
        do(unit)
    assert error.value.code == code
    assert market.head() == head


@pytest.mark.parametrize(
    ("gpus", "smallest", "sizes"),
    [
        (8, 1, [1, 2, 4, 8]),
        (8, 2, [2, 4, 8]),
        (6, 1, [1, 2, 4, 6]),
        (4, 4, [4]),
        (1, 1, [1]),
        (16, 3, [3, 6, 12, 16]),
    ],
)
def test_a_machine_is_cut_by_doubling(gpus: int, smallest: int, sizes: list[int]) -> None:
    """§6: slices are m, 2m, 4m, … below N, and N itself."""
    assert slice_sizes(gpus, smallest) == sizes


def test_a_listing_opens_one_offer_per_slice(market: Market) -> None:
    """C12: no slice is offered twice, and ids follow the order of the facts."""
    machine = market.machine(gpus=8, min_gpus=2)
    assert open_offers(market, machine) == {2: 1, 4: 2, 8: 3}


def test_renting_closes_the_offer_and_opens_another(market: Market) -> None:
    """One offer makes one instance; the market shows a slice of that size under a new id."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(gpus=4)
    before = open_offers(market, machine)
    one = market.rent(alice, None, offer_id=before[2], disk_gb=10)
    after = open_offers(market, machine)
    assert after == {**before, 2: 4}
    row = market.connection.execute(
        "SELECT instance_id, closed_at FROM offers WHERE offer_id = %s", [before[2]]
    ).fetchone()
    assert row == (one, START)
    refused(
        market,
        lambda unit: rentals.rent(unit, alice, offer_id=before[2], disk_gb=10),
        "no_such_ask",
    )


def test_the_same_create_again_is_the_same_instance_while_it_lives(market: Market) -> None:
    """IDEM-02, C21: without a key, (account, offer) is the key; after destroy it is refused."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    carol = market.account("carol", 10 * DOLLAR)
    (number,) = open_offers(market, machine).values()
    with market.ledger.unit() as unit:
        first = rentals.rent_once(unit, alice, number, disk_gb=10)
    with market.ledger.unit() as unit:
        again = rentals.rent_once(unit, alice, number, disk_gb=10)
    assert (first.replayed, again.replayed) == (False, True)
    assert first.instance_id == again.instance_id
    refused(market, lambda unit: rentals.rent_once(unit, carol, number, disk_gb=10), "no_such_ask")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, first.instance_id)
    refused(market, lambda unit: rentals.rent_once(unit, alice, number, disk_gb=10), "no_such_ask")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"offer_id": 99}, "no_such_ask"),
        ({"offer_id": 1, "gpus": 2}, "invalid_args"),
        ({"offer_id": 1, "machine_id": 2}, "invalid_args"),
        ({}, "invalid_args"),
        ({"machine_id": 1, "gpus": 3}, "invalid_args"),
        ({"machine_id": 77}, "no_such_machine"),
        ({"offer_id": 1, "disk_gb": 2_001}, "invalid_args"),
        ({"offer_id": 1, "disk_gb": 0}, "invalid_args"),
        ({"offer_id": 1, "label": "\n"}, "invalid_args"),
    ],
)
def test_what_is_not_offered_is_refused(market: Market, options: dict[str, int], code: str) -> None:
    """An offer that never was, a slice or disk that the machine does not have: nothing changes."""
    alice = market.account("alice", 10 * DOLLAR)
    market.machine(gpus=4)
    market.machine()
    refused(market, lambda unit: rentals.rent(unit, alice, **{"disk_gb": 1, **options}), code)  # type: ignore[arg-type]


def test_full_offline_and_ended_listings_are_not_rentable(market: Market) -> None:
    """Search shows what can be rented now, and nothing else."""
    alice = market.account("alice", 10 * DOLLAR)
    full, gone, ended, free = (market.machine(until=START + 120) for _ in range(4))
    market.list_again(free)
    market.list_again(full)
    market.list_again(gone)
    market.rent(alice, full)
    for machine in (full, ended, free):
        market.deliver(market.seal(machine, START, 100), at=START + 100)
    market.clock.move_to(START + 120)
    for machine in (full, ended, free):
        market.deliver(market.seal(machine, START + 100, 20), at=START + 120)
    policies.run_due(market.ledger)
    assert [one.machine_id for one in found(market)] == [free]
    with market.ledger.unit() as unit:
        listings.unlist_machine(unit, free)
    assert found(market) == []
    refused(market, lambda unit: rentals.rent(unit, alice, ended, disk_gb=1), "no_such_ask")
    refused(market, lambda unit: rentals.rent(unit, alice, gone, disk_gb=1), "no_capacity")


def test_a_full_machine_refuses_or_lets_wait(market: Market) -> None:
    """AUC-05, C32: with `cancel_unavail` nothing is created and nothing charged."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    first = market.rent(alice, machine)
    refused(market, lambda unit: rentals.rent(unit, alice, machine, disk_gb=1), "no_capacity")
    second = market.rent(alice, machine, wait=True, disk_gb=1)
    assert market.status(second) == "scheduling"
    with market.ledger.unit() as unit:
        rentals.stop(unit, first)
    assert market.status(second) == "loading"


def test_a_contract_keeps_its_price_whatever_the_listing_becomes(market: Market) -> None:
    """PRICE-07: A at $2.00 goes on at $2.00 while B pays the new $2.50 on the same machine."""
    rich = market.account("alice", 99 * DOLLAR)
    machine = market.machine(gpus=2, gpu_hour=2 * DOLLAR, storage=0)
    a = market.rent(rich, machine, gpus=1)
    market.list_again(machine, gpu_hour=250 * CENT, storage=0)
    b = market.rent(rich, machine, gpus=1)
    for one in (a, b):
        market.confirm(machine, one)
    market.run(machine, [a, b], 3_600)
    assert (market.charges(a)["gpu"], market.charges(b)["gpu"]) == (2 * DOLLAR, 250 * CENT)


@pytest.mark.parametrize(
    ("gpu_hour", "bid", "total"),
    [
        (1_600_000_000, None, 1_620_833_333),
        (390_000_000, None, 410_833_333),
        (390_000_000, 200_000_000, 220_833_333),
    ],
)
def test_a_quote_equals_the_first_hour(
    market: Market, gpu_hour: int, bid: int | None, total: int
) -> None:
    """PRICE-01, PRICE-02, C8, C9: dph_total is what an hour with this disk costs."""
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine(gpu_hour=gpu_hour, floor=10 * CENT)
    (number,) = open_offers(market, machine).values()
    with market.ledger.reading() as connection:
        quote = offer(connection, number, START, disk_gb=100, bid=bid)
    assert quote.dph_total == total
    assert quote.dph_base is not None
    assert quote.dph_base + quote.storage_total == total
    one = market.rent(alice, None, offer_id=number, disk_gb=100, bid=bid)
    market.confirm(machine, one)
    market.run(machine, [one], 3_600)
    assert sum(market.charges(one).values()) == total


def test_a_price_is_for_the_requested_disk(market: Market) -> None:
    """PRICE-03, C10: twice the disk costs twice the storage, whatever the machine has."""
    market.machine(storage=720_000_000)
    small, large = (found(market, disk_gb=gb)[0].storage_total for gb in (100, 200))
    assert (small, large) == (100_000_000, 200_000_000)


def test_a_slice_has_its_share_and_never_counts_gpus_twice(market: Market) -> None:
    """PRICE-04, C24, C25: two of eight GPUs cost two GPUs and have a quarter of the rest."""
    market.machine(gpus=8, gpu_hour=DOLLAR)
    (slice_,) = found(market, filters={"num_gpus": {"eq": 2}})
    assert (slice_.gpu_rate, slice_.gpu_rate_per_gpu) == (2 * DOLLAR, DOLLAR)
    assert (slice_.cpu_cores, slice_.cpu_ram, slice_.disk_space) == (16, 128, 4_000)


def test_the_lowest_bid_that_would_run_is_in_the_market(market: Market) -> None:
    """§8.4: with X running at $2.40, min_bid for one GPU is a nano above it."""
    alice, machine = market.account("alice", 99 * DOLLAR), market.machine(gpus=8, floor=10 * CENT)
    market.rent(alice, machine, bid=240 * CENT, disk_gb=1)
    prices = {one.num_gpus: one.min_bid for one in found(market, kind="interruptible", disk_gb=0)}
    assert prices == {1: 2_400_000_001, 2: 2_400_000_001, 4: 2_400_000_001, 8: 2_400_000_001}


def test_a_disk_that_is_taken_is_not_offered(market: Market) -> None:
    """Disks of stopped tenants count: what is left is what the market shows and sells."""
    alice, machine = market.account("alice", 99 * DOLLAR), market.machine(gpus=2)
    one = market.rent(alice, machine, gpus=1, disk_gb=2_000)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    assert {view.num_gpus: view.disk_space for view in found(market)} == {1: 2_000, 2: 2_000}
    refused(
        market,
        lambda unit: rentals.rent(unit, alice, machine, gpus=2, disk_gb=2_001),
        "no_capacity",
    )


def test_the_search_pages_in_order_and_shows_nothing_twice(market: Market) -> None:
    """API-03, API-08: pages joined are the whole list, while offers come and go in between."""
    for number in range(7):
        market.machine(gpu_hour=(7 - number) * CENT, gpus=2)
    seen: list[int] = []
    after = None
    with market.ledger.reading() as connection:
        everything = search(
            connection, Search(verified_only=False, order=[("dph_total", "asc")]), START
        ).offers
    while True:
        with market.ledger.reading() as connection:
            wish = Search(verified_only=False, order=[("dph_total", "asc")], limit=3, after=after)
            page = search(connection, wish, START)
        seen += [one.offer_id for one in page.offers]
        after = page.after
        market.machine(gpu_hour=1)  # cheaper than everything that was shown: before the cursor
        if after is None:
            break
    assert seen == [one.offer_id for one in everything]


@pytest.mark.parametrize(
    "filters",
    [
        {"gpu_nam": {"eq": "x"}},
        {"gpu_name": {"is": "x"}},
        {"gpu_name": {"eq": 4}},
        {"num_gpus": {"eq": "many"}},
        {"num_gpus": {"in": []}},
        {"num_gpus": {"eq": float("nan")}},
        {"rentable": {"eq": "maybe"}},
        {"dph_total": {"lte": "-1e400"}},
    ],
)
def test_a_search_that_cannot_be_meant_is_told_why(
    market: Market, filters: dict[str, dict[str, object]]
) -> None:
    """An unknown field or operator, or a value of another type, is never ignored."""
    with pytest.raises(LedgerError) as error:
        found(market, filters=filters)
    assert error.value.code == "invalid_args"


def test_a_sick_gpu_is_neither_offered_nor_granted(market: Market) -> None:
    """A GPU that went bad leaves the market at once; its machine sells what is left."""
    alice, machine = market.account("alice", 99 * DOLLAR), market.machine(gpus=2)
    with market.ledger.unit() as unit:
        assert machines.require_machine(unit.connection, machine).gpus == 2
        unit.append(
            machine_stream(machine),
            GpuHealthChanged(
                machine_id=machine,
                gpu_uuid=f"GPU-{machine}-0",
                healthy=False,
                reason="xid 79",
                changed_at=unit.now,
            ),
        )
    assert [one.num_gpus for one in found(market)] == [1]
    market.rent(alice, machine, gpus=1)
    row = market.connection.execute("SELECT slots FROM instances").fetchone()
    assert row == ([1],)
    refused(
        market, lambda unit: rentals.rent(unit, alice, machine, gpus=1, disk_gb=1), "no_capacity"
    )
    assert market.rebuild().equal
