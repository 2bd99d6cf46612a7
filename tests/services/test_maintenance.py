"""Maintenance: told in advance, kept out of the market, and contracts are honoured."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services import maintenance, policies, rentals
from tests.support.examples import examples
from tests.support.market import DOLLAR, START, Market
from tests.support.operations import DAY, HOUR, at, told, topics


def schedule(market: Market, machine: int, start: int, duration: int = 2 * HOUR) -> int:
    """A window for work on the power supply."""
    with market.ledger.unit() as unit:
        return maintenance.schedule(unit, machine, start, duration, "power")


def cancel(market: Market, machine: int, window: int) -> None:
    """Call it off."""
    with market.ledger.unit() as unit:
        maintenance.cancel(unit, machine, window)


def window(market: Market, number: int) -> tuple[object, ...]:
    """Start, until, approved, status."""
    row = market.connection.execute(
        "SELECT start, until, approved, status FROM maintenance_windows WHERE maintenance_id = %s",
        [number],
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize(("ahead", "approved"), [(7 * DAY, True), (7 * DAY - 1, False), (0, False)])
def test_a_window_is_approved_seven_days_ahead(market: Market, ahead: int, approved: bool) -> None:
    """Exactly 604,800 s of notice make a window that counts for nothing in reliability."""
    one = schedule(market, market.machine(), START + ahead)
    assert window(market, one) == (START + ahead, START + ahead + 7_200, approved, "scheduled")


@pytest.mark.parametrize(
    ("start", "duration"),
    [(START - 1, 60), (START + 367 * DAY, 60), (START, 0), (START, 2_592_001)],
)
def test_a_window_that_cannot_be_is_refused(market: Market, start: int, duration: int) -> None:
    """In the past, beyond a year, empty or longer than 30 days: nothing is stored."""
    machine = market.machine()
    head = market.head()
    with pytest.raises(RejectedError) as error:
        schedule(market, machine, start, duration)
    assert error.value.code == "invalid_args"
    with pytest.raises(NotFoundError):
        schedule(market, machine + 1, START, 60)
    assert market.head() == head


def test_windows_of_one_machine_never_overlap(market: Market) -> None:
    """A shared second is refused and names the other window; one that only touches is fine."""
    machine = market.machine()
    first = schedule(market, machine, START + DAY, HOUR)
    for start, duration in ((DAY, HOUR), (DAY - 1, 2), (DAY + HOUR - 1, 60), (0, 9 * DAY)):
        with pytest.raises(RejectedError) as error:
            schedule(market, machine, START + start, duration)
        assert error.value.code == "maintenance_overlap"
        assert error.value.detail == {"maintenance_id": first}
    schedule(market, machine, START + DAY + HOUR, HOUR)
    schedule(market, machine, START + DAY - HOUR, HOUR)
    schedule(market, market.machine(), START + DAY, HOUR)
    cancel(market, machine, first)
    schedule(market, machine, START + DAY, HOUR)
    assert market.rebuild().equal


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 60), st.booleans()), min_size=2, max_size=12
    )
)
def test_what_is_accepted_is_disjoint(market: Market, wishes: list[tuple[int, int, bool]]) -> None:
    """Whatever is asked for, a window is accepted exactly when no open one shares a second."""
    machine = market.machine(host="prop")
    now = market.clock()
    taken: list[range] = []
    for start, duration, undo in wishes:
        wanted = range(now + start, now + start + duration)
        is_free = all(wanted[-1] < one[0] or wanted[0] > one[-1] for one in taken)
        try:
            number = schedule(market, machine, wanted.start, duration)
        except RejectedError:
            assert not is_free
            continue
        assert is_free
        if undo:
            cancel(market, machine, number)
        else:
            taken.append(wanted)


def test_renters_are_told_at_once_and_a_day_before(market: Market) -> None:
    """Everybody with an instance hears twice, once per window, however many instances it has."""
    alice, carol = market.account("alice", 90 * DOLLAR), market.account("carol", 90 * DOLLAR)
    dave = market.account("dave", 90 * DOLLAR)
    machine = market.machine(gpus=4)
    market.rent(alice, machine, gpus=1)
    stopped = market.rent(alice, machine, gpus=1)
    gone = market.rent(dave, machine, gpus=1)
    with market.ledger.unit() as unit:
        rentals.stop(unit, stopped)
        rentals.destroy(unit, gone)
    other = market.rent(carol, market.machine())
    one = schedule(market, machine, START + 10 * DAY)
    name = f"maintenance-{one}"
    assert told(market, alice) == [(name, START)]
    at(market, START + 9 * DAY - 1)
    assert told(market, alice) == [(name, START)]
    at(market, START + 9 * DAY)
    at(market, START + 9 * DAY + 1)
    assert told(market, alice) == [(name, START), (name, START + 9 * DAY)]
    assert told(market, carol) == told(market, dave) == []
    assert other
    assert market.rebuild().equal


def test_who_comes_in_between_is_told_too(market: Market) -> None:
    """A renter who comes after the schedule hears in that second, and a day before like all."""
    alice, carol = market.account("alice", 90 * DOLLAR), market.account("carol", 90 * DOLLAR)
    machine = market.machine(gpus=2)
    market.rent(alice, machine, gpus=1)
    one = schedule(market, machine, START + 3 * DAY)
    at(market, START + HOUR, machine)
    market.rent(carol, machine, gpus=1)
    again = market.rent(alice, machine, gpus=1, wait=True)
    at(market, START + HOUR)
    at(market, START + HOUR + 1)
    assert told(market, carol) == [(f"maintenance-{one}", START + HOUR)]
    assert told(market, alice) == [(f"maintenance-{one}", START)]
    with market.ledger.unit() as unit:
        rentals.destroy(unit, again)
    at(market, START + 2 * DAY)
    assert len(told(market, carol)) == len(told(market, alice)) == 2
    cancel(market, machine, one)
    assert len(told(market, carol)) == len(told(market, alice)) == 3
    at(market, START + 2 * DAY + 1)
    assert len(told(market, carol)) == 3
    assert market.rebuild().equal


@pytest.mark.parametrize(("ahead", "notices"), [(DAY + 1, 2), (DAY, 1), (HOUR, 1), (0, 1)])
def test_short_notice_is_one_notice(market: Market, ahead: int, notices: int) -> None:
    """Who was told a day before or later needs no second notice."""
    alice, machine = market.account("alice", 90 * DOLLAR), market.machine()
    market.rent(alice, machine)
    schedule(market, machine, START + ahead)
    for second in (max(ahead - DAY, 0), ahead, ahead + 2 * HOUR):
        at(market, START + second)
    assert len(told(market, alice)) == notices


def test_new_rentals_stop_four_days_before_an_approved_window(market: Market) -> None:
    """From that second on nothing new is rented, what runs goes on and may start again."""
    alice, carol = market.account("alice", 90 * DOLLAR), market.account("carol", 90 * DOLLAR)
    machine = market.machine(gpus=2, storage=0)
    mine = market.rent(alice, machine, gpus=1, disk_gb=1)
    market.confirm(machine, mine)
    start = START + 10 * DAY
    one = schedule(market, machine, start)
    at(market, start - 4 * DAY - 1, machine)
    hers = market.rent(carol, machine, gpus=1, disk_gb=1)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, hers)
    at(market, start - 4 * DAY, machine)
    with pytest.raises(DeclinedError) as error:
        market.rent(carol, machine, gpus=1, disk_gb=1)
    assert error.value.code == "no_capacity"
    assert _rentable(market, machine) == {False}
    with market.ledger.unit() as unit:
        rentals.stop(unit, mine)
        rentals.start(unit, mine)
    market.confirm(machine, mine, assignment=2)
    assert market.status(mine) == "running"
    at(market, start, machine)
    assert window(market, one)[3] == "started"
    with pytest.raises(DeclinedError):
        market.rent(carol, machine, gpus=1, disk_gb=1)
    at(market, start + 2 * HOUR, machine)
    assert window(market, one)[3] == "ended"
    assert _rentable(market, machine) == {True, False}
    market.rent(carol, machine, gpus=1, disk_gb=1)
    assert topics(market, "maintenance.") == [
        ("maintenance.scheduled", START),
        ("maintenance.rentals_stopped", start - 4 * DAY),
        # Nobody looked in the second a day before; the next look is early enough.
        ("maintenance.started", start),
        ("maintenance.ended", start + 2 * HOUR),
    ]
    assert market.rebuild().equal


def _rentable(market: Market, machine: int) -> set[bool]:
    rows = market.connection.execute(
        "SELECT rentable FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchall()
    return {row[0] for row in rows}


def test_an_unapproved_window_stops_no_rentals(market: Market) -> None:
    """A window announced six days ahead leaves the machine on the market until it goes offline."""
    carol, machine = market.account("carol", 90 * DOLLAR), market.machine()
    schedule(market, machine, START + 6 * DAY)
    for second in (START + 3 * DAY, START + 6 * DAY):
        at(market, second, machine)
        one = market.rent(carol, machine)
        with market.ledger.unit() as unit:
            rentals.destroy(unit, one)
    assert "maintenance.rentals_stopped" not in dict(topics(market, "maintenance."))


def test_a_stop_lasts_while_any_window_asks_for_it(market: Market) -> None:
    """Cancelling one of two near windows keeps the stop; cancelling both ends it."""
    carol, machine = market.account("carol", 90 * DOLLAR), market.machine()
    first = schedule(market, machine, START + 8 * DAY)
    second = schedule(market, machine, START + 9 * DAY)
    at(market, START + 6 * DAY, machine)
    cancel(market, machine, first)
    with pytest.raises(DeclinedError):
        market.rent(carol, machine)
    cancel(market, machine, second)
    assert market.rent(carol, machine)
    assert market.rebuild().equal


def test_cancelling(market: Market) -> None:
    """A scheduled window never happens, a running one ends now, one that is over stays."""
    machine, other = market.machine(), market.machine()
    never = schedule(market, machine, START + 5 * HOUR)
    cancel(market, machine, never)
    head = market.head()
    cancel(market, machine, never)
    assert market.head() == head
    running = schedule(market, machine, START + HOUR)
    at(market, START + HOUR)
    market.clock.move_to(START + HOUR + 600)
    cancel(market, machine, running)
    assert window(market, running) == (START + HOUR, START + HOUR + 600, False, "ended")
    with pytest.raises(RejectedError) as over:
        cancel(market, machine, running)
    assert over.value.code == "maintenance_over"
    for stranger, number in ((other, never), (machine, 99)):
        with pytest.raises(NotFoundError) as error:
            cancel(market, stranger, number)
        assert error.value.code == "no_such_maintenance"
    at(market, START + 5 * HOUR)
    assert window(market, never)[3] == "cancelled"
    assert market.rebuild().equal


def test_the_clock_is_told_every_second_that_matters(market: Market) -> None:
    """A simulated clock stops four days before, a day before, at the start and at the end."""
    machine = market.machine()
    start = START + 10 * DAY
    schedule(market, machine, start)
    stops = []
    with market.ledger.reading() as connection:
        due = policies.next_due(connection, market.clock())
    while due is not None:
        stops.append(due)
        at(market, due)
        with market.ledger.reading() as connection:
            due = policies.next_due(connection, due)
    assert stops == [start - 4 * DAY, start - DAY, start, start + 2 * HOUR]
    assert topics(market, "maintenance.")[1:] == [
        ("maintenance.rentals_stopped", stops[0]),
        ("maintenance.announced", stops[1]),
        ("maintenance.started", stops[2]),
        ("maintenance.ended", stops[3]),
    ]


def test_a_platform_that_slept_through_a_window_says_what_still_matters(market: Market) -> None:
    """After the window nobody is told of it any more; that it came and went is on record."""
    alice, machine = market.account("alice", 90 * DOLLAR), market.machine()
    market.rent(alice, machine)
    start = START + 10 * DAY
    schedule(market, machine, start)
    at(market, start + DAY)
    assert topics(market, "maintenance.")[1:] == [
        ("maintenance.started", start + DAY),
        ("maintenance.ended", start + DAY),
    ]
    assert len(told(market, alice)) == 1
    assert market.rebuild().equal


def test_offline_seconds_of_a_window_are_unbilled_and_the_contract_stays(market: Market) -> None:
    """Two hours of work bill nothing; the instance is the renter's before and after (C35)."""
    alice, machine = market.account("alice", 90 * DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    schedule(market, machine, START + HOUR)
    market.run(machine, [one], HOUR, report_seconds=300)
    at(market, START + HOUR)
    at(market, START + 3 * HOUR)
    market.run(machine, [one], HOUR, report_seconds=300)
    assert market.seconds(one) == (2 * HOUR, 2 * HOUR)
    assert market.status(one) == "running"
