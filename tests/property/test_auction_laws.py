"""The auction against brute force over all subsets, in random streams of all that can happen."""

from __future__ import annotations

import random
from typing import Literal, NamedTuple, get_args

import pytest

from ledger.domain.auction import (
    Claim,
    Decision,
    Displacement,
    Grant,
    Supply,
    allocate,
    bid_to_run,
    min_bids,
)

LATER_THAN_ANY = 2**63 - 1
MOST_CLAIMS = 7
"""Brute force looks at every subset of them."""

Bids = tuple[Claim, ...]


Kind = Literal["rent", "bid", "stop", "start", "rebid", "floor", "lose", "repair"]
WEIGHTS = (2, 6, 1, 1, 2, 1, 1, 1)


class Move(NamedTuple):
    """One change of a machine; *which*, *gpus* and *amount* mean what the kind makes of them."""

    kind: Kind
    which: int
    gpus: int
    amount: int
    decided: bool
    """Whether a decision follows at once; several changes may share one."""


def machine(chance: random.Random) -> Supply:
    """A machine with up to 16 GPUs."""
    slots = tuple(range(chance.choice([1, 2, 3, 4, 4, 6, 8, 8, 16])))
    return Supply(slots, floor=chance.choice([1, 1, 2]), margin=chance.choice([0, 0, 0, 1, 2, 5]))


def stream(chance: random.Random) -> list[Move]:
    """Changes with such small numbers that ties and shortages are the rule."""
    kinds = chance.choices(get_args(Kind), WEIGHTS, k=chance.randint(6, 24))
    return [
        Move(
            kind,
            which=chance.randrange(10),
            gpus=chance.choice([1, 1, 2, 2, 3, 4, 8]),
            amount=chance.randrange(7),
            decided=chance.random() < 0.75,
        )
        for kind in kinds
    ]


class World:
    """One machine, its instances, and who held which GPU from when to when."""

    def __init__(self, supply: Supply) -> None:
        self.inventory = supply.slots
        self.supply = supply
        self.now = 0
        self.log = 0
        self.claims: dict[int, Claim] = {}
        self.stopped: dict[int, Claim] = {}
        self.sold: list[tuple[int, int, int]] = []
        self.since: dict[int, tuple[int, int]] = {}

    def change(self, move: Move) -> None:
        """Make the change, if it means anything in this state."""
        self.log += 1
        self.now += move.which % 2  # several changes may fall into one second
        match move.kind:
            case "rent" | "bid" if len(self.claims) < MOST_CLAIMS:
                number = len(self.claims) + len(self.stopped) + 1
                amount = move.amount if move.kind == "bid" else 0
                self.claims[number] = Claim(
                    number, move.gpus, move.kind == "bid", self.log, amount * move.gpus, self.now
                )
            case "stop" if self.claims:
                self.stop(self.one_of(self.claims, move))
            case "start" if self.stopped and len(self.claims) < MOST_CLAIMS:
                number = self.one_of(self.stopped, move)
                self.claims[number] = self.stopped.pop(number)._replace(requested_at=self.log)
            case "rebid" if self.bids():
                one = self.bids()[move.which % len(self.bids())]
                changed = one._replace(bid=move.amount + one.gpus, bid_effective_at=self.now)
                self.claims[one.instance_id] = changed
            case "floor":
                floor = move.amount if 0 < move.amount < 4 else None
                self.supply = self.supply._replace(floor=floor)
            case "lose":
                lost = self.inventory[move.which % len(self.inventory)]
                slots = tuple(slot for slot in self.supply.slots if slot != lost)
                self.supply = self.supply._replace(slots=slots)
            case "repair":
                self.supply = self.supply._replace(slots=self.inventory)
            case _:
                pass

    def bids(self) -> list[Claim]:
        """The interruptible ones that want to run."""
        return [claim for claim in self.claims.values() if claim.is_bid]

    @staticmethod
    def one_of(claims: dict[int, Claim], move: Move) -> int:
        """The id that *move* means."""
        return sorted(claims)[move.which % len(claims)]

    def stop(self, number: int) -> None:
        """The instance gives its GPUs back and no longer wants to run."""
        self.release(number)
        self.stopped[number] = self.claims.pop(number)

    def release(self, number: int) -> None:
        """Close the intervals of the GPUs that it holds."""
        for slot in self.claims[number].slots:
            holder, start = self.since.pop(slot)
            assert holder == number
            self.sold.append((slot, start, self.now))
        self.claims[number] = self.claims[number]._replace(slots=())

    def apply(self, decision: Decision) -> None:
        """What the caller of `allocate` does: stop those on bad GPUs, displace, grant."""
        for number, claim in list(self.claims.items()):
            if not set(claim.slots) <= set(self.supply.slots):
                self.stop(number)
        for number, _ in decision.displaced:
            assert self.claims[number].is_bid, "on demand is never displaced"
            assert self.claims[number].slots, "only a holder can be displaced"
            self.release(number)
        for number, slots in decision.grants:
            assert not self.claims[number].slots
            for slot in slots:
                assert slot in self.supply.slots
                assert slot not in self.since, "no GPU has two holders"
                self.since[slot] = number, self.now
            self.claims[number] = self.claims[number]._replace(slots=slots)


# --- The rules of §8.1, word for word and without a thought for speed ----------------------------


def served(supply: Supply, claims: list[Claim]) -> tuple[list[Claim], int, int]:
    """Rule 1: on demand that is admitted now, the GPUs before and after it."""
    before = len(supply.slots) - sum(one.gpus for one in claims if one.slots and not one.is_bid)
    left, admitted = before, []
    waiting = {one.requested_at: one for one in claims if not one.slots and not one.is_bid}
    for place in sorted(waiting):
        if waiting[place].gpus <= left:
            left -= waiting[place].gpus
            admitted.append(waiting[place])
    return admitted, before, left


def total(bids: Bids) -> int:
    """What a set pays."""
    return sum(one.bid for one in bids)


def candidate_sets(supply: Supply, claims: list[Claim], gpus: int) -> list[Bids]:
    """Rule 2: every set of candidates that fits."""
    sets: list[Bids] = [()]
    for one in claims:
        allowed = supply.floor is not None and one.bid >= supply.floor * one.gpus
        if one.is_bid and (one.slots or allowed):
            sets += [(*some, one) for some in sets if sum(x.gpus for x in some) + one.gpus <= gpus]
    return sets


def calm_sets(sets: list[Bids], claims: list[Claim]) -> list[Bids]:
    """Those of *sets* that displace nothing."""
    holders = {one.instance_id for one in claims if one.is_bid and one.slots}
    return [some for some in sets if holders <= {one.instance_id for one in some}]


def best(sets: list[Bids]) -> Bids:
    """Rule 3, one tie-break after the other."""
    sets = [some for some in sets if total(some) == max(map(total, sets))]
    most = max(sum(bool(one.slots) for one in some) for some in sets)
    sets = [some for some in sets if sum(bool(one.slots) for one in some) == most]
    return min(
        sets,
        key=lambda some: (
            [*sorted(one.bid_effective_at for one in some), LATER_THAN_ANY],
            [*sorted(one.instance_id for one in some), LATER_THAN_ANY],
        ),
    )


def chosen(supply: Supply, claims: list[Claim], gpus: int) -> Bids:
    """Rules 3 and 4."""
    sets = candidate_sets(supply, claims, gpus)
    calm = calm_sets(sets, claims)
    if calm and max(map(total, sets)) - max(map(total, calm)) <= supply.margin:
        return best(calm)
    return best(sets)


def decided(supply: Supply, claims: list[Claim]) -> Decision:
    """The whole decision."""
    claims = [one for one in claims if set(one.slots) <= set(supply.slots)]
    admitted, before, left = served(supply, claims)
    winners, otherwise = chosen(supply, claims, left), chosen(supply, claims, before)
    holders = [one for one in claims if one.slots]
    losers = [one for one in holders if one.is_bid and one not in winners]
    free = set(supply.slots)
    for one in holders:
        if one not in losers:
            free -= set(one.slots)
    new = [one for one in winners if not one.slots]
    grants = []
    for one in admitted + sorted(new, key=lambda one: (-one.gpus, one.instance_id)):
        blocks = [set(range(at, at + one.gpus)) for at in range(0, 99, one.gpus)]
        block = next((some for some in blocks if some <= free), set(sorted(free)[: one.gpus]))
        free -= block
        grants.append(Grant(one.instance_id, tuple(sorted(block))))
    return Decision(
        tuple(
            Displacement(one.instance_id, "on_demand_arrival" if one in otherwise else "outbid")
            for one in sorted(losers)
        ),
        tuple(grants),
    )


def runs(supply: Supply, claims: list[Claim], asker: Claim, amount: int | None) -> bool:
    """Whether *asker* runs when it bids *amount* now, later than all others."""
    amount = 10**9 if amount is None else amount
    claims = [one for one in claims if set(one.slots) <= set(supply.slots)]
    now = max((one.bid_effective_at for one in claims), default=0) + 1
    asked = asker._replace(bid=amount, bid_effective_at=now)
    *_, left = served(supply, claims)
    return asked in chosen(supply, [*claims, asked], left)


def is_threshold(supply: Supply, claims: list[Claim], asker: Claim, amount: int | None) -> bool:
    """Whether *amount* is the smallest bid that the floor allows and with which *asker* runs."""
    if amount is None:
        return supply.floor is None or not runs(supply, claims, asker, None)
    assert supply.floor is not None
    lowest = supply.floor * asker.gpus
    return runs(supply, claims, asker, amount) and (
        amount == lowest or (amount > lowest and not runs(supply, claims, asker, amount - 1))
    )


def formula(supply: Supply, claims: list[Claim], gpus: int) -> int | None:
    """§8.4 as it is written."""
    *_, left = served(supply, claims)
    if supply.floor is None or gpus > left:
        return None
    sets = candidate_sets(supply, claims, left)
    rest = max(map(total, candidate_sets(supply, claims, left - gpus)))
    second = max(map(total, sets)) - rest + 1
    if supply.margin:
        calm = max(map(total, calm_sets(sets, claims)))
        held = sum(one.gpus for one in claims if one.is_bid and one.slots)
        second = 0 if gpus <= left - held else calm + supply.margin - rest + 1
    return max(supply.floor * gpus, second)


# --- The laws ------------------------------------------------------------------------------------


def check(world: World, move: Move) -> None:
    """One decision and the prices before and after it."""
    supply, claims = world.supply, list(world.claims.values())
    decision = allocate(supply, claims)
    assert decision == decided(supply, claims)
    assert decision == allocate(supply, claims[::-1])
    check_prices(world, move)

    world.apply(decision)
    claims = list(world.claims.values())
    assert sum(one.gpus for one in claims if one.slots) <= len(supply.slots)
    assert allocate(supply, claims) == Decision((), ()), "a decision leaves nothing to decide"
    if supply.margin == 0:
        *_, left = served(supply, claims)
        most = max(map(total, candidate_sets(supply, claims, left)))
        assert most == sum(one.bid for one in claims if one.slots)
    check_prices(world, move)
    assert min_bids(supply, claims, [move.gpus]) == {move.gpus: formula(supply, claims, move.gpus)}


def check_prices(world: World, move: Move) -> None:
    """In any state, decided or not, `min_bid` and `bid_to_run` are exact thresholds."""
    supply, claims = world.supply, list(world.claims.values())
    newcomer = Claim(max(world.claims, default=0) + 1, move.gpus, True, 0)
    amount = min_bids(supply, claims, [move.gpus])[move.gpus]
    assert is_threshold(supply, claims, newcomer, amount)

    bids = [one for one in world.bids() if set(one.slots) <= set(supply.slots)]
    if bids:
        asker = bids[move.which % len(bids)]
        others = [one for one in claims if one != asker]
        amount = bid_to_run(supply, claims, asker.instance_id)
        assert is_threshold(supply, others, asker, amount)


def check_stream(seed: int) -> None:
    """Every decision of a stream, then that no GPU second was sold twice."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    world = World(machine(chance))
    for move in stream(chance):
        world.change(move)
        if move.decided:
            check(world, move)
    for number in list(world.claims):
        world.stop(number)
    assert not world.since
    seconds = [(slot, second) for slot, a, b in world.sold for second in range(a, b)]
    assert len(seconds) == len(set(seconds))


def check_streams(seeds: range) -> None:
    """One stream per seed; a failure names its seed."""
    for seed in seeds:
        try:
            check_stream(seed)
        except AssertionError as error:
            error.add_note(f"in the stream of seed {seed}")
            raise


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_random_streams_agree_with_brute_force(first: int) -> None:
    """§8.2: whatever happens, each decision and each price is the one that all subsets give."""
    check_streams(range(first, first + 100))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_ten_thousand_streams_agree_with_brute_force(first: int) -> None:
    """§8.2: the same over 10,000 other streams."""
    check_streams(range(first, first + 1_000))
