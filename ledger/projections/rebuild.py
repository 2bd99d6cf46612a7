"""Every read model rebuilt from position 0, beside the live ones, and compared byte by byte.

The live tables are looked at in one snapshot: the facts group stands at the snapshot's head of the
log, the usage group at its own position. Both are rebuilt up to exactly there in a scratch schema,
and the SHA-256 of a canonical dump is compared table by table. Traffic may go on meanwhile.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from ledger.domain.events import USAGE_REPORTED
from ledger.errors import ConflictError
from ledger.projections import facts
from ledger.projections.groups import GENERATION, USAGE
from ledger.projections.runner import position_of, require_generation
from ledger.projections.tables import metadata
from ledger.projections.usage.fold import UsageFold
from ledger.projections.usage.writing import write
from ledger.store.codec import decode_fact
from ledger.store.log import head_position, read_page

if TYPE_CHECKING:
    from sqlalchemy import Table

    from ledger.store.database import Connection, Database
    from ledger.store.log import Stored

Progress = Callable[[int, int], None]
"""Called with (position reached, last position)."""

SCRATCH: Final = "ledger_rebuild"
PAGE_EVENTS: Final = 4_000
_REBUILD_LOCK: Final = 7_415_002


class TableResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one table compares."""

    name: str
    group: str
    rows: int
    live_sha256: str
    rebuilt_sha256: str
    first_difference: str | None

    @property
    def equal(self) -> bool:
        """True when the dumps are the same bytes."""
        return self.live_sha256 == self.rebuilt_sha256


class RebuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild found."""

    tables: list[TableResult]
    facts_position: int
    usage_position: int
    ticks: int
    seconds: float

    @property
    def equal(self) -> bool:
        """True when every table is equal."""
        return all(table.equal for table in self.tables)


def check(database: Database, progress: Progress | None = None) -> RebuildResult:
    """Rebuild all read models in a scratch schema and compare them with the live ones.

    Raises:
        ConflictError: `rebuild_running`.
        RejectedError: `rebuild_needed`, the live ones are of another generation.
    """
    with database.connect("owner") as snapshot, scratch_schema(database) as scratch:
        return compare(snapshot, scratch, progress)


@contextmanager
def scratch_schema(database: Database) -> Iterator[Connection]:
    """A connection whose schema holds every read model's table, empty; dropped at the end.

    Raises:
        ConflictError: `rebuild_running`.
    """
    with database.connect("owner", schema=SCRATCH) as scratch:
        row = scratch.execute("SELECT pg_try_advisory_lock(%s)", [_REBUILD_LOCK]).fetchone()
        if row is None or not row[0]:
            message = "another rebuild of this database is running"
            raise ConflictError("rebuild_running", message)
        scratch.execute(f"DROP SCHEMA IF EXISTS {SCRATCH} CASCADE")
        make_tables(scratch)
        yield scratch
        scratch.execute(f"DROP SCHEMA {SCRATCH} CASCADE")
        scratch.commit()


def compare(
    snapshot: Connection, scratch: Connection, progress: Progress | None = None
) -> RebuildResult:
    """Fold the log into the empty tables of *scratch* and compare them with those of *snapshot*."""
    started = time.monotonic()
    snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    require_generation(snapshot)
    facts_position = head_position(snapshot)
    usage_position = position_of(snapshot)
    ticks = _fold(snapshot, scratch, facts_position, usage_position, progress)
    filled = _filled(snapshot, "ledger") | _filled(scratch, SCRATCH)
    return RebuildResult(
        tables=[
            _compare(snapshot, scratch, table) if table.name in filled else _both_empty(table)
            for table in metadata.sorted_tables
        ],
        facts_position=facts_position,
        usage_position=usage_position,
        ticks=ticks,
        seconds=time.monotonic() - started,
    )


def swap(database: Database, progress: Progress | None = None) -> RebuildResult:
    """Rebuild all read models and put them in the place of the live ones, in one transaction.

    Appends wait while the tables change places; the usage runner goes on from the new position.
    """
    started = time.monotonic()
    with database.connect("owner") as live, scratch_schema(database) as scratch:
        # The log is held: what is folded is all there is until the tables have changed places.
        live.execute("SELECT 1 FROM log_position FOR UPDATE")
        head = head_position(live)
        ticks = _fold(live, scratch, head, head, progress)
        # In the runner's order: the position first, then the tables.
        live.execute("SELECT 1 FROM projection_positions FOR UPDATE")
        names = ", ".join(table.name for table in metadata.sorted_tables)
        _take_out(live)
        for table in metadata.sorted_tables:
            live.execute(f"ALTER TABLE {SCRATCH}.{table.name} SET SCHEMA ledger")
        live.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {names} TO gpuledger_service")
        last = live.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
        assert last is not None
        live.execute(
            "INSERT INTO projection_positions VALUES (%s, %s, %s) ON CONFLICT (name)"
            " DO UPDATE SET version = EXCLUDED.version, position = EXCLUDED.position",
            [USAGE, GENERATION, last[0]],
        )
        live.commit()
        live.execute(f"ANALYZE {names}")
        live.commit()
    return RebuildResult(
        tables=[],
        facts_position=head,
        usage_position=head,
        ticks=ticks,
        seconds=time.monotonic() - started,
    )


def make_tables(scratch: Connection) -> None:
    """Make the scratch schema, and in it every read model's table as this program declares it."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    scratch.execute(f"CREATE SCHEMA {SCRATCH}")
    scratch.execute(f"SET LOCAL search_path TO {SCRATCH}")
    for table in metadata.sorted_tables:
        scratch.execute(str(CreateTable(table).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            scratch.execute(str(CreateIndex(index).compile(dialect=dialect)))
    scratch.commit()


def _take_out(live: Connection) -> None:
    """Drop the live tables, of whatever shape an older program has left them."""
    names = [table.name for table in metadata.sorted_tables]
    there = live.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'ledger' AND tablename = ANY(%s)"
        " ORDER BY tablename",
        [names],
    ).fetchall()
    taken = ", ".join(name for (name,) in there)
    live.execute(f"LOCK TABLE {taken} IN ACCESS EXCLUSIVE MODE")
    live.execute(f"DROP TABLE {taken}")


def _fold(
    source: Connection,
    scratch: Connection,
    facts_position: int,
    usage_position: int,
    progress: Progress | None,
) -> int:
    """Fold the log into the scratch tables; returns how many ticks there were."""
    fold = UsageFold()
    last = max(facts_position, usage_position)
    ticks = 0
    scratch.execute("SET synchronous_commit = off")
    scratch.commit()
    for events in _pages(source, last):
        with scratch.transaction():
            facts.apply(scratch, _facts(events, facts_position))
            usage = [event for event in events if event.position <= usage_position]
            if usage:
                page = fold.fold(scratch, usage)
                write(scratch, page, lock_accounts=False)
                ticks += page.ticks
        fold.committed()
        if progress is not None:
            progress(min(events[-1].position + events[-1].count - 1, last), last)
    return ticks


def _pages(source: Connection, last: int) -> Iterator[list[Stored]]:
    """The log up to position *last*, page by page; the next one is read while one is folded."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(read_page, source, 0, PAGE_EVENTS)
        while True:
            events = [event for event in coming.result() if event.position <= last]
            if not events:
                return
            coming = reader.submit(read_page, source, events[-1].position, PAGE_EVENTS)
            yield events


def _facts(events: list[Stored], facts_position: int) -> list[facts.Recorded]:
    return [
        facts.Recorded(decode_fact(event.topic, event.state), event.position)
        for event in events
        if event.topic != USAGE_REPORTED and event.position <= facts_position
    ]


# --- comparing -----------------------------------------------------------------------------------


def _filled(connection: Connection, schema: str) -> set[str]:
    """The tables that hold a row."""
    looks = " UNION ALL ".join(
        f"(SELECT '{table.name}' FROM {schema}.{table.name} LIMIT 1)"  # noqa: S608 - own names
        for table in metadata.sorted_tables
    )
    return {row[0] for row in connection.execute(looks)}


def _both_empty(table: Table) -> TableResult:
    nothing = hashlib.sha256().hexdigest()
    return TableResult(
        name=str(table.name),
        group=table.info["group"],
        rows=0,
        live_sha256=nothing,
        rebuilt_sha256=nothing,
        first_difference=None,
    )


def _compare(snapshot: Connection, scratch: Connection, table: Table) -> TableResult:
    live, rows = _digest(snapshot, table, "ledger")
    rebuilt, rebuilt_rows = _digest(scratch, table, SCRATCH)
    difference = None
    if live != rebuilt:
        difference = _first_difference(snapshot, scratch, table)
    return TableResult(
        name=str(table.name),  # not the text of a kind of its own that SQLAlchemy keeps
        group=table.info["group"],
        rows=max(rows, rebuilt_rows),
        live_sha256=live,
        rebuilt_sha256=rebuilt,
        first_difference=difference,
    )


def _query(table: Table, schema: str) -> str:
    """The canonical dump: every row as text, ordered by primary key."""
    key = ", ".join(f"t.{column.name}" for column in table.primary_key.columns)
    return f"SELECT t::text FROM {schema}.{table.name} t ORDER BY {key}"  # noqa: S608 - own names


def _digest(connection: Connection, table: Table, schema: str) -> tuple[str, int]:
    digest = hashlib.sha256()
    rows = 0
    with connection.transaction(), connection.cursor(name="dump") as cursor:
        cursor.itersize = 10_000
        cursor.execute(_query(table, schema))
        for (text,) in cursor:
            digest.update(text.encode())
            digest.update(b"\n")
            rows += 1
    return digest.hexdigest(), rows


def _first_difference(snapshot: Connection, scratch: Connection, table: Table) -> str:
    with (
        snapshot.transaction(),
        scratch.transaction(),
        snapshot.cursor(name="live") as live,
        scratch.cursor(name="rebuilt") as rebuilt,
    ):
        live.execute(_query(table, "ledger"))
        rebuilt.execute(_query(table, SCRATCH))
        while True:
            left, right = live.fetchone(), rebuilt.fetchone()
            if left != right:
                shown = [None if row is None else row[0] for row in (left, right)]
                return f"live {shown[0]} · rebuilt {shown[1]}"
            if left is None:
                return "none"
