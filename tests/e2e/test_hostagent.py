"""The real agent against a real server: it obeys within seconds, and tells what it did."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.hostagents import HostAgent, pids_of, until
from tests.e2e.serving import HostMachine, Serving

SLEEP = {"onstart": "echo began >> log; exec sleep 1000"}


class Place:
    """A server, one machine that takes bids, its agent, and two renters."""

    def __init__(self) -> None:
        """Start everything."""
        self.serving = Serving(workers=1)
        self.serving.start()
        self.host = self.serving.person("hannah", "host")
        self.rita = self.serving.person("rita", "renter", "100")
        self.otto = self.serving.person("otto", "renter", "100")
        self.machine: HostMachine = self.serving.machine(self.host)
        self.agent = HostAgent(self.serving.url, self.machine.token)
        self.agent.start()
        self.serving.call(
            "PUT",
            f"/v1/machines/{self.machine.machine}/listing",
            {"gpu_hour": "3.60", "storage_gb_month": "0.15", "min_bid": "0.10"},
            key=self.host,
        )
        until(lambda: self.agent.status()["last_answer_seconds_ago"] is not None, "a first answer")

    def close(self) -> None:
        """End everything."""
        self.agent.close()
        self.serving.close()

    def rent(self, key: str, bid: str | None = None, **launch: Any) -> int:
        """Rent the machine; returns the instance."""
        wish: dict[str, Any] = {
            "machine_id": self.machine.machine,
            "disk_gb": 10,
            "launch": launch or SLEEP,
        }
        if bid is not None:
            wish["bid"] = bid
        instance: int = self.serving.call("POST", "/v1/instances", wish, key=key)["instance_id"]
        return instance

    def shown(self, instance: int) -> dict[str, Any]:
        """The instance as the server shows it."""
        found: dict[str, Any] = self.serving.call("GET", f"/v1/instances/{instance}")
        return found

    def runs(self, instance: int) -> bool:
        """Whether the server holds it for running."""
        return bool(self.shown(instance)["status"] == "running")


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    """One place for all tests of this file; each leaves its machine free."""
    one = Place()
    yield one
    one.close()


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """Give the place, and destroy what a test left."""
    yield shared
    for one in shared.serving.call("GET", "/v1/instances")["items"]:
        if one["status"] != "destroyed":
            shared.serving.call("DELETE", f"/v1/instances/{one['instance_id']}?reason=test")
    until(lambda: not shared.agent.runtime().list(), "the machine to be empty")


def test_an_instance_runs_on_the_machine_and_is_billed_for_it(place: Place) -> None:
    """A rental starts a process with its environment, is confirmed, and costs seconds."""
    began = time.monotonic()
    instance = place.rent(
        place.rita, onstart='echo "$SECRET" > seen; exec sleep 1000', env={"SECRET": "tulip"}
    )
    until(lambda: place.runs(instance), "the instance to run")
    assert time.monotonic() - began < 30
    until(lambda: (place.agent.disk(instance) / "seen").read_text() == "tulip\n", "its output")
    until(lambda: place.shown(instance)["gpu_seconds"] >= 2, "billed seconds")
    assert "tulip" not in place.agent.log()


def test_displacement_kills_within_two_seconds_and_keeps_the_disk(place: Place) -> None:
    """An outbid instance is dead at most 2 s after the decision; outbidding back resumes it."""
    low = place.rent(place.rita, bid="0.20", env={"MARK": f"low{time.time_ns()}"}, **SLEEP)
    until(lambda: place.runs(low), "the low bid to run")
    until((place.agent.disk(low) / "log").exists, "its first line")
    (found,) = place.agent.runtime().list()
    assert found.pid is not None
    high = place.rent(place.otto, bid="0.50")
    decided = time.monotonic()
    until(lambda: _state(place, low) == "exited", "the loser to be dead", 10)
    assert time.monotonic() - decided < 2.0
    until(lambda: place.runs(high), "the high bid to run")
    assert place.shown(low)["status"] == "scheduling"
    place.serving.call("DELETE", f"/v1/instances/{high}", key=place.otto)
    until(lambda: place.runs(low), "the loser to resume")
    until(
        lambda: (place.agent.disk(low) / "log").read_text() == "began\nbegan\n", "its second line"
    )


def assignment(place: Place, instance: int) -> int | None:
    """The assignment that the running processes were started under."""
    found = place.agent.runtime().inspect(str(instance))
    return None if found is None else found.assignment


def _state(place: Place, instance: int) -> str | None:
    found = place.agent.runtime().inspect(str(instance))
    return None if found is None else found.state


def test_stop_keeps_the_disk_and_destroy_deletes_it(place: Place) -> None:
    """A stopped instance leaves its files; a destroyed one leaves nothing and no process."""
    marker = f"mark{time.time_ns()}"
    instance = place.rent(place.rita, env={"MARK": marker}, **SLEEP)
    until(lambda: place.runs(instance), "the instance to run")
    assert pids_of(marker)
    place.serving.call("POST", f"/v1/instances/{instance}/stop", key=place.rita)
    until(lambda: _state(place, instance) == "exited", "the stop")
    assert (place.agent.disk(instance) / "log").exists()
    assert pids_of(marker) == []
    place.serving.call("DELETE", f"/v1/instances/{instance}", key=place.rita)
    until(lambda: not place.agent.disk(instance).parent.exists(), "the disk to go")


def test_a_reboot_restarts_in_place_and_the_instance_stays_running(place: Place) -> None:
    """A reboot runs the command again on the same disk under the same assignment."""
    instance = place.rent(place.rita, **SLEEP)
    until(lambda: place.runs(instance), "the instance to run")
    place.serving.call("POST", f"/v1/instances/{instance}/reboot", key=place.rita)
    log = place.agent.disk(instance) / "log"
    until(lambda: log.read_text() == "began\nbegan\n", "the second start")
    assert place.runs(instance)
    assert assignment(place, instance) == 1


def test_a_command_that_ends_stops_the_instance(place: Place) -> None:
    """The end of the renter's command ends the GPU meter, with its exit code on record."""
    instance = place.rent(place.rita, onstart="sleep 1; exit 3")
    until(lambda: place.shown(instance)["status"] == "stopped", "the exit")
    assert place.shown(instance)["reason"] == "container_exit"


def test_a_command_that_cannot_start_is_told(place: Place) -> None:
    """A launch that cannot work stops the instance as a failed launch, and costs no GPU second."""
    instance = place.rent(place.rita, args=["/no/such/program"])
    until(lambda: place.shown(instance)["status"] == "stopped", "the failure")
    shown = place.shown(instance)
    assert (shown["reason"], shown["gpu_seconds"]) == ("launch_failed", 0)


def test_an_agent_that_is_killed_finds_its_instances_again(place: Place) -> None:
    """After kill -9 of the agent the same process goes on, and is not started twice."""
    instance = place.rent(place.rita, **SLEEP)
    until(lambda: place.runs(instance), "the instance to run")
    (before,) = place.agent.runtime().list()
    place.agent.kill()
    place.agent.start()
    until(lambda: place.agent.state(instance) == "running", "the agent to see it")
    (after,) = place.agent.runtime().list()
    assert (after.pid, after.started_at) == (before.pid, before.started_at)
    assert place.runs(instance)
    assert assignment(place, instance) == 1


def test_what_was_decided_while_the_agent_was_away_is_done_when_it_is_back(place: Place) -> None:
    """A stop during the agent's absence is carried out by the next agent."""
    instance = place.rent(place.rita, **SLEEP)
    until(lambda: place.runs(instance), "the instance to run")
    place.agent.kill()
    place.serving.call("POST", f"/v1/instances/{instance}/stop", key=place.rita)
    place.agent.start()
    until(lambda: _state(place, instance) == "exited", "the stop")


def test_status_and_doctor_say_what_they_see(place: Place) -> None:
    """Status names spool and instance as JSON; the doctor finds server and key in order."""
    instance = place.rent(place.rita, **SLEEP)
    until(lambda: place.agent.state(instance) == "running", "the instance to run")
    status = json.loads(place.agent.cli("status", "--json").stdout)
    assert status["machine"] == place.machine.machine
    assert status["spool"]["sealed"] >= status["spool"]["acknowledged"] > 0
    assert "began" not in place.agent.cli("logs", str(instance), "--tail", "5").stdout
