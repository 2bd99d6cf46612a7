"""ING-03 on the agent's side: kill -9 of agent or server, and a network that loses and repeats.

At the end the server holds every second that the agent sealed, exactly once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.hostagents import HostAgent, seconds_of, stored_reports, until
from tests.e2e.serving import Serving, books_equal_a_rebuild, wait_until_folded
from tests.support.fault_proxy import FAULTS, FaultProxy

LAUNCH = {"onstart": "while true; do sleep 0.2; done"}
PATIENCE = 180.0
SHARE = 0.5
"""Of the agent's requests that are cut, delayed, repeated, or lose their answer."""


class Place:
    """A server behind a bad network, and an agent with a running instance."""

    def __init__(self, seed: int) -> None:
        """Start everything; the network misbehaves as soon as the instance runs."""
        self.chance = random.Random(seed)  # noqa: S311 - when to kill, not a secret
        self.away_seconds = 0.0
        """How long there was no agent."""
        with contextlib.ExitStack() as started:
            self.serving = started.enter_context(Serving(workers=1))
            host = self.serving.person("hannah", "host")
            self.renter = self.serving.person("rita", "renter", "100")
            machine = self.serving.machine(host)
            self.proxy = FaultProxy(self.serving.port, random.Random(seed + 1))  # noqa: S311
            started.callback(self.proxy.close)
            self.agent = HostAgent(self.proxy.url, machine.token)
            started.callback(self.agent.close)
            self.agent.start()
            self.serving.list_machine(machine)
            until(lambda: self.agent.status()["last_answer_seconds_ago"] is not None, "an answer")
            wish = {"machine_id": machine.machine, "disk_gb": 10, "launch": LAUNCH}
            made = self.serving.call("POST", "/v1/instances", wish, key=self.renter)
            self.instance: int = made["instance_id"]
            until(lambda: self.agent.state(self.instance) == "running", "the instance to run")
            self._started = started.pop_all()
        self.proxy.share = SHARE

    def close(self) -> None:
        """End everything."""
        self._started.close()

    def crash_agent(self) -> None:
        """Kill the agent at a random moment, and run it again."""
        time.sleep(self.chance.random() * 2)
        began = time.monotonic()
        self.agent.kill()
        self.agent.start()
        self.away_seconds += time.monotonic() - began

    def crash_server(self) -> None:
        """Kill the server with all its processes at a random moment, and start it again."""
        time.sleep(self.chance.random() * 2)
        self.serving.kill()
        self.serving.start()

    def settle(self, kills_of_agent: int) -> None:
        """Let everything arrive, and compare what the agent sealed with what the server holds."""
        agent = self.agent
        until(
            lambda: agent.state(self.instance) == "running",
            "the instance to be seen again",
            PATIENCE,
        )
        time.sleep(1.5)
        self.proxy.share = 0.0
        until(lambda: agent.status()["spool"]["waiting"] <= 1, "the spool to empty", PATIENCE)
        assert agent.stop() == 0
        sealed = agent.sealed()
        agent.start()
        until(
            lambda: agent.status()["spool"]["acknowledged"] >= sealed, "the last report", PATIENCE
        )
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
        # A kill costs what was not sealed yet and the time without an agent, and no more; on a busy
        # machine an agent may not get to look into every second.
        span = ran[-1] - ran[0] + 1
        assert span - len(ran) <= self.away_seconds + 4 * kills_of_agent + span // 10
        billed = self.serving.call("GET", f"/v1/instances/{self.instance}", key=self.renter)
        assert billed["gpu_seconds"] >= len(ran) - 1


def long(kills: int) -> Any:
    """The long run of so many kills, or of `GPULEDGER_SOAK_PERCENT` of them."""
    percent = int(os.environ.get("GPULEDGER_SOAK_PERCENT", "100"))
    return pytest.param(max(1, kills * percent // 100), marks=pytest.mark.soak)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Give a place whose moments are those of the test's name."""
    one = Place(len(request.node.name))
    yield one
    one.close()


@pytest.mark.parametrize("kills", [3, long(200)])
def test_killing_the_agent_loses_and_doubles_nothing(place: Place, kills: int) -> None:
    """Whatever was sealed before a kill -9 is at the server once, and the instance goes on."""
    (before,) = place.agent.runtime().list()
    for _ in range(kills):
        place.crash_agent()
    (after,) = place.agent.runtime().list()
    assert (after.pid, after.started_at) == (before.pid, before.started_at)
    place.settle(kills)


@pytest.mark.parametrize("kills", [2, long(50)])
def test_killing_the_server_loses_and_doubles_nothing(place: Place, kills: int) -> None:
    """Reports outlive the server's death in the spool, and every fault of the network."""
    for _ in range(kills):
        place.crash_server()
    until(lambda: all(place.proxy.done[fault] for fault in FAULTS), "every kind of fault", PATIENCE)
    place.settle(0)
