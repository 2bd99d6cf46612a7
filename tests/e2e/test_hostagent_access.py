"""What a renter sees of an instance through the real agent: its output, and the ways into it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.hostagents import HostAgent, until
from tests.e2e.serving import Serving, free_port

ADDRESS = "203.0.113.9"
TALKS = "echo one; echo two >&2; echo three; exec sleep 1000"


class Place:
    """A server, a machine whose instances share its network, and a renter."""

    def __init__(self) -> None:
        """Start everything."""
        with contextlib.ExitStack() as started:
            self.serving = started.enter_context(Serving())
            host = self.serving.person("hannah", "host")
            self.rita = self.serving.person("rita", "renter", "100")
            self.machine = self.serving.machine(host)
            options = ("--network", "host", "--public-ip", ADDRESS)
            self.agent = HostAgent(self.serving.url, self.machine.token, options=options)
            started.callback(self.agent.close)
            self.agent.start()
            self.serving.list_machine(self.machine)
            until(lambda: self.agent.status()["last_answer_seconds_ago"] is not None, "an answer")
            self._started = started.pop_all()

    def close(self) -> None:
        """End everything."""
        self._started.close()

    def rent(self, **launch: Any) -> int:
        """Rent the machine, and wait until the instance runs or could not be started."""
        wish = {"machine_id": self.machine.machine, "disk_gb": 10, "launch": launch}
        made = self.serving.call("POST", "/v1/instances", wish, key=self.rita)
        instance: int = made["instance_id"]
        until(lambda: self.shown(instance)["status"] in {"running", "stopped"}, "a start")
        return instance

    def shown(self, instance: int) -> dict[str, Any]:
        """The instance as its renter sees it."""
        path = f"/v1/instances/{instance}"
        found: dict[str, Any] = self.serving.call("GET", path, key=self.rita)
        return found

    def logs(self, instance: int, **options: Any) -> str:
        """The log that the renter asks for, as it comes by the address in the answer."""
        path = f"/v1/instances/{instance}/log-requests"
        url = self.serving.call("POST", path, options, key=self.rita)["result_url"]
        until(lambda: self.serving.http.get(url).status_code == 200, "the log", 10)
        return self.serving.http.get(url).text


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    """One place for all tests of this file."""
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


def test_a_renter_reads_what_the_process_wrote(place: Place) -> None:
    """The last lines asked for are there within seconds, both streams of the process in order."""
    instance = place.rent(onstart=TALKS)
    began = time.monotonic()
    assert place.logs(instance, tail=2) == "two\nthree\n"
    assert time.monotonic() - began < 10
    assert place.logs(instance, filter="t", tail=1) == "three\n"


def test_a_refused_launch_says_in_words_what_to_do(place: Place) -> None:
    """What plain processes cannot be given stops the launch, and the daemon's log names it."""
    instance = place.rent(onstart=TALKS, runtype="ssh_direc ssh_proxy")
    assert place.shown(instance)["reason"] == "launch_failed"
    said = place.logs(instance, daemon=True)
    assert "bad_configuration" in said
    assert "way in by ssh" in said
    assert place.logs(instance) == ""


def test_a_renter_reads_how_the_instance_is_reached(place: Place) -> None:
    """Ports and address are shown while it runs, and are gone when it is stopped."""
    port = free_port()
    instance = place.rent(onstart=TALKS, ports=[str(port)])
    until(lambda: place.shown(instance)["connection"] is not None, "the way in", 10)
    way = place.shown(instance)["connection"]
    published = {"container_port": port, "host_port": port, "protocol": "tcp"}
    assert (way["assignment"], way["ports"]) == (1, [published])
    assert (way["public_ip"], way["ssh_host"]) == (ADDRESS, None)
    place.serving.call("POST", f"/v1/instances/{instance}/stop", key=place.rita)
    assert place.shown(instance)["connection"] is None
