"""Who runs on which GPUs of one machine, and what it takes to run there.

`allocate` is the only place that answers the first question: on demand and reserved in request
order, then the set of bids that pays most (`marketplace.md` §8.1). The prices of a place are read
from the same tables, so that a quoted bid runs and one nano less does not.

Why the search is exact. Rule 3 compares two sets by total bid, then by the bids they displace,
then by sorted seconds, then by sorted ids, a missing element counting as later than any value. Two
such lists compare by how often they hold each value, smallest value first: the list that holds the
first value in which they differ more often comes first. So every part of the comparison is a sum
over the members, and one integer per bid holds all of them, its *worth*:

    bid | 1 if it holds GPUs | a digit per second, earliest left | a bit per id, smallest left

The better of two sets has the larger sum. One more bid, added to both, leaves their order as it
was, and that is all a knapsack needs. No two sets have equal sums, and the bits on the right of a
sum name the members of its set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple


class Claim(NamedTuple):
    """An instance of the machine that wants to run."""

    instance_id: int
    gpus: int
    is_bid: bool
    """Interruptible; otherwise on demand or reserved."""
    requested_at: int
    """Place of its request in the log: the order of on-demand instances."""
    bid: int = 0
    """Nanos per hour for the slice, in force at the decision."""
    bid_effective_at: int = 0
    slots: tuple[int, ...] = ()
    """GPUs that it holds, running or loading; empty while it waits."""


class Supply(NamedTuple):
    """The GPUs of one machine and the host's conditions."""

    slots: tuple[int, ...]
    """Slots of healthy GPUs, ascending."""
    floor: int | None
    """Lowest bid per GPU, nanos per hour; None: the machine takes no bids."""
    margin: int = 0
    """Gain, nanos per hour, up to which bids displace no bids."""

    def accepts(self, bid: Claim) -> bool:
        """Whether *bid* reaches the floor, as one that waits must (rule 7)."""
        return self.floor is not None and bid.bid >= self.floor * bid.gpus


class Grant(NamedTuple):
    """GPUs for an instance that waited."""

    instance_id: int
    slots: tuple[int, ...]


class Displacement(NamedTuple):
    """A bid that loses its GPUs.

    `on_demand_arrival` if it would have kept them without the on-demand grants of this decision.
    """

    instance_id: int
    reason: Literal["outbid", "on_demand_arrival"]


class Decision(NamedTuple):
    """What changes; an instance that is not named keeps what it has, GPUs or its place in line."""

    displaced: tuple[Displacement, ...]
    """By instance id."""
    grants: tuple[Grant, ...]
    """In the order of rule 5: on demand as requested, then bids by larger n, then smaller id."""


def allocate(supply: Supply, claims: Sequence[Claim]) -> Decision:
    """The decision that follows from this state of a machine, whatever the order of *claims*.

    An instance that holds a GPU outside `supply.slots` (the GPU went bad) is passed over as if it
    did not exist: its caller stops it, and its other GPUs are free for this decision.
    """
    field = _line_up(supply, claims)
    contest = _Contest(field.capacity, field.bids)
    winners = contest.winners(field.free, supply.margin)
    without_grants = contest.winners(field.capacity, supply.margin)
    displaced = [
        Displacement(bid.instance_id, "on_demand_arrival" if bid in without_grants else "outbid")
        for bid in field.bids
        if bid.slots and bid not in winners
    ]
    new = [bid for bid in winners if not bid.slots]
    new.sort(key=lambda bid: (-bid.gpus, bid.instance_id))
    free = set(supply.slots).difference(*[claim.slots for claim in field.kept + winners])
    grants = []
    for claim in field.admitted + new:
        slots = place(free, claim.gpus)
        free.difference_update(slots)
        grants.append(Grant(claim.instance_id, slots))
    return Decision(tuple(sorted(displaced)), tuple(grants))


def min_bid(supply: Supply, claims: Sequence[Claim], gpus: int) -> int | None:
    """The smallest bid with which a newcomer would run now on *gpus* GPUs; None: no bid would do.

    A newcomer has the latest second and the highest id. Where nothing is left to decide, this is
    `max(floor · n, V(F) − V(F − n) + 1)`, with §8.4's variant for a margin; everywhere else it is
    the exact threshold too.
    """
    return min_bids(supply, claims, [gpus])[gpus]


def min_bids(
    supply: Supply, claims: Sequence[Claim], sizes: Iterable[int]
) -> dict[int, int | None]:
    """`min_bid` for each of *sizes*."""
    highest = max((claim.instance_id for claim in claims), default=0)
    newcomer = _asking(Claim(highest + 1, 1, is_bid=True, requested_at=0), claims)
    field = _line_up(supply, claims)
    contest = _Contest(field.capacity, field.bids, newcomer)
    return {gpus: contest.price(newcomer._replace(gpus=gpus), field.free, supply) for gpus in sizes}


def bid_to_run(supply: Supply, claims: Sequence[Claim], instance_id: int) -> int | None:
    """The smallest bid with which this instance of *claims* would run; None: no bid would do.

    Its present bid plays no part. It keeps its id and the GPUs that it holds, and its bid would be
    newer than all others. For an instance that does not want to run (a stopped one), ask with a
    claim added that holds no GPUs.
    """
    (asker,) = (claim for claim in claims if claim.instance_id == instance_id)
    if not set(supply.slots).issuperset(asker.slots):
        return None
    others = [claim for claim in claims if claim.instance_id != instance_id]
    asker = _asking(asker, others)
    field = _line_up(supply, others)
    return _Contest(field.capacity, field.bids, asker).price(asker, field.free, supply)


def place(free_slots: Collection[int], gpus: int) -> tuple[int, ...]:
    """The lowest free block that starts at a multiple of *gpus*, else the lowest slots (rule 5)."""
    free = set(free_slots)
    for first in range(0, max(free, default=-1) + 1, gpus):
        block = range(first, first + gpus)
        if free.issuperset(block):
            return tuple(block)
    return tuple(sorted(free)[:gpus])


class _Field(NamedTuple):
    """On demand that keeps its GPUs or gets some now, and the bids that compete for the rest."""

    kept: list[Claim]
    admitted: list[Claim]
    bids: list[Claim]
    capacity: int
    """GPUs that the kept ones leave."""
    free: int
    """GPUs that the admitted ones leave of them: F of rule 2."""


def _line_up(supply: Supply, claims: Iterable[Claim]) -> _Field:
    """Rules 1 and 2."""
    healthy = set(supply.slots)
    claims = [claim for claim in claims if healthy.issuperset(claim.slots)]
    for claim in claims:
        assert claim.gpus > 0, claim
        assert claim.bid >= 0, claim
        assert len(claim.slots) in {0, claim.gpus}, claim

    kept = [claim for claim in claims if claim.slots and not claim.is_bid]
    capacity = free = len(healthy) - sum([claim.gpus for claim in kept])
    line = [claim for claim in claims if not claim.slots and not claim.is_bid]
    admitted = []
    for claim in sorted(line, key=lambda claim: claim.requested_at):
        if claim.gpus <= free:
            admitted.append(claim)
            free -= claim.gpus

    bids = [claim for claim in claims if claim.is_bid and (claim.slots or supply.accepts(claim))]
    return _Field(kept, admitted, bids, capacity, free)


class _Contest:
    """The best sets of the bids of one machine, for every number of GPUs up to its capacity.

    *asker* is in none of the sets. It only has a worth here, so that `price` can tell what it
    would take to be in one.
    """

    def __init__(self, capacity: int, bids: Sequence[Claim], asker: Claim | None = None) -> None:
        running = [bid for bid in bids if bid.slots]
        waiting = _shortlist(capacity, [bid for bid in bids if not bid.slots])
        self._lay_out([*running, *waiting, *([asker] if asker else [])], capacity)

        best = [0] * (capacity + 1)
        for bid in waiting:
            best = _with_one_more(best, bid.gpus, self._worth(bid))
        # A set that displaces nothing is all that run, and any of those that wait in the rest.
        held = sum([bid.gpus for bid in running])
        worth_held = sum([self._worth(bid) for bid in running])
        assert held <= capacity, running
        self._calm = [None] * held + [worth_held + worth for worth in best]
        for bid in running:
            best = _with_one_more(best, bid.gpus, self._worth(bid))
        self._best = best

    def winners(self, free: int, margin: int) -> list[Claim]:
        """The bids that run on *free* GPUs (rules 3 and 4)."""
        chosen, calm = self._best[free], self._calm[free]
        if calm is not None and self._total(chosen) - self._total(calm) <= margin:
            chosen = calm
        return [bid for bit, bid in enumerate(self._bids) if chosen >> bit & 1]

    def price(self, asker: Claim, free: int, supply: Supply) -> int | None:
        """The smallest bid, not below the floor, with which *asker* is among the winners.

        Four sets decide: the best with it and the best without it, among all sets and among those
        that displace nothing. Its bid counts in those with it only, so more never hurts.
        """
        if supply.floor is None or asker.gpus > free:
            return None
        rest, margin = free - asker.gpus, supply.margin
        best_with, best_without = self._best[rest], self._best[free]
        calm_with = self._calm[rest]
        # To leave out one that holds GPUs is to displace it.
        calm_without = None if asker.slots else self._calm[free]

        if calm_with is not None and self._total(best_with) - self._total(calm_with) <= margin:
            # It fits beside all that run. Its bid brings that set within the margin of the best
            # without it, and makes it the best of those that displace nothing.
            amount = self._total(best_without) - self._total(calm_with) - margin
            if calm_without is not None:
                amount = max(amount, self._to_beat(calm_without, calm_with, asker))
        else:
            # It has to displace: be in the best set, by more than the margin.
            amount = self._to_beat(best_without, best_with, asker)
            if calm_without is not None:
                gain = self._total(best_with) - self._total(calm_without)
                amount = max(amount, margin + 1 - gain)
        return max(amount, supply.floor * asker.gpus)

    def _to_beat(self, without: int, beside: int, asker: Claim) -> int:
        """The smallest bid with which *asker* and the set *beside* are better than *without*."""
        return ((without - beside - self._worth(asker)) >> self._bid_bit) + 1

    def _lay_out(self, bids: Sequence[Claim], capacity: int) -> None:
        """Where the parts of a worth lie, from the right."""
        self._bids = sorted(bids, key=lambda bid: bid.instance_id, reverse=True)
        seconds = sorted({bid.bid_effective_at for bid in bids}, reverse=True)
        digit = capacity.bit_length()  # a set has at most *capacity* members: nothing is carried
        self._id_bit = {bid.instance_id: bit for bit, bid in enumerate(self._bids)}
        self._second_bit = {second: len(bids) + digit * i for i, second in enumerate(seconds)}
        self._holding_bit = len(bids) + digit * len(seconds)
        self._bid_bit = self._holding_bit + digit

    def _worth(self, bid: Claim) -> int:
        return (
            (bid.bid << self._bid_bit)
            + (bool(bid.slots) << self._holding_bit)
            + (1 << self._second_bit[bid.bid_effective_at])
            + (1 << self._id_bit[bid.instance_id])
        )

    def _total(self, worth: int) -> int:
        """The total bid of a set."""
        return worth >> self._bid_bit


def _with_one_more(best: list[int], gpus: int, worth: int) -> list[int]:
    """The best worth within 0, 1, 2, … GPUs when there is one more bid to choose."""
    return best[:gpus] + list(map(max, best[gpus:], [less + worth for less in best]))


def _shortlist(capacity: int, waiting: Iterable[Claim]) -> list[Claim]:
    """The best bids of each size, as many as there is room for; no others are in a best set.

    A set with one of the others lacks one of these, and is better with that one in its place.
    """
    chosen = []
    of_size: Counter[int] = Counter()
    for bid in sorted(waiting, key=lambda bid: (-bid.bid, bid.bid_effective_at, bid.instance_id)):
        if of_size[bid.gpus] < capacity // bid.gpus:
            of_size[bid.gpus] += 1
            chosen.append(bid)
    return chosen


def _asking(asker: Claim, others: Iterable[Claim]) -> Claim:
    """*asker* with a bid that is newer than all of *others* and has no amount yet."""
    latest = max((claim.bid_effective_at for claim in others), default=0)
    return asker._replace(bid=0, bid_effective_at=latest + 1)
