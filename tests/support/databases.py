"""One PostgreSQL per test process, one migrated template, one fresh copy per test that needs one.

Making a database of a hundred tables takes longer than most tests. So one that a test is done with
is emptied and handed out again; one whose tables a test has changed is dropped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ledger.projections.rebuild import SCRATCH, make_tables
from ledger.store.database import migrate
from ledger.store.embedded import EmbeddedPostgres

_TEMPLATE = "gpuledger_template"
_FILLED = (
    "SELECT c.oid::regclass::text, pg_relation_size(c.oid) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY(%s)"
    " AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0 ORDER BY 1"
)
_SHAPE = (
    "SELECT md5(string_agg(format('%s %s %s %s', n.nspname, c.relname, c.relkind, c.relacl), ','"
    " ORDER BY n.nspname, c.relname))"
    " || (SELECT md5(string_agg(format('%s %s %s', attrelid::regclass, attname, atttypid), ','"
    "     ORDER BY attrelid::regclass::text, attnum)) FROM pg_attribute a"
    "     JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
    "     WHERE n.nspname IN ('ledger', 'pristine') AND attnum > 0)"
    " || (SELECT coalesce(string_agg(nspname, ',' ORDER BY nspname), '') FROM pg_namespace"
    "     WHERE nspname !~ '^pg_')"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname !~ '^(pg_|information_schema)'"
)
_SMALL_BYTES = 65_536


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
        self._admin(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        migrate(self.dsn(_TEMPLATE))
        with psycopg.connect(self.dsn(_TEMPLATE)) as connection:
            make_tables(connection)
            _remember(connection)
            self._shape = _shape(connection)
        self._clean: list[str] = []

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
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        """Take a copy back, whoever is still connected."""
        name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        try:
            is_clean = self._empty(name)
        except psycopg.Error:
            is_clean = False
        if is_clean:
            self._clean.append(name)
        else:
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _empty(self, name: str) -> bool:
        """Make a database what the template is; False when a test has changed its tables."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                [name],
            )
        with psycopg.connect(self.dsn(name)) as connection:
            if _shape(connection) != self._shape:
                return False
            # What is refused to everybody, to change the log, is what must happen here.
            connection.execute("SET session_replication_role = replica")
            empty(connection, ["ledger", SCRATCH])
            for (table,) in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'pristine'"
            ).fetchall():
                connection.execute(
                    f"INSERT INTO ledger.{table} SELECT * FROM pristine.{table}"  # noqa: S608 - own
                )
        return True

    def stop(self) -> None:
        """Stop the server and remove its files."""
        self._postgres.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(statement)


def empty(connection: psycopg.Connection, schemas: list[str]) -> None:
    """Delete every row of the tables of these schemas."""
    large = []
    for table, size in connection.execute(_FILLED, [schemas]).fetchall():
        if size > _SMALL_BYTES:
            large.append(table)
        else:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of tables
    if large:
        connection.execute(f"TRUNCATE {', '.join(large)}")
    connection.commit()


def _remember(connection: psycopg.Connection) -> None:
    """Keep a copy of what a migrated database holds."""
    connection.execute("CREATE SCHEMA pristine")
    for table, _ in connection.execute(_FILLED, [["ledger"]]).fetchall():
        name = table.removeprefix("ledger.")
        connection.execute(f"CREATE TABLE pristine.{name} AS TABLE ledger.{name}")
    connection.commit()


def _shape(connection: psycopg.Connection) -> str:
    """Tables, columns and rights, as one text that changes with them."""
    row = connection.execute(_SHAPE).fetchone()
    assert row is not None
    return str(row[0])
