"""ING-03 on the agent's side: kill -9 of agent or server, and a network that loses and repeats.

At the end the server holds every second that the agent sealed, exactly once.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from tests.e2e.hostagents import HostAgent, seconds_of, stored_reports, until
from tests.e2e.serving import Serving, books_equal_a_rebuild, wait_until_folded
from tests.support.fault_proxy import FAULTS, FaultProxy

LAUNCH = {"onstart": "while true; do sleep 0.2; done"}
SHARE = 0.5
"""Of the agent's requests that are cut, delayed, repeated, or lose their answer."""


class Place:
    """A server behind a bad network, and an agent with a running instance."""

    def __init__(self, seed: int) -> None:
        """Start everything; the network misbehaves as soon as the instance runs."""
        self.chance = random.Random(seed)  # noqa: S311 - when to kill, not a secret
        self.serving = Serving(workers=1)
        self.serving.start()
        host = self.serving.person("hannah", "host")
        self.renter = self.serving.person("rita", "renter", "100")
        machine = self.serving.machine(host)
        self.proxy = FaultProxy(self.serving.port, random.Random(seed + 1))  # noqa: S311
        self.agent = HostAgent(self.proxy.url, machine.token)
        self.agent.start()
        self.serving.list_machine(machine)
        until(lambda: self.agent.status()["last_answer_seconds_ago"] is not None, "an answer")
        wish = {"machine_id": machine.machine, "disk_gb": 10, "launch": LAUNCH}
        self.instance: int = self.serving.call("POST", "/v1/instances", wish, key=self.renter)[
            "instance_id"
        ]
        until(lambda: self.agent.state(self.instance) == "running", "the instance to run")
        self.proxy.share = SHARE

    def close(self) -> None:
        """End everything."""
        self.agent.close()
        self.proxy.close()
        self.serving.close()

    def crash_agent(self) -> None:
        """Kill the agent at a random moment, and run it again."""
        time.sleep(self.chance.random() * 2)
        self.agent.kill()
        self.agent.start()

    def crash_server(self) -> None:
        """Kill the server with all its processes at a random moment, and start it again."""
        time.sleep(self.chance.random() * 2)
        self.serving.kill()
        self.serving.start()

    def settle(self, kills_of_agent: int) -> None:
        """Let everything arrive, and compare what the agent sealed with what the server holds."""
        agent = self.agent
        until(lambda: agent.state(self.instance) == "running", "the instance to be seen again")
        time.sleep(1.5)
        self.proxy.share = 0.0
        until(lambda: agent.status()["spool"]["waiting"] <= 1, "the spool to empty", 60)
        assert agent.stop() == 0
        sealed = agent.sealed()
        agent.start()
        until(lambda: agent.status()["spool"]["acknowledged"] >= sealed, "the last report", 60)
        assert agent.dead_letters() == []
        with self.serving.database() as database:
            with database.connect(autocommit=True) as connection:
                wait_until_folded(database)
                reports = stored_reports(connection, agent)
                shown = connection.execute(
                    "SELECT coalesce(sum(until - start), 0) FROM anomalies"
                ).fetchone()
            assert shown == (0,)
            books_equal_a_rebuild(database)
        assert len(reports) >= sealed
        assert all(one.until <= after.start for one, after in itertools.pairwise(reports))
        ran = seconds_of(reports, self.instance)
        assert len(ran) == len(set(ran))
        # A kill costs what was not sealed yet and the start of the next agent, and no more.
        assert len(ran) >= ran[-1] - ran[0] + 1 - 8 * kills_of_agent
        billed = self.serving.call("GET", f"/v1/instances/{self.instance}", key=self.renter)
        assert billed["gpu_seconds"] >= len(ran) - 1


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Give a place whose moments are those of the test's name."""
    one = Place(len(request.node.name))
    yield one
    one.close()


@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_killing_the_agent_loses_and_doubles_nothing(place: Place, kills: int) -> None:
    """Whatever was sealed before a kill -9 is at the server once, and the instance goes on."""
    (before,) = place.agent.runtime().list()
    for _ in range(kills):
        place.crash_agent()
    (after,) = place.agent.runtime().list()
    assert (after.pid, after.started_at) == (before.pid, before.started_at)
    place.settle(kills)


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_killing_the_server_loses_and_doubles_nothing(place: Place, kills: int) -> None:
    """Reports outlive the server's death in the spool, and every fault of the network."""
    for _ in range(kills):
        place.crash_server()
    until(lambda: all(place.proxy.done[fault] for fault in FAULTS), "every kind of fault", 60)
    place.settle(0)
