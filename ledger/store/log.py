"""The event log: one order for everything that happens.

Every appending transaction locks the one row of `log_position` first, before any other row. So
appends are serial from there, positions have no gaps, the order of commits is the order of
positions, and no two transactions can lock each other out. Everything costly is done before.

The `eventsourcing` library reads and writes the same log through `LedgerRecorder`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from eventsourcing.persistence import (
    ApplicationRecorder,
    IntegrityError,
    ListenNotifySubscription,
    Notification,
    StoredEvent,
    Subscription,
)

from ledger.domain.events import USAGE_REPORTED
from ledger.errors import ConflictError
from ledger.store.database import Connection, Database, translating

CHANNEL = "ledger"

Clock = Callable[[], int]
"""Says which Unix second it is."""


class Row(NamedTuple):
    """An event on its way into the log; `count` is how many positions it takes."""

    stream_id: str
    version: int
    topic: str
    state: bytes
    recorded_at: int
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    signature: bytes | None = None
    body_hash: bytes | None = None
    """SHA-256 of what was sent, where that is not the state itself."""
    machine_id: int | None = None
    until: int | None = None
    boot_id: str | None = None


class Head(NamedTuple):
    """The end of a stream: its last version and the hash of that body.

    For usage also the machine, the first second not yet attested, and the boot id.
    """

    version: int
    body_hash: bytes
    recorded_at: int
    machine_id: int | None
    until: int | None
    boot_id: str | None


NO_HEAD = Head(0, bytes(32), 0, None, None, None)


class Stored(NamedTuple):
    """An event as it lies in the log."""

    position: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    recorded_at: int
    version: int
    stream_id: str
    topic: str
    state: bytes
    signature: bytes | None


_STORED_COLUMNS = "position, count, recorded_at, version, stream_id, topic, state, signature"


class LogTransaction:
    """An open transaction that holds the log: what it appends gets the next positions.

    `now` is the second of the transaction, read once the lock is held and never before that of an
    earlier transaction: the order of the log is the order of time.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        """Lock the log on *connection*, whose transaction the caller ends."""
        self.connection = connection
        row = connection.execute(
            "SELECT next, recorded_at, fact_position FROM log_position FOR UPDATE"
        ).fetchone()
        assert row is not None, "the log has no position row"
        self.next_position: int = row[0]
        self.now: int = max(clock(), row[1])
        self.fact_position: int = row[2]
        self._appended = False

    def heads(self, stream_ids: Sequence[str]) -> dict[str, Head]:
        """The heads of those of *stream_ids* that exist."""
        rows = self.connection.execute(
            "SELECT stream_id, version, body_hash, recorded_at, machine_id, until, boot_id"
            " FROM stream_heads WHERE stream_id = ANY(%b)",
            [list(stream_ids)],
            binary=True,
        )
        return {row[0]: Head(*row[1:]) for row in rows}

    def append(self, rows: Sequence[Row]) -> list[int]:
        """Write *rows*, whose versions the caller has judged, and return their positions."""
        if not rows:
            return []
        positions = []
        heads: dict[str, tuple[Row, bytes]] = {}
        for row in rows:
            positions.append(self.next_position)
            self.next_position += row.count
            heads[row.stream_id] = (row, row.body_hash or hashlib.sha256(row.state).digest())
            if row.topic != USAGE_REPORTED:
                self.fact_position = positions[-1]
        self.now = max(self.now, rows[-1].recorded_at)
        self.connection.execute(
            f"INSERT INTO events ({_STORED_COLUMNS})"  # noqa: S608 - a constant of this module
            " SELECT * FROM unnest(%b::int8[], %b::int4[], %b::int8[], %b::int8[],"
            " %b::text[], %b::text[], %b::bytea[], %b::bytea[])",
            [
                positions,
                [row.count for row in rows],
                [row.recorded_at for row in rows],
                [row.version for row in rows],
                [row.stream_id for row in rows],
                [row.topic for row in rows],
                [row.state for row in rows],
                [row.signature for row in rows],
            ],
        )
        self._write_heads(heads)
        self._appended = True
        return positions

    def _write_heads(self, heads: dict[str, tuple[Row, bytes]]) -> None:
        last = [row for row, _ in heads.values()]
        self.connection.execute(
            "INSERT INTO stream_heads AS head"
            " (stream_id, version, body_hash, recorded_at, machine_id, until, boot_id)"
            " SELECT * FROM unnest(%b::text[], %b::int8[], %b::bytea[], %b::int8[], %b::int8[],"
            " %b::int8[], %b::text[])"
            " ON CONFLICT (stream_id) DO UPDATE SET version = EXCLUDED.version,"
            " body_hash = EXCLUDED.body_hash, recorded_at = EXCLUDED.recorded_at,"
            " until = coalesce(EXCLUDED.until, head.until),"
            " boot_id = coalesce(EXCLUDED.boot_id, head.boot_id)",
            [
                list(heads),
                [row.version for row in last],
                [body_hash for _, body_hash in heads.values()],
                [row.recorded_at for row in last],
                [row.machine_id for row in last],
                [row.until for row in last],
                [row.boot_id for row in last],
            ],
        )

    def finish(self) -> None:
        """Move the log's head, if anything was appended; the caller commits."""
        if self._appended:
            self.connection.execute(
                "UPDATE log_position SET next = %b, recorded_at = %b, fact_position = %b",
                [self.next_position, self.now, self.fact_position],
            )
            self.connection.execute("SELECT pg_notify(%s, '')", [CHANNEL])


@contextmanager
def appending(connection: Connection, clock: Clock) -> Iterator[LogTransaction]:
    """One transaction over the log on *connection*: all of it becomes durable, or none of it.

    Raises:
        UnavailableError: The database did not answer; nothing is stored unless the commit itself
            was lost, which a repeat with the same keys finds out.
    """
    with translating(), connection.transaction():
        transaction = LogTransaction(connection, clock)
        yield transaction
        transaction.finish()


def read_page(connection: Connection, after: int, limit: int) -> list[Stored]:
    """Up to *limit* events with positions above *after*, in order."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(
            f"SELECT {_STORED_COLUMNS} FROM events WHERE position > %b"  # noqa: S608 - constant
            " ORDER BY position LIMIT %b",
            [after, limit],
        )
        return [Stored(*row) for row in cursor]


def read_facts(connection: Connection, page_events: int = 1_000) -> Iterator[Stored]:
    """Every fact of the log in order, a page at a time; usage reports are left out."""
    after = 0
    while True:
        with connection.cursor(binary=True) as cursor:
            cursor.execute(
                f"SELECT {_STORED_COLUMNS} FROM events WHERE position > %b"  # noqa: S608 - constant
                " AND stream_id NOT LIKE 'usage-%%' ORDER BY position LIMIT %b",
                [after, page_events],
            )
            page = [Stored(*row) for row in cursor]
        yield from page
        if len(page) < page_events:
            return
        after = page[-1].position


def read_stream(
    connection: Connection,
    stream_id: str,
    *,
    above: int = 0,
    through: int | None = None,
    descending: bool = False,
    limit: int | None = None,
) -> list[Stored]:
    """Events of one stream with versions above *above*, up to *through*."""
    order = "DESC" if descending else "ASC"
    with connection.cursor(binary=True) as cursor:
        cursor.execute(
            f"SELECT {_STORED_COLUMNS} FROM events"  # noqa: S608 - constants of this module
            " WHERE stream_id = %b AND version > %b AND version <= %b"
            f" ORDER BY version {order} LIMIT %b",
            [stream_id, above, 2**63 - 1 if through is None else through, limit],
        )
        return [Stored(*row) for row in cursor]


def head_position(connection: Connection) -> int:
    """The last position in use; 0 when the log is empty."""
    row = connection.execute("SELECT next - 1 FROM log_position").fetchone()
    assert row is not None
    return int(row[0])


def ensure_partitions(connection: Connection) -> int:
    """Attach partitions ahead of need; returns how many were made."""
    with translating(), connection.transaction():
        row = connection.execute("SELECT ensure_event_partitions()").fetchone()
    assert row is not None
    return int(row[0])


class LedgerRecorder(ApplicationRecorder):
    """The log as the `eventsourcing` library sees it.

    A notification's id is the position of its event's first tick. Events are accepted when their
    versions follow the stream's head; a repeat of stored bytes is answered with its first position.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        """Work on *database*, recording events at the seconds that *clock* says."""
        self._database = database
        self._clock = clock

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append in one transaction.

        Args:
            stored_events: In order; several streams and several events of one stream are fine.
            kwargs: `counts` and `signatures`, one per event, where they are not 1 and none.

        Raises:
            IntegrityError: A version does not follow its stream's head; nothing is stored.
        """
        counts = kwargs.get("counts") or [1] * len(stored_events)
        signatures = kwargs.get("signatures") or [None] * len(stored_events)
        try:
            with (
                self._database.pool.connection() as connection,
                appending(connection, self._clock) as log,
            ):
                return self._insert(log, stored_events, counts, signatures)
        except ConflictError as error:
            raise IntegrityError(str(error)) from error

    @staticmethod
    def _insert(
        log: LogTransaction,
        events: Sequence[StoredEvent],
        counts: Sequence[int],
        signatures: Sequence[bytes | None],
    ) -> list[int]:
        versions = {
            stream: head.version
            for stream, head in log.heads([str(event.originator_id) for event in events]).items()
        }
        fresh: list[Row] = []
        known: dict[int, int] = {}
        for index, event in enumerate(events):
            stream = str(event.originator_id)
            head = versions.get(stream, 0)
            if event.originator_version <= head:
                known[index] = _position_of_repeat(log.connection, event)
            elif event.originator_version == head + 1:
                versions[stream] = event.originator_version
                fresh.append(
                    Row(
                        stream_id=stream,
                        version=event.originator_version,
                        topic=event.topic,
                        state=event.state,
                        recorded_at=log.now,
                        count=counts[index],
                        signature=signatures[index],
                    )
                )
            else:
                message = (
                    f"{stream} is at version {head}; version {event.originator_version}"
                    " does not follow it"
                )
                raise ConflictError("version_conflict", message)
        positions = iter(log.append(fresh))
        return [known.get(index) or next(positions) for index in range(len(events))]

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Events of one stream."""
        with translating(), self._database.pool.connection() as connection:
            rows = read_stream(
                connection,
                str(originator_id),
                above=gt or 0,
                through=lte,
                descending=desc,
                limit=limit,
            )
        return [StoredEvent(row.stream_id, row.version, row.topic, row.state) for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Events of the whole log by position."""
        low = (start or 0) - (1 if inclusive_of_start and start is not None else 0)
        with (
            translating(),
            self._database.pool.connection() as connection,
            connection.cursor(binary=True) as cursor,
        ):
            cursor.execute(
                f"SELECT {_STORED_COLUMNS} FROM events"  # noqa: S608 - constants of this module
                " WHERE position > %b AND position <= %b AND (%b OR topic = ANY(%b))"
                " ORDER BY position LIMIT %b",
                [low, 2**63 - 1 if stop is None else stop, not topics, list(topics), limit],
            )
            rows = [Stored(*row) for row in cursor]
        return [
            Notification(row.stream_id, row.version, row.topic, row.state, row.position)
            for row in rows
        ]

    def max_notification_id(self) -> int | None:
        """The position of the last row; none when the log is empty."""
        with translating(), self._database.pool.connection() as connection:
            row = connection.execute("SELECT max(position) FROM events").fetchone()
        return None if row is None else row[0]

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """An endless iterator over the log, from a position onwards."""
        return LedgerSubscription(recorder=self, gt=gt, topics=topics)

    def wait(self, seconds: float) -> None:
        """Return when something was appended, or after *seconds*."""
        with translating(), self._database.connect(autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                return


class LedgerSubscription(ListenNotifySubscription[LedgerRecorder]):
    """Follows the log: woken by NOTIFY, with a poll as fallback."""

    _POLL_SECONDS = 0.5

    def _loop_on_pull(self) -> None:
        try:
            self._pull()
            while not self._has_been_stopped:
                self._recorder.wait(self._POLL_SECONDS)
                self._pull()
        except BaseException as error:
            self._thread_error = error
            self.stop()


def _position_of_repeat(connection: Connection, event: StoredEvent) -> int:
    """Where the same bytes already lie.

    Raises:
        ConflictError: Other bytes lie there.
    """
    stored = read_stream(
        connection,
        str(event.originator_id),
        above=event.originator_version - 1,
        through=event.originator_version,
    )
    if stored and stored[0].state == event.state and stored[0].topic == event.topic:
        return stored[0].position
    message = f"{event.originator_id} already has another version {event.originator_version}"
    raise ConflictError("version_conflict", message)
