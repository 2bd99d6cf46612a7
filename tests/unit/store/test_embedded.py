import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from ledger.errors import RejectedError, UnavailableError
from ledger.store import database as database_module
from ledger.store.database import Database, migrate, translating
from ledger.store.embedded import EmbeddedPostgres

ROOT = Path(__file__).parents[3]

REVISION = """
revision = "{revision}"
down_revision = {before}

def upgrade():
    from alembic import op
    op.execute("CREATE TABLE t{revision} (n int)")
    op.execute("GRANT SELECT, INSERT ON t{revision} TO gpuledger_service")

def downgrade():
    pass
"""


@pytest.fixture(scope="module", autouse=True)
def small_server() -> Iterator[None]:
    """Keep the servers of these tests small and off any database of the caller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPULEDGER_SHARED_BUFFERS", "128MB")
        patch.delenv("GPULEDGER_DATABASE_URL", raising=False)
        yield


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """Give a short folder that the server's user may pass through, unlike `tmp_path` of root."""
    folder = Path(tempfile.mkdtemp(prefix="gl-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared(base: Path) -> Iterator[EmbeddedPostgres]:
    """One server for the tests that do not harm it."""
    with EmbeddedPostgres(base / "shared") as server:
        yield server


@pytest.fixture
def server(base: Path) -> Iterator[EmbeddedPostgres]:
    """Give a server that the test may kill; its cluster outlives the test."""
    embedded = EmbeddedPostgres(base / "victim")
    embedded.start()
    yield embedded
    embedded.start()
    embedded.stop()


@pytest.fixture
def revisions(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a history of one revision, `0001`, in place of the program's own."""
    folder = Path(tempfile.mkdtemp(dir=base))
    (folder / "versions").mkdir()
    shutil.copy(ROOT / "migrations" / "env.py", folder)
    add_revision(folder, "0001", None)
    monkeypatch.setattr(database_module, "_MIGRATIONS", folder)
    return folder


@pytest.fixture
def dsn(shared: EmbeddedPostgres, request: pytest.FixtureRequest) -> str:
    """Give the owner's connection to a database of the test's own on the shared server."""
    name = f"d{abs(hash(request.node.name))}"
    with psycopg.connect(shared.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return psycopg.conninfo.make_conninfo(shared.dsn, dbname=name)


def add_revision(folder: Path, revision: str, before: str | None) -> None:
    """Write a revision that makes one table, which the service role may read and add to."""
    text = REVISION.format(revision=revision, before=repr(before))
    (folder / "versions" / f"{revision}_test.py").write_text(text)


def rows(dsn: str, query: str) -> list[tuple[object, ...]]:
    """Return what *query* answers on a connection of its own."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def is_up(dsn: str) -> bool:
    """Tell whether the server lets somebody in."""
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def check_until_it_fails(database: Database) -> None:
    """Check again and again: a backend outlives its killed postmaster by some milliseconds."""
    while True:
        database.check()


def run_python(code: str, *arguments: str) -> str:
    """Return what *code* prints in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_stopped_server_keeps_its_rows(base: Path) -> None:
    """A row committed before a stop is there after the next start, and nothing runs between."""
    embedded = EmbeddedPostgres(base / "kept")
    dsn = embedded.start()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    embedded.stop()
    assert not is_up(dsn)
    with pytest.raises(UnavailableError, match="no PostgreSQL server runs"):
        _ = embedded.pid
    with EmbeddedPostgres(base / "kept") as again:
        assert rows(again.dsn, "SELECT n FROM kept") == [(7,)]


def test_server_settings_protect_commits_and_the_door(shared: EmbeddedPostgres) -> None:
    """Commits reach the disk, and the only way in is a socket in a folder of mode 0700."""
    query = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
    names = ["fsync", "full_page_writes", "jit", "listen_addresses", "max_wal_size"]
    with psycopg.connect(shared.dsn) as connection:
        settings: dict[str, str] = dict(connection.execute(query, [names]).fetchall())
    assert settings == {
        "fsync": "on",
        "full_page_writes": "on",
        "jit": "off",
        "listen_addresses": "",
        "max_wal_size": "4096",
    }
    assert (shared.home / "run").stat().st_mode & 0o777 == 0o700
    assert shared.data_dir.stat().st_mode & 0o777 == 0o700


def test_bin_dir_holds_the_tools_for_backups(shared: EmbeddedPostgres) -> None:
    """The tools beside the server can dump it."""
    for tool in ("psql", "pg_basebackup"):
        assert os.access(shared.bin_dir / tool, os.X_OK)
    dump = subprocess.run(
        [shared.bin_dir / "pg_dump", shared.dsn], check=True, capture_output=True, text=True
    )
    assert "PostgreSQL database dump complete" in dump.stdout


def test_killed_server_recovers_committed_rows(server: EmbeddedPostgres) -> None:
    """A row committed before kill -9 of the postmaster is there after the next start."""
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE survivor AS SELECT 1 AS n")
    killed = server.pid
    os.kill(killed, signal.SIGKILL)
    server.start()
    assert server.pid != killed
    assert rows(server.dsn, "SELECT n FROM survivor") == [(1,)]


def test_busy_orphan_of_a_killed_server_is_ended(server: EmbeddedPostgres) -> None:
    """A backend that works on after its postmaster was killed does not block the next start."""
    loop = "DO $$ BEGIN LOOP END LOOP; END $$"  # never waits, so never sees that its parent died
    activity = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'"
    with closing(psycopg.connect(server.dsn, autocommit=True)) as connection:
        orphan = connection.info.backend_pid
        connection.pgconn.send_query(loop.encode())
        while rows(server.dsn, activity) != [(1,)]:
            pass
        os.kill(server.pid, signal.SIGKILL)
        server.start()
        command_line = Path(f"/proc/{orphan}/cmdline")
        assert not command_line.exists() or command_line.read_bytes() == b""
    assert is_up(server.dsn)


def test_reused_process_id_does_not_block_a_start(server: EmbeddedPostgres) -> None:
    """A stale `postmaster.pid` whose number now belongs to another program is not believed."""
    pid_file = server.data_dir / "postmaster.pid"
    content, owner = pid_file.read_text(), server.data_dir.stat()
    server.stop()
    user = owner.st_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=user) as innocent:
        pid_file.write_text("\n".join([str(innocent.pid), *content.splitlines()[1:]]) + "\n")
        os.chown(pid_file, owner.st_uid, owner.st_gid)
        lock_file = server.home / "run" / ".s.PGSQL.5432.lock"
        lock_file.write_text(f"{innocent.pid}\n")
        os.chown(lock_file, owner.st_uid, owner.st_gid)
        server.start()
        assert innocent.poll() is None
        innocent.kill()
    assert is_up(server.dsn)


def test_second_process_attaches_and_leaves_the_server_running(server: EmbeddedPostgres) -> None:
    """Another process reaches the same postmaster, and its stop leaves it to the first."""
    code = (
        "import sys; from pathlib import Path; from ledger.store.embedded import EmbeddedPostgres\n"
        "with EmbeddedPostgres(Path(sys.argv[1])) as server: print(server.pid)"
    )
    assert run_python(code, str(server.home)) == str(server.pid)
    assert is_up(server.dsn)


def test_last_user_stops_a_server_that_others_started(base: Path) -> None:
    """The starter's stop leaves a used server alone; the last user's stop ends it."""
    starter, guest = EmbeddedPostgres(base / "kept"), EmbeddedPostgres(base / "kept")
    dsn = starter.start()
    guest.start()
    starter.stop()
    assert is_up(dsn)
    guest.stop()
    assert not is_up(dsn)


def test_killed_user_leaves_a_server_that_the_next_start_takes_over(base: Path) -> None:
    """The server of a process killed with -9 keeps running; who attaches last stops it."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from ledger.store.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1])); server.start()\n"
        "print(server.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(base / "kept")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        first = int(process.communicate(timeout=60)[0])
    heir = EmbeddedPostgres(base / "kept")
    dsn = heir.start()
    assert heir.pid == first
    heir.stop()
    assert not is_up(dsn)


def test_home_too_long_for_a_socket_path_works(base: Path) -> None:
    """A home of over 107 bytes gets a private socket folder with a short and repeatable name."""
    home = base / ("long-" + "x" * 110)
    sockets = set()
    for _ in range(2):
        with EmbeddedPostgres(home) as embedded:
            folder = Path(str(psycopg.conninfo.conninfo_to_dict(embedded.dsn)["host"]))
            sockets.add(folder)
            assert is_up(embedded.dsn)
            assert folder.stat().st_mode & 0o777 == 0o700
    assert len(sockets) == 1
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_home_that_only_root_can_enter_is_refused_with_advice(base: Path) -> None:
    """Root's private folder is refused by name, with a way out, and is not opened to anybody."""
    private = base / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(UnavailableError, match=r"cannot enter .*--home") as caught:
        EmbeddedPostgres(private / "home").start()
    assert caught.value.code == "database_unavailable"
    assert private.stat().st_mode & 0o777 == 0o700


def test_broken_start_shows_the_server_log(base: Path) -> None:
    """When the server refuses its files, the error carries its own words."""
    embedded = EmbeddedPostgres(base / "kept")
    with embedded:
        pass
    control, hidden = embedded.data_dir / "global/pg_control", base / "pg_control"
    shutil.move(control, hidden)
    with pytest.raises(UnavailableError, match="pg_control"):
        embedded.start()
    shutil.move(hidden, control)


def test_open_without_any_database_named_is_refused() -> None:
    """Neither a home nor a URL is a mistake of the caller, told as such."""
    with pytest.raises(RejectedError) as caught:
        Database.open(None)
    assert caught.value.code == "database_not_configured"


def test_dead_server_is_unavailable_and_comes_back(
    server: EmbeddedPostgres, revisions: Path
) -> None:
    """A gone server raises `UnavailableError`; the same object works once it is back."""
    assert revisions.exists()
    with Database.open(server.home) as database:
        database.check()
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(UnavailableError) as caught:
            check_until_it_fails(database)
        assert caught.value.code == "database_unavailable"
        with pytest.raises(UnavailableError):
            database.connect()
        server.start()
        database.check()


def test_unreachable_url_is_unavailable(base: Path) -> None:
    """A URL without a server behind it is refused as unavailable, with the driver's reason."""
    with pytest.raises(UnavailableError, match="did not answer"):
        Database.open(None, f"postgresql://nobody@/none?host={base}")


def test_service_role_can_only_do_what_it_was_granted(dsn: str, revisions: Path) -> None:
    """The service role inserts, and cannot update, delete, truncate, or reset to the owner."""
    assert revisions.exists()
    with Database.open(None, dsn) as database:
        with database.pool.connection() as connection:
            connection.execute("INSERT INTO t0001 VALUES (1)")
        for statement in (
            "UPDATE t0001 SET n = 2",
            "DELETE FROM t0001",
            "TRUNCATE t0001",
            "RESET ROLE; DELETE FROM t0001",
            "CREATE TABLE own (n int)",
        ):
            with (
                pytest.raises(errors.InsufficientPrivilege),
                database.pool.connection() as connection,
            ):
                connection.execute(statement.encode())
        with database.connect("owner") as owner:
            assert owner.execute("SELECT n FROM t0001").fetchall() == [(1,)]


def test_scratch_schema_takes_the_same_statements(dsn: str, revisions: Path) -> None:
    """A schema migrated beside the live one answers the same names with its own rows."""
    assert revisions.exists()
    with Database.open(None, dsn) as database:
        migrate(database.owner_dsn, schema="scratch")
        with database.connect(schema="scratch") as connection:
            connection.execute("INSERT INTO t0001 VALUES (5)")
        with database.connect() as connection:
            assert connection.execute("SELECT n FROM t0001").fetchall() == []


def test_migration_moves_an_older_database_forward(dsn: str, revisions: Path) -> None:
    """A database one revision behind gets the missing one only, and keeps its rows."""
    with Database.open(None, dsn) as database, database.connect() as connection:
        connection.execute("INSERT INTO t0001 VALUES (1)")
    add_revision(revisions, "0002", "0001")
    with Database.open(None, dsn) as database, database.connect() as connection:
        assert connection.execute("SELECT n FROM t0001").fetchall() == [(1,)]
        assert connection.execute("SELECT n FROM t0002").fetchall() == []


def test_failed_migration_changes_nothing(dsn: str, revisions: Path) -> None:
    """When the second of two revisions fails, the first is not there either."""
    add_revision(revisions, "0002", "0001")
    broken = revisions / "versions" / "0002_test.py"
    broken.write_text(broken.read_text().replace("(n int)", "(n nonsense)"))
    with pytest.raises(errors.UndefinedObject):
        migrate(dsn)
    assert rows(dsn, "SELECT to_regclass('ledger.t0001')") == [(None,)]


def test_newer_database_is_refused(dsn: str, revisions: Path) -> None:
    """A revision that this program does not know is refused, and the message says what to do."""
    migrate(dsn)
    (revisions / "versions" / "0001_test.py").unlink()
    add_revision(revisions, "0000", None)
    with pytest.raises(
        RejectedError, match=r"revision 0001\) is newer than this program"
    ) as caught:
        Database.open(None, dsn)
    assert caught.value.code == "database_newer"


def test_processes_that_start_together_migrate_once(dsn: str, revisions: Path) -> None:
    """Several processes migrating one new database at once all succeed."""
    code = (
        "import sys; from pathlib import Path; from ledger.store import database\n"
        "database._MIGRATIONS = Path(sys.argv[2]); database.migrate(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, dsn, str(revisions)]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]


def test_migrated_database_costs_no_alembic(dsn: str, revisions: Path) -> None:
    """At the last revision, migrating loads neither Alembic nor SQLAlchemy."""
    migrate(dsn)
    code = (
        "import sys; from pathlib import Path; from ledger.store import database\n"
        "database._MIGRATIONS = Path(sys.argv[2]); database.migrate(sys.argv[1])\n"
        "print('alembic' in sys.modules, 'sqlalchemy' in sys.modules)"
    )
    assert run_python(code, dsn, str(revisions)) == "False False"


@pytest.mark.parametrize(
    "error",
    [
        errors.AdminShutdown("bye"),
        errors.DiskFull("full"),
        errors.ReadOnlySqlTransaction("standby"),
        psycopg.InterfaceError("the connection is closed"),
    ],
)
def test_driver_errors_of_a_failing_server_become_unavailable(error: psycopg.Error) -> None:
    """An error that the server is to blame for becomes `UnavailableError`, with its cause kept."""
    with pytest.raises(UnavailableError) as caught, translating():
        raise error
    assert caught.value.__cause__ is error


def test_driver_errors_of_a_wrong_statement_pass_through() -> None:
    """A broken constraint is not mistaken for a failing server."""
    with pytest.raises(errors.UniqueViolation), translating():
        raise errors.UniqueViolation


def test_too_old_server_is_refused(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server below the least version is refused with the version that is needed."""
    monkeypatch.setattr(database_module, "_SERVER_VERSION_MIN", 990000)
    with pytest.raises(RejectedError, match="is too old: version 15 or newer") as caught:
        Database.open(None, dsn)
    assert caught.value.code == "database_too_old"


def test_occupied_socket_folder_of_somebody_else_is_refused(base: Path) -> None:
    """A file planted under the fallback's predictable name is not used as the socket folder."""
    embedded = EmbeddedPostgres(base / ("trap-" + "x" * 110))
    planted = Path(tempfile.gettempdir()) / embedded._cluster_name
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    try:
        with pytest.raises(UnavailableError, match="is not a private folder"):
            embedded.start()
    finally:
        planted.rmdir()


def test_socket_limit_is_that_of_the_system() -> None:
    """A path one byte above the limit that decides the fallback cannot be bound."""
    from ledger.store.embedded import _SOCKET_PATH_BYTES_MAX  # noqa: PLC0415 - only here

    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(OSError, match="too long"):
        probe.bind("/" + "x" * _SOCKET_PATH_BYTES_MAX)
