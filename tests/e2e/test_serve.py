import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.e2e.agents import Agent
from tests.e2e.serving import (
    ROOT,
    Serving,
    books_equal_a_rebuild,
    stored_once,
    wait_for,
    wait_until_folded,
)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    """Give one running server."""
    with Serving() as one:
        yield one


def amounts(page: dict[str, Any], name: str) -> Decimal:
    """The sum of a column of dollars."""
    return sum((Decimal(row[name]) for row in page["items"]), Decimal(0))


def test_first_start_prints_an_admin_key_and_the_second_does_not() -> None:
    """Only the first start on a home shows a key, and that key still opens the API after it."""
    with Serving(is_untouched=True) as serving:
        assert serving.outputs[0].count("glk_") == 1
        first = serving.admin_key
        assert serving.call("GET", "/v1/me")["role"] == "admin"
        assert serving.stop() == 0
        assert not (serving.home / "postgres" / "postmaster.pid").exists()
        serving.start()
        assert "glk_" not in serving.outputs[1]
        assert serving.admin_key == first
        assert serving.call("GET", "/v1/me")["role"] == "admin"
        assert first not in serving.log()


def test_rental_is_billed_by_what_its_host_attests(serving: Serving) -> None:
    """A rental costs its attested running seconds times its rate, and ends when it is destroyed."""
    host_key = serving.person("hannah", "host")
    renter = serving.person("rita", "renter", "10")
    machine = serving.machine(host_key)
    agent = Agent(serving.url, machine)
    try:
        serving.list_machine(machine, "3.60")
        wait_for(lambda: agent.stored, 10, "the first acknowledged report")
        wish = {"machine_id": machine.machine, "disk_gb": 10}
        instance = serving.call("POST", "/v1/instances", wish, key=renter)["instance_id"]
        path = f"/v1/instances/{instance}"
        wait_for(
            lambda: serving.call("GET", path, key=renter)["status"] == "running", 15, "it to run"
        )
        time.sleep(3)
        assert serving.call("POST", path + "/stop", {}, key=renter)["status"] == "stopped"
        wait_for(lambda: agent.host.containers[instance].state == "stopped", 10, "the host to obey")
        assert serving.call("DELETE", path, key=renter)["status"] == "destroyed"
        wait_for(lambda: instance not in agent.host.containers, 10, "the container to go")
    finally:
        agent.end()
    assert agent.alarms == []
    assert agent.spool.dead_letters == []
    assert len(agent.spool) == 0

    def settled() -> bool:
        shown = serving.call("GET", "/v1/balance", key=renter)
        return Decimal(shown["accrued"]) == 0 and Decimal(shown["charged"]) > 0

    wait_for(settled, 10, "the charges")
    shown = serving.call("GET", path, key=renter)
    assert 3 <= shown["gpu_seconds"] <= 15
    assert Decimal(shown["gpu_charge"]) == shown["gpu_seconds"] * Decimal("0.001")
    balance = serving.call("GET", "/v1/balance", key=renter)
    charges = serving.call("GET", "/v1/charges?limit=1000", key=renter)
    assert Decimal(balance["posted"]) == 10
    assert Decimal(balance["charged"]) == amounts(charges, "amount")
    assert Decimal(balance["available"]) == 10 - Decimal(balance["charged"])
    assert Decimal(balance["burn_per_hour"]) == 0
    with serving.database() as database:
        with database.connect() as connection:
            stored_once(connection, agent.stream, agent.bodies)
        books_equal_a_rebuild(database)


def test_second_server_on_a_home_shares_its_database(serving: Serving) -> None:
    """Two servers on one home serve the same books, and the first goes on when the second ends."""
    second = Serving(serving.home)
    try:
        second.start()
        second.admin_key = serving.admin_key
        assert "glk_" not in second.outputs[-1]
        assert second.postmaster() == serving.postmaster()
        opened = second.call("POST", "/v1/accounts", {"name": "made-at-the-second"})
        path = f"/v1/accounts/{opened['account_id']}"
        assert serving.call("GET", path)["name"] == "made-at-the-second"
        assert second.stop() == 0
    finally:
        second.close()
    assert serving.call("GET", path)["name"] == "made-at-the-second"
    with serving.database() as database:
        books_equal_a_rebuild(database)


def test_occupied_port_is_refused_before_anything_is_touched(serving: Serving) -> None:
    """A server does not share a port with another one: it ends with one clear line."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "adapters.cli.main", "serve"),
            *("--home", str(serving.home / "other"), "--port", str(serving.port)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert f"something listens on 127.0.0.1:{serving.port} already" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (serving.home / "other").exists()


def test_server_of_a_killed_parent_frees_its_port(serving: Serving) -> None:
    """When only the parent is killed, workers and background process end by themselves."""
    assert serving.process is not None
    children = [pid for pid in serving.processes() if pid != serving.process.pid]
    assert len(children) == len(serving.workers()) + 1
    serving.process.kill()
    serving.process.wait()

    def is_free() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", serving.port)) != 0

    wait_for(is_free, 10, "the port to be free")
    serving.start()
    assert not set(children) & set(serving.processes())
    assert serving.call("GET", "/v1/me")["role"] == "admin"


def test_killed_background_process_is_started_again(serving: Serving) -> None:
    """Usage is folded again, by itself, after the process that does it was killed."""
    killed = serving.background()
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        return any(
            pid != killed and "-m adapters.main" in command
            for pid, command in serving.processes().items()
        )

    wait_for(is_back, 15, "another background process")
    machine = serving.machine(serving.person("henry", "host"))
    agent = Agent(serving.url, machine)
    try:
        wait_for(lambda: len(agent.stored) > 1, 15, "acknowledged reports")
    finally:
        agent.end()
    with serving.database() as database:
        wait_until_folded(database)
