"""Idleness: an unbroken run of ticks at rest, told after an hour and a day, stopped on request."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.hardware import GpuInventory, Inventory
from ledger.domain.idleness import is_idle
from ledger.domain.usage import GpuProcess, GpuSample
from ledger.errors import RejectedError
from ledger.projections.runner import UsageRunner
from ledger.services import idleness, rentals
from ledger.services.idleness import IdlePolicy
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import (
    act,
    idle_run,
    next_due,
    notices,
    started,
    status,
    ticks,
    topics,
)

HOUR = 3_600
GIB = 2**30


def running(market: Market, gpus: int = 1) -> tuple[int, int, int]:
    """An account, its machine, and its instance on all GPUs of it."""
    alice = market.account("alice", 1_000 * DOLLAR)
    machine = market.machine(gpus=gpus, storage=0)
    return alice, machine, started(market, alice, machine)


def sample(at: int, gpu: str = "GPU-1-0", **values: Any) -> GpuSample:
    """A reading of a GPU at rest, unless told otherwise."""
    rest = {"util": 0, "mem_used": 300 * 2**20, "power_mw": 22_000, "procs": []}
    return GpuSample(gpu_uuid=gpu, at=at, **{**rest, **values})


def test_an_hour_below_5_percent_is_told_once(market: Market) -> None:
    """4 % in every one of 3,600 ticks gives one notice; 3,599 give none."""
    alice, machine, one = running(market)
    ticks(market, machine, one, HOUR - 1, 4)
    market.project()
    act(market)
    assert notices(market, alice, "idle") == []
    ticks(market, machine, one, 1, 4)
    market.project()
    act(market)
    assert notices(market, alice, "idle") == [("idle", START + HOUR)]
    ticks(market, machine, one, 600, 0)
    market.project()
    act(market)
    assert len(notices(market, alice, "idle")) == 1
    assert status(market, one)[0] == "running"
    assert market.rebuild().equal


def test_the_second_notice_comes_at_24_hours(market: Market) -> None:
    """The clock is told the second of each notice; after the second one there is none."""
    alice, machine, one = running(market)
    ticks(market, machine, one, 10, 0)
    market.project()
    assert next_due(market) == START + HOUR
    ticks(market, machine, one, HOUR - 10, 0)
    market.project()
    act(market)
    ticks(market, machine, one, 23 * HOUR, 0)
    market.project()
    act(market)
    assert notices(market, alice, "idle") == [("idle", START + HOUR), ("idle", START + 24 * HOUR)]
    ticks(market, machine, one, HOUR, 0)
    market.project()
    act(market)
    assert len(notices(market, alice, "idle")) == 2


@pytest.mark.parametrize("busy", [5, 100, -1])
def test_one_second_of_work_or_of_nothing_known_begins_anew(market: Market, busy: int) -> None:
    """5 %, or no answer of the GPU, ends the run: −1 never counts as idle."""
    alice, machine, one = running(market)
    ticks(market, machine, one, 1_800, 0)
    ticks(market, machine, one, 300, [*[0] * 150, busy, *[0] * 149])
    assert idle_run(market, one) == (START + 1_951, START + 2_100)
    ticks(market, machine, one, 1_800, 0)
    market.project()
    act(market)
    assert notices(market, alice, "idle") == []
    ticks(market, machine, one, 1_800, busy)
    assert idle_run(market, one) is None


def test_a_second_without_a_tick_ends_the_run(market: Market) -> None:
    """What nobody attested is not known to be idle; a report that comes late changes nothing."""
    _, machine, one = running(market)
    ticks(market, machine, one, 600, 0)
    missing = market.clock()
    market.clock.move_to(missing + 1)
    ticks(market, machine, one, 600, 0)
    assert idle_run(market, one) == (missing + 1, missing + 601)


def test_loading_and_stopped_seconds_are_not_idle(market: Market) -> None:
    """A run ends with the assignment, and ticks that bill nothing belong to none."""
    _, machine, one = running(market)
    ticks(market, machine, one, 600, 0)
    ticks(market, machine, one, 60, 0, state="rebooting")
    assert idle_run(market, one) is None
    ticks(market, machine, one, 60, 0)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    assert idle_run(market, one) is None
    ticks(market, machine, one, 60, 0)
    assert idle_run(market, one) is None
    market.project()
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        ({}, True),
        ({"procs": [GpuProcess(container="c", mem=GIB)], "mem_used": GIB - 1}, True),
        ({"procs": [GpuProcess(container="c", mem=GIB)], "mem_used": GIB}, False),
        ({"procs": [], "mem_used": 20 * GIB}, True),
        ({"procs": None, "mem_used": None}, False),
        ({"procs": None, "mem_used": 0}, True),
        ({"util": 5}, False),
        ({"util": 4}, True),
        ({"util": None}, False),
        ({"util": -1}, False),
        ({"power_mw": None}, False),
        ({"power_mw": 50_000}, True),
        ({"power_mw": 50_001}, False),
        ({"status": "stale"}, False),
    ],
)
def test_every_measure_of_a_gpu_must_agree(values: dict[str, Any], idle: bool) -> None:
    """Work, memory in a process, power or anything unknown: each alone is enough not to be idle."""
    assert is_idle(sample(START, **values), None) is idle


def test_power_is_judged_by_the_card_s_own_limit() -> None:
    """90 W are rest for a card of 700 W, and work for one of 70 W or of an unknown limit."""
    reading = sample(START, power_mw=90_000)
    assert is_idle(reading, 700_000)
    assert not is_idle(reading, 70_000)
    assert not is_idle(reading, None)


def test_a_reading_that_disagrees_moves_the_run(market: Market) -> None:
    """Ticks at 0 % and a card that draws 200 W at second 100: the run begins after it."""
    _, machine, one = running(market, gpus=2)
    busy = sample(START + 100, "GPU-1-1", power_mw=200_000)
    rest = [sample(START + 150), sample(START + 200, "GPU-1-1")]
    foreign = sample(START + 200, "GPU-9-9", util=100)
    ticks(market, machine, one, 300, 0, samples=[busy, *rest, foreign])
    assert idle_run(market, one) == (START + 101, START + 300)
    ticks(market, machine, one, 300, 0, samples=[sample(START + 599, util=90)])
    assert idle_run(market, one) is None
    assert market.rebuild().equal


def test_what_a_card_may_draw_comes_from_its_inventory(market: Market) -> None:
    """Once the machine says that the card's limit is 700 W, 150 W are rest."""
    _, machine, one = running(market)
    ticks(market, machine, one, 60, 0, samples=[sample(START + 30, power_mw=150_000)])
    assert idle_run(market, one) == (START + 31, START + 60)
    inventory = Inventory(gpus=[GpuInventory(uuid="GPU-1-0", max_power_mw=700_000)])
    market.clock.move_to(START + 60)
    market.deliver(market.chains[machine].seal(START + 60, 0, inventory=inventory))
    ticks(market, machine, one, 60, 0, samples=[sample(START + 90, power_mw=150_000)])
    assert idle_run(market, one) == (START + 31, START + 120)
    assert market.rebuild().equal


def test_runs_are_the_same_however_the_log_is_read(market: Market) -> None:
    """A runner that forgets everything after each report keeps the same runs and GPUs."""
    _, machine, one = running(market, gpus=2)
    for number in range(6):
        readings = [sample(market.clock() + 7, "GPU-1-1", util=50 * (number % 3 == 1))]
        ticks(market, machine, one, 60, [0] * 50 + [number % 2 * 50] * 10, samples=readings)
        UsageRunner(page_events=1).catch_up(market.connection)
    ticks(market, machine, one, 60, 0)
    market.runner = UsageRunner(page_events=1)
    assert idle_run(market, one) == (START + 360, START + 420)
    assert market.rebuild().equal


def test_who_opted_in_is_stopped(market: Market) -> None:
    """With a stop after 2 hours the GPU meter ends there, with reason idle_policy."""
    alice, machine, one = running(market)
    with market.ledger.unit() as unit:
        idleness.set_idle_policy(unit, alice, IdlePolicy(1_800, 2 * HOUR))
    ticks(market, machine, one, 1_800, 1)
    market.project()
    act(market)
    assert notices(market, alice, "idle") == [("idle", START + 1_800)]
    assert next_due(market) == START + 2 * HOUR
    ticks(market, machine, one, 2 * HOUR - 1_800, 1)
    market.project()
    act(market)
    act(market)
    assert status(market, one) == ("stopped", "idle_policy")
    assert len(notices(market, alice, "idle")) == 1
    assert market.rebuild().equal


def test_an_idle_policy_that_cannot_be_meant_is_refused(market: Market) -> None:
    """A stop never comes before its notice, and a notice not before five minutes."""
    alice = market.account("alice")
    for notice, stop in ((299, None), (31 * 86_400, None), (HOUR, 60), (HOUR, 31 * 86_400)):
        with market.ledger.unit() as unit, pytest.raises(RejectedError, match=r"notice|stop"):
            idleness.set_idle_policy(unit, alice, IdlePolicy(notice, stop))
    head = market.head()
    with market.ledger.unit() as unit:
        idleness.set_idle_policy(unit, alice, IdlePolicy())
    assert market.head() == head
    assert topics(market, "idle_policy.set.v1") == 0
