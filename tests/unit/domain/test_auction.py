from __future__ import annotations

import pytest

from ledger.domain.auction import (
    Claim,
    Decision,
    Displacement,
    Grant,
    Supply,
    allocate,
    bid_to_run,
    min_bid,
    min_bids,
    place,
)
from ledger.domain.money import parse_dollars as nanos

FLOOR = "0.10"
SIZES = (1, 2, 4, 8, 16)


def machine(gpus: int, floor: str = FLOOR, margin: str = "0") -> Supply:
    """A machine with slots from 0 on."""
    return Supply(tuple(range(gpus)), nanos(floor), nanos(margin))


def bid(number: int, gpus: int, dollars: str, *on: int, at: int | None = None) -> Claim:
    """Bid *number*, effective at second *number* unless told otherwise, running *on* slots."""
    at = number if at is None else at
    return Claim(number, gpus, True, number, nanos(dollars), at, on)


def on_demand(number: int, gpus: int, *on: int, at: int | None = None) -> Claim:
    """On demand or reserved, requested at place *number* unless told otherwise."""
    return Claim(number, gpus, False, number if at is None else at, slots=on)


def running(supply: Supply, claims: list[Claim]) -> set[int]:
    """The ids that hold GPUs after the decision."""
    displaced, grants = allocate(supply, claims)
    held = {one.instance_id for one in claims if one.slots}
    return (held - {one.instance_id for one in displaced}) | {one.instance_id for one in grants}


# --- §8.3: X, A, P are 1; Y, B, Q are 2; C is 3; on demand is 8 and 9 ----------------------------

X = bid(1, 8, "2.40")
X_RUNS = bid(1, 8, "2.40", *range(8))
SECOND_ROW = [bid(1, 4, "1.00"), bid(2, 4, "1.30"), bid(3, 8, "2.20")]
THIRD_ROW = [bid(1, 4, "1.60"), bid(2, 8, "2.00"), bid(3, 2, "0.50")]
ALL_OR_HALVES = [bid(1, 8, "2.00"), bid(2, 4, "1.00"), bid(3, 4, "1.00")]
HALVES_RUN = [bid(1, 8, "2.00"), bid(2, 4, "1.00", 0, 1, 2, 3), bid(3, 4, "1.00", 4, 5, 6, 7)]
ARRIVAL = [X_RUNS, bid(2, 4, "1.00"), bid(3, 2, "0.60"), on_demand(8, 4)]
ANOTHER = [
    X,
    bid(2, 4, "1.00", 4, 5, 6, 7),
    bid(3, 2, "0.60"),
    on_demand(8, 4, 0, 1, 2, 3),
    on_demand(9, 2),
]


@pytest.mark.parametrize(
    ("supply", "claims", "runs"),
    [
        pytest.param(machine(8), [X, bid(2, 1, "0.35")], {1}, id="the-most-money-wins"),
        pytest.param(machine(8), [X, bid(2, 1, "0.35", 0)], {1}, id="also-if-the-small-one-ran"),
        pytest.param(machine(8), SECOND_ROW, {1, 2}, id="two-halves-pay-more-than-one-whole"),
        pytest.param(machine(8), THIRD_ROW, {1, 3}, id="two-gpus-stay-free"),
        pytest.param(machine(1), [bid(1, 1, "0.30"), bid(2, 1, "0.30")], {1}, id="tie-b"),
        pytest.param(machine(1), [bid(1, 1, "0.30"), bid(2, 1, "0.30", 0)], {2}, id="tie-a"),
        pytest.param(machine(8), ALL_OR_HALVES, {1}, id="tie-b-second-1-against-2-and-3"),
        pytest.param(machine(8), HALVES_RUN, {2, 3}, id="tie-a-two-that-run"),
        pytest.param(machine(8), ARRIVAL, {8, 2}, id="an-on-demand-of-4-arrives"),
        pytest.param(machine(8), ANOTHER, {8, 9, 3}, id="one-more-on-demand-of-2"),
        pytest.param(
            machine(1, margin="0.003"),
            [bid(1, 1, "0.300", 0), bid(2, 1, "0.302")],
            {1},
            id="a-gain-within-the-margin",
        ),
        pytest.param(
            machine(1, margin="0.003"),
            [bid(1, 1, "0.300", 0), bid(2, 1, "0.304")],
            {2},
            id="a-gain-above-the-margin",
        ),
        pytest.param(machine(1, "0.30"), [bid(1, 1, "0.25", 0)], {1}, id="grandfathered"),
        pytest.param(machine(1, "0.30"), [bid(1, 1, "0.25")], set(), id="not-on-resume"),
    ],
)
def test_who_runs_in_the_examples(supply: Supply, claims: list[Claim], runs: set[int]) -> None:
    """§8.3: each row of the table gives the instances that it names."""
    assert running(supply, claims) == runs


# --- §8.4 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "gpus", "amount"),
    [
        pytest.param([X_RUNS], 1, 2_400_000_001, id="X-alone-n1"),
        pytest.param([X_RUNS, bid(2, 1, "0.35")], 1, 2_050_000_001, id="X-and-Y-n1"),
        pytest.param([X_RUNS, bid(2, 1, "0.35")], 8, 2_400_000_001, id="X-and-Y-n8"),
        pytest.param(SECOND_ROW, 1, 1_000_000_001, id="second-row-n1"),
        pytest.param(SECOND_ROW, 2, 1_000_000_001, id="second-row-n2"),
        pytest.param(SECOND_ROW, 4, 1_000_000_001, id="second-row-n4"),
        pytest.param(SECOND_ROW, 8, 2_300_000_001, id="second-row-n8"),
        pytest.param(THIRD_ROW, 1, 100_000_000, id="third-row-n1-the-floor"),
        pytest.param(THIRD_ROW, 2, 200_000_000, id="third-row-n2-the-floor"),
        pytest.param(THIRD_ROW, 4, 500_000_001, id="third-row-n4"),
        pytest.param(THIRD_ROW, 8, 2_100_000_001, id="third-row-n8"),
    ],
)
def test_min_bid_in_the_examples(claims: list[Claim], gpus: int, amount: int) -> None:
    """§8.4: on 8 GPUs each example gives its number, before and after the bids are placed."""
    supply = machine(8)
    slots = {grant.instance_id: grant.slots for grant in allocate(supply, claims).grants}
    placed = [one._replace(slots=slots.get(one.instance_id, one.slots)) for one in claims]
    assert min_bid(supply, claims, gpus) == amount
    assert min_bid(supply, placed, gpus) == amount


def test_a_bid_is_for_the_slice() -> None:
    """AUC-03: 0.30 for 8 GPUs counts 0.30 against its rivals, never 2.40."""
    supply = machine(8, floor="0.03")
    cheap = bid(1, 8, "0.30", *range(8))
    assert min_bids(supply, [cheap], [1, 8]) == {1: 300_000_001, 8: 300_000_001}
    assert running(supply, [cheap, bid(2, 1, "0.31")]) == {2}


def test_the_floor_is_per_gpu() -> None:
    """AUC-03: at a floor of 0.10 an 8-GPU slice starts at 0.80; 0.30 for it does not run."""
    assert min_bids(machine(8), [], [1, 8]) == {1: 100_000_000, 8: 800_000_000}
    assert running(machine(8), [bid(1, 8, "0.30")]) == set()


@pytest.mark.parametrize(
    ("gpus", "amount"),
    [
        pytest.param(1, 200_000_000, id="a-gpu-is-free-the-floor"),
        pytest.param(2, 1_001_000_001, id="n2-takes-the-place-that-3-did-not-get"),
        pytest.param(4, 2_003_000_001, id="n4-more-than-the-margin-above-both"),
    ],
)
def test_min_bid_with_a_margin(gpus: int, amount: int) -> None:
    """§8.4: `R0 + M − V(F − n) + 1` for one who has to displace, the floor where GPUs are free."""
    supply = machine(5, floor="0.20", margin="0.003")
    claims = [bid(1, 2, "1.00", 0, 1), bid(2, 2, "1.00", 2, 3), bid(3, 2, "1.002")]
    assert running(supply, claims) == {1, 2}
    assert min_bid(supply, claims, gpus) == amount


def test_no_bid_is_enough_for_more_gpus_than_on_demand_leaves() -> None:
    """§8.4: `min_bid` is null exactly where n > F, and F counts on demand that arrives now."""
    claims = [on_demand(8, 4, 0, 1, 2, 3), on_demand(9, 2), bid(1, 2, "9.00")]
    prices = min_bids(machine(8), claims, SIZES)
    assert prices == {1: 9_000_000_001, 2: 9_000_000_001, 4: None, 8: None, 16: None}


def test_a_machine_without_a_floor_takes_no_bids() -> None:
    """§8.1 rule 6: without a floor there is no price, and no bid that waits is let in."""
    supply = Supply((0, 1), floor=None)
    claims = [bid(1, 1, "9.00")]
    assert running(supply, claims) == set()
    assert min_bids(supply, claims, [1, 2]) == {1: None, 2: None}
    assert bid_to_run(supply, claims, 1) is None


# --- Rule 1: on demand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "claims", "runs"),
    [
        pytest.param(1, [on_demand(1, 1, at=2), on_demand(2, 1, at=1)], {2}, id="request-order"),
        pytest.param(3, [on_demand(1, 4), on_demand(2, 2)], {2}, id="too-large-is-skipped"),
        pytest.param(
            7,
            [on_demand(1, 8), on_demand(2, 1), on_demand(3, 4), on_demand(4, 2)],
            {2, 3, 4},
            id="a-skipped-one-uses-nothing-up",
        ),
        pytest.param(2, [on_demand(2, 2, 0, 1), on_demand(1, 1)], {2}, id="holders-keep"),
        pytest.param(2, [bid(1, 2, "9.00", 0, 1), on_demand(2, 1)], {2}, id="bids-do-not-count"),
        pytest.param(2, [bid(1, 2, "9.00"), on_demand(2, 1)], {2}, id="it-comes-before-new-bids"),
        pytest.param(
            4, [on_demand(1, 8), bid(2, 4, "0.40")], {2}, id="what-does-not-fit-blocks-no-bid"
        ),
        pytest.param(4, [on_demand(1, 2), bid(2, 2, "0.20", 0, 1)], {1, 2}, id="room-for-both"),
    ],
)
def test_on_demand_is_served_first(gpus: int, claims: list[Claim], runs: set[int]) -> None:
    """Rule 1: holders keep, others by request where they fit; bids take only what is left."""
    assert running(machine(gpus), claims) == runs


# --- Rules 2 and 3: the best set -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("supply", "claims", "runs"),
    [
        pytest.param(
            machine(8),
            [
                bid(1, 4, "1.00", 0, 1, 2, 3),
                bid(2, 2, "0.50", 4, 5),
                bid(3, 2, "0.50", 6, 7),
                on_demand(8, 4),
            ],
            {8, 2, 3},
            id="a-counts-instances-one-displaced-against-two",
        ),
        pytest.param(
            machine(2),
            [bid(1, 2, "0.60", at=1), bid(2, 1, "0.30", 0, at=9), bid(3, 1, "0.30", at=9)],
            {2, 3},
            id="a-before-b",
        ),
        pytest.param(
            machine(1),
            [bid(1, 1, "0.30", at=8), bid(2, 1, "0.30", at=7)],
            {2},
            id="b-before-c",
        ),
        pytest.param(
            machine(2),
            [bid(1, 2, "0.60", at=5), bid(2, 1, "0.30", at=5), bid(3, 1, "0.30", at=6)],
            {2, 3},
            id="b-a-missing-second-is-later-than-any",
        ),
        pytest.param(
            machine(2),
            [bid(1, 2, "0.60", at=5), bid(2, 1, "0.30", at=4), bid(3, 1, "0.30", at=9)],
            {2, 3},
            id="b-the-earliest-counts-first",
        ),
        pytest.param(
            machine(1),
            [bid(2, 1, "0.30", at=5), bid(1, 1, "0.30", at=5)],
            {1},
            id="c-the-smaller-id",
        ),
        pytest.param(
            machine(3),
            [
                bid(1, 1, "0.30", at=5),
                bid(2, 2, "0.50", at=5),
                bid(3, 1, "0.30", at=5),
                bid(4, 2, "0.50", at=5),
            ],
            {1, 2},
            id="c-in-both-sizes",
        ),
    ],
)
def test_the_best_set_runs(supply: Supply, claims: list[Claim], runs: set[int]) -> None:
    """Rule 3: the greatest total, then each tie-break in its order."""
    assert running(supply, claims) == runs


def test_a_bid_may_reach_the_floor_exactly() -> None:
    """Rule 2: floor × n is enough, one nano less is not."""
    enough = bid(1, 2, "0.20")
    assert running(machine(2), [enough]) == {1}
    assert running(machine(2), [enough._replace(bid=enough.bid - 1)]) == set()


def test_many_bids_of_one_size_leave_only_the_best() -> None:
    """Rule 3: of 200 equal slices on 16 GPUs the sixteen highest bids run."""
    claims = [bid(number, 1, f"0.{1000 + number}") for number in range(1, 201)]
    assert running(machine(16), claims) == set(range(185, 201))


def test_totals_have_no_bound() -> None:
    """§1: sixteen bids of the largest posting beat one such bid; nothing overflows."""
    claims = [bid(number, 1, "1000000000") for number in range(1, 17)]
    whole = bid(17, 16, "1000000000", *range(16))
    assert running(machine(16), [*claims, whole]) == set(range(1, 17))
    assert min_bid(machine(16), claims, 16) == 16 * 10**18 + 1


# --- Rule 4: the margin --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rival", "runs"),
    [
        pytest.param("0.303", {1}, id="a-gain-equal-to-the-margin"),
        pytest.param("0.303000001", {2}, id="one-nano-more"),
    ],
)
def test_the_margin_is_inclusive(rival: str, runs: set[int]) -> None:
    """Rule 4: a gain of exactly M displaces nobody; one nano more does."""
    claims = [bid(1, 1, "0.300", 0), bid(2, 1, rival)]
    assert running(machine(1, margin="0.003"), claims) == runs


def test_within_the_margin_free_gpus_still_go_to_the_best() -> None:
    """Rule 4: the best set that displaces nothing is chosen, not the present one."""
    claims = [bid(1, 1, "0.30", 0), bid(2, 2, "0.301"), bid(3, 1, "0.10"), bid(4, 1, "0.20")]
    assert running(machine(2, margin="0.30"), claims) == {1, 4}


def test_the_margin_gives_no_shelter_from_on_demand() -> None:
    """Rule 4: on demand displaces a bid whatever the margin."""
    claims = [bid(1, 1, "0.30", 0), on_demand(2, 1)]
    assert running(machine(1, margin="100"), claims) == {2}


def test_a_bid_that_only_the_margin_kept_is_displaced_by_on_demand() -> None:
    """Rule 4: without the on-demand grant the margin would have held, so that is the reason."""
    claims = [bid(1, 1, "0.300", 0), bid(2, 1, "0.302"), on_demand(8, 1)]
    displaced = allocate(machine(1, margin="0.003"), claims).displaced
    assert displaced == (Displacement(1, "on_demand_arrival"),)


def test_where_some_bid_must_go_the_margin_protects_none() -> None:
    """Rule 4: when every set displaces something the best one runs, a newcomer's included."""
    claims = [bid(1, 1, "0.30", 0), bid(2, 1, "0.30", 1), bid(3, 1, "0.301"), on_demand(8, 1)]
    assert running(machine(2, margin="100"), claims) == {8, 3}


# --- Rule 5: placement ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "gpus", "slots"),
    [
        pytest.param([0, 1, 2, 3], 1, (0,), id="the-lowest-slot"),
        pytest.param([1, 3], 1, (1,), id="the-lowest-free-slot"),
        pytest.param([0, 1, 2, 3], 2, (0, 1), id="a-block-of-two"),
        pytest.param([1, 2, 3], 2, (2, 3), id="a-block-starts-at-a-multiple"),
        pytest.param([1, 2], 2, (1, 2), id="no-block-then-the-lowest-slots"),
        pytest.param([0, 3, 5, 6], 2, (0, 3), id="no-block-and-scattered"),
        pytest.param([0, 1, 2, 4, 5, 6, 7], 4, (4, 5, 6, 7), id="a-block-of-four"),
        pytest.param([0, 1, 2, 4, 5, 6], 4, (0, 1, 2, 4), id="two-broken-blocks-of-four"),
        pytest.param(list(range(8)), 8, tuple(range(8)), id="the-whole-machine"),
        pytest.param(list(range(6)), 6, tuple(range(6)), id="a-size-that-is-no-power-of-two"),
        pytest.param([2, 3, 4, 5], 3, (3, 4, 5), id="a-block-of-three-starts-at-three"),
    ],
)
def test_placement_takes_the_lowest_aligned_block_else_the_lowest_slots(
    free: list[int], gpus: int, slots: tuple[int, ...]
) -> None:
    """Rule 5: an aligned block when there is one, wherever the other free slots lie."""
    assert place(free, gpus) == slots


@pytest.mark.parametrize(
    ("claims", "grants"),
    [
        pytest.param(
            [on_demand(1, 1), on_demand(2, 4), on_demand(3, 2)],
            [Grant(1, (0,)), Grant(2, (4, 5, 6, 7)), Grant(3, (2, 3))],
            id="on-demand-in-request-order",
        ),
        pytest.param(
            [bid(1, 1, "9.00"), bid(2, 2, "0.20"), bid(3, 4, "0.40"), bid(4, 1, "0.10")],
            [Grant(3, (0, 1, 2, 3)), Grant(2, (4, 5)), Grant(1, (6,)), Grant(4, (7,))],
            id="bids-by-larger-n-then-smaller-id",
        ),
        pytest.param(
            [bid(1, 4, "9.00"), on_demand(2, 1), on_demand(3, 2)],
            [Grant(2, (0,)), Grant(3, (2, 3)), Grant(1, (4, 5, 6, 7))],
            id="on-demand-before-bids",
        ),
        pytest.param(
            [bid(1, 1, "0.10", 2), bid(2, 1, "0.10", 5), on_demand(3, 4)],
            [Grant(3, (0, 1, 3, 4))],
            id="a-kept-bid-is-not-moved-for-a-block",
        ),
        pytest.param(
            [bid(1, 1, "0.05", 0), bid(2, 1, "0.10")],
            [Grant(2, (1,))],
            id="a-bid-that-runs-below-a-raised-floor-keeps-its-gpu",
        ),
        pytest.param(
            [bid(1, 4, "0.40", 0, 1, 2, 3), bid(2, 8, "9.00")],
            [Grant(2, tuple(range(8)))],
            id="what-a-displaced-bid-held-is-free-at-once",
        ),
    ],
)
def test_grants_are_placed_in_order(claims: list[Claim], grants: list[Grant]) -> None:
    """Rule 5: each grant on 8 GPUs is placed in what the kept ones and the grants before leave."""
    assert allocate(machine(8), claims).grants == tuple(grants)


# --- Why a bid is displaced, and GPUs that come and go -------------------------------------------


@pytest.mark.parametrize(
    ("claims", "displaced"),
    [
        pytest.param(
            [bid(2, 4, "0.40", 0, 1, 2, 3), bid(1, 4, "0.40", 4, 5, 6, 7), bid(3, 8, "9.00")],
            [Displacement(1, "outbid"), Displacement(2, "outbid")],
            id="by-a-bid-in-the-order-of-ids",
        ),
        pytest.param(
            [bid(1, 8, "9.00", *range(8)), on_demand(2, 1), bid(3, 4, "0.40")],
            [Displacement(1, "on_demand_arrival")],
            id="by-on-demand-even-if-a-bid-follows",
        ),
        pytest.param(
            [bid(1, 4, "0.40", 0, 1, 2, 3), bid(2, 4, "0.50"), bid(3, 4, "0.60"), on_demand(8, 2)],
            [Displacement(1, "outbid")],
            id="by-bids-that-would-have-won-anyway",
        ),
        pytest.param(
            [
                bid(1, 4, "0.40", 0, 1, 2, 3),
                bid(2, 4, "0.50", 4, 5, 6, 7),
                bid(3, 4, "0.60"),
                on_demand(8, 4),
            ],
            [Displacement(1, "outbid"), Displacement(2, "on_demand_arrival")],
            id="one-of-each",
        ),
        pytest.param(
            [bid(1, 4, "0.40", 0, 1, 2, 3), bid(2, 8, "9.00"), on_demand(3, 16)],
            [Displacement(1, "outbid")],
            id="on-demand-that-gets-nothing-displaces-nothing",
        ),
    ],
)
def test_a_displacement_has_its_reason(claims: list[Claim], displaced: list[Displacement]) -> None:
    """§4.1: `on_demand_arrival` where the bid would have stayed without the on-demand grants."""
    assert allocate(machine(8), claims).displaced == tuple(displaced)


@pytest.mark.parametrize("holder", [on_demand(1, 2, 0, 1), bid(1, 2, "9.00", 0, 1)])
def test_an_instance_on_a_bad_gpu_is_passed_over(holder: Claim) -> None:
    """Its caller stops it: it is neither kept nor displaced, and its good GPU is free."""
    supply = Supply((0, 2, 3), nanos(FLOOR))
    claims = [holder, bid(2, 2, "0.20", 2, 3), bid(3, 1, "0.10")]
    assert allocate(supply, claims) == Decision((), (Grant(3, (0,)),))
    assert bid_to_run(supply, [bid(1, 2, "9.00", 0, 1)], 1) is None


def test_slots_need_not_begin_at_zero_or_be_adjacent() -> None:
    """Rule 5: blocks are multiples in the machine's numbering, healthy GPUs or not."""
    supply = Supply((1, 2, 5, 6, 7), nanos(FLOOR))
    assert allocate(supply, [bid(1, 2, "0.20")]).grants == (Grant(1, (6, 7)),)


def test_a_machine_without_a_gpu_decides_nothing() -> None:
    """With 0 GPUs everyone waits and no size has a price."""
    supply = Supply((), nanos(FLOOR))
    claims = [on_demand(1, 1), bid(2, 1, "9.00")]
    assert allocate(supply, claims) == Decision((), ())
    assert min_bids(supply, claims, SIZES) == dict.fromkeys(SIZES)
    assert bid_to_run(supply, claims, 2) is None


def test_sixteen_gpus_go_to_any_mixture_of_sizes() -> None:
    """16 GPUs: 8 + 4 + 2 + 1 + 1 fill the machine and pay more than one bid for all of it."""
    sizes = {1: 8, 2: 4, 3: 2, 4: 1, 5: 1}
    claims = [bid(number, gpus, f"0.{gpus}1") for number, gpus in sizes.items()]
    claims = [one._replace(bid=one.gpus * nanos("0.11")) for one in claims]
    whole = bid(6, 16, "1.759999999")
    assert running(machine(16), [*claims, whole]) == set(sizes)
    assert min_bid(machine(16), claims, 16) == nanos("1.76") + 1


def test_nobody_wants_to_run() -> None:
    """Without claims nothing changes and each size costs the floor."""
    assert allocate(machine(2), []) == Decision((), ())
    assert min_bids(machine(2), [], [1, 2]) == {1: 100_000_000, 2: 200_000_000}


def test_a_decision_is_stable() -> None:
    """Once applied it leaves nothing to decide: the same state gives no change."""
    claims = [bid(1, 2, "0.50", 0, 1), on_demand(8, 1, 2), bid(2, 1, "0.10", 3), bid(3, 2, "0.40")]
    assert allocate(machine(4), claims) == Decision((), ())


# --- Rule 6: the amount with which an instance would run -----------------------------------------


@pytest.mark.parametrize(
    ("supply", "claims", "amount"),
    [
        pytest.param(machine(1), [bid(1, 1, "9.00", 0)], 100_000_000, id="no-rival-the-floor"),
        pytest.param(machine(8), [bid(1, 8, "9.00")], 800_000_000, id="the-floor-of-the-slice"),
        pytest.param(
            machine(1),
            [bid(1, 1, "0.50", 0), bid(2, 1, "0.30")],
            300_000_000,
            id="it-runs-and-may-equal-its-rival",
        ),
        pytest.param(
            machine(1),
            [bid(1, 1, "0.20"), bid(2, 1, "0.30", 0)],
            300_000_001,
            id="it-waits-and-has-to-pay-more",
        ),
        pytest.param(
            machine(2),
            [bid(1, 1, "0.20", at=1), bid(2, 1, "0.30", at=2), bid(3, 1, "0.40", at=3)],
            300_000_001,
            id="a-new-amount-is-newer-than-all-others",
        ),
        pytest.param(
            machine(8),
            [bid(1, 4, "0.50"), X_RUNS._replace(instance_id=2), bid(3, 4, "1.00")],
            1_400_000_001,
            id="together-with-another-that-waits",
        ),
        pytest.param(
            machine(1, margin="0.003"),
            [bid(1, 1, "0.300", 0), bid(2, 1, "0.302")],
            299_000_000,
            id="it-runs-within-the-margin",
        ),
        pytest.param(
            machine(1, margin="0.003"),
            [bid(1, 1, "0.300"), bid(2, 1, "0.302", 0)],
            305_000_001,
            id="it-waits-outside-the-margin",
        ),
        pytest.param(
            machine(2, margin="0.003"),
            [bid(1, 1, "9.00", 0), bid(2, 1, "1.00", 1), bid(3, 1, "1.003")],
            1_000_000_000,
            id="it-runs-where-the-margin-is-just-wide-enough",
        ),
        pytest.param(
            machine(1, "0.30"), [bid(1, 1, "0.25", 0)], 300_000_000, id="never-below-a-raised-floor"
        ),
        pytest.param(
            machine(4), [bid(1, 4, "9.00"), on_demand(8, 1, 0)], None, id="more-gpus-than-are-left"
        ),
    ],
)
def test_the_smallest_bid_with_which_an_instance_runs(
    supply: Supply, claims: list[Claim], amount: int | None
) -> None:
    """Rule 6: with this amount 1 runs, with one nano less it waits, whatever it bids now."""
    me, *others = claims
    assert {
        bid_to_run(supply, [me._replace(bid=mine), *others], 1) for mine in (0, 1, nanos("50"))
    } == {amount}
    if amount is not None:
        asked = me._replace(bid=amount, bid_effective_at=99)
        assert 1 in running(supply, [asked, *others])
        less = asked._replace(bid=amount - 1)
        assert not supply.accepts(less) or 1 not in running(supply, [less, *others])


def test_a_decision_does_not_depend_on_the_order_of_the_claims() -> None:
    """The same state gives the same decision however it is listed, and is left as it was."""
    claims = [*ANOTHER]
    assert allocate(machine(8), claims[::-1]) == allocate(machine(8), claims)
    assert min_bids(machine(8), claims[::-1], SIZES) == min_bids(machine(8), claims, SIZES)
    assert claims == ANOTHER
