"""One PostgreSQL per test process, one migrated template, one fresh copy per test that needs one.

Making a database of a hundred tables takes longer than most tests. So one that a test is done with
is emptied and handed out again; one whose tables a test has changed is dropped. For the same reason
its sessions outlive the test: PostgreSQL reads the catalogue anew in each new one, and plans anew.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger.projections.rebuild import SCRATCH, RebuildResult, check, compare, make_tables
from ledger.store.database import SCHEMA, Connection, Database, migrate
from ledger.store.embedded import EmbeddedPostgres

_TEMPLATE = "gpuledger_template"
_FILLED = (
    "SELECT format('%%I.%%I', n.nspname, c.relname), pg_relation_size(c.oid) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY(%s)"
    " AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0 ORDER BY 1"
)
# Sums of hashes need no order, and no text of all that there is.
_SHAPE = (
    "SELECT (SELECT format('%s %s', count(*), sum(hashtextextended("
    "   concat(relname, relkind, relacl), relnamespace::bigint)))"
    "  FROM pg_class WHERE relnamespace = ANY(own)),"
    " (SELECT format('%s %s', count(*), sum(hashtextextended(a.attname::text, a.attnum"
    "   + 100 * a.atttypid::bigint + hashtext(c.relname::text) * 100000000::bigint)))"
    "  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
    "  WHERE c.relnamespace = ANY(own) AND a.attnum > 0 AND c.relkind IN ('r', 'p')),"
    " own::text FROM (SELECT array_agg(oid ORDER BY oid) AS own FROM pg_namespace"
    "  WHERE nspname !~ '^pg_' AND nspname <> 'information_schema') AS schemas"
)
_SMALL_BYTES = 65_536
_STRANGERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity a WHERE datname = %s"
    " AND (application_name <> %s OR state <> 'idle' OR EXISTS (SELECT FROM pg_locks l"
    " WHERE l.pid = a.pid AND locktype = 'advisory'))"
)
_KEPT = "gpuledger-kept"
# Nothing here has to outlive the machine: no test cuts its power, and a killed process, also a
# killed server, loses nothing that it gave to the operating system.
_HASTY = ("fsync", "full_page_writes", "synchronous_commit")

Session = Literal["questions", "snapshot", "scratch"]


class KeptDatabase(Database):
    """One copy, whose sessions are handed to one test after another.

    Who is done with it says `close` as ever; only the server that made it ends it.
    """

    def __init__(self, dsn: str) -> None:
        """Use the copy at *dsn*; nothing is connected yet."""
        super().__init__(dsn)
        self.service_dsn = make_conninfo(self.service_dsn, application_name=_KEPT)
        self._sessions: dict[Session, Connection] = {}

    def session(self, name: Session) -> Connection:
        """The session of this name, which nobody closes: one for questions, two for rebuilds."""
        found = self._sessions.get(name)
        if found is None or found.closed:
            options: dict[str, Any] = {"application_name": _KEPT}
            if name == "questions":
                found = self.connect(autocommit=True, **options)
            else:
                schema = SCRATCH if name == "scratch" else SCHEMA
                found = self.connect("owner", schema, **options)
            self._sessions[name] = found
        return found

    def rest(self) -> None:
        """Leave no transaction and no setting of the last test behind."""
        for name in list(self._sessions):
            one = self.session(name)
            try:
                one.rollback()
                one.execute("RESET ALL")
                one.execute("UNLISTEN *")
                one.commit()
            except psycopg.OperationalError:
                one.close()  # The test has ended it; the next one takes another.

    def close(self) -> None:
        """Keep everything for the next test."""

    def end(self) -> None:
        """Close every session."""
        for one in self._sessions.values():
            one.close()
        super().close()


_kept: dict[str, KeptDatabase] = {}


def open_database(dsn: str) -> Database:
    """The database at *dsn*, in the shape of this program; a kept one where a server handed it out.

    Raises:
        UnavailableError: The server does not answer.
    """
    return _kept[dsn] if dsn in _kept else Database.open(None, dsn)


def rebuilt(dsn: str) -> RebuildResult:
    """What a rebuild of the database at *dsn* finds; a kept one has the tables for it at hand."""
    database = open_database(dsn)
    if not isinstance(database, KeptDatabase):
        with database:
            return check(database)
    snapshot, scratch = database.session("snapshot"), database.session("scratch")
    empty(scratch, [SCRATCH])
    try:
        return compare(snapshot, scratch)
    finally:
        snapshot.rollback()
        scratch.rollback()


class Server:
    """An embedded server with a migrated template database; `copy` hands out fresh ones."""

    def __init__(self) -> None:
        """Start the server and migrate the template once."""
        self.home = Path(tempfile.mkdtemp(prefix="gpuledger-tests-"))
        os.chmod(self.home, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
        os.environ.setdefault("GPULEDGER_SHARED_BUFFERS", "128MB")
        self._postgres = EmbeddedPostgres(self.home)
        self._dsn = self._postgres.start()
        self._names = itertools.count(1)
        self._session = psycopg.connect(self._dsn, autocommit=True)
        for setting in _HASTY:
            self._admin(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        self._session.execute("SELECT pg_reload_conf()")
        self._admin(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        migrate(self.dsn(_TEMPLATE))
        with psycopg.connect(self.dsn(_TEMPLATE)) as connection:
            make_tables(connection)
            self._pristine = _remember(connection)
            self._shape = _shape(connection)
        self._clean: list[str] = []
        self._made: set[str] = set()

    @property
    def postmaster_pid(self) -> int:
        """The server's own process."""
        return self._postgres.pid

    def dsn(self, database: str) -> str:
        """How the owner reaches one database."""
        return make_conninfo(self._dsn, dbname=database)

    def copy(self) -> str:
        """A fresh migrated database; returns the owner's DSN."""
        if self._clean:
            return self.dsn(self._clean.pop())
        name = f"test_{next(self._names)}"
        self._admin(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(_TEMPLATE)
            )
        )
        dsn = self.dsn(name)
        _kept[dsn] = KeptDatabase(dsn)
        self._made.add(dsn)
        return dsn

    def blank(self) -> str:
        """A database that holds nothing at all; returns the owner's DSN."""
        name = f"test_{next(self._names)}"
        self._admin(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        """Take a database back, whoever is still connected."""
        name = str(conninfo_to_dict(dsn)["dbname"])
        kept = _kept.get(dsn)
        if kept is None:
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            return
        try:
            self._session.execute(_STRANGERS, [name, _KEPT])
            kept.rest()
            is_clean = self._empty(kept.session("snapshot"))
        except psycopg.Error:
            is_clean = False
        if is_clean:
            self._clean.append(name)
        else:
            _kept.pop(dsn).end()
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _empty(self, connection: Connection) -> bool:
        """Make a database what the template is; False when a test has changed its tables."""
        if _shape(connection) != self._shape:
            return False
        _delete(
            connection,
            ["ledger", SCRATCH],
            # What is refused to everybody, to change the log, is what must happen here.
            first=["SET LOCAL session_replication_role = replica"],
            last=[
                f"INSERT INTO ledger.{table} SELECT * FROM pristine.{table}"  # noqa: S608 - own
                for table in self._pristine
            ],
        )
        return True

    def stop(self) -> None:
        """Stop the server and remove its files."""
        for dsn in self._made & _kept.keys():
            _kept.pop(dsn).end()
        self._session.close()
        self._postgres.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _admin(self, statement: sql.Composed) -> None:
        self._session.execute(statement)


def empty(connection: Connection, schemas: list[str]) -> None:
    """Delete every row of the tables of these schemas, and commit that."""
    _delete(connection, schemas)


def _delete(
    connection: Connection, schemas: list[str], first: Sequence[str] = (), last: Sequence[str] = ()
) -> None:
    """Delete every row, between *first* and *last*, in one go to the server, and commit."""
    found = connection.execute(_FILLED, [schemas]).fetchall()
    large = [table for table, size in found if size > _SMALL_BYTES]
    statements = [
        *first,
        *(f"DELETE FROM {table}" for table, size in found if size <= _SMALL_BYTES),  # noqa: S608 - names of tables
        *([f"TRUNCATE {', '.join(large)}"] if large else []),
        *last,
        "COMMIT",
    ]
    connection.execute("; ".join(statements))


def _remember(connection: Connection) -> list[str]:
    """Keep a copy of what a migrated database holds; returns of which tables."""
    connection.execute("CREATE SCHEMA pristine")
    names = []
    for table, _ in connection.execute(_FILLED, [["ledger"]]).fetchall():
        name = table.removeprefix("ledger.")
        connection.execute(f"CREATE TABLE pristine.{name} AS TABLE ledger.{name}")
        names.append(name)
    connection.commit()
    return names


def _shape(connection: Connection) -> str:
    """Tables, columns and rights, as one text that changes with them."""
    row = connection.execute(_SHAPE).fetchone()
    assert row is not None
    return " ".join(map(str, row))
