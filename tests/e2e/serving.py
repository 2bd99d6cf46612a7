"""The real program in processes of its own, on a fresh home: started, killed, started again."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import httpx

from ledger.domain.usage import body_hash
from ledger.projections.rebuild import RebuildResult, check
from ledger.store.database import Connection, Database
from ledger.store.embedded import EmbeddedPostgres

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 180.0
"""On a busy machine a start takes its time; nothing waits longer than it must."""
STOP_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.05
_BUSY: Final = 6
"""So many times as long as on a quiet machine something may take on a busy one."""
_OK: Final = 200


class HostMachine(NamedTuple):
    """A listed machine that waits for its agent."""

    machine: int
    token: str
    host_key: str


class Serving:
    """One `gpuledger serve` on a free port; the port and the home outlive its processes."""

    def __init__(
        self, home: Path | None = None, *, workers: int = 2, is_untouched: bool = False
    ) -> None:
        """Choose a port, and a new home unless *home* is given; nothing is started.

        Args:
            home: A folder that stays.
            workers: Processes that answer; two, as the product has them, unless one will do.
            is_untouched: Whether a new home is left for the program to fill; a database without a
                row is there already otherwise, for making one takes longer than most tests.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="gl-e2e-"))
        self._folder.chmod(0o755)  # a server started by root runs as a user of its own
        self._owns_home = home is None
        self.home = home or self._folder / "home"
        self._workers = workers
        if not is_untouched and not self.home.exists():
            _copy(_prepared_home(), self.home)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin_key = ""
        self.http = httpx.Client(timeout=15)
        self.process: subprocess.Popen[bytes] | None = None
        self.outputs: list[str] = []
        """What each finished or running start printed on standard output, oldest first."""
        self._log = self._folder / "serve.log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- processes -------------------------------------------------------------------------------

    def start(self) -> float:
        """Start the program and wait until it is ready; returns the seconds that took."""
        began = time.monotonic()
        self.launch()
        self.wait_until_ready(began)
        return time.monotonic() - began

    def launch(self) -> None:
        """Start the program without waiting."""
        assert self.process is None or self.process.poll() is not None
        output = self._folder / f"serve-{len(self.outputs)}.out"
        self.outputs.append("")
        environment = {**os.environ, "GPULEDGER_SHARED_BUFFERS": "128MB"}
        environment.pop("GPULEDGER_DATABASE_URL", None)
        with output.open("wb") as stdout, self._log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "adapters.cli.main", "serve"),
                    *("--home", str(self.home), "--port", str(self.port)),
                    *("--workers", str(self._workers)),
                ],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def wait_until_ready(self, began: float | None = None) -> float:
        """Wait for `/readyz`; returns the seconds since *began*, a monotonic time."""
        began = time.monotonic() if began is None else began
        while time.monotonic() - began < START_SECONDS:
            self._read_output()
            assert self.process is not None
            code = self.process.poll()
            assert code is None, f"the server ended with {code}:\n{self.log()}"
            with contextlib.suppress(httpx.HTTPError):
                if self.http.get(self.url + "/readyz", timeout=3).status_code == _OK:
                    self._read_output()
                    return time.monotonic() - began
            time.sleep(_POLL_SECONDS)
        message = f"the server was not ready after {START_SECONDS} s:\n{self.log()}"
        raise AssertionError(message)

    def log(self) -> str:
        """The last lines of standard error."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def processes(self) -> dict[int, str]:
        """Every living process that this program started, itself first, with its command line."""
        assert self.process is not None
        return _family(self.process.pid)

    def workers(self) -> list[int]:
        """The processes that answer HTTP requests."""
        assert self.process is not None
        return [
            pid
            for pid, command in self.processes().items()
            if pid != self.process.pid and "cli.main" in command
        ]

    def background(self) -> int:
        """The process that folds usage and runs the policies."""
        (pid,) = [pid for pid, command in self.processes().items() if "-m adapters.main" in command]
        return pid

    def kill(self) -> None:
        """`kill -9` of the program with all its processes; the database server is left alone."""
        assert self.process is not None
        pids = list(self.processes())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: not any(map(_exists, pids)), 10, "killed processes to end")

    def postmaster(self) -> int:
        """The process id of the embedded database server."""
        return int((self.home / "postgres" / "postmaster.pid").read_text().split()[0])

    def kill_database(self, *, wait: bool = False) -> int:
        """`kill -9` of the embedded database server; returns the process id it had.

        Its backends find out a moment later, and finish what they are at; *wait* for their end.
        """
        pid = self.postmaster()
        pids = list(_family(pid))
        os.kill(pid, signal.SIGKILL)
        if wait:
            wait_for(lambda: not any(map(_exists, pids)), 10, "the database server to end")
        return pid

    def stop(self) -> int:
        """Ask the program to end; returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(STOP_SECONDS)
        self._read_output()
        return code

    def close(self) -> None:
        """End everything that was started here, and remove the files; a given home stays."""
        self.http.close()
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        if self._owns_home and (self.home / "postgres" / "postmaster.pid").exists():
            with EmbeddedPostgres(self.home):
                pass  # the last one out stops the server
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read_output(self) -> None:
        text = (self._folder / f"serve-{len(self.outputs) - 1}.out").read_text()
        self.outputs[-1] = text
        found = re.search(r"\bglk_\S+", text)
        if found:
            self.admin_key = found[0]

    # --- the API ---------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> httpx.Response:
        """One request in the admin's name, or that of *key*."""
        return self.http.request(
            method,
            self.url + path,
            json=body,
            headers={"Authorization": f"Bearer {key or self.admin_key}"},
        )

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """The answer of a request that must succeed."""
        answer = self.request(method, path, body, key=key)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def person(self, name: str, role: str, credit: str | None = None) -> str:
        """The key of a new account that has *credit* dollars."""
        account = self.call("POST", "/v1/accounts", {"name": name})["account_id"]
        key: str = self.call("POST", "/v1/keys", {"role": role, "account_id": account})["key"]
        if credit is not None:
            deposit = {"account_id": account, "amount": credit, "id": f"first-{name}"}
            self.call("POST", "/v1/deposits", deposit)
        return key

    def machine(self, host_key: str, gpus: int = 1) -> HostMachine:
        """A registered machine and the token with which its agent enrols."""
        spec = {
            "gpus": gpus,
            "gpu_name": "RTX 4090",
            "gpu_ram_gb": 24,
            "cpu_cores": 16,
            "ram_gb": 64,
            "disk_gb": 2_000,
            "up_mbps": 1_000,
            "down_mbps": 1_000,
        }
        machine = self.call("POST", "/v1/machines", spec, key=host_key)["machine_id"]
        path = f"/v1/machines/{machine}/enrolment-tokens"
        token = self.call("POST", path, {}, key=host_key)["token"]
        return HostMachine(machine, token, host_key)

    def list_machine(self, machine: HostMachine, gpu_hour: str = "3.60") -> None:
        """Offer an enrolled machine."""
        prices = {"gpu_hour": gpu_hour, "storage_gb_month": "0.15"}
        path = f"/v1/machines/{machine.machine}/listing"
        self.call("PUT", path, prices, key=machine.host_key)

    # --- the books -------------------------------------------------------------------------------

    def database(self) -> Database:
        """The program's own database; the caller closes it."""
        return Database.open(None, EmbeddedPostgres(self.home).dsn, migrate=False)


@functools.cache
def _prepared_home() -> Path:
    """A home whose database has its tables and nothing else, made once in each test process."""
    folder = Path(tempfile.mkdtemp(prefix="gl-e2e-home-"))
    folder.chmod(0o755)  # a server started by root runs as a user of its own
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    home = folder / "home"
    Database.open(home, "").close()
    return home


def _copy(source: Path, home: Path) -> None:
    """Copy the database of a home that nobody uses, with owners and rights."""
    home.mkdir()
    home.chmod(0o711)
    subprocess.run(["/bin/cp", "-a", str(source / "postgres"), str(home)], check=True)


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until *condition* is true; returns the seconds that took.

    Args:
        condition: What is waited for.
        seconds: How long that takes on a quiet machine at most; a busy one is given more.
        what: Its name, for whoever waited in vain.
    """
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds * _BUSY, f"waited {seconds * _BUSY} s for {what}"
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - began


def stored_once(connection: Connection, stream: str, bodies: Sequence[bytes]) -> None:
    """Assert that versions 1, 2, 3 … of *stream* are exactly *bodies*, each once."""
    rows = connection.execute(
        "SELECT version, state FROM events WHERE stream_id = %s ORDER BY version, position",
        [stream],
    ).fetchall()
    assert [row[0] for row in rows] == list(range(1, len(bodies) + 1))
    assert [body_hash(bytes(row[1])) for row in rows] == [body_hash(body) for body in bodies]


def gap_free(connection: Connection) -> None:
    """Assert that each event begins at the position after the last one's, from 1 to the head."""
    row = connection.execute(
        "SELECT count(*) FROM (SELECT position,"
        " lag(position + count, 1, 1::bigint) OVER (ORDER BY position) AS expected FROM events)"
        " AS neighbours WHERE position <> expected"
    ).fetchone()
    assert row == (0,)
    row = connection.execute(
        "SELECT (SELECT next FROM log_position)"
        " - coalesce((SELECT max(position + count) FROM events), 1)"
    ).fetchone()
    assert row == (0,)


def books_equal_a_rebuild(database: Database) -> RebuildResult:
    """Rebuild everything beside the live tables and assert that not a byte differs."""
    with database.connect() as connection:
        gap_free(connection)
        connection.commit()
    result = check(database)
    different = [table for table in result.tables if not table.equal]
    assert not different, different
    assert result.equal
    return result


def wait_until_folded(database: Database) -> float:
    """Wait until the server has folded the whole log; returns the seconds that took."""
    with database.connect(autocommit=True) as connection:
        query = (
            "SELECT position >= (SELECT max(position) FROM events) FROM projection_positions"
            " WHERE name = 'usage'"
        )
        return wait_for(
            lambda: connection.execute(query).fetchone() == (True,), 20, "the projection"
        )


def _family(first: int) -> dict[int, str]:
    """The living processes of *first* and all that it started, with their command lines."""
    found: dict[int, str] = {}
    wanted = [first]
    while wanted:
        pid = wanted.pop(0)
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if command:
                found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
            for thread in Path(f"/proc/{pid}/task").iterdir():
                wanted += [int(one) for one in (thread / "children").read_text().split()]
    return found


def _exists(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes() != b""
    except OSError:
        return False
