"""One PostgreSQL per test process, one migrated template, one copy per test that needs one."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ledger.store.database import migrate
from ledger.store.embedded import EmbeddedPostgres

_TEMPLATE = "gpuledger_template"


class Server:
    """An embedded server with a migrated template database; `copy` makes a fresh one in 50 ms."""

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

    @property
    def postmaster_pid(self) -> int:
        """The server's own process."""
        return self._postgres.pid

    def dsn(self, database: str) -> str:
        """How the owner reaches one database."""
        return make_conninfo(self._dsn, dbname=database)

    def copy(self) -> str:
        """A fresh migrated database; returns the owner's DSN."""
        name = f"test_{next(self._names)}"
        self._admin(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(_TEMPLATE)
            )
        )
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        """Drop a copy, whoever is still connected."""
        name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(str(name))))

    def stop(self) -> None:
        """Stop the server and remove its files."""
        self._postgres.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(statement)
