"""Which seconds count: the rule of two sources, through the real log and the real fold."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from adapters.hostagent.reports import ReportChain, constant_block
from ledger.domain.usage import Observation
from ledger.projections.usage import live
from ledger.projections.usage.loading import load_instances
from ledger.projections.usage.state import Meter
from ledger.services import rentals
from ledger.store.database import Connection
from tests.support.market import DOLLAR, START, Market

GPU_SECOND = 100_000
"""Nanos of one second at $0.36 an hour."""


def test_given_running_when_ticked_then_each_second_costs_its_share(market: Market) -> None:
    """Ten minutes at $0.36 an hour cost exactly $0.06, not an hour's minimum (PRICE-04)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 600)
    assert market.seconds(one) == (600, 600)
    assert market.charges(one)["gpu"] == 60_000_000


def test_given_loading_when_ticked_then_only_storage_runs(market: Market) -> None:
    """Ten minutes of provisioning and a destroy cost storage and no GPU (LIFE-03, C16, C17)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.run(machine, [one], 600, state="loading")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    assert market.seconds(one) == (0, 600)
    assert market.anomalies(one) == {}


def test_given_stopped_when_ticked_then_the_disk_goes_on(market: Market) -> None:
    """Stopping ends the GPU meter at the decision second and not the storage meter (LIFE-01)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 100)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 20)
    market.run(machine, [one], 80, state="stopped")
    assert market.seconds(one) == (100, 200)
    assert market.anomalies(one) == {"after_stop": 20}


def test_given_destroyed_when_ticked_then_nothing_accrues(market: Market) -> None:
    """Late running ticks after a destroy are anomalies and cost nothing (LIFE-06, C24)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    before = market.charges(one)
    market.run(machine, [one], 60, up=1_000)
    assert market.charges(one) == before
    assert market.anomalies(one) == {"after_destroy": 60, "bytes_outside_life": 60}


def test_given_confirmation_after_its_ticks_then_they_are_billed(market: Market) -> None:
    """Ticks that came before their confirmation count once the interval holds them."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.run(machine, [one], 60)
    assert market.anomalies(one) == {"before_start": 60}
    seen = Observation(instance=one, assignment=1, state="running", at=START + 20)
    market.deliver(market.seal(machine, market.clock(), 0, [], [seen]))
    assert market.seconds(one)[0] == 40
    assert market.anomalies(one) == {"before_start": 20}
    assert market.rebuild().equal


def test_given_two_epochs_when_they_overlap_then_the_first_tick_counts(market: Market) -> None:
    """A second attested in two epochs is billed once; the other tick is a duplicate."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    first = market.chains[machine]
    other = ReportChain(machine, first.signer, boot_id=first.boot_id, epoch="cd" * 16)
    block = constant_block(one, START + 30, 30, "running", up=9, down=9, util=1)
    market.deliver(other.seal(START + 30, 30, [block]))
    assert market.seconds(one) == (60, 60)
    assert market.charges(one)["up"] == 0
    assert market.anomalies(one) == {"duplicate_second": 30}


@pytest.mark.parametrize(("late", "billed"), [(259_200, 1), (259_201, 0)])
def test_given_late_ticks_then_72_hours_are_the_last_second(
    market: Market, late: int, billed: int
) -> None:
    """A tick received 72 h after its second counts, one second later it is too late."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    block = constant_block(one, START, 1, "running", up=0, down=0, util=1)
    report = market.seal(machine, START, 1, [block])
    market.clock.move_to(START + late)
    assert market.deliver(report)[0].status == "accepted"
    assert market.seconds(one) == (billed, billed)
    assert market.anomalies(one) == ({} if billed else {"too_late": 1})


def test_given_more_bytes_than_the_link_then_the_rest_is_excess(market: Market) -> None:
    """130 MB in a second over 1 Gbit/s bill 125 MB, and 5 MB are kept as excess (§5.4)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine(mbps=1_000)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 1, up=130_000_000)
    assert market.charges(one)["up"] == 125_000_000 * 3_000_000 // 10**9
    assert market.anomalies(one) == {"bandwidth_excess": 1}
    row = market.connection.execute("SELECT amount FROM anomalies").fetchone()
    assert row == (5_000_000,)


def test_given_two_instances_at_the_link_then_they_share_it(market: Market) -> None:
    """Two instances with 100 MB each over 1 Gbit/s bill 62.5 MB each (§5.4)."""
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine(gpus=2, mbps=1_000)
    both = [market.rent(alice, machine, gpus=1) for _ in range(2)]
    for one in both:
        market.confirm(machine, one)
    market.run(machine, both, 1, down=100_000_000)
    for one in both:
        assert market.charges(one)["down"] == 62_500_000 * 2_000_000 // 10**9


def test_given_an_instance_of_another_machine_then_it_is_unknown(market: Market) -> None:
    """Ticks for somebody else's instance are stored as anomalies and cost nobody anything."""
    alice = market.account("alice", 10 * DOLLAR)
    home, elsewhere = market.machine(), market.machine(host="eve")
    one = market.rent(alice, home)
    market.confirm(home, one)
    market.run(elsewhere, [one, 999], 60)
    assert market.seconds(one) == (0, 0)
    rows = market.connection.execute(
        "SELECT machine_id, instance_id, code FROM anomalies ORDER BY instance_id"
    ).fetchall()
    assert rows == [(elsewhere, one, "unknown_instance"), (elsewhere, 999, "unknown_instance")]


def test_given_many_ticks_of_strangers_then_each_is_looked_up_once_a_page(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that names instances not its own, report after report, does not slow the fold."""
    asked: list[int] = []

    def counted(connection: Connection, instances: Collection[int]) -> dict[int, Meter]:
        asked.extend(instances)
        return load_instances(connection, instances)

    monkeypatch.setattr(live, "load_instances", counted)
    machine = market.machine()
    market.run(machine, [998, 999], 600, report_seconds=1)
    assert market.anomalies(999) == {"unknown_instance": 600}
    assert asked == [998, 999]


def test_given_a_silent_machine_then_nothing_is_billed_for_the_gap(market: Market) -> None:
    """Seconds that nobody attests cost neither GPU nor storage, and the gap shows (LIFE-07)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(market.clock() + 16 * 3_600)
    market.run(machine, [one], 60)
    assert market.seconds(one) == (120, 120)


def test_given_the_book_example_then_every_nano_is_as_printed(market: Market) -> None:
    """The full example of the rule book: 3,600 s of GPU and 3,685 s of storage, to the nano."""
    start = 1_798_761_600
    market.clock.move_to(start)
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine(gpu_hour=400_000_000)
    one = market.rent(alice, machine)
    market.run(machine, [one], 25, state="loading")
    market.confirm(machine, one)
    market.run(machine, [one], 3_600)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 1)
    market.run(machine, [one], 59, state="stopped")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    assert market.seconds(one) == (3_600, 3_685)
    charges = market.charges(one)
    assert (charges["gpu"], charges["storage"]) == (400_000_000, 21_325_231)
    assert market.anomalies(one) == {"after_stop": 1}
    assert market.rebuild().equal


def test_given_one_s_own_machine_then_renting_it_is_free(market: Market) -> None:
    """A host that rents its own machine is charged nothing and earns nothing."""
    bob, machine = market.account("bob", DOLLAR), market.machine(host="bob")
    one = market.rent(bob, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 600, up=10**6)
    assert sum(market.charges(one).values()) == 0
    assert market.seconds(one) == (600, 600)


def test_given_a_new_boot_then_the_old_interval_ends_where_ticks_ended(market: Market) -> None:
    """After a crash the GPU meter runs again only from the new confirmation."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(market.clock() + 100)
    market.chains[machine].boot_id = "boot-2"
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    assert market.seconds(one) == (120, 120)
    rows = market.connection.execute(
        "SELECT start, until FROM gpu_intervals ORDER BY start"
    ).fetchall()
    assert rows == [(START, START + 60), (START + 160, None)]


def test_given_a_container_exit_then_the_meter_ends_and_the_gpus_are_free(market: Market) -> None:
    """A container that ends by itself leaves the instance stopped, with its reason (LIFE-08)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    seen = Observation(instance=one, assignment=1, state="exited", at=market.clock(), exit_code=3)
    market.deliver(market.seal(machine, market.clock(), 0, [], [seen]))
    row = market.connection.execute("SELECT status, reason FROM instances").fetchone()
    assert row == ("stopped", "container_exit")
    other = market.rent(market.account("carol", 10 * DOLLAR), machine)
    assert other == one + 1


def test_given_backdated_ticks_then_no_older_answer_stays(market: Market) -> None:
    """Ticks for an earlier hour change hour, balance and books in one step (LEDG-09)."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    chain = market.chains[machine]
    late = ReportChain(machine, chain.signer, boot_id=chain.boot_id, epoch="ef" * 16)
    market.clock.move_to(START + 3_600)
    market.run(machine, [one], 3_600)
    before = market.charges(one)["gpu"]
    assert before == 360_000_000
    blocks = [constant_block(one, START, 300, "running", up=0, down=0, util=9)]
    market.deliver(late.seal(START, 300, blocks))
    assert market.charges(one)["gpu"] == before + 30_000_000
    rows = market.connection.execute(
        "SELECT sum(gpu_charge + storage_charge), (SELECT charged FROM account_usage"
        " WHERE account_id = %s) FROM usage_hours",
        [alice],
    ).fetchone()
    assert rows is not None
    assert rows[0] == rows[1]
    assert market.rebuild().equal
