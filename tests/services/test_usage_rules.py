"""The rule of two sources, case by case: states, confirmations, boots, disks, anomalies."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.hostagent.reports import ReportChain, block, constant_block
from ledger.domain.usage import Observation, ObservedState, TickState
from ledger.services import listings, policies, rentals
from ledger.services.ledger import Policy
from tests.support.market import DOLLAR, START, Market

BYTES = 10**9


@pytest.fixture
def rented(market: Market) -> tuple[int, int]:
    """A machine and an instance on it that nobody has confirmed yet."""
    machine = market.machine()
    return machine, market.rent(market.account("alice", 1_000 * DOLLAR), machine)


def saw(
    market: Market, machine: int, instance: int, state: ObservedState, at: int, assignment: int = 1
) -> None:
    """Deliver a report that attests no second and says what the host saw."""
    seen = Observation(instance=instance, assignment=assignment, state=state, at=at)
    chain = market.chains[machine]
    start = max(market.clock(), chain.sealed_until)
    assert market.deliver(chain.seal(start, 0, [], [seen]))[0].status == "accepted"


def ticks(market: Market, machine: int, instance: int, start: int, *states: TickState) -> None:
    """Deliver one report with these states, one a second."""
    count = len(states)
    one = block(instance, start, states, up=[0] * count, down=[0] * count, util=[-1] * count)
    assert market.deliver(market.seal(machine, start, count, [one]))[0].status == "accepted"


def other_epoch(market: Market, machine: int, name: str = "cd") -> ReportChain:
    """A second chain of the same host."""
    first = market.chains[machine]
    return ReportChain(machine, first.signer, boot_id=first.boot_id, epoch=name * 16)


def intervals(market: Market, instance: int) -> list[tuple[Any, ...]]:
    """Start and end of the GPU intervals, folded."""
    market.project()
    return market.connection.execute(
        "SELECT start, until FROM gpu_intervals WHERE instance_id = %s ORDER BY start", [instance]
    ).fetchall()


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "billed"),
    [
        ("running", True),
        ("frozen", True),
        ("loading", False),
        ("rebooting", False),
        ("stopped", False),
        ("exited", False),
        ("gpu_lost", False),
        ("unknown", False),
    ],
)
def test_the_state_decides_which_seconds_cost_gpu(
    market: Market, rented: tuple[int, int], state: TickState, billed: bool
) -> None:
    """Of all states only `running` and `frozen` cost GPU; every one of them costs storage."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 7, state=state)
    assert market.seconds(one) == (7 if billed else 0, 7)
    assert market.anomalies(one) == {}


def test_a_mixed_report_is_cut_second_by_second(market: Market, rented: tuple[int, int]) -> None:
    """Only the billable seconds of one report count, whatever lies between them."""
    machine, one = rented
    market.confirm(machine, one)
    market.clock.move_to(START + 7)
    ticks(
        market, machine, one, START,
        "running", "gpu_lost", "running", "unknown", "frozen", "frozen", "exited",
    )  # fmt: skip
    assert market.seconds(one) == (4, 7)
    assert market.charges(one)["gpu"] == 4 * 100_000


def test_storage_needs_the_machine_and_no_tick_of_the_instance(
    market: Market, rented: tuple[int, int]
) -> None:
    """A report without the instance's block attests its disk and nothing else."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [], 60)
    assert market.seconds(one) == (0, 60)


def test_one_second_before_life_and_the_second_of_destroy_are_outside(
    market: Market, rented: tuple[int, int]
) -> None:
    """Life is half open: storage runs in the second of creation and not in that of the destroy."""
    machine, one = rented
    market.clock.move_to(START + 10)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    market.clock.move_to(START + 20)
    first = constant_block(one, START - 5, 25, "running", up=1, down=2, util=1)
    market.deliver(market.seal(machine, START - 5, 25, [first]))
    assert market.seconds(one) == (0, 10)
    assert market.anomalies(one) == {
        "before_start": 15,
        "after_destroy": 10,
        "bytes_outside_life": 15,
    }
    rows = market.connection.execute(
        "SELECT start - %s, until - %s, amount FROM anomalies WHERE code = 'bytes_outside_life'"
        " ORDER BY start",
        [START, START],
    ).fetchall()
    assert rows == [(-5, 0, 15), (10, 20, 30)]
    assert market.rebuild().equal


# --- anomalies that stand beside the tables of ticks ---------------------------------------------


def test_neighbouring_seconds_of_one_code_are_one_row(
    market: Market, rented: tuple[int, int]
) -> None:
    """Reports that touch extend the anomaly; a second apart begins another."""
    machine, one = rented
    market.run(machine, [one], 50, report_seconds=10)
    market.clock.move_to(market.clock() + 1)
    market.run(machine, [one], 10)
    market.project()
    rows = market.connection.execute(
        "SELECT start, until FROM anomalies WHERE code = 'before_start' ORDER BY start"
    ).fetchall()
    assert rows == [(START, START + 50), (START + 51, START + 61)]


def test_a_report_may_be_half_too_late(market: Market, rented: tuple[int, int]) -> None:
    """Within one report, seconds older than 72 h are forfeited and the others billed."""
    machine, one = rented
    market.confirm(machine, one)
    report = market.seal(
        machine, START, 60, [constant_block(one, START, 60, "running", up=5, down=0, util=1)]
    )
    market.clock.move_to(START + 259_200 + 20)
    market.deliver(report)
    assert market.seconds(one) == (40, 40)
    assert market.anomalies(one) == {"too_late": 20}
    row = market.connection.execute("SELECT sum(up_quantity) FROM rate_segments").fetchone()
    assert row == (200,)
    assert market.rebuild().equal


def test_a_forfeited_second_stays_forfeited(market: Market, rented: tuple[int, int]) -> None:
    """A too late tick was the first one of its second: a later epoch adds only a duplicate."""
    machine, one = rented
    market.confirm(machine, one)
    market.clock.move_to(START + 259_201)
    first = constant_block(one, START, 1, "running", up=0, down=0, util=1)
    market.deliver(market.seal(machine, START, 1, [first]))
    market.deliver(other_epoch(market, machine).seal(START, 1, [first]))
    assert market.seconds(one) == (0, 0)
    assert market.anomalies(one) == {"too_late": 1, "duplicate_second": 1}


def test_the_policy_says_how_late_is_too_late(market: Market, rented: tuple[int, int]) -> None:
    """Another number of hours in force takes the place of 72."""
    machine, one = rented
    market.confirm(machine, one)
    market.ledger.adopt_policy(Policy(2, 1500, 3_600, admission=True, offline_after_seconds=60))
    market.clock.move_to(START + 3_610)
    market.deliver(
        market.seal(
            machine, START, 60, [constant_block(one, START, 60, "running", up=0, down=0, util=1)]
        )
    )
    assert market.seconds(one) == (50, 50)
    assert market.anomalies(one) == {"too_late": 10}


@pytest.mark.parametrize(
    ("ahead", "status", "code"),
    [(0, "accepted", None), (1, "too_early", "too_early"), (2, "too_early", "too_early"),
     (3, "rejected", "future")],
)  # fmt: skip
def test_a_report_attests_finished_seconds_only(
    market: Market, rented: tuple[int, int], ahead: int, status: str, code: str | None
) -> None:
    """TIME-07: up to 2 s ahead is asked for again, further ahead is kept and never billed."""
    machine, one = rented
    market.confirm(machine, one)
    market.clock.move_to(START + 10)
    count = 10 + ahead
    report = market.seal(
        machine, START, count, [constant_block(one, START, count, "running", up=0, down=0, util=1)]
    )
    answer = market.deliver(report)[0]
    assert (answer.status, answer.code) == (status, code)
    assert market.seconds(one)[0] == (10 if status == "accepted" else 0)
    found = market.connection.execute(
        "SELECT instance_id, code FROM anomalies WHERE machine_id = %s", [machine]
    ).fetchall()
    assert found == ([(0, "future")] if status == "rejected" else [])
    if status == "too_early":
        market.clock.move_to(START + count)
        assert market.deliver(report)[0].status == "accepted"
        assert market.seconds(one)[0] == count


def test_two_bodies_for_one_key_leave_the_first_and_a_signal(
    market: Market, rented: tuple[int, int]
) -> None:
    """The second body is `equivocation`, recorded once, and changes no second."""
    machine, one = rented
    market.confirm(machine, one)
    chain = market.chains[machine]
    place = (chain.next_seq, chain.prev)
    market.run(machine, [one], 10)
    liar = ReportChain(
        machine, chain.signer, boot_id=chain.boot_id, epoch=chain.epoch,
        next_seq=place[0], prev=place[1],
    )  # fmt: skip
    second = liar.seal(
        START, 10, [constant_block(one, START, 10, "running", up=10**9, down=0, util=1)]
    )
    before = market.charges(one)
    for _ in range(2):
        answer = market.deliver(second)[0]
        assert (answer.status, answer.code) == ("conflict", "equivocation")
    assert market.charges(one) == before
    row = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = 'agent.equivocated.v1'"
    ).fetchone()
    assert row == (1,)
    found = market.connection.execute("SELECT code FROM anomalies").fetchall()
    assert found == [("equivocation",)]


def test_a_chain_that_does_not_match_is_kept_and_not_billed(
    market: Market, rented: tuple[int, int]
) -> None:
    """`chain_fork` uses up its seq, bills nothing, and the epoch can go on after it."""
    machine, one = rented
    market.confirm(machine, one)
    chain = market.chains[machine]
    chain.prev = "ee" * 32
    market.clock.move_to(START + 10)
    first = constant_block(one, START, 10, "running", up=0, down=0, util=1)
    forked = market.seal(machine, START, 10, [first])
    answer = market.deliver(forked)[0]
    assert (answer.status, answer.code) == ("chain_fork", "chain_fork")
    assert market.deliver(forked)[0].status == "duplicate"
    assert market.seconds(one) == (0, 0)
    market.run(machine, [one], 10)
    assert market.seconds(one) == (10, 10)
    found = market.connection.execute("SELECT code FROM anomalies").fetchall()
    assert found == [("chain_fork",)]
    assert market.rebuild().equal


def test_a_second_that_nobody_attested_in_time_becomes_a_gap(
    market: Market, rented: tuple[int, int]
) -> None:
    """72 h later the missing seconds of a GPU interval are written down, once, and only these."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 600)
    market.clock.move_to(market.clock() + 300)
    market.run(machine, [one], 600)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.clock.move_to(START + 259_200 + 7_200)
    for _ in range(2):
        market.project()
        policies.record_gaps(market.ledger)
    assert market.anomalies(one) == {"gap": 300}
    rows = market.connection.execute("SELECT start, until FROM anomalies").fetchall()
    assert rows == [(START + 600, START + 900)]
    assert market.seconds(one) == (1_200, 1_200)
    assert market.rebuild().equal


def test_a_tick_of_an_hour_ago_is_billed_though_it_is_late(
    market: Market, rented: tuple[int, int]
) -> None:
    """A spooled report fills its gap within 72 h: then there is nothing to write down."""
    machine, one = rented
    market.confirm(machine, one)
    spooled = [
        market.seal(
            machine,
            START + at,
            300,
            [constant_block(one, START + at, 300, "running", up=0, down=0, util=1)],
        )
        for at in range(0, 3_600, 300)
    ]
    market.clock.move_to(START + 7_200)
    market.deliver(*spooled)
    assert market.seconds(one) == (3_600, 3_600)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.clock.move_to(START + 259_200 + 3_600)
    market.project()
    policies.record_gaps(market.ledger)
    assert market.anomalies(one) == {}


# --- confirmations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "billed"), [(-100, 60), (0, 60), (20, 40), (59, 1)], ids=["old", "at once", "20", "59"]
)
def test_the_interval_opens_where_the_host_saw_it(
    market: Market, rented: tuple[int, int], seen: int, billed: int
) -> None:
    """The observed second counts, but never before the assignment, whoever says so."""
    machine, one = rented
    market.run(machine, [one], 60)
    saw(market, machine, one, "running", START + seen)
    assert market.seconds(one) == (billed, 60)
    assert intervals(market, one) == [(START + max(seen, 0), None)]
    assert market.rebuild().equal


def test_a_confirmation_never_lies_in_the_future(market: Market, rented: tuple[int, int]) -> None:
    """TIME-07: 2 s ahead opens the interval at receipt; further ahead is refused as `future`."""
    machine, one = rented
    chain = market.chains[machine]
    far = Observation(instance=one, assignment=1, state="running", at=START + 3)
    assert market.deliver(chain.seal(START, 0, [], [far]))[0].code == "future"
    saw(market, machine, one, "running", START + 2)
    assert intervals(market, one) == [(START, None)]


def test_a_confirmation_after_the_stop_bills_what_ran_before_it(
    market: Market, rented: tuple[int, int]
) -> None:
    """It opens and closes the interval at once: first ticks inside count, those after do not."""
    machine, one = rented
    market.run(machine, [one], 60)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 5)
    assert market.anomalies(one) == {"before_start": 65}
    saw(market, machine, one, "running", START + 10)
    assert intervals(market, one) == [(START + 10, START + 60)]
    assert market.seconds(one) == (50, 65)
    assert market.anomalies(one)["before_start"] >= 10
    assert sum(market.anomalies(one).values()) == 15
    assert market.rebuild().equal


def test_a_confirmation_of_an_ended_assignment_opens_nothing(
    market: Market, rented: tuple[int, int]
) -> None:
    """Seen at or after the end, or naming an older assignment, it is an anomaly and costs 0."""
    machine, one = rented
    market.clock.move_to(START + 10)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    saw(market, machine, one, "running", START + 10)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    saw(market, machine, one, "running", START + 10, assignment=1)
    saw(market, machine, one, "running", START + 10, assignment=7)
    assert intervals(market, one) == []
    saw(market, machine, one, "running", START + 10, assignment=2)
    assert intervals(market, one) == [(START + 10, None)]
    assert set(market.anomalies(one)) == {"observation_ignored"}


def test_ticks_between_two_runs_belong_to_neither(market: Market, rented: tuple[int, int]) -> None:
    """After a stop and a start, running ticks count again from the new confirmation only."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 10)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 10)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    market.run(machine, [one], 10)
    saw(market, machine, one, "running", market.clock(), assignment=2)
    market.run(machine, [one], 10)
    assert market.seconds(one) == (20, 40)
    assert market.anomalies(one) == {"after_stop": 10, "before_start": 10}
    assert intervals(market, one) == [(START, START + 10), (START + 30, None)]
    assert market.rebuild().equal


# --- exits, boots, disks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "ends"), [(-50, 60), (30, 60), (60, 60), (65, 65), (72, 70)],
    ids=["long ago", "billed", "touching", "between", "ahead"],
)  # fmt: skip
def test_an_exit_never_takes_back_what_was_billed(
    market: Market, rented: tuple[int, int], at: int, ends: int
) -> None:
    """The observed exit is moved between the last attested second + 1 and its receipt."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(START + 70)
    saw(market, machine, one, "exited", START + at)
    assert intervals(market, one) == [(START, START + ends)]
    assert market.seconds(one) == (60, 60)
    row = market.connection.execute("SELECT status, reason FROM instances").fetchone()
    assert row == ("stopped", "container_exit")
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("state", "reason"), [("gpu_lost", "host_fault"), ("launch_failed", "launch_failed")]
)
def test_a_fault_of_the_host_stops_a_loading_instance(
    market: Market, rented: tuple[int, int], state: ObservedState, reason: str
) -> None:
    """The GPUs are free in the same second, and no GPU second is billed."""
    machine, one = rented
    market.run(machine, [one], 30, state="loading")
    saw(market, machine, one, state, market.clock())
    row = market.connection.execute("SELECT status, reason FROM instances").fetchone()
    assert row == ("stopped", reason)
    assert market.seconds(one) == (0, 30)
    market.rent(market.account("carol", 10 * DOLLAR), machine)


def test_a_lost_disk_costs_nothing_until_the_next_one(
    market: Market, rented: tuple[int, int]
) -> None:
    """Storage pauses from the observed second to the next assignment; the GPU meter ends."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    saw(market, machine, one, "disk_gone", market.clock())
    market.run(machine, [one], 100, state="stopped")
    assert market.seconds(one) == (60, 60)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    market.run(machine, [one], 40, state="loading")
    assert market.seconds(one) == (60, 100)
    saw(market, machine, one, "disk_gone", market.clock(), assignment=2)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    market.run(machine, [], 40)
    assert market.seconds(one) == (60, 100)
    assert market.rebuild().equal


def test_a_new_boot_keeps_the_gpus_and_asks_for_a_new_confirmation(
    market: Market, rented: tuple[int, int]
) -> None:
    """The interval closes at the last attested second + 1; ticks before the new one are not GPU."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(START + 75)
    market.chains[machine].boot_id = "boot-2"
    market.run(machine, [one], 20, state="running")
    row = market.connection.execute(
        "SELECT status, assignment_no FROM instances WHERE instance_id = %s", [one]
    ).fetchone()
    assert row == ("loading", 1)
    assert market.seconds(one) == (60, 80)
    saw(market, machine, one, "running", START + 85)
    assert market.seconds(one) == (70, 80)
    assert intervals(market, one) == [(START, START + 60), (START + 85, None)]
    saw(market, machine, one, "running", START)
    assert market.seconds(one) == (70, 80)
    assert market.rebuild().equal


def test_a_launch_that_nobody_confirms_ends_after_half_an_hour(
    market: Market, rented: tuple[int, int]
) -> None:
    """1,799 s after the assignment it still loads, at 1,800 s it stops as `launch_failed`."""
    machine, one = rented
    market.run(machine, [one], 1_799, state="loading", report_seconds=300)
    policies.run_due(market.ledger)
    assert market.connection.execute("SELECT status FROM instances").fetchone() == ("loading",)
    market.run(machine, [one], 1, state="loading")
    policies.run_due(market.ledger)
    row = market.connection.execute("SELECT status, reason, stopped_at FROM instances").fetchone()
    assert row == ("stopped", "launch_failed", START + 1_800)
    assert market.seconds(one) == (0, 1_800)


# --- prices --------------------------------------------------------------------------------------


def test_the_printed_increments_come_out_however_ticks_arrive(market: Market) -> None:
    """$0.40 an hour: 111,111 a second, the ninth second 111,112; the fee likewise (§5.2)."""
    machine = market.machine(gpu_hour=400_000_000)
    one = market.rent(market.account("alice", 10 * DOLLAR), machine)
    market.confirm(machine, one)
    charges = []
    fees = []
    for _ in range(9):
        market.run(machine, [one], 1)
        charges.append(market.charges(one)["gpu"])
        row = market.connection.execute("SELECT gpu_fee FROM rate_segments").fetchone()
        assert row is not None
        fees.append(int(row[0]))
    assert charges[:3] == [111_111, 222_222, 333_333]
    assert charges[7:] == [888_888, 1_000_000]
    assert fees == [16_666, 33_333, 49_999, 66_666, 83_333, 99_999, 116_666, 133_333, 150_000]


def test_midnight_divides_a_charge_and_does_not_change_it(market: Market) -> None:
    """$0.25 an hour over midnight: 694,444 and then 1,388,889, together 2,083,333 (§5.2)."""
    market.clock.move_to(START // 86_400 * 86_400 + 86_390)
    machine = market.machine(gpu_hour=250_000_000)
    one = market.rent(market.account("alice", 10 * DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 30)
    assert market.charges(one)["gpu"] == 2_083_333
    rows = market.connection.execute(
        "SELECT hour %% 24, gpu_quantity, gpu_charge FROM usage_hours ORDER BY hour", []
    ).fetchall()
    assert rows == [(23, 10, 694_444), (0, 20, 1_388_889)]


def test_a_whole_hour_holds_3600_seconds_and_hours_add_up(
    market: Market, rented: tuple[int, int]
) -> None:
    """Two and a half hours from 10:00: 3600, 3600, 1800, their sum the segment's (LIFE-09)."""
    machine, one = rented
    market.confirm(machine, one)
    market.run(machine, [one], 9_000, report_seconds=299)
    market.project()
    rows = market.connection.execute(
        "SELECT gpu_quantity, storage_quantity FROM usage_hours ORDER BY hour"
    ).fetchall()
    assert rows == [(3_600, 3_600), (3_600, 3_600), (1_800, 1_800)]
    row = market.connection.execute(
        "SELECT (SELECT sum(gpu_charge) FROM usage_hours), (SELECT gpu_charge FROM rate_segments)"
    ).fetchone()
    assert row == (900_000_000, 900_000_000)


@pytest.mark.parametrize(
    ("rate", "moved", "nanos"),
    [
        (3_000_000, 5_006_124, 15_018),
        (10_000_000, 1, 0),
        (10_000_000, 99, 0),
        (10_000_000, 100, 1),
        (10_000_000, 250, 2),
        (3_000_000, BYTES, 3_000_000),
    ],
)
def test_the_printed_bytes_cost_what_is_printed(
    market: Market, rate: int, moved: int, nanos: int
) -> None:
    """Bytes up at their rate, floored once per segment (§5.4)."""
    machine = market.machine(up=rate)
    one = market.rent(market.account("alice", 10 * DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 1, up=moved)
    assert market.charges(one)["up"] == nanos


def test_the_ceiling_shares_by_second_and_by_direction(market: Market) -> None:
    """Over 1 Gbit/s, 150 MB count as 125, and these and 50 MB share the link; down is apart."""
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine(gpus=2, mbps=1_000)
    both = [market.rent(alice, machine, gpus=1) for _ in range(2)]
    market.clock.move_to(START + 2)
    blocks = [
        block(one, START, ["loading"] * 2, up=up, down=[10, 10], util=[-1, -1])
        for one, up in zip(both, ([150_000_000, 5], [50_000_000, 7]), strict=True)
    ]
    market.deliver(market.seal(machine, START, 2, blocks))
    market.project()
    rows = market.connection.execute(
        "SELECT up_quantity, down_quantity FROM rate_segments ORDER BY instance_id"
    ).fetchall()
    # The first is cut to the link by itself (125 MB), then both share it: 175 MB counted.
    shared = (125_000_000 * 125_000_000 // 175_000_000, 50_000_000 * 125_000_000 // 175_000_000)
    assert rows == [(shared[0] + 5, 20), (shared[1] + 7, 20)]
    excess = market.connection.execute(
        "SELECT amount FROM anomalies WHERE code = 'bandwidth_excess' ORDER BY instance_id"
    ).fetchall()
    assert excess == [(150_000_000 - shared[0],), (50_000_000 - shared[1],)]


def test_a_later_listing_touches_no_contract(market: Market) -> None:
    """Alice keeps her frozen price while carol pays the new one on the same machine (§6)."""
    machine = market.machine(gpus=2, gpu_hour=2_000_000_000)
    alice = market.rent(market.account("alice", 100 * DOLLAR), machine, gpus=1)
    with market.ledger.unit() as unit:
        listings.list_machine(unit, machine, listings.Prices(2_500_000_000, 0, 0, 0))
    carol = market.rent(market.account("carol", 100 * DOLLAR), machine, gpus=1)
    for one in (alice, carol):
        market.confirm(machine, one)
    market.run(machine, [alice, carol], 3_600, report_seconds=300)
    assert market.charges(alice)["gpu"] == 2_000_000_000
    assert market.charges(carol)["gpu"] == 2_500_000_000
