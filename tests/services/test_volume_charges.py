"""What volumes cost: their meter, their account's credit, and the papers that name them."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from ledger.domain.events import InvoiceIssued, UsageStatementIssued, VolumeDestroyed
from ledger.errors import DeclinedError, NotFoundError
from ledger.projections.runner import UsageRunner
from ledger.services import caps, explain, filing, holds, invoicing, policies, rentals, volumes
from ledger.services.credit import read_credit
from ledger.services.ledger import Policy, read_policy
from ledger.services.questions import balances, transfers, usage
from ledger.services.volumes import Mount, NewVolume
from tests.support.disputes import resolve
from tests.support.market import DOLLAR, START, Market
from tests.support.volumes import RATE, create, delete, offer

DAY = 86_400
MONTH = 2_592_000


def available(market: Market, account: int) -> int:
    """Nanos available now, folded or not."""
    with market.ledger.reading() as connection:
        return balances.balance(connection, account, market.clock()).available


def lenient(market: Market) -> None:
    """Starting asks only for something that is available, and no machine counts as silent."""
    market.ledger.adopt_policy(
        Policy(2, 1500, 259_200, admission=False, offline_after_seconds=None)
    )


# --- the meter -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mounted", [False, True])
def test_an_hour_of_a_volume_costs_what_it_costs(market: Market, *, mounted: bool) -> None:
    """100 GB at $0.15 for an hour: 20 833 333 nanos, whether an instance has it or not (§5.3)."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    instances = []
    if mounted:
        instances.append(market.rent(alice, machine, mounts=[Mount("/data", one)]))
    market.run(machine, instances, 3_600, state="loading")
    assert market.charges(one) == {"gpu": 0, "storage": 20_833_333, "up": 0, "down": 0}


def test_only_attested_seconds_of_its_life_are_billed(market: Market) -> None:
    """No report, no charge: neither while the machine is silent nor outside the volume's life."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offered = offer(market, machine)
    market.run(machine, [], 60)
    one = create(market, alice, offered)
    market.run(machine, [], 60)
    market.clock.move_to(START + 7_200)
    market.run(machine, [], 60)
    delete(market, one)
    market.run(machine, [], 60)
    assert market.seconds(one) == (0, 120)
    assert available(market, alice) == 100 * DOLLAR - RATE * 100 * 120 // MONTH


def test_a_late_report_is_billed_once_and_a_fresh_fold_goes_on(market: Market) -> None:
    """Repeated, and with a fold that begins with nothing in memory: each second counts once."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    late, next_one = (market.seal(machine, START + at, 60, []) for at in (0, 60))
    market.clock.move_to(START + 7_200)
    market.deliver(late)
    market.project()
    market.runner = UsageRunner()
    market.deliver(late, next_one)
    assert market.seconds(one) == (0, 120)
    market.runner = UsageRunner()
    delete(market, one)
    market.run(machine, [], 60)
    assert market.seconds(one) == (0, 120)
    assert market.rebuild().equal


def test_a_tick_that_names_a_volume_is_of_no_instance(market: Market) -> None:
    """A host cannot bill GPU seconds or bytes on a volume: such ticks are an anomaly."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    market.run(machine, [one], 60, up=1_000_000, down=1_000_000)
    assert market.seconds(one) == (0, 60)
    assert market.charges(one)["up"] == 0
    assert market.anomalies(one) == {"unknown_instance": 60}
    market.runner = UsageRunner()
    market.run(machine, [one], 60, up=1_000_000)
    assert market.anomalies(one) == {"unknown_instance": 120}


def test_the_fee_and_the_hosts_share_are_those_of_every_charge(market: Market) -> None:
    """15 % of a volume's charge is the platform's, the rest the host's, to the nano."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    create(market, alice, offer(market, machine))
    market.run(machine, [], 3_600)
    market.project()
    bob = market.account("bob")
    with market.ledger.reading() as connection:
        assert balances.balance(connection, bob, market.clock()).host_payable == (
            20_833_333 - 3_124_999
        )
        rows = balances.trial_balance(connection)
    assert sum(row.debit - row.credit for row in rows) == 0


def test_a_volume_on_ones_own_machine_costs_nothing(market: Market) -> None:
    """Renting one's own disk posts no charge, and is metered all the same."""
    machine = market.machine()
    bob = market.account("bob")
    one = create(market, bob, offer(market, machine))
    market.run(machine, [], 60)
    assert market.seconds(one) == (0, 60)
    assert market.charges(one)["storage"] == 0


# --- credit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_credit_with_volumes_is_that_of_a_model_with_fractions(market: Market, seed: int) -> None:
    """Folded or not, before and after ends, credit and its last second are those of the model."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    lenient(market)
    cash = chance.randrange(10**7, 10**9)
    alice = market.account("alice", cash)
    machine = market.machine(storage=chance.randrange(10**9))
    lives: dict[int, list[int]] = {}
    """Rate × GB, the first second, and the end, of each volume."""

    def left(at: int) -> int:
        spent = 0
        for product, since, until in lives.values():
            exact = Fraction(product * max(0, min(until, at) - since), MONTH)
            spent += exact.numerator // exact.denominator
        return cash - spent

    for _ in range(12):
        now = market.clock()
        act = chance.random()
        rate, gb = chance.randrange(10**9), chance.randint(1, 100)
        if act < 0.5:
            one = create(market, alice, offer(market, machine, 2_000, rate), gb)
            lives[one] = [rate * gb, now, 2**62]
        elif lives and act < 0.7:
            one = chance.choice(list(lives))
            delete(market, one)
            lives[one][2] = min(lives[one][2], now)
        seconds = chance.randint(1, 50)
        market.clock.move_to(now + seconds)
        if chance.random() < 0.7:
            sealed = max(START, market.chains[machine].sealed_until)
            market.deliver(market.seal(machine, sealed, market.clock() - sealed, []))
        if chance.random() < 0.5:
            market.project()
        assert available(market, alice) == left(market.clock())
    with market.ledger.reading() as connection:
        credit = read_credit(connection, [alice])[alice]
        dry = credit.dry_second(market.clock(), read_policy(connection))
    if dry is None:
        assert all(one[2] < 2**62 or one[0] == 0 for one in lives.values())
    else:
        assert left(dry) <= 0
        assert dry == market.clock() or left(dry - 1) > 0
    assert market.rebuild().equal


def exhausted_at(market: Market, account: int) -> int | None:
    """Since when the account has no credit."""
    with market.ledger.reading() as connection:
        return balances.balance(connection, account, market.clock()).exhausted_at


def test_volumes_alone_exhaust_an_account(market: Market) -> None:
    """Credit that only volumes burn runs dry in its second; nothing has to stop for that."""
    lenient(market)
    alice, machine = market.account("alice", 57_870), market.machine()
    one = create(market, alice, offer(market, machine))
    with market.ledger.reading() as connection:
        assert balances.balance(connection, alice, START).runway_seconds == 10
    market.run(machine, [], 9)
    policies.run_due(market.ledger)
    assert market.connection.execute("SELECT exhausted_at FROM account_credit").fetchone() == (
        None,
    )
    market.run(machine, [], 1)
    policies.run_due(market.ledger)
    row = market.connection.execute(
        "SELECT exhausted_at FROM account_credit WHERE account_id = %s", [alice]
    ).fetchone()
    assert row == (START + 10,)
    assert market.connection.execute("SELECT status FROM volumes").fetchone() == ("active",)
    with market.ledger.unit() as unit, pytest.raises(DeclinedError):
        volumes.create(unit, alice, NewVolume(1, 1))
    assert one == 1


def test_storage_debt_destroys_the_volumes_last(market: Market) -> None:
    """After the third notice the instances go, then the volumes, and nothing accrues any more."""
    lenient(market)
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=10**9)
    offered = offer(market, machine, 1_000, 10**9)
    kept = create(market, alice, offered, 900)
    instance = market.rent(alice, machine, disk_gb=100, mounts=[Mount("/data", kept)])
    for day in range(10):
        market.clock.move_to(START + day * DAY)
        policies.run_due(market.ledger)
    facts = [type(fact).__name__ for fact in market.facts() if "Destroyed" in type(fact).__name__]
    assert facts == ["InstanceDestroyed", "VolumeDestroyed"]
    (gone,) = [fact for fact in market.facts() if isinstance(fact, VolumeDestroyed)]
    assert (gone.volume_id, gone.by) == (kept, "storage_debt")
    assert market.status(instance) == "destroyed"
    row = market.connection.execute(
        "SELECT gpu_rate, storage_product FROM account_credit WHERE account_id = %s", [alice]
    ).fetchone()
    assert row == (0, 0)
    end = available(market, alice)
    market.clock.move_to(START + 30 * DAY)
    assert available(market, alice) == end


def test_spend_caps_count_volumes(market: Market) -> None:
    """A volume that burns beyond the hour's cap is refused; deleting one makes room."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offered = offer(market, machine)
    with market.ledger.unit() as unit:
        caps.set_caps(unit, alice, caps.Caps(per_hour=20_833_334))
    one = create(market, alice, offered)
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        volumes.create(unit, alice, NewVolume(offered, 1))
    assert error.value.code == "spend_rate_limit"
    delete(market, one)
    create(market, alice, offered)


def test_a_day_cap_counts_what_volumes_were_charged(market: Market) -> None:
    """The cap of a day is reached by a volume alone, what is folded and what is not together."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    create(market, alice, offer(market, machine))
    with market.ledger.unit() as unit:
        caps.set_caps(unit, alice, caps.Caps(per_day=5_787 * 20))
    market.run(machine, [], 10, report_seconds=5)
    market.project()
    market.run(machine, [], 10)
    policies.run_due(market.ledger)
    codes = [row[0] for row in market.connection.execute("SELECT code FROM notices").fetchall()]
    assert codes.count("spend_cap") == 1


# --- papers --------------------------------------------------------------------------------------


def test_charges_transfers_and_explanations_say_volume(market: Market) -> None:
    """Every line that names the contract says that it is a volume, and what it comes from."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    market.run(machine, [], 3_600)
    market.project()
    with market.ledger.reading() as connection:
        (line,) = usage.charges(connection, account_id=alice)
        moved = [
            row for row in transfers.transfers(connection, account_id=alice) if row.kind == "usage"
        ]
        (told,) = explain.explain(connection, one)
    assert (line.instance_id, line.item, line.kind, line.amount) == (
        one,
        "disk",
        "volume",
        20_833_333,
    )
    assert {row.reference for row in moved} == {f"volume-{one}"}
    assert sum(row.amount for row in moved) == 20_833_333
    assert (told.kind, told.meter, told.quantity, told.attested_seconds) == (
        "volume",
        "storage",
        3_600,
        3_600,
    )
    assert told.facts[0].topic == "volume.created.v1"


def test_a_volume_s_charge_can_be_disputed(market: Market) -> None:
    """Ten minutes of a volume upheld go back to the nano, and the books replay."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    bob = market.account("bob")
    one = create(market, alice, offer(market, machine))
    market.run(machine, [], 3_600)
    market.project()
    with market.ledger.unit() as unit:
        filing.require_own(unit, one, alice)
        with pytest.raises(NotFoundError):
            filing.require_own(unit, one, bob)
        dispute = filing.open_dispute(
            unit, one, START + 600, START + 1_200, "host_offline", actor=alice
        )
    assert resolve(market, dispute, "upheld") == 20_833_333 * 600 // 3_600
    assert available(market, alice) == 100 * DOLLAR - 20_833_333 + 3_472_222
    assert market.rebuild().equal


def test_statements_and_invoices_have_lines_of_volumes(market: Market) -> None:
    """An account that never had an instance gets its daily statements and its monthly invoice."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    market.run(machine, [], 600)
    delete(market, one)
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START + 600) is not None
    for at in (DAY, 32 * DAY):
        market.clock.move_to(START + at)
        market.project()
        policies.run_due(market.ledger)
        market.project()
    invoicing.issue_due(market.ledger)
    lines = [
        line
        for fact in market.facts()
        if isinstance(fact, UsageStatementIssued | InvoiceIssued)
        for line in fact.lines
    ]
    assert [(line.instance_id, line.kind, line.meter, line.quantity) for line in lines] == [
        (one, "volume", "storage", 600)
    ] * 2
    assert {line.amount for line in lines} == {RATE * 100 * 600 // MONTH}


def test_everything_is_folded_again_as_it_was(market: Market) -> None:
    """Offers, clones, attachments and ends give the same read models from position 0."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2)
    offered = offer(market, machine, until=START + 3_600)
    one = create(market, alice, offered)
    with market.ledger.unit() as unit:
        two = volumes.clone(unit, one, offered, name="copy")
        holds.place_hold(unit, alice, DOLLAR, "h")
    instance = market.rent(alice, machine, gpus=1, mounts=[Mount("/a", one), Mount("/b", two)])
    market.run(machine, [instance], 1_800)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    delete(market, two)
    offer(market, machine, 700, RATE + 7)
    market.run(machine, [], 1_800)
    policies.run_due(market.ledger)
    result = market.rebuild()
    assert result.equal, [table.first_difference for table in result.tables if not table.equal]
