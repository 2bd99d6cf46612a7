"""The real agent as a process on its own folder, with instances as processes: killed, run again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.hostagent.control import call
from adapters.hostagent.home import AgentHome
from adapters.hostagent.runtime.process import ProcessRuntime
from ledger.domain.ids import usage_stream
from ledger.domain.usage import UsageReport, decode_stored
from ledger.errors import LedgerError
from ledger.store.database import Connection
from tests.e2e.serving import ROOT, wait_for

_SECONDS: Final = 30.0
_START_SECONDS: Final = 180.0


class HostAgent:
    """`gpuledger agent` in processes of its own; the folder outlives them."""

    def __init__(
        self,
        url: str,
        token: str,
        gpus: int = 1,
        *,
        driver: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        report_seconds: int = 1,
    ) -> None:
        """Enrol with *token* at *url*.

        Args:
            url: Where the server is.
            token: The one-time token.
            gpus: How many GPUs to pretend.
            driver: Environment in which a driver's library is found; the agent then asks it for
                its GPUs instead of pretending.
            options: Further words for `gpuledger agent run`.
            report_seconds: Seconds in a report.
        """
        self._options = ("--report-seconds", str(report_seconds), *options)
        self._environment = {**os.environ, **(driver or {})}
        self._folder = Path(tempfile.mkdtemp(prefix="gl-agent-"))
        self._folder.chmod(0o711)  # instances run as users of their own and must pass
        self.home = AgentHome(self._folder / "state")
        self._errors = self._folder / "agent.log"
        pretend = () if driver else ("--simulated-gpus", str(gpus))
        answer = self.cli("enrol", "--server", url, "--token", token, *pretend, "--json")
        self.machine: int = msgspec.json.decode(answer.stdout)["machine"]
        self.process: subprocess.Popen[bytes] | None = None

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One `gpuledger agent` command, to its end."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "adapters.cli.main", "agent"),
                *arguments,
                *("--state", str(self.home.folder)),
            ],
            cwd=ROOT,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done

    def start(self) -> None:
        """Run the agent; returns when it answers on its socket."""
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "adapters.cli.main", "agent", "run"),
                    *("--runtime", "process", "--metrics-port", "0"),
                    *("--instance-user", "own" if _others_may_run(sys.executable) else "agent"),
                    *("--state", str(self.home.folder)),
                    *self._options,
                ],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        wait_for(self._answers, _START_SECONDS, f"the agent to answer:\n{self.log()}")

    def kill(self) -> None:
        """`kill -9`; its instances go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(_SECONDS)

    def status(self) -> dict[str, Any]:
        """What the agent says of itself."""
        found: dict[str, Any] = call(self.home.socket, "status")
        return found

    def state(self, instance: int) -> str | None:
        """The state of one instance, as the agent sees it."""
        for one in self.status()["instances"]:
            if one["instance"] == instance:
                return str(one["state"])
        return None

    def runtime(self) -> ProcessRuntime:
        """The same instances, seen without the agent."""
        return ProcessRuntime(self.home.instances)

    def disk(self, instance: int) -> Path:
        """The working folder of an instance."""
        return self.home.instances / str(instance) / "disk"

    def epoch(self) -> str:
        """The epoch of its spool."""
        with contextlib.closing(sqlite3.connect(self.home.spool_file)) as database:
            row = database.execute("SELECT value FROM state WHERE name = 'epoch'").fetchone()
            return bytes(row[0]).decode()

    def sealed(self) -> int:
        """The number of the last report that was sealed."""
        with contextlib.closing(sqlite3.connect(self.home.spool_file)) as database:
            row = database.execute("SELECT seq FROM sqlite_sequence").fetchone()
            return int(row[0])

    def dead_letters(self) -> list[Any]:
        """What the server refused."""
        with contextlib.closing(sqlite3.connect(self.home.spool_file)) as database:
            return database.execute("SELECT seq, code, reason FROM dead_letters").fetchall()

    def log(self) -> str:
        """The last lines of its standard error."""
        if not self._errors.exists():
            return ""
        return "\n".join(self._errors.read_text(errors="replace").splitlines()[-30:])

    def close(self) -> None:
        """End the agent and every instance, and remove the files."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        runtime = self.runtime()
        for one in runtime.list():
            runtime.remove(one.id)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            self.status()
        except LedgerError:
            return False
        return True


def stored_reports(connection: Connection, agent: HostAgent) -> list[UsageReport]:
    """What the server holds of the agent's stream; every row is a good report, in sequence."""
    rows = connection.execute(
        "SELECT version, topic, state FROM events WHERE stream_id = %s ORDER BY version, position",
        [usage_stream(agent.machine, agent.epoch())],
    ).fetchall()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert {row[1] for row in rows} <= {"usage.reported.v1"}, [
        (row[0], row[1]) for row in rows if row[1] != "usage.reported.v1"
    ]
    return [decode_stored(bytes(row[2])) for row in rows]


def seconds_of(reports: list[UsageReport], instance: int) -> list[int]:
    """Every second in which *instance* ran, in the order of the reports; twice if it is twice."""
    return [
        one.start + offset
        for report in reports
        for one in report.instances
        if one.instance == instance
        for offset, state in enumerate(
            state for state, seconds in one.state for _ in range(seconds)
        )
        if state == "running"
    ]


def until(condition: Callable[[], object], what: str, seconds: float = _SECONDS) -> float:
    """Wait for *condition*, which may fail while an agent is away."""

    def holds() -> object:
        with contextlib.suppress(LedgerError, OSError):
            return condition()
        return False

    return wait_for(holds, seconds, what)


def pids_of(marker: str) -> list[int]:
    """Every process whose environment holds *marker*."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if marker.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def _others_may_run(program: str) -> bool:
    """Whether a user of no rights may start *program*: no folder on its way is closed."""
    path = Path(program).resolve()
    return all(one.stat().st_mode & 0o001 for one in [path, *path.parents, *Path(program).parents])
