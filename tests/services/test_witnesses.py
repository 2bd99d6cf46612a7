"""Witnesses: heartbeats, probes, and what was billed while both said that nothing ran."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.events import OutageDetected, OutageEnded, WitnessRecorded
from ledger.domain.ids import machine_stream
from ledger.errors import AuthError, LedgerError
from ledger.services import heartbeats, rentals, witnesses
from ledger.services.questions import disputes as ask
from tests.support.disputes import (
    DAY,
    HOUR,
    Books,
    Rental,
    answer,
    books,
    dispute,
    late,
    of_kind,
    ran,
    rented,
    resolve,
    run_due,
)
from tests.support.market import START, Market


def beat(market: Market, rental: Rental) -> int:
    """The container says that it lives, now."""
    token = heartbeats.heartbeat_token(market.ledger.vault, rental.instance)
    return heartbeats.heartbeat(market.ledger, token)


def probe(market: Market, rental: Rental, start: int, up: int, down: int) -> str | None:
    """Four places looked at a minute; what it is."""
    market.project()
    with market.ledger.unit() as unit:
        return witnesses.record_minute(unit, rental.instance, start, up=up, down=down, configured=4)


def outage(market: Market, rental: Rental, start: int, until: int) -> None:
    """Four places agreed that the machine was down, from one second to another."""
    with market.ledger.unit() as unit:
        stream = machine_stream(rental.machine)
        number = unit.next_id("outage")
        places = ["ams1", "fra1", "nyc1", "sin1"]
        unit.append(
            stream,
            OutageDetected(
                outage_id=number, machine_id=rental.machine, witnesses=places, detected_at=start
            ),
            OutageEnded(outage_id=number, machine_id=rental.machine, ended_at=until),
        )


def hold(market: Market) -> list[int]:
    """What the hourly policy does; the disputes that it opens."""
    market.project()
    with market.ledger.unit() as unit:
        witnesses.record_outages(unit)
        return witnesses.hold(unit)


def seen(market: Market) -> list[tuple[int, int, str, str, str]]:
    """Every contradiction: its seconds from the start, both words, and the verdict."""
    return [
        (one.start - START, one.until - START, one.renter, one.probe, one.verdict)
        for one in ask.witnesses(market.connection)
    ]


# --- heartbeats ----------------------------------------------------------------------------------


def test_heartbeats_say_which_minutes_were_alive(market: Market) -> None:
    """A minute is alive when a beat lies in it; before any beat nothing is installed."""
    rental = rented(market)

    def word(start: int) -> str:
        return heartbeats.renter_word(market.connection, rental.instance, start, start + 60)

    assert word(START) == "not_installed"
    for second in (10, 40, 70, 100, 250):
        market.clock.move_to(START + second)
        assert beat(market, rental) == rental.instance
    assert [word(START + 60 * minute) for minute in range(6)] == [
        "alive",
        "alive",
        "silent",
        "silent",
        "alive",
        "silent",
    ]


def test_a_heartbeat_leaves_the_log_alone(market: Market) -> None:
    """Signs of life are no facts: however many come, nothing is appended."""
    rental = rented(market)
    head = market.head()
    for second in range(0, 300, 30):
        market.clock.move_to(START + second)
        beat(market, rental)
    assert market.head() == head
    assert market.rebuild().equal


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-1],
        lambda token: token + "0",
        lambda token: token.replace("gli_1_", "gli_2_"),
        lambda token: token.replace("gli_", "glk_"),
        lambda token: "gli_" + "9" * 40 + "_" + token,
        lambda token: "",
        lambda token: "gli_é_x",
    ],
)
def test_only_the_own_token_of_a_living_instance_counts(market: Market, spoil: Any) -> None:
    """A token is good for one instance, unchanged."""
    rental = rented(market)
    token = heartbeats.heartbeat_token(market.ledger.vault, rental.instance)
    with pytest.raises(AuthError):
        heartbeats.heartbeat(market.ledger, spoil(token))


def test_a_token_dies_with_its_instance(market: Market) -> None:
    """§20: what an instance may say ends when it is destroyed."""
    rental = rented(market)
    beat(market, rental)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, rental.instance)
    with pytest.raises(AuthError):
        beat(market, rental)


def test_old_heartbeats_are_forgotten_but_not_that_there_were_any(market: Market) -> None:
    """Spans that no late tick needs go; the last one stays, so that silence is no absence."""
    rental = rented(market)
    for second in (0, 600, 1_200):
        market.clock.move_to(START + second)
        beat(market, rental)
    market.clock.move_to(START + 5 * DAY)
    with market.ledger.unit() as unit:
        heartbeats.forget(unit)
    rows = market.connection.execute("SELECT start FROM heartbeat_spans").fetchall()
    assert rows == [(START + 1_200,)]
    now = START + 5 * DAY
    assert heartbeats.renter_word(market.connection, rental.instance, now - 60, now) == "silent"


# --- minutes -------------------------------------------------------------------------------------


def test_usual_minutes_leave_no_fact(market: Market) -> None:
    """Running and up, alive or silent, is what is expected: nothing is recorded."""
    rental = rented(market)
    ran(market, rental, 180)
    assert probe(market, rental, START, 4, 0) is None
    assert probe(market, rental, START + 60, 2, 2) is None
    assert seen(market) == []


def test_down_and_silent_is_held_and_reversed_after_72_hours(market: Market) -> None:
    """§18: billed into `disputed_hold`, and reversed unless the host explains within 72 hours."""
    rental = rented(market)
    ran(market, rental, HOUR)
    assert probe(market, rental, START + 600, 0, 4) == "hold"
    assert probe(market, rental, START + 600, 0, 4) == "hold"
    assert seen(market) == [(600, 660, "not_installed", "down", "hold")]
    (one,) = hold(market)
    assert hold(market) == []
    found = ask.dispute(market.connection, one)
    assert (found.by, found.claimed, found.held) == ("platform", 6_666_666, 5_666_667)
    assert books(market, rental).hold == 5_666_667
    opened = market.clock()
    run_due(market, opened + 72 * HOUR - 1)
    assert books(market, rental).hold == 5_666_667
    run_due(market, opened + 72 * HOUR)
    assert books(market, rental) == Books(99_606_666_666, 334_333_333, 54_000_000 + 5_000_001, 0, 0)
    assert ask.dispute(market.connection, one).rule_id == "witness_down"
    assert market.rebuild().equal


def test_a_host_that_explains_itself_keeps_it_until_a_person_decides(market: Market) -> None:
    """With an explanation nothing is reversed by time; an admin decides."""
    rental = rented(market)
    ran(market, rental, HOUR)
    probe(market, rental, START + 600, 0, 4)
    (one,) = hold(market)
    answer(market, one, "host", rental.host, "the upstream router failed, the GPU ran on")
    run_due(market, market.clock() + 10 * DAY)
    assert books(market, rental).hold == 5_666_667
    resolve(market, one, "rejected")
    assert books(market, rental) == Books(99_600_000_000, 340_000_000, 60_000_000, 0, 0)


def test_alive_inside_and_down_outside_is_billed_and_remembered(market: Market) -> None:
    """A working container behind a broken network is billed; the machine's record has it."""
    rental = rented(market)
    market.clock.move_to(START + 30)
    beat(market, rental)
    late(market, rental, START, 30)
    ran(market, rental, 60)
    assert probe(market, rental, START, 0, 4) == "no_network"
    assert hold(market) == []


def test_life_where_the_host_attests_none_is_an_anomaly(market: Market) -> None:
    """Nothing is billed without a tick; that somebody saw it alive is remembered."""
    rental = rented(market)
    market.clock.move_to(START + 10)
    beat(market, rental)
    market.clock.move_to(START + 200)
    assert probe(market, rental, START, 0, 0) == "anomaly"
    assert probe(market, rental, START + 60, 4, 0) == "anomaly"
    assert probe(market, rental, START + 120, 0, 0) is None
    assert hold(market) == []


def test_late_ticks_of_a_minute_that_was_down_are_held_too(market: Market) -> None:
    """Minutes of an outage that are delivered hours later are judged by the same witnesses."""
    rental = rented(market)
    market.clock.move_to(START + 600)
    assert probe(market, rental, START + 60, 0, 4) == "hold"
    assert hold(market) == []
    market.clock.move_to(START + 6 * HOUR)
    late(market, rental, START, 300)
    (one,) = hold(market)
    (claim,) = ask.dispute(market.connection, one).claims
    assert claim.quantity == 60


def test_ticks_that_come_after_the_hold_are_reversed_with_it(market: Market) -> None:
    """What is reversed after 72 hours is what those minutes cost by then."""
    rental = rented(market)
    ran(market, rental, 90)
    market.clock.move_to(START + 600)
    for minute in (1, 2):
        probe(market, rental, START + 60 * minute, 0, 4)
    (one,) = hold(market)
    assert ask.dispute(market.connection, one).claimed == 3_333_333
    late(market, rental, START + 90, 90)
    run_due(market, market.clock() + 73 * HOUR)
    assert ask.dispute(market.connection, one).amount == 13_333_333
    assert market.rebuild().equal


def test_an_outage_with_ticks_is_held_once_an_hour(market: Market) -> None:
    """A quorum's outage is the probe's word: minutes that were billed all the same are held."""
    rental = rented(market)
    ran(market, rental, HOUR)
    outage(market, rental, START + 605, START + 1_210)
    run_due(market, START + 2 * HOUR)
    (one,) = ask.disputes(market.connection)
    assert (one.by, one.reason, one.status) == ("platform", "not_running", "open")
    # Only whole minutes that were down are judged: 660 to 1 200.
    assert seen(market) == [(660, 1_200, "not_installed", "down", "hold")]
    assert one.claimed == 60_000_000
    run_due(market, START + 2 * HOUR + 72 * HOUR)
    assert books(market, rental).credit == 99_660_000_000
    assert market.rebuild().equal


def test_an_outage_without_ticks_is_no_contradiction(market: Market) -> None:
    """A machine that was down and attested nothing is simply not billed: no fact, no hold."""
    rental = rented(market)
    ran(market, rental, 600)
    market.clock.move_to(START + HOUR)
    outage(market, rental, START + 660, START + HOUR)
    run_due(market, START + 2 * HOUR)
    assert seen(market) == []
    assert ask.disputes(market.connection) == []


def test_a_beating_heart_splits_an_outage(market: Market) -> None:
    """Minutes with a heartbeat are billed, those without are held."""
    rental = rented(market)
    market.clock.move_to(START + 130)
    beat(market, rental)
    late(market, rental, START, 130)
    ran(market, rental, 470)
    outage(market, rental, START, START + 300)
    hold(market)
    assert seen(market) == [
        (0, 120, "silent", "down", "hold"),
        (120, 180, "alive", "down", "no_network"),
        (180, 300, "silent", "down", "hold"),
    ]
    (one,) = ask.disputes(market.connection)
    assert one.claimed == 26_666_666
    assert len(of_kind(market.facts(), WitnessRecorded)) == 3


def test_a_renter_disputes_other_seconds_beside_a_hold(market: Market) -> None:
    """What witnesses hold is not claimed twice, and does not close the renter's own way."""
    rental = rented(market)
    ran(market, rental, HOUR)
    probe(market, rental, START + 600, 0, 4)
    (held,) = hold(market)
    own = dispute(market, rental, START + 540, START + 720)
    assert ask.dispute(market.connection, own).claims[0].quantity == 120
    with pytest.raises(LedgerError) as error:
        dispute(market, rental, START + 600, START + 660)
    assert error.value.code == "already_disputed"
    resolve(market, own, "upheld")
    resolve(market, held, "upheld")
    assert books(market, rental).credit == 99_600_000_000 + 20_000_000
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("start", "up", "down"),
    [(START + 30, 4, 0), (START + HOUR, 4, 0), (START, 3, 2), (START, -1, 0)],
)
def test_what_is_no_finished_minute_is_refused(
    market: Market, start: int, up: int, down: int
) -> None:
    """A minute begins at a multiple of 60 s, is over, and no place looks twice."""
    rental = rented(market)
    ran(market, rental, 120)
    with pytest.raises(LedgerError) as error:
        probe(market, rental, start, up, down)
    assert error.value.code == "invalid_args"


def test_minutes_outside_a_life_are_nothing(market: Market) -> None:
    """Before it was created and after it was destroyed an instance has no minutes to judge."""
    rental = rented(market)
    market.clock.move_to(START + 600)
    assert probe(market, rental, START - 120, 0, 4) is None
    with market.ledger.unit() as unit:
        rentals.destroy(unit, rental.instance)
    market.clock.move_to(START + 900)
    assert probe(market, rental, START + 720, 0, 4) is None
    assert seen(market) == []
