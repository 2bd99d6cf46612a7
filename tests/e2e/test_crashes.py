"""ING-03: what was acknowledged is in the log exactly once, whatever is killed and whenever.

ING-02: every stored second is then billed or shown as an anomaly; a count compares the two.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.agents import Agent, Flood
from tests.e2e.serving import (
    Serving,
    books_equal_a_rebuild,
    gap_free,
    stored_once,
    wait_for,
    wait_until_folded,
)

SOAK_ROUNDS = 20
_FLOOD_SECONDS = 60
_STRANGER = 10**6
"""The instance that a flood attests, and that nobody ever rented."""


class Marketplace:
    """A server with a running rental on one machine and a flood of reports from another."""

    def __init__(self) -> None:
        """Start everything and wait until the rental runs."""
        self.serving = Serving()
        self.recovery_seconds: list[float] = []
        self.agent: Agent | None = None
        self.flood: Flood | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        serving = self.serving
        serving.start()
        host_key = serving.person("hannah", "host")
        self.renter = serving.person("rita", "renter", "100")
        machine = serving.machine(host_key)
        self.agent = agent = Agent(serving.url, machine)
        serving.list_machine(machine)
        wait_for(lambda: agent.stored, 10, "the first acknowledged report")
        wish = {"machine_id": machine.machine, "disk_gb": 10}
        self.instance = serving.call("POST", "/v1/instances", wish, key=self.renter)["instance_id"]
        self.flood = Flood(serving, serving.machine(host_key))

    def close(self) -> None:
        """End everything."""
        if self.flood is not None:
            self.flood.close()
        if self.agent is not None:
            self.agent.end()
        self.serving.close()

    def crash(self, chance: random.Random, kill: Callable[[Serving], None]) -> None:
        """Kill something in the middle of ingest, wait for the recovery and send everything again.

        The seconds from the kill to the next acknowledged report are kept.
        """
        flood = self.flood
        assert flood is not None
        flood.begin()
        before = len(flood.stored)
        wait_for(lambda: len(flood.stored) >= before + 20, 20, "acknowledged reports")
        time.sleep(chance.random() / 2)
        failures = len(flood.failures)
        began = time.monotonic()
        kill(self.serving)
        wait_for(lambda: len(flood.failures) > failures, 20, "a request to fail")
        acknowledged = len(flood.stored)
        wait_for(
            lambda: len(flood.stored) > acknowledged or flood.surprises,
            60,
            "the next acknowledged report",
        )
        assert flood.surprises == []
        self.recovery_seconds.append(time.monotonic() - began)
        flood.end()
        # No answer at all, or "later": nothing that a host could take for a verdict.
        assert {error.detail["status"] for error in flood.failures} <= {None, 503}
        self._compare()

    def _compare(self) -> None:
        """Assert that the log holds what was acknowledged once, before and after a repeat."""
        flood = self.flood
        assert flood is not None
        with self.serving.database() as database:
            with database.connect() as connection:
                gap_free(connection)
                connection.commit()
                stored = connection.execute(
                    "SELECT version, position FROM events WHERE stream_id = %s", [flood.stream]
                ).fetchall()
                connection.commit()
                positions: dict[int, int] = dict(stored)
                assert len(stored) == len(positions)
                assert flood.stored.keys() <= positions.keys()
                for seq, answer in flood.stored.items():
                    assert answer.position in {None, positions[seq]}
                flood.resend()
                stored_once(connection, flood.stream, flood.bodies)
                connection.commit()
            books_equal_a_rebuild(database)

    def tell(self) -> None:
        """Print how long each recovery took; `pytest -rP` shows it."""
        print("seconds to recover:", *(f"{one:.2f}" for one in self.recovery_seconds))

    def settle(self) -> None:
        """End the agent and assert that its books and the flood's are complete."""
        agent, flood = self.agent, self.flood
        assert agent is not None
        assert flood is not None
        self.serving.call("DELETE", f"/v1/instances/{self.instance}", key=self.renter)
        agent.end()
        assert agent.alarms == []
        assert agent.spool.dead_letters == []
        with self.serving.database() as database:
            with database.connect(autocommit=True) as connection:
                stored_once(connection, agent.stream, agent.bodies)
                stored_once(connection, flood.stream, flood.bodies)
                wait_until_folded(database)
                row = connection.execute(
                    "SELECT sum(until - start) FROM anomalies WHERE instance_id = %s", [_STRANGER]
                ).fetchone()
                assert row == (len(flood.sealed) * _FLOOD_SECONDS,)
            books_equal_a_rebuild(database)
        shown = self.serving.call("GET", f"/v1/instances/{self.instance}", key=self.renter)
        assert shown["gpu_seconds"] > 0


@pytest.fixture
def place() -> Iterator[Marketplace]:
    """Give a marketplace at work."""
    one = Marketplace()
    yield one
    one.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Give a server that nobody uses."""
    with Serving() as one:
        yield one


def kill_workers(serving: Serving) -> None:
    """Kill the processes that answer; their parent starts others."""
    for pid in serving.workers():
        os.kill(pid, signal.SIGKILL)


def kill_all(serving: Serving) -> None:
    """Kill the program with all its processes, and start it again."""
    serving.kill()
    serving.start()


def kill_parent(serving: Serving) -> None:
    """Kill the program's first process only, and start it again at once."""
    assert serving.process is not None
    serving.process.kill()
    serving.process.wait()
    serving.start()


def kill_database(serving: Serving) -> None:
    """Kill the database server; the program starts it again by itself."""
    serving.kill_database()


def kill_everything(serving: Serving) -> None:
    """Kill the database server and the program with all its processes, and start it again."""
    serving.kill_database()
    serving.kill()
    serving.start()


ROUNDS = [
    pytest.param([kill_workers, kill_all], id="program"),
    pytest.param([kill_database, kill_everything], id="database"),
]


@pytest.mark.parametrize("kills", ROUNDS)
def test_acknowledged_reports_survive_a_kill(
    place: Marketplace, kills: list[Callable[[Serving], None]]
) -> None:
    """No acknowledged report is lost or doubled by kill -9, and the books equal a rebuild."""
    chance = random.Random(20270101)  # noqa: S311 - when to kill, not a secret
    for kill in kills:
        place.crash(chance, kill)
    place.settle()
    place.tell()


def test_dead_database_is_said_and_nothing_is_promised(serving: Serving) -> None:
    """While the database is down every request is answered 503, and recovers without a restart."""
    os.kill(serving.background(), signal.SIGSTOP)  # nobody starts the database again
    stopped = serving.background()
    try:
        serving.kill_database(wait=True)
        requests = [
            ("GET", "/v1/balance", None),
            ("POST", "/v1/accounts", {"name": "never"}),
            ("GET", "/readyz", None),
        ]
        with ThreadPoolExecutor(len(requests)) as clients:
            answers = list(clients.map(lambda request: serving.request(*request), requests))
        assert [answer.status_code for answer in answers] == [503, 503, 503]
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert {answer.json()["code"] for answer in answers} == {"database_unavailable"}
        assert serving.request("GET", "/healthz").status_code == 200
    finally:
        os.kill(stopped, signal.SIGCONT)
    serving.wait_until_ready()
    names = [one["name"] for one in serving.call("GET", "/v1/accounts")["items"]]
    assert "never" not in names
    assert serving.call("POST", "/v1/accounts", {"name": "never"})["name"] == "never"


@pytest.mark.soak
@pytest.mark.parametrize(
    "kill", [kill_workers, kill_all, kill_parent, kill_database, kill_everything]
)
def test_twenty_kills_lose_nothing(place: Marketplace, kill: Callable[[Serving], None]) -> None:
    """Twenty kill -9 in a row at twenty moments of ingest lose and double nothing."""
    chance = random.Random(kill.__name__)  # noqa: S311 - when to kill, not a secret
    for _ in range(SOAK_ROUNDS):
        place.crash(chance, kill)
    place.settle()
    place.tell()
