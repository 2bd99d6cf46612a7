"""The log behind the `eventsourcing` library: positions, versions, repeats, and nothing undone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, cast

import psycopg
import pytest
from eventsourcing.persistence import (
    EventStore,
    IntegrityError,
    JSONTranscoder,
    MapperDeserialisationError,
    StoredEvent,
)

from ledger.domain.events import MachineUnlisted, ObservationIgnored, topic_of
from ledger.store.codec import FactMapper, RecordedFact, decode_fact
from ledger.store.database import Database
from ledger.store.log import LedgerRecorder, ensure_partitions, head_position
from tests.support.market import START, Market

WIDTH = 10**9
"""Positions in one partition."""


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """A fresh log."""
    opened = Database.open(None, dsn)
    yield opened
    opened.close()


@pytest.fixture
def recorder(database: Database) -> LedgerRecorder:
    """The library's way to it, under a clock that stands still."""
    return LedgerRecorder(database, lambda: START)


def event(stream: str, version: int, state: bytes = b"{}", topic: str = "t.v1") -> StoredEvent:
    """A row of the log."""
    return StoredEvent(stream, version, topic, state)


def reach(database: Database, position: int) -> None:
    """Let the log go on at *position*, as if everything before had happened."""
    with database.connect(role="owner", autocommit=True) as owner:
        owner.execute("UPDATE log_position SET next = %s", [position])


# --- the library's own classes -------------------------------------------------------------------


def test_the_library_s_event_store_puts_and_gets_facts(recorder: LedgerRecorder) -> None:
    """Facts and signed bodies come back from `EventStore` as they were put, in version order."""
    store: EventStore[Any] = EventStore(FactMapper(JSONTranscoder()), recorder)
    fact = MachineUnlisted(machine_id=7, unlisted_at=START)
    put = [
        RecordedFact(originator_id="machine-7", originator_version=1, fact=fact),
        RecordedFact(originator_id="usage-7-ab", originator_version=1, fact=b"\x81\xa1v\x01"),
        RecordedFact(originator_id="machine-7", originator_version=2, fact=fact),
    ]
    recordings = store.put(cast("Any", put), counts=[1, 40, 1], signatures=[None, b"s" * 64, None])
    assert [one.notification.id for one in recordings] == [1, 2, 42]
    assert list(store.get("machine-7")) == [put[0], put[2]]
    assert list(store.get("machine-7", gt=1)) == [put[2]]
    assert list(store.get("usage-7-ab")) == [put[1]]
    topics = [one.topic for one in recorder.select_notifications(1, 10)]
    assert topics == [topic_of(fact), "usage.reported.v1", topic_of(fact)]


def test_a_row_of_another_catalogue_is_an_error_of_the_mapper() -> None:
    """Bytes that are no fact of their topic raise, they never become a fact of another kind."""
    mapper = FactMapper(JSONTranscoder())
    fact = MachineUnlisted(machine_id=7, unlisted_at=START)
    row = mapper.to_stored_event(
        cast("Any", RecordedFact(originator_id="machine-7", originator_version=1, fact=fact))
    )
    for topic, state in [
        ("machine.listed.v1", row.state),
        (row.topic, b"{}"),
        (row.topic, b"\xff"),
        ("nothing.v9", b'{"type":"nothing.v9"}'),
    ]:
        with pytest.raises(MapperDeserialisationError):
            mapper.to_domain_event(StoredEvent("machine-7", 1, topic, state))
    assert mapper.to_domain_event(row).fact == fact


# --- positions -----------------------------------------------------------------------------------


def test_an_empty_log_has_no_last_position(recorder: LedgerRecorder) -> None:
    """Nothing was appended: no last position, no rows, and an empty insert stays without effect."""
    assert recorder.max_notification_id() is None
    assert recorder.insert_events([]) == []
    assert list(recorder.select_events("a")) == []
    assert list(recorder.select_notifications(None, 10)) == []
    assert recorder.max_notification_id() is None


def test_positions_count_ticks_and_have_no_gaps(
    recorder: LedgerRecorder, database: Database
) -> None:
    """A row takes as many positions as it has ticks, and the next one begins right after it."""
    counts = [1, 60, 1, 300, 7]
    rows = [event("usage-1-ab", version + 1) for version in range(len(counts))]
    assert recorder.insert_events(rows, counts=counts) == [1, 2, 62, 63, 363]
    assert recorder.insert_events([event("a", 1)]) == [370]
    assert recorder.max_notification_id() == 370
    with database.connect() as connection:
        stored = connection.execute("SELECT position, count FROM events ORDER BY 1").fetchall()
        assert head_position(connection) == 370
    assert all(low[0] + low[1] == high[0] for low, high in pairwise(stored))


def test_notifications_are_cut_by_position_topic_and_limit(recorder: LedgerRecorder) -> None:
    """`start`, `stop`, `topics`, `limit` and `inclusive_of_start` mean what the library says."""
    rows = [event("a", number, topic=f"t{number % 2}.v1") for number in range(1, 7)]
    recorder.insert_events(rows, counts=[10] * 6)

    def ids(start: int | None, limit: int = 10, **options: Any) -> list[int]:
        return [one.id for one in recorder.select_notifications(start, limit, **options)]

    assert ids(None) == [1, 11, 21, 31, 41, 51]
    assert ids(11) == [11, 21, 31, 41, 51]
    assert ids(11, inclusive_of_start=False) == [21, 31, 41, 51]
    assert ids(12) == [21, 31, 41, 51]
    assert ids(11, stop=31) == [11, 21, 31]
    assert ids(1, 2, topics=["t0.v1"]) == [11, 31]
    assert ids(1, topics=["t0.v1", "t1.v1"], stop=21) == [1, 11, 21]
    assert ids(1, topics=["none.v1"]) == []


def test_a_stream_is_read_in_parts(recorder: LedgerRecorder) -> None:
    """Both bounds, the order and the limit of a stream are respected together."""
    recorder.insert_events([event("a", one, str(one).encode()) for one in range(1, 6)])
    recorder.insert_events([event("b", 1)])

    def versions(**options: Any) -> list[int]:
        return [one.originator_version for one in recorder.select_events("a", **options)]

    assert versions() == [1, 2, 3, 4, 5]
    assert versions(gt=2, lte=4) == [3, 4]
    assert versions(desc=True, limit=2) == [5, 4]
    assert versions(gt=1, desc=True, limit=2, lte=4) == [4, 3]
    assert versions(limit=0) == []


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        [event("a", 4)],
        [event("a", 0)],
        [event("a", 2, b"other")],
        [event("a", 2, topic="other.v1")],
        [event("b", 1), event("a", 5)],
        [event("a", 3), event("a", 3, b"twice")],
    ],
    ids=["gap", "zero", "other bytes", "other topic", "one of two", "twice in one"],
)
def test_a_version_that_does_not_follow_is_refused_with_all_its_batch(
    recorder: LedgerRecorder, wrong: list[StoredEvent]
) -> None:
    """`IntegrityError`, and nothing of the batch is stored, no position is used up."""
    recorder.insert_events([event("a", 1), event("a", 2)])
    with pytest.raises(IntegrityError):
        recorder.insert_events(wrong)
    assert [one.originator_version for one in recorder.select_events("a")] == [1, 2]
    assert list(recorder.select_events("b")) == []
    assert recorder.insert_events([event("b", 1)]) == [3]


def test_a_repeat_has_its_first_positions_and_stores_nothing(recorder: LedgerRecorder) -> None:
    """The same bytes again are answered with where they lie, also beside new ones."""
    first = [event("a", 1), event("a", 2, b"2")]
    assert recorder.insert_events(first, counts=[5, 5]) == [1, 6]
    assert recorder.insert_events(first, counts=[5, 5]) == [1, 6]
    mixed = [event("a", 2, b"2"), event("a", 3), event("c", 1), event("a", 1)]
    assert recorder.insert_events(mixed) == [6, 11, 12, 1]
    assert recorder.max_notification_id() == 12


def test_of_two_writers_one_wins_and_one_is_told(recorder: LedgerRecorder) -> None:
    """Two threads race for each version: one position each time, one `IntegrityError` each time."""
    barrier = threading.Barrier(2)

    def write(state: bytes, version: int) -> bool:
        barrier.wait(10)
        try:
            recorder.insert_events([event("a", version, state)])
        except IntegrityError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for version in range(1, 21):
            results = list(pool.map(write, [b"left", b"right"], [version, version]))
            assert sorted(results) == [False, True]
    ids = [one.id for one in recorder.select_notifications(1, 100)]
    assert ids == list(range(1, 21))


def test_writers_of_their_own_streams_leave_no_gap(recorder: LedgerRecorder) -> None:
    """Four writers at once: every row is stored, and positions touch all the way."""

    def write(stream: int) -> list[int]:
        return [
            recorder.insert_events([event(f"s{stream}", version)], counts=[stream])[0]
            for version in range(1, 16)
        ]

    with ThreadPoolExecutor(4) as pool:
        positions = list(pool.map(write, range(1, 5)))
    assert all(one == sorted(one) for one in positions)
    taken = sorted((at, stream + 1) for stream, one in enumerate(positions) for at in one)
    assert taken[0][0] == 1
    assert all(low + count == high for (low, count), (high, _) in pairwise(taken))


def test_a_transaction_that_fails_leaves_no_gap(market: Market) -> None:
    """A command that breaks after its facts were appended takes its positions with it."""
    before = market.head()

    def breaking() -> None:
        with market.ledger.unit() as unit:
            unit.append("machine-1", MachineUnlisted(machine_id=1, unlisted_at=unit.now))
            message = "on purpose"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="on purpose"):
        breaking()
    assert market.head() == before
    market.account("alice")
    row = market.connection.execute(
        "SELECT min(position), max(position) FROM events WHERE position > %s", [before]
    ).fetchone()
    assert row == (before + 1, market.head())


# --- following -----------------------------------------------------------------------------------


def test_a_subscription_sees_what_was_and_what_comes(recorder: LedgerRecorder) -> None:
    """A follower gets every later row of its topics once, in order, without asking again."""
    recorder.insert_events([event("a", 1), event("a", 2, topic="u.v1"), event("a", 3)])
    with recorder.subscribe(gt=1, topics=["t.v1"]) as following:
        assert next(following).id == 3
        recorder.insert_events([event("a", 4, topic="u.v1"), event("a", 5)], counts=[9, 1])
        assert next(following).id == 13
        recorder.insert_events([event("b", 1)])
        assert next(following).originator_id == "b"


# --- nothing is undone ---------------------------------------------------------------------------

CHANGES = [
    "UPDATE events SET state = 'x'",
    "UPDATE events SET recorded_at = recorded_at",
    "DELETE FROM events WHERE position = 1",
    "TRUNCATE events",
    "UPDATE events_0 SET topic = 'x.v1'",
    "DELETE FROM events_0",
    "TRUNCATE events_0",
]


@pytest.mark.parametrize("role", ["service", "owner"])
@pytest.mark.parametrize("statement", CHANGES)
def test_the_database_refuses_to_change_history(
    recorder: LedgerRecorder, database: Database, statement: str, role: Any
) -> None:
    """UPDATE, DELETE and TRUNCATE fail on the log and on its parts, for the owner as well."""
    recorder.insert_events([event("a", 1)])
    with (
        database.connect(role=role, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(cast("Any", statement))
    assert [one.state for one in recorder.select_events("a")] == [b"{}"]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "DROP TRIGGER events_append_only ON events",
        "CREATE TABLE elsewhere (a int)",
        "DELETE FROM stream_heads",
        "DELETE FROM log_position",
        "INSERT INTO events_0 SELECT 99, count, recorded_at, version, stream_id, topic, state,"
        " signature FROM events",
    ],
)
def test_the_service_has_no_other_way_around(
    recorder: LedgerRecorder, database: Database, statement: str
) -> None:
    """The role that serves can neither drop, disarm, bypass nor replace the log."""
    recorder.insert_events([event("a", 1)])
    with (
        database.connect(autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(cast("Any", statement))


def test_a_position_is_used_once(recorder: LedgerRecorder, database: Database) -> None:
    """The table itself refuses a second row at a position that is taken."""
    recorder.insert_events([event("a", 1)])
    with (
        database.connect(autocommit=True) as connection,
        pytest.raises(psycopg.errors.UniqueViolation),
    ):
        connection.execute("INSERT INTO events VALUES (1, 1, 0, 2, 'a', 't.v1', '{}', NULL)")


# --- partitions ----------------------------------------------------------------------------------


def parts(database: Database) -> list[str]:
    """The partitions there are, by name."""
    with database.connect(role="owner", autocommit=True) as owner:
        rows = owner.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'events'::regclass ORDER BY 1"
        )
        return [row[0] for row in rows]


def test_partitions_are_made_ahead_of_need(recorder: LedgerRecorder, database: Database) -> None:
    """Two more partitions than the head needs always exist, and asking again makes none."""
    assert parts(database) == ["events_0", "events_1", "events_2"]
    with database.connect() as connection:
        assert ensure_partitions(connection) == 0
    reach(database, 2 * WIDTH - 1)
    with database.connect() as connection:
        assert ensure_partitions(connection) == 1
        assert ensure_partitions(connection) == 0
    assert parts(database) == ["events_0", "events_1", "events_2", "events_3"]
    assert recorder.insert_events([event("a", 1), event("a", 2)]) == [2 * WIDTH - 1, 2 * WIDTH]


def test_a_stream_goes_on_across_a_partition(recorder: LedgerRecorder, database: Database) -> None:
    """A row whose ticks reach over a boundary, and the rows after it, read as one history."""
    recorder.insert_events([event("a", 1, b"1")])
    reach(database, WIDTH - 10)
    rows = [event("a", version, str(version).encode()) for version in range(2, 6)]
    positions = recorder.insert_events(rows, counts=[5, 60, 1, 1])
    assert positions == [WIDTH - 10, WIDTH - 5, WIDTH + 55, WIDTH + 56]
    assert [one.state for one in recorder.select_events("a")] == [b"1", b"2", b"3", b"4", b"5"]
    seen = [one.id for one in recorder.select_notifications(2, 10)]
    assert seen == positions
    assert recorder.max_notification_id() == WIDTH + 56
    with database.connect(role="owner", autocommit=True) as owner:
        counts = owner.execute(
            "SELECT (SELECT count(*) FROM events_0), (SELECT count(*) FROM events_1)"
        ).fetchone()
    assert counts == (3, 2)


@pytest.mark.parametrize("statement", CHANGES)
def test_a_new_partition_is_as_final_as_the_first(
    recorder: LedgerRecorder, database: Database, statement: str
) -> None:
    """What is in a later partition cannot be changed by its owner either."""
    reach(database, 3 * WIDTH)
    with database.connect() as connection:
        assert ensure_partitions(connection) == 3
    recorder.insert_events([event("a", 1)])
    part = statement.replace("events_0", "events_3").replace("position = 1", "position > 1")
    with (
        database.connect(role="owner", autocommit=True) as owner,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        owner.execute(cast("Any", part))
    assert [one.state for one in recorder.select_events("a")] == [b"{}"]


def test_a_market_goes_on_across_a_partition(market: Market) -> None:
    """Reports and facts on both sides of a boundary fold and rebuild like any others."""
    alice, machine = market.account("alice", 10**10), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    with market.ledger.database.connect(role="owner", autocommit=True) as owner:
        owner.execute("UPDATE log_position SET next = %s", [WIDTH - 30])
    market.run(machine, [one], 120)
    assert market.head() > WIDTH
    assert market.seconds(one) == (180, 180)
    assert market.rebuild().equal


# --- what the log says about itself --------------------------------------------------------------


def test_every_stored_state_is_a_fact_of_its_topic(market: Market) -> None:
    """Whatever services appended can be read by topic alone, and second 0 of it is the log's."""
    alice, machine = market.account("alice", 10**10), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    rows = market.connection.execute(
        "SELECT topic, state, recorded_at FROM events WHERE topic <> 'usage.reported.v1'"
    ).fetchall()
    facts = [decode_fact(topic, state) for topic, state, _ in rows]
    assert [topic_of(fact) for fact in facts] == [row[0] for row in rows]
    assert {row[2] for row in rows} == {START}
    assert not [fact for fact in facts if isinstance(fact, ObservationIgnored)]
