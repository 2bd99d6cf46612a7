"""Outages: down only by the word of a quorum, and only for as long as that stands."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import NotFoundError, RejectedError
from ledger.services import outages, policies
from ledger.services.outages import FRESH_SECONDS
from tests.support.examples import examples
from tests.support.market import START, Market
from tests.support.operations import at, locations, say, topics


def spans(market: Market) -> list[tuple[int, int | None, list[str]]]:
    """Every outage: begin and end, counted from the opening of the market, and who saw it."""
    rows = market.connection.execute(
        "SELECT detected_at, ended_at, witnesses FROM outages ORDER BY outage_id"
    ).fetchall()
    return [(row[0] - START, None if row[1] is None else row[1] - START, row[2]) for row in rows]


def wait(market: Market, seconds: int) -> None:
    """Let the clock go on; nobody says anything."""
    market.clock.move_to(market.clock() + seconds)


def remove(market: Market, name: str) -> None:
    """Nobody looks from there any more."""
    with market.ledger.unit() as unit:
        outages.remove_location(unit, name)


@pytest.mark.parametrize(("configured", "needed"), [(3, 3), (4, 4), (6, 4)])
def test_the_last_voice_of_the_quorum_makes_an_outage(
    market: Market, configured: int, needed: int
) -> None:
    """One voice fewer is only an opinion and no fact; with it the outage begins in that second."""
    machine, names = market.machine(), locations(market, configured)
    head = market.head()
    for name in names[: needed - 1]:
        say(market, [name], machine, "down")
        wait(market, 10)
    say(market, names[needed:], machine, "inconclusive")
    assert spans(market) == []
    assert market.head() == head
    say(market, [names[needed - 1]], machine, "down")
    assert spans(market) == [((needed - 1) * 10, None, names[:needed])]
    head = market.head()
    say(market, names[:needed], machine, "down")
    assert market.head() == head
    assert market.rebuild().equal


@pytest.mark.parametrize("configured", [1, 2])
def test_fewer_than_three_locations_decide_nothing(market: Market, configured: int) -> None:
    """Two locations that agree are no quorum."""
    machine, names = market.machine(), locations(market, configured)
    say(market, names, machine, "down")
    assert spans(market) == []


@pytest.mark.parametrize("word", ["up", "inconclusive"])
def test_an_outage_ends_when_the_quorum_no_longer_says_down(
    market: Market, word: outages.ProbeResult
) -> None:
    """One of four takes its word back: the outage is over in that second, and one may follow."""
    machine, names = market.machine(), locations(market, 4)
    say(market, names, machine, "down")
    wait(market, 60)
    say(market, names[:1], machine, word)
    assert spans(market) == [(0, 60, names)]
    wait(market, 30)
    say(market, names[:1], machine, "down")
    assert spans(market) == [(0, 60, names), (90, None, names)]
    assert topics(market, "outage.") == [
        ("outage.detected", START),
        ("outage.ended", START + 60),
        ("outage.detected", START + 90),
    ]
    assert market.rebuild().equal


def test_more_voices_than_needed_may_change_their_mind(market: Market) -> None:
    """Of six that say down two may take it back; with the third too few are left."""
    machine, names = market.machine(), locations(market, 6)
    say(market, names, machine, "down")
    say(market, names[:2], machine, "up")
    assert spans(market)[0][1] is None
    say(market, names[2:3], machine, "up")
    assert spans(market)[0][1] == 0


def test_a_word_counts_for_three_minutes(market: Market) -> None:
    """Four voices of which the first is 180 s old are three; at 179 s they are four."""
    machine, other, names = market.machine(), market.machine(), locations(market, 4)
    say(market, names[:1], machine, "down")
    wait(market, 1)
    say(market, names[:1], other, "down")
    wait(market, FRESH_SECONDS - 1)
    say(market, names[1:], machine, "down")
    say(market, names[1:], other, "down")
    found = market.connection.execute("SELECT machine_id FROM outages").fetchall()
    assert found == [(other,)]


def test_an_outage_that_nobody_confirms_ends_by_itself(market: Market) -> None:
    """It ends when the fourth freshest word lapses, at that second however late anybody looks."""
    machine, names = market.machine(), locations(market, 5)
    say(market, names, machine, "down")
    wait(market, 60)
    say(market, names[1:], machine, "down")
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, market.clock()) == START + 60 + FRESH_SECONDS
    at(market, START + 60 + FRESH_SECONDS - 1)
    assert spans(market)[0][1] is None
    at(market, START + 5_000)
    assert spans(market) == [(0, 60 + FRESH_SECONDS, names[:4])]
    at(market, START + 5_001)
    assert len(topics(market, "outage.ended")) == 1
    assert market.rebuild().equal


def test_a_word_after_the_lapse_begins_another_outage(market: Market) -> None:
    """Whoever is first to speak after an hour of silence does not stretch the old outage."""
    machine, names = market.machine(), locations(market, 4)
    say(market, names, machine, "down")
    wait(market, 3_600)
    say(market, names, machine, "down")
    assert spans(market) == [(0, FRESH_SECONDS, names), (3_600, None, names)]


def test_machines_are_judged_one_by_one(market: Market) -> None:
    """One round of every location about two machines: the one that all find down is down."""
    good, bad, names = market.machine(), market.machine(), locations(market, 4)
    for name in names:
        with market.ledger.unit() as unit:
            taken = outages.report(unit, name, {good: "up", bad: "down", 99: "down"})
        assert taken == (2, [99])
    assert market.connection.execute("SELECT machine_id FROM outages").fetchall() == [(bad,)]


def test_a_location_that_joins_does_not_end_an_outage(market: Market) -> None:
    """Three of three said down; a fourth that has not looked yet leaves it so."""
    machine, names = market.machine(), locations(market, 3)
    say(market, names, machine, "down")
    wait(market, 30)
    more = locations(market, 4)
    at(market, START + 60)
    say(market, names, machine, "down")
    assert spans(market) == [(0, None, names)]
    say(market, more[3:], machine, "up")
    assert spans(market)[0][1] is None
    say(market, names[:1], machine, "up")
    assert spans(market) == [(0, 60, names)]
    # The next one needs all four.
    say(market, names, machine, "down")
    assert len(spans(market)) == 1
    assert market.rebuild().equal


def test_a_location_that_leaves_takes_its_word_along(market: Market) -> None:
    """Of four witnesses one may leave; when only two are left, nothing is down any more."""
    machine, names = market.machine(), locations(market, 4)
    say(market, names, machine, "down")
    wait(market, 10)
    remove(market, names[0])
    assert spans(market)[0][1] is None
    remove(market, names[1])
    assert spans(market) == [(0, 10, names)]
    head = market.head()
    remove(market, names[1])
    assert market.head() == head
    with pytest.raises(NotFoundError) as error:
        say(market, names[:1], machine, "down")
    assert error.value.code == "no_such_location"
    with pytest.raises(NotFoundError):
        remove(market, "nowhere")
    locations(market, 4)
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("name", "region"), [("", "DE"), ("Fra 1", "DE"), ("x" * 33, "DE"), ("fra1", ""), ("a", "\n")]
)
def test_a_location_has_a_name_that_can_be_shown(market: Market, name: str, region: str) -> None:
    """What is no short name, or no region, is refused."""
    with market.ledger.unit() as unit, pytest.raises(RejectedError) as error:
        outages.register_location(unit, name, region)
    assert error.value.code == "invalid_args"


def test_registering_again_changes_nothing(market: Market) -> None:
    """The same place twice is one place and one fact; another region is news."""
    locations(market, 1)
    head = market.head()
    locations(market, 1)
    assert market.head() == head
    with market.ledger.unit() as unit:
        outages.register_location(unit, "p1", "elsewhere")
    rows = market.connection.execute("SELECT location, region FROM probe_locations").fetchall()
    assert rows == [("p1", "elsewhere")]


def naive(words: list[tuple[int, int, bool]], needed: int) -> list[tuple[int, int | None]]:
    """The outages of a machine, looked at second by second."""
    last: dict[int, tuple[int, bool]] = {}
    found: list[tuple[int, int | None]] = []
    begun: int | None = None

    def agree(now: int) -> bool:
        voices = [said for said, is_down in last.values() if is_down and now - said < FRESH_SECONDS]
        return len(voices) >= needed

    for now in range(words[-1][0] + 1):
        steps = [None, *(word for word in words if word[0] == now)]
        for word in steps:
            if word is not None:
                last[word[1]] = (now, word[2])
            if begun is not None and not agree(now):
                found.append((begun, now))
                begun = None
            elif begun is None and agree(now):
                begun = now
    return [*found, (begun, None)] if begun is not None else found


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 70), st.integers(0, 4), st.sampled_from((True, True, False))),
        min_size=4,
        max_size=24,
    )
)
def test_any_sequence_of_words_is_judged_as_second_by_second(
    market: Market, steps: list[tuple[int, int, bool]]
) -> None:
    """Whoever says what and when: outages begin and end where a naive look at each second says."""
    machine, names = market.machine(), locations(market, 5)
    start = market.clock()
    words = []
    for seconds, who, is_down in steps:
        wait(market, seconds)
        words.append((market.clock() - start, who, is_down))
        say(market, [names[who]], machine, "down" if is_down else "up")
    rows = market.connection.execute(
        "SELECT detected_at, ended_at FROM outages WHERE machine_id = %s ORDER BY outage_id",
        [machine],
    ).fetchall()
    spans = [(row[0] - start, None if row[1] is None else row[1] - start) for row in rows]
    assert spans == naive(words, 4)
