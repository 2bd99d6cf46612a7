"""`gpuledger supervise` as a process, against a real server, simulated hosts and a kill -9."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from adapters.cli.main import run
from adapters.supervise import Job, Journal, Pace, supervise
from tests.e2e.agents import Agent
from tests.e2e.serving import ROOT, Serving, books_equal_a_rebuild, wait_for

_STUCK_SECONDS: Final = 4
_SECONDS: Final = 40.0


class Supervisor:
    """One `gpuledger supervise`, its lines, and its end."""

    def __init__(self, url: str, key: str, label: str, *options: str) -> None:
        """Start it; its standard output is read on a thread."""
        self.lines: list[dict[str, Any]] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "adapters.cli.main", "supervise"),
                *("gpu_name=RTX_4090 num_gpus=1", "--server", url, "--label", label),
                *("--max-price", "4", "--unverified", "--order", "dph_total", "--json"),
                *("--stuck-minutes", f"{_STUCK_SECONDS / 60}", "--poll-seconds", "0.3", *options),
            ],
            cwd=ROOT,
            env={**os.environ, "GPULEDGER_API_KEY": key},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def actions(self) -> list[str]:
        """What it did so far."""
        return [one["action"] for one in self.lines]

    def wait_for(self, action: str) -> dict[str, Any]:
        """The first line with this action."""

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None or action in self.actions, self.errors()
            return [one for one in self.lines if one["action"] == action]

        wait_for(found, _SECONDS, f"{action} in {self.actions}")
        return found()[0]

    def errors(self) -> str:
        """What it wrote on standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it; returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, when it ended."""
        code = self.process.wait(_SECONDS)
        self._thread.join(_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        """End it whatever happened."""
        if self.process.poll() is None:
            self.process.kill()
            self.wait()
        self._errors.close()


class Hosts:
    """A server and two hosts that take bids from $0.10 and $0.20; they outlive a test."""

    def __init__(self, serving: Serving) -> None:
        """Both are listed and report when this returns."""
        self.serving = serving
        self.agents: list[Agent] = []
        self.machines: list[int] = []
        self.numbers = itertools.count(1)
        host = serving.person("hannah", "host")
        for floor in ("0.10", "0.20"):
            machine = serving.machine(host)
            self.agents.append(Agent(serving.url, machine))
            prices = {"gpu_hour": "3.60", "storage_gb_month": "0.15", "min_bid": floor}
            path = f"/v1/machines/{machine.machine}/listing"
            serving.call("PUT", path, prices, key=host)
            self.machines.append(machine.machine)
        wait_for(
            lambda: all(one.stored for one in self.agents), 20, "the first acknowledged reports"
        )

    def close(self) -> None:
        """End the hosts."""
        for agent in self.agents:
            agent.end()


class Bazaar:
    """A renter with a job, and her rival."""

    def __init__(self, hosts: Hosts) -> None:
        """Nothing is rented."""
        number = next(hosts.numbers)
        self.serving = hosts.serving
        self.machines = hosts.machines
        self.label = f"run-{number}"
        self.renter = self.serving.person(f"rita-{number}", "renter", "100")
        self.rival = self.serving.person(f"ron-{number}", "renter", "100")
        self._supervisors: list[Supervisor] = []

    def supervise(self, *options: str) -> Supervisor:
        """Start a supervisor for the renter."""
        started = Supervisor(self.serving.url, self.renter, self.label, *options)
        self._supervisors.append(started)
        return started

    def mine(self) -> list[dict[str, Any]]:
        """All that was ever rented for the job."""
        found: list[dict[str, Any]] = self.serving.call(
            "GET", f"/v1/instances?label={self.label}", key=self.renter
        )["items"]
        return found

    def states(self) -> list[tuple[int, str]]:
        """Machine and state of each, oldest first."""
        return [(one["machine_id"], one["status"]) for one in self.mine()]

    def outbid(self, machine: int) -> int:
        """The rival takes a machine."""
        wish = {"machine_id": machine, "disk_gb": 10, "bid": "3.00"}
        made: int = self.serving.call("POST", "/v1/instances", wish, key=self.rival)["instance_id"]
        return made

    def wait_until(self, states: list[tuple[int, str]]) -> None:
        """Wait until the job's instances are in these states."""
        wait_for(lambda: self.states() == states, _SECONDS, f"{states}, not {self.states()}")

    def close(self) -> None:
        """End the supervisors, and leave both machines free."""
        for one in self._supervisors:
            one.close()
        for key in (self.renter, self.rival):
            for one in self.serving.call("GET", "/v1/instances", key=key)["items"]:
                self.serving.call("DELETE", f"/v1/instances/{one['instance_id']}", key=key)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """One server and two hosts for all tests here."""
    with Serving(workers=1) as serving:
        both = Hosts(serving)
        try:
            yield both
        finally:
            both.close()


@pytest.fixture
def bazaar(hosts: Hosts) -> Iterator[Bazaar]:
    """A job of its own on free machines."""
    market = Bazaar(hosts)
    try:
        yield market
    finally:
        market.close()


def test_outbid_it_waits_then_rents_the_next_and_destroys_the_stuck_one(bazaar: Bazaar) -> None:
    """As the guides tell people to script it: relaunch on another offer when it sticks."""
    first, second = bazaar.machines
    job = bazaar.supervise()
    rented = job.wait_for("rented")
    assert (rented["machine_id"], rented["bid"]) == (first, "0.11")
    bazaar.wait_until([(first, "running")])
    began = time.monotonic()
    bazaar.outbid(first)
    job.wait_for("waits")
    job.wait_for("destroyed")
    assert time.monotonic() - began >= _STUCK_SECONDS - 1  # the server counts whole seconds
    bazaar.wait_until([(first, "destroyed"), (second, "running")])
    assert [one["machine_id"] for one in job.lines if one["action"] == "rented"] == [first, second]
    old, new = bazaar.mine()
    assert old["destroyed_at"] >= new["created_at"]
    gone = next(one for one in job.lines if one["action"] == "destroyed")
    assert gone["instance_id"] == old["instance_id"]
    assert set(gone["cost_by_item"]) <= {"gpu", "disk"}
    assert job.end() == 0
    assert job.actions[-1] == "leaves"
    assert bazaar.states() == [(first, "destroyed"), (second, "running")]
    with bazaar.serving.database() as database:
        books_equal_a_rebuild(database)


def test_killed_again_and_again_it_rents_once(bazaar: Bazaar) -> None:
    """Killed with signal 9 at any moment, the next one finds the instance and rents nothing."""
    for seconds in (0.6, 0.8, 1.0, 1.3, 1.7):
        job = bazaar.supervise()
        time.sleep(seconds)
        job.end(signal.SIGKILL)
    job = bazaar.supervise()
    wait_for(lambda: {"found", "rented"} & set(job.actions), _SECONDS, "the job to be found")
    bazaar.wait_until([(bazaar.machines[0], "running")])
    job.end(signal.SIGKILL)
    last = bazaar.supervise("--once")
    assert last.wait() == 0
    assert last.actions == ["found"]
    assert len(bazaar.mine()) == 1


class LosingWire(httpx.HTTPTransport):
    """The network, but the first answer to each kind of change never arrives."""

    def __init__(self, lost: list[str]) -> None:
        """Remember in *lost* what was lost."""
        super().__init__()
        self._lost = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Carry it out; then say that nobody answered."""
        response = super().handle_request(request)
        if "idempotency-key" in request.headers and request.method not in self._lost:
            response.read()
            response.close()
            self._lost.append(request.method)
            message = "the answer was lost"
            raise httpx.ReadTimeout(message, request=request)
        return response


def test_lost_answers_cost_nothing(bazaar: Bazaar) -> None:
    """A create and a destroy whose answers are lost are asked again, and were done once."""
    out, stop = io.StringIO(), threading.Event()
    lost: list[str] = []
    job = Job(label=bazaar.label, max_price=4 * 10**9, verified_only=False)
    for pace in (Pace(once=True), Pace(destroy_on_exit=True)):
        code = supervise(
            job,
            bazaar.serving.url,
            bazaar.renter,
            Journal(out, as_json=True),
            stop,
            pace=pace,
            transport=LosingWire(lost),
        )
        assert code == 0
        stop.set()
    assert lost == ["POST", "DELETE"]
    actions = [json.loads(line)["action"] for line in out.getvalue().splitlines()]
    assert actions.count("rented") == actions.count("destroyed") == 1
    assert actions.count("no answer") == actions.count("reachable") == 2
    assert [status for _, status in bazaar.states()] == ["destroyed"]


def test_it_outlives_the_server(bazaar: Bazaar) -> None:
    """While the server is killed and started again it waits, and rents nothing twice."""
    job = bazaar.supervise()
    job.wait_for("rented")
    bazaar.serving.kill()
    job.wait_for("no answer")
    bazaar.serving.start()
    job.wait_for("reachable")
    bazaar.wait_until([(bazaar.machines[0], "running")])
    assert job.end() == 0
    assert job.actions.count("rented") == 1
    assert len(bazaar.mine()) == 1


def test_started_before_the_server_it_waits_for_it(bazaar: Bazaar) -> None:
    """Without a server there is a line and no end; SIGINT ends it with a message and code 0."""
    bazaar.serving.kill()
    job = bazaar.supervise()
    job.wait_for("no answer")
    assert job.end(signal.SIGINT) == 0
    assert job.actions == ["no answer", "leaves"]
    bazaar.serving.start()
    assert bazaar.mine() == []


@pytest.mark.parametrize("options", [(), ("--destroy-on-exit",)])
def test_asked_to_end_it_leaves_or_destroys(bazaar: Bazaar, options: tuple[str, ...]) -> None:
    """SIGTERM leaves the job as it is, and says so; with --destroy-on-exit it is destroyed."""
    job = bazaar.supervise(*options)
    job.wait_for("running")
    assert job.end() == 0
    ((_, status),) = bazaar.states()
    assert (job.actions[-1], status) == (
        ("destroyed", "destroyed") if options else ("leaves", "running")
    )
    if not options:
        assert "goes on, at 0.112083333 an hour of running" in job.lines[-1]["message"]


def test_the_budget_ends_it(bazaar: Bazaar) -> None:
    """A dollar-an-hour job with a budget of a twentieth of a cent ends in seconds; exit code 3."""
    job = bazaar.supervise("--bid", "3.60", "--budget", "0.005")
    assert job.wait() == 3
    assert job.actions[-2:] == ["budget", "destroyed"]
    assert [status for _, status in bazaar.states()] == ["destroyed"]
    wait_for(lambda: _cost(bazaar) > 0, 20, "the charges")
    assert _cost(bazaar) < 0.012


def _cost(bazaar: Bazaar) -> float:
    return sum(float(one["gpu_charge"]) + float(one["storage_charge"]) for one in bazaar.mine())


GOOD: Final = {"--server": "http://127.0.0.1:9", "--label": "x", "--max-price": "1"}
WRONG: list[tuple[dict[str, str], str]] = [
    ({"key": ""}, "set GPULEDGER_API_KEY to the API key of a renter"),
    ({"--label": " "}, "--label: give the job a name"),
    ({"--server": "gpus.example"}, "no address such as https://"),
    ({"--max-price": "cheap"}, "'cheap' is not an amount of dollars"),
    ({"--max-price": "0"}, "the amount must be at least"),
    ({"--bid": "1", "--kind": "on_demand"}, "--bid goes with"),
    ({"--env": "NO_SUCH_VARIABLE_HERE"}, "it is not set here"),
    ({"--launch": "/nonexistent/launch.json"}, "launch.json"),
    ({"--launch": "/dev/null"}, "--launch /dev/null"),
    ({"--disk": "0"}, "--disk"),
    ({"--order": "gpu_name", "conditions": "gpu_name"}, "is no condition such as num_gpus>=2"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_wrong_usage_starts_nothing(
    options: dict[str, str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 2 and one line; nothing is asked of any server."""
    given = {**GOOD, **options}
    monkeypatch.setenv("GPULEDGER_API_KEY", given.pop("key", "glk_x_y"))
    conditions = given.pop("conditions", "num_gpus=1")
    words = [word for option in given.items() for word in option]
    code = run(["supervise", conditions, *words])
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert told in shown.err
    assert shown.err.count("\n") == 1
