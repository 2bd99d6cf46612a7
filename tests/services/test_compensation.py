"""Compensation: what hosts pay for outages and lost disks under `sla-1`, and never twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.domain.ids import parse_rfc3339
from ledger.domain.usage import Observation
from ledger.services import policies, rentals
from ledger.services.policies.outages import compensate
from ledger.services.questions.balances import balance, trial_balance
from tests.support.market import DOLLAR, Market
from tests.support.operations import HOUR, SLA_1, at, heard, locations, say, topics, was_down

FEBRUARY, MARCH = (parse_rfc3339(f"2026-0{month}-01T00:00:00Z") for month in (2, 3))
RATE = 400_000_000


@pytest.fixture
def market(dsn: str) -> Iterator[Market]:
    """A market in February 2026, under `sla-1`."""
    one = Market(dsn, FEBRUARY)
    one.ledger.adopt_policy(SLA_1)
    yield one
    one.close()


def running(
    market: Market, machine: int, name: str, seconds: int = 0, **options: object
) -> tuple[int, int]:
    """A renter with an instance that ran for so many seconds: account and instance."""
    account = market.account(name, 1_000 * DOLLAR)
    one = market.rent(account, machine, disk_gb=1, **options)
    market.confirm(machine, one)
    market.run(machine, [one], seconds, report_seconds=300)
    return account, one


def in_march(market: Market, machine: int) -> None:
    """The tenth of March; the machine is heard."""
    market.clock.move_to(MARCH + 9 * 24 * HOUR)
    heard(market, machine)


def down(market: Market, machine: int, seconds: int) -> int:
    """An outage that begins now."""
    return was_down(market, machine, market.clock(), market.clock() + seconds)


def settle(market: Market) -> None:
    """Fold, and let the platform do what is due, again and again."""
    for _ in range(3):
        market.project()
        compensate(market.ledger)


def paid(market: Market) -> list[tuple[int, int, int, int, bool]]:
    """Instance, multiplier, claim, amount, and whether the cap made it smaller."""
    rows = market.connection.execute(
        "SELECT instance_id, multiplier, claim, amount, cap_applied FROM compensations"
        " ORDER BY position"
    ).fetchall()
    return [(row[0], row[1], int(row[2]), int(row[3]), row[4]) for row in rows]


def credit(market: Market, account: int) -> tuple[int, int]:
    """What an account has posted as renter, and is owed outside the meters as host."""
    row = market.connection.execute(
        "SELECT posted, payable FROM account_credit WHERE account_id = %s", [account]
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


@pytest.mark.parametrize(
    ("spent_seconds", "seconds", "claim", "amount"),
    [
        # $0.40/h, 2 h, multiplier 5: 4.00, so $5.00; with $3 spent last month: $3.00.
        (13 * HOUR, 2 * HOUR, 5 * DOLLAR, 5 * DOLLAR),
        (27_000, 2 * HOUR, 5 * DOLLAR, 3 * DOLLAR),
        (20 * HOUR, 3 * HOUR, 6 * DOLLAR, 6 * DOLLAR),
        (0, 2 * HOUR, 5 * DOLLAR, 0),
    ],
)
def test_the_numbers_of_the_rule_book(
    market: Market, spent_seconds: int, seconds: int, claim: int, amount: int
) -> None:
    """min(max(5 x rate x time, $5), last month's charges), from the host to the renter."""
    machine = market.machine(gpu_hour=RATE, storage=0)
    bob = market.account("bob")
    alice, one = running(market, machine, "alice", spent_seconds)
    in_march(market, machine)
    outage = down(market, machine, seconds)
    settle(market)
    assert paid(market) == [(one, 5, claim, amount, amount < claim)]
    assert credit(market, alice) == (1_000 * DOLLAR + amount, 0)
    assert credit(market, bob) == (0, -amount)
    row = market.connection.execute(
        "SELECT credited, settled_at FROM outages WHERE outage_id = %s", [outage]
    ).fetchone()
    assert row == (amount, market.clock())
    movements = market.connection.execute(
        "SELECT kind, debit, debit_account, credit, credit_account, amount FROM movements"
        " WHERE kind = 'compensation'"
    ).fetchall()
    moved = ("compensation", "host_payable", bob, "renter_credit", alice, amount)
    assert movements == ([moved] if amount else [])
    with market.ledger.reading() as connection:
        rows = trial_balance(connection)
        assert sum(row.debit for row in rows) == sum(row.credit for row in rows)
        assert balance(connection, alice, market.clock()).posted == 1_000 * DOLLAR + amount
    head = market.head()
    settle(market)
    assert market.head() == head
    assert market.rebuild().equal


def test_the_secure_tier_pays_twice_as_much(market: Market) -> None:
    """On a machine of the secure tier the multiplier is 10: $8.00 for two hours at $0.40."""
    machine = market.machine(gpu_hour=RATE, storage=0)
    _, one = running(market, machine, "alice", 21 * HOUR)
    in_march(market, machine)
    market.connection.execute("UPDATE machine_standing SET secure = true")
    down(market, machine, 2 * HOUR)
    settle(market)
    assert paid(market) == [(one, 10, 8 * DOLLAR, 8 * DOLLAR, False)]


def test_charges_of_other_months_machines_and_renters_do_not_count(market: Market) -> None:
    """The cap is what this renter was charged on this machine in the last UTC month, no more."""
    machine = market.machine(gpus=2, gpu_hour=RATE, storage=0)
    other = market.machine(gpu_hour=RATE, storage=0)
    alice, one = running(market, machine, "alice", 3 * HOUR, gpus=1)
    running(market, machine, "carol", 5 * HOUR, gpus=1)
    heard(market, other)
    elsewhere = market.rent(alice, other, disk_gb=1)
    market.confirm(other, elsewhere)
    market.run(other, [elsewhere], 7 * HOUR, report_seconds=300)
    in_march(market, machine)
    market.run(machine, [one], 11 * HOUR, report_seconds=300)
    down(market, machine, 2 * HOUR)
    settle(market)
    assert [row[3] for row in paid(market)] == [1_200_000_000, 2_000_000_000]
    # In April the eleven hours of March are what counts.
    market.clock.move_to(MARCH + 40 * 24 * HOUR)
    down(market, machine, 2 * HOUR)
    settle(market)
    assert [row[3] for row in paid(market)][2:] == [4_400_000_000, 0]
    assert market.rebuild().equal


def test_only_the_seconds_in_which_gpus_were_held_count(market: Market) -> None:
    """Who stopped before gets nothing; who destroyed midway is paid up to there."""
    machine = market.machine(gpus=4, gpu_hour=6 * RATE, storage=0)
    _, whole = running(market, machine, "alice", 10 * HOUR, gpus=1)
    _, half = running(market, machine, "carol", 10 * HOUR, gpus=1)
    _, idle = running(market, machine, "dave", 10 * HOUR, gpus=1)
    in_march(market, machine)
    with market.ledger.unit() as unit:
        rentals.stop(unit, idle)
    start = market.clock()
    names = locations(market, 4)
    say(market, names, machine, "down")
    for second in range(start, start + 2 * HOUR, 120):
        market.clock.move_to(second)
        say(market, names, machine, "down")
        if second == start + HOUR:
            with market.ledger.unit() as unit:
                rentals.destroy(unit, half)
    market.clock.move_to(start + 2 * HOUR)
    say(market, names, machine, "up")
    settle(market)
    assert paid(market) == [
        (whole, 5, 24 * DOLLAR, 24 * DOLLAR, False),
        (half, 5, 12 * DOLLAR, 12 * DOLLAR, False),
    ]
    rows = market.connection.execute("SELECT seconds FROM compensations").fetchall()
    assert rows == [(2 * HOUR,), (HOUR,)]
    assert market.rebuild().equal


def test_each_second_has_the_rate_that_it_was_held_at(market: Market) -> None:
    """A bid that rose midway is compensated at both rates, floored once."""
    machine = market.machine(gpu_hour=6 * RATE, storage=0, floor=1)
    _, one = running(market, machine, "alice", 20 * HOUR, bid=1_000_000_001)
    in_march(market, machine)
    start = market.clock()
    market.clock.move_to(start + 1_799)
    heard(market, machine)
    with market.ledger.unit() as unit:
        rentals.change_bid(unit, one, 2_000_000_001)
    market.clock.move_to(start + 1_800)
    policies.run_due(market.ledger)
    was_down(market, machine, start, start + HOUR)
    settle(market)
    claim = 5 * (1_000_000_001 * 1_800 + 2_000_000_001 * 1_800) // HOUR
    assert paid(market) == [(one, 5, claim, claim, False)]
    assert market.rebuild().equal


def test_instances_of_one_renter_share_its_cap(market: Market) -> None:
    """Two instances on which $8 was spent together get $8 for one outage, not $10."""
    machine = market.machine(gpus=2, gpu_hour=RATE, storage=0)
    alice, first = running(market, machine, "alice", 10 * HOUR, gpus=1)
    second = market.rent(alice, machine, gpus=1, disk_gb=1)
    market.confirm(machine, second)
    market.run(machine, [second], 10 * HOUR, report_seconds=300)
    in_march(market, machine)
    down(market, machine, 60)
    settle(market)
    assert [(row[0], row[3], row[4]) for row in paid(market)] == [
        (first, 5 * DOLLAR, False),
        (second, 3 * DOLLAR, True),
    ]
    # Another outage is another matter.
    down(market, machine, 60)
    settle(market)
    assert [row[3] for row in paid(market)] == [5 * DOLLAR, 3 * DOLLAR] * 2
    assert market.rebuild().equal


def test_one_s_own_machine_pays_nothing(market: Market) -> None:
    """A host that rents its own machine is owed nothing by itself: the outage is settled at 0."""
    machine = market.machine(gpu_hour=RATE, storage=0)
    running(market, machine, "bob", HOUR)
    in_march(market, machine)
    down(market, machine, HOUR)
    settle(market)
    assert paid(market) == []
    assert len(topics(market, "outage.settled")) == 1


def test_nothing_is_decided_before_the_usage_is_folded(market: Market) -> None:
    """Reports of February that arrive before the end of the outage count, folded or not."""
    machine = market.machine(gpu_hour=RATE, storage=0)
    _, one = running(market, machine, "alice", 13 * HOUR)
    in_march(market, machine)
    down(market, machine, 2 * HOUR)
    compensate(market.ledger)
    assert paid(market) == []
    assert topics(market, "outage.settled") == []
    settle(market)
    assert paid(market) == [(one, 5, 5 * DOLLAR, 5 * DOLLAR, False)]


def lose_disk(market: Market, machine: int, one: int, assignment: int = 1) -> None:
    """The host says that the disk is gone."""
    seen = Observation(instance=one, assignment=assignment, state="disk_gone", at=market.clock())
    start = max(market.clock(), market.chains[machine].sealed_until)
    assert market.deliver(market.seal(machine, start, 0, [], [seen]))[0].status == "accepted"


@pytest.mark.parametrize(
    ("spent_seconds", "amount"), [(41 * HOUR, 16 * DOLLAR), (27_000, 3 * DOLLAR), (0, 0)]
)
def test_a_lost_disk_is_forty_hours(market: Market, spent_seconds: int, amount: int) -> None:
    """40 x $0.40 = $16.00, up to last month's charges, once per lost disk."""
    machine = market.machine(gpu_hour=RATE, storage=0)
    alice, one = running(market, machine, "alice", spent_seconds)
    in_march(market, machine)
    lose_disk(market, machine, one)
    compensate(market.ledger)
    assert paid(market) == []
    settle(market)
    assert paid(market) == [(one, 40, 16 * DOLLAR, amount, amount < 16 * DOLLAR)]
    assert credit(market, alice)[0] == 1_000 * DOLLAR + amount
    lose_disk(market, machine, one)
    settle(market)
    assert len(paid(market)) == 1
    # A new disk that is lost too is another lost disk.
    market.clock.move_to(market.clock() + 30)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    market.clock.move_to(market.clock() + 30)
    lose_disk(market, machine, one, assignment=2)
    settle(market)
    assert len(paid(market)) == 2
    assert market.rebuild().equal


def test_without_a_policy_nothing_is_paid_then_or_later(dsn: str) -> None:
    """Under `none` an outage is settled at 0 and a lost disk is not looked at, for good."""
    market = Market(dsn, FEBRUARY)
    machine = market.machine(gpu_hour=RATE, storage=0)
    _, one = running(market, machine, "alice", 13 * HOUR)
    in_march(market, machine)
    down(market, machine, 2 * HOUR)
    lose_disk(market, machine, one)
    settle(market)
    market.clock.move_to(market.clock() + 1)
    market.ledger.adopt_policy(SLA_1)
    at(market, market.clock() + 60)
    settle(market)
    assert paid(market) == []
    assert len(topics(market, "outage.settled")) == 1
    assert market.rebuild().equal
    market.close()
