"""Connections to PostgreSQL and the shape of its database.

Two roles see one server. The **owner** makes tables; the **service** role `gpuledger_service` owns
nothing and does the daily work with the rights that the migrations grant it. A service session logs
in as the owner and takes the role from its first moment by a startup option, so `RESET ROLE` leads
back to the service role. Startup options do not pass through every connection pooler: connect to
the server itself, or to a pooler that forwards `options`.

Every table lies in the schema `ledger`, and the search path of a session names it; another schema,
such as the scratch of a rebuild, takes the same statements.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

import ledger
from ledger.errors import RejectedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from ledger.store.embedded import EmbeddedPostgres

SCHEMA = "ledger"
SERVICE_ROLE = "gpuledger_service"

_URL_VARIABLE = "GPULEDGER_DATABASE_URL"
_SERVER_VERSION_MIN = 150000
_POOL_CONNECTIONS_MAX = 10
_POOL_WAIT_SECONDS_MAX = 5.0
_CHECK_SECONDS_MAX = 2.0
_CONNECT_SECONDS_MAX = 10
_MIGRATION_LOCK = 0x67_6C_65_64_67_65_72  # "gledger": one migration of a database at a time
_MIGRATION_WAIT = "120s"
# Beside the package both in a checkout and where the wheel is installed.
_MIGRATIONS = Path(ledger.__file__).parent.parent / "migrations"

Role = Literal["service", "owner"]
Connection = psycopg.Connection[tuple[Any, ...]]
"""What projections and services are handed; only this package knows the driver."""


@contextmanager
def translating() -> Iterator[None]:
    """Turn a driver error that means "the server did not do it" into `UnavailableError`.

    Errors that accuse the statement (a broken constraint, a missing right, wrong syntax) pass
    through.
    """
    try:
        yield
    except psycopg.DataError as error:
        # A number beyond bigint, a NUL in a text: what was asked for cannot exist.
        message = "a value is outside of what can be stored"
        raise RejectedError("invalid_args", message, status=400) from error
    except (
        psycopg.OperationalError,  # with it PoolTimeout, AdminShutdown, DiskFull, a deadlock
        psycopg.InterfaceError,
        errors.ReadOnlySqlTransaction,  # the server has become a standby
    ) as error:
        sqlstate = getattr(error, "sqlstate", None)
        message = f"the database did not answer: {error}"
        raise UnavailableError("database_unavailable", message, sqlstate=sqlstate) from error


class _Pool(ConnectionPool["Connection"]):
    """A pool whose `connection()` raises `UnavailableError`, not the driver's `PoolTimeout`."""

    def getconn(self, timeout: float | None = None) -> Connection:
        with translating():
            return super().getconn(timeout)


class Database:
    """One PostgreSQL database, embedded or elsewhere, with two roles; made by `Database.open`."""

    def __init__(self, owner_dsn: str, embedded: EmbeddedPostgres | None = None) -> None:
        """Use the server of *owner_dsn*; *embedded* is stopped with this object."""
        self.owner_dsn = owner_dsn
        self.service_dsn = _with_options(owner_dsn, schema=SCHEMA, role="service")
        self.embedded = embedded
        self._pool: _Pool | None = None

    @classmethod
    def open(cls, home: Path | None, url: str | None = None, *, migrate: bool = True) -> Database:
        """Open the database at *url*, or `GPULEDGER_DATABASE_URL`, or the embedded one in *home*.

        Args:
            home: Folder of the embedded server, which is started or attached to.
            url: libpq connection string or URL of a PostgreSQL 15 or newer; empty for the embedded
                one, whatever the environment says.
            migrate: Bring the tables to the shape of this program first.

        Raises:
            UnavailableError: The server cannot be reached or started.
            RejectedError: The server is too old, the database too new, or none was named.
        """
        dsn = os.environ.get(_URL_VARIABLE) if url is None else url
        if dsn:
            database = cls(_resolved(dsn))
        elif home is not None:
            # Imported here: a service with a database elsewhere does not need the wheel.
            from ledger.store.embedded import EmbeddedPostgres  # noqa: PLC0415 - see above

            server = EmbeddedPostgres(home)
            database = cls(server.start(), server)
        else:
            message = f"no database: name a home folder or set {_URL_VARIABLE}"
            raise RejectedError("database_not_configured", message)
        try:
            if migrate:
                _migrate(database.owner_dsn)
            else:
                _connect(database.owner_dsn, schema=SCHEMA, role="owner").close()
        except BaseException:
            database.close()
            raise
        return database

    @property
    def pool(self) -> ConnectionPool[Connection]:
        """Service connections, opened on first use; `connection()` waits at most 5 s.

        A connection that died (server restart, failover) is replaced before it is handed out.
        """
        if self._pool is None:
            self._pool = _Pool(
                self.service_dsn,
                min_size=1,
                max_size=_POOL_CONNECTIONS_MAX,
                timeout=_POOL_WAIT_SECONDS_MAX,
                check=ConnectionPool.check_connection,
                name="gpuledger",
                open=True,
            )
        return self._pool

    def connect(self, role: Role = "service", schema: str = SCHEMA, **options: Any) -> Connection:
        """Open a connection outside the pool; the caller closes it.

        Args:
            role: Whose rights the session has.
            schema: What its search path names; it need not exist yet.
            options: Passed to `psycopg.connect`, for example `autocommit=True`.
        """
        return _connect(self.owner_dsn, schema=schema, role=role, **options)

    def check(self) -> None:
        """Return when the service role can read and the server takes writes; costs one round trip.

        Raises:
            UnavailableError: It does not answer within 2 s, or it is a standby.
        """
        with translating(), self.pool.connection(timeout=_CHECK_SECONDS_MAX) as connection:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if row != (False,):
            message = "the database server is a standby and takes no writes"
            raise UnavailableError("database_unavailable", message)

    def close(self) -> None:
        """Close the pool and leave the embedded server, which stops when nobody else uses it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self.embedded is not None:
            self.embedded.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def migrate(owner_dsn: str, *, schema: str = SCHEMA) -> None:
    """Bring the tables of *schema* to this program's shape; quick and harmless when they have it.

    Makes the service role and the schema when they are missing. Processes that start together take
    turns, and a migration that fails changes nothing. Alembic is imported only when there is work.

    Raises:
        RejectedError: `database_newer`, the database was shaped by a newer program.
        UnavailableError: The server does not answer, or another migration takes over two minutes.
    """
    known, head = _revisions()
    with _connect(owner_dsn, schema=schema, role="owner", autocommit=True) as connection:
        if _needs_work(connection, schema, known, head):
            with translating():
                connection.execute(f"SET lock_timeout = '{_MIGRATION_WAIT}'")
                connection.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
            if _needs_work(
                connection, schema, known, head
            ):  # unless another process did it meanwhile
                with translating():
                    _prepare(connection, schema)
                    _upgrade(owner_dsn, schema)


# `Database.open` has a parameter of this name.
_migrate = migrate


def _needs_work(
    connection: Connection, schema: str, known: frozenset[str], head: str | None
) -> bool:
    current = _current_revision(connection, schema)
    if current is not None and current not in known:
        message = (
            f"the database (revision {current}) is newer than this program: "
            "install the newer version or restore a backup"
        )
        raise RejectedError("database_newer", message, revision=current)
    return current is None or current != head


def _revisions() -> tuple[frozenset[str], str | None]:
    """Every revision that this program knows, and the last; as text, for Alembic costs memory."""
    ancestors: dict[str, str | None] = {}
    for path in (_MIGRATIONS / "versions").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        revision = re.search(r"^revision\b[^=\n]*= *[\"'](\w+)[\"']", text, re.MULTILINE)
        if revision is not None:
            before = re.search(r"^down_revision\b[^=\n]*= *[\"'](\w+)[\"']", text, re.MULTILINE)
            ancestors[revision[1]] = before[1] if before else None
    heads = ancestors.keys() - ancestors.values()
    assert len(heads) <= 1, f"the migrations fork: {sorted(heads)}"
    return frozenset(ancestors), next(iter(heads), None)


def _current_revision(connection: Connection, schema: str) -> str | None:
    table = sql.Identifier(schema, "alembic_version")
    query = sql.SQL("SELECT version_num FROM {}").format(table)
    with translating():
        try:
            row = connection.execute(query).fetchone()
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return None
    return None if row is None else str(row[0])


def _prepare(connection: Connection, schema: str) -> None:
    """Make the service role and the schema, and let the service role in."""
    role, name = sql.Identifier(SERVICE_ROLE), sql.Identifier(schema)
    found = connection.execute(
        "SELECT 1 FROM pg_roles WHERE rolname = %s", [SERVICE_ROLE]
    ).fetchone()
    if found is None:
        # Roles belong to the whole server: another database may be migrated at the same time.
        with suppress(errors.DuplicateObject, errors.UniqueViolation):
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
    connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(role))
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(name, role))


def _upgrade(owner_dsn: str, schema: str) -> None:
    # Some 30 MB that a service whose tables are in shape never loads.
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above
    from sqlalchemy import create_engine  # noqa: PLC0415 - see above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - see above
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - see above

    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: _connect(owner_dsn, schema=schema, role="owner"),
        poolclass=NullPool,
    )
    configuration = Config()
    configuration.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    try:
        with engine.begin() as connection:
            configuration.attributes.update(connection=connection, schema=schema)
            command.upgrade(configuration, "head")
    except DBAPIError as error:
        raise (error.orig or error) from error


def _connect(owner_dsn: str, *, schema: str, role: Role, **options: Any) -> Connection:
    with translating():
        connection = psycopg.connect(_with_options(owner_dsn, schema=schema, role=role), **options)
    if connection.info.server_version < _SERVER_VERSION_MIN:
        version = connection.info.server_version // 10000
        connection.close()
        message = f"PostgreSQL {version} is too old: version 15 or newer is needed"
        raise RejectedError("database_too_old", message, version=version)
    return connection


def _resolved(dsn: str) -> str:
    """Turn a connection string or URL into one form, and wait a bounded time for a dead server."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        # The text of the driver's error may quote the password.
        message = f"{_URL_VARIABLE} is not a PostgreSQL connection string"
        raise RejectedError("database_not_configured", message) from error
    parts.setdefault("connect_timeout", _CONNECT_SECONDS_MAX)
    return make_conninfo("", **parts)


def _with_options(dsn: str, *, schema: str, role: Role) -> str:
    """Add startup options to *dsn*; its own options stay and lose where both set the same."""
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", schema), schema
    given = str(conninfo_to_dict(dsn).get("options") or "")
    added = f"-c search_path={schema}"
    if role == "service":
        added = f"-c role={SERVICE_ROLE} {added}"
    return make_conninfo(dsn, options=f"{given} {added}".strip())
