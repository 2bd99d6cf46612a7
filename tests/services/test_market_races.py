"""Real concurrency against PostgreSQL: whatever comes together, one order is found and holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Barrier

import pytest

from ledger.domain import events as e
from ledger.domain.usage import Observation
from ledger.errors import LedgerError
from ledger.services import policies, rentals
from ledger.services.ledger import Policy, Unit
from ledger.services.usage import SignedReport
from tests.support.market import DOLLAR, START, Market

CENT = DOLLAR // 100
ROUNDS = 5


def together(market: Market, *commands: Callable[[Unit], object]) -> list[object]:
    """Carry out commands at the same moment, each in a transaction of its own."""
    barrier = Barrier(len(commands))

    def run(command: Callable[[Unit], object]) -> object:
        barrier.wait()
        try:
            with market.ledger.unit() as unit:
                return command(unit)
        except LedgerError as error:
            return error.code

    with ThreadPoolExecutor(len(commands)) as threads:
        return list(threads.map(run, commands))


def holders(market: Market, machine: int) -> dict[int, int]:
    """Instance → GPUs that it holds."""
    rows = market.connection.execute(
        "SELECT instance_id, count(*) FROM gpu_assignments"
        " WHERE machine_id = %s AND upper_inf(during) GROUP BY instance_id",
        [machine],
    ).fetchall()
    return dict(rows)


def sound(market: Market, instances: Sequence[int]) -> None:
    """Every displacement closed an interval, no two overlap, and replay gives the same tables."""
    market.project()
    for one in instances:
        spans = market.connection.execute(
            "SELECT start, until FROM gpu_spans WHERE instance_id = %s ORDER BY start", [one]
        ).fetchall()
        assert all(a[1] <= b[0] for a, b in pairwise(spans)), spans
    assert market.rebuild().equal


def test_two_renters_bid_at_the_same_moment(market: Market) -> None:
    """Of two equal bids one runs and the other is refused; the higher of two always runs."""
    chance = random.Random(7)  # noqa: S311 - a test's choice
    people = [market.account(name, 99 * DOLLAR) for name in ("alice", "carol")]
    for _ in range(ROUNDS):
        machine = market.machine(floor=CENT)
        bids = [chance.choice([20, 30]) * CENT for _ in people]
        answers = together(
            market,
            *(
                partial(rentals.rent, account_id=who, machine_id=machine, disk_gb=1, bid=bid)
                for who, bid in zip(people, bids, strict=True)
            ),
        )
        (winner,) = holders(market, machine)
        created = [one for one in answers if isinstance(one, int)]
        assert winner in created
        assert max(bids) == bids[answers.index(winner)]
        assert {one for one in answers if isinstance(one, str)} <= {"invalid_price", "no_such_ask"}
    assert market.rebuild().equal


def test_on_demand_arrives_during_a_resume(market: Market) -> None:
    """The outbid one resumes as its rival leaves, or the arrival has the GPU: never both."""
    alice, carol, dora = (market.account(name, 99 * DOLLAR) for name in ("alice", "carol", "dora"))
    for _ in range(ROUNDS):
        machine = market.machine(floor=CENT)
        patient = market.rent(alice, machine, bid=10 * CENT, disk_gb=1)
        rival = market.rent(carol, machine, bid=20 * CENT, disk_gb=1)
        _, arrival = together(
            market,
            partial(rentals.destroy, instance_id=rival),
            partial(rentals.rent, account_id=dora, machine_id=machine, disk_gb=1),
        )
        assert isinstance(arrival, int)  # bids never keep an on-demand renter out
        assert holders(market, machine) == {arrival: 1}
        assert market.status(patient) == "scheduling"
        sound(market, [patient, rival, arrival])


def test_a_bid_is_changed_while_it_is_displaced(market: Market) -> None:
    """Whichever comes first, in the next second the higher bid runs."""
    alice, carol = market.account("alice", 99 * DOLLAR), market.account("carol", 99 * DOLLAR)
    for _ in range(ROUNDS):
        machine = market.machine(floor=CENT)
        one = market.rent(alice, machine, bid=10 * CENT, disk_gb=1)
        market.confirm(machine, one)
        changed, rival = together(
            market,
            partial(rentals.change_bid, instance_id=one, bid=30 * CENT),
            partial(rentals.rent, account_id=carol, machine_id=machine, disk_gb=1, bid=20 * CENT),
        )
        assert changed == 30 * CENT
        assert isinstance(rival, int)
        assert holders(market, machine) == {rival: 1}
        market.clock.move_to(market.clock() + 1)
        policies.run_due(market.ledger)
        assert holders(market, machine) == {one: 1}
        sound(market, [one, rival])


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_dies_with_eight_tenants(market: Market, seed: int) -> None:
    """Its tenants pay to the last attested second, whatever they do at that moment."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    market.ledger.adopt_policy(Policy(2, 1500, 259_200, True, 60))
    rich = market.account("alice", 999 * DOLLAR)
    machine = market.machine(gpus=8, storage=0, floor=CENT)
    tenants = [
        market.rent(rich, machine, gpus=1, disk_gb=1, bid=(10 + n) * CENT if n % 2 else None)
        for n in range(8)
    ]
    for one in tenants:
        market.confirm(machine, one)
    market.run(machine, tenants, 120)

    def die() -> None:
        chain = market.chains[machine]
        chain.boot_id = "boot-2"
        seen = [
            Observation(instance=one, assignment=1, state="gpu_lost", at=START + 120)
            for one in tenants
        ]
        sealed = chain.seal(START + 120, 0, [], seen)
        market.usage.deliver(
            [SignedReport(sealed.key_id, sealed.signature, sealed.body)], [START + 120]
        )

    wishes: list[Callable[[Unit], object]] = []
    for one in tenants[:4]:
        wishes.append(
            chance.choice(
                [
                    partial(rentals.stop, instance_id=one),
                    partial(rentals.destroy, instance_id=one),
                    partial(rentals.reboot, instance_id=one),
                ]
            )
        )
    wishes.append(partial(rentals.change_bid, instance_id=tenants[7], bid=50 * CENT))

    with ThreadPoolExecutor(6) as threads:
        dying = threads.submit(die)
        together(market, *wishes)
        dying.result(30)
    assert holders(market, machine) == {}
    assert {market.seconds(one)[0] for one in tenants} == {120}
    stops = [fact for fact in market.facts() if isinstance(fact, e.InstanceStopped)]
    assert len({stop.instance_id for stop in stops}) == len(stops)
    sound(market, tenants)
