"""Timelines: what was held, ran and was attested, and what each hour cost."""

from __future__ import annotations

import pytest

from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import rentals
from ledger.services.questions.timelines import (
    Stretch,
    instance_timeline,
    machine_timeline,
    spend_timeline,
)
from tests.support.market import DOLLAR, START, Market

HOUR = 3_600


def of(*pairs: tuple[int, int]) -> list[Stretch]:
    """Stretches, counted from the start of the test."""
    return [Stretch(start=START + first, until=START + end) for first, end in pairs]


def test_a_life_shows_both_witnesses_and_what_they_cost(market: Market) -> None:
    """Held from the rent on, running when it was confirmed, attested wherever the host said so."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = market.rent(alice, machine, label="train")
    market.run(machine, [one], 60, state="loading")
    market.confirm(machine, one)
    market.run(machine, [one], 600)
    market.clock.move_to(market.clock() + 40)  # nobody hears the machine
    market.run(machine, [one], 2 * HOUR)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    stopped = market.clock() - START
    market.run(machine, [one], 600, state="stopped")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    market.project()
    end = market.clock() - START
    found = instance_timeline(market.connection, one, market.clock() + 9_999)
    assert (found.label, found.start, found.until) == ("train", START, START + end)
    assert found.existed == of((0, end))
    assert found.held == of((0, stopped))
    assert [(one.start - START, one.until - START) for one in found.running] == [(60, stopped)]
    assert found.attested == of((0, 660), (700, end))
    charges = market.charges(one)
    assert sum(one.total for one in found.costs) == sum(charges.values())
    assert sum(one.gpu_charge for one in found.costs) == charges["gpu"]
    assert [one.start % HOUR for one in found.costs] == [0, 0, 0]
    assert found.cost_seconds == HOUR


def test_an_open_stretch_ends_now_and_none_leaves_the_window(market: Market) -> None:
    """What goes on is drawn up to now; a window cuts at both of its ends."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 300)
    market.project()
    now = market.clock()
    found = instance_timeline(market.connection, one, now)
    assert found.held == found.running == found.attested == of((0, 300))
    cut = instance_timeline(market.connection, one, now, start=START + 100, until=START + 200)
    assert cut.existed == cut.held == cut.running == cut.attested == of((100, 200))
    after = instance_timeline(market.connection, one, now, start=START + 400, until=START + 500)
    assert after.existed == after.held == after.running == after.attested == []


def test_a_machine_shows_who_held_each_gpu(market: Market) -> None:
    """A bidder is displaced by a rental on demand: one box ends in the second the next begins."""
    machine = market.machine(gpus=2, floor=DOLLAR // 100)
    alice, carol = market.account("alice", 100 * DOLLAR), market.account("carol", 100 * DOLLAR)
    low = market.rent(alice, machine, gpus=2, bid=DOLLAR // 10)
    market.confirm(machine, low)
    market.run(machine, [low], 120)
    high = market.rent(carol, machine, gpus=1)
    market.confirm(machine, high)
    market.run(machine, [high], 60)
    market.project()
    found = machine_timeline(market.connection, machine, market.clock())
    boxes = sorted((box.instance_id, box.kind, box.start, box.until) for box in found.held)
    assert boxes == [
        *[(low, "interruptible", START, START + 120)] * 2,
        (high, "on_demand", START + 120, START + 180),
    ]
    assert found.attested == of((0, 180))
    assert found.until - found.start == 86_400


def test_days_are_bars_when_hours_are_too_many(market: Market) -> None:
    """Five days of an instance have a bar a day, and the same sum."""
    alice, machine = market.account("alice", 1_000 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.long_run(machine, [one], 5 * 86_400)
    market.project()
    found = spend_timeline(market.connection, alice, market.clock())
    assert found.cost_seconds == 86_400
    assert [bar.start % 86_400 for bar in found.costs] == [0] * 6
    assert sum(bar.total for bar in found.costs) == sum(market.charges(one).values())


@pytest.mark.parametrize(("start", "until"), [(START, START), (START, START - 1), (0, START)])
def test_a_window_is_neither_empty_nor_endless(market: Market, start: int, until: int) -> None:
    """It is refused with a code that says so."""
    machine = market.machine()
    with pytest.raises(RejectedError, match="at most 400 days"):
        machine_timeline(market.connection, machine, START, start=start, until=until)


def test_what_is_not_there_has_no_timeline(market: Market) -> None:
    """Not found, by its own code."""
    found: list[LedgerError] = []
    for ask in (instance_timeline, machine_timeline):
        with pytest.raises(NotFoundError) as caught:
            ask(market.connection, 99, START)
        found.append(caught.value)
    assert [one.code for one in found] == ["no_such_instance", "no_such_machine"]
