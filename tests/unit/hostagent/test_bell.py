"""What the agent's loop waits for: nothing is asked again and again, and nothing is missed."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

from adapters.hostagent.acting.agent import Agent
from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.bell import Bell
from adapters.hostagent.acting.simulated_senses import SimulatedSenses
from adapters.hostagent.runtime.port import Found
from adapters.hostagent.runtime.twin import RuntimeTwin
from adapters.hostagent.spool import SqliteSpool
from adapters.hostagent.suite.port import NoSuite
from tests.support.fake_nvml import until
from tests.unit.hostagent.server import IDENTITY

LONG = 30.0
SLEEP = ("/bin/sleep", "60")


def test_a_ring_ends_the_wait_whether_it_came_before_or_in_it() -> None:
    """Rings from other threads are never lost, and many of them end one wait."""
    bell = Bell()
    bell.ring()
    bell.ring()
    began = time.monotonic()
    assert not bell.wait(LONG)
    threading.Timer(0.05, bell.ring).start()
    assert not bell.wait(LONG)
    assert not bell.wait(0.01)
    assert time.monotonic() - began < LONG


def test_the_end_of_a_process_ends_the_wait_once() -> None:
    """The kernel says that a process has ended; its remains end no further wait."""
    bell = Bell()
    with subprocess.Popen([*SLEEP]) as first, subprocess.Popen([*SLEEP]) as second:
        bell.watch([first.pid, second.pid])
        assert not bell.wait(0.01)
        first.kill()
        assert bell.wait(LONG)
        assert not bell.wait(0.01)
        bell.watch([second.pid])
        second.kill()
        assert bell.wait(LONG)


def test_processes_that_are_gone_or_forgotten_end_no_wait() -> None:
    """A number without a process is left to the next look; descriptors are given back."""
    bell = Bell()
    before = len(os.listdir("/proc/self/fd"))
    with subprocess.Popen(["/bin/true"]) as gone, subprocess.Popen([*SLEEP]) as other:
        gone.wait()
        bell.watch([gone.pid, other.pid])
        bell.watch([])
        other.kill()
        assert not bell.wait(0.05)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_agent_turns_once_a_second_and_at_once_when_a_process_ends(tmp_path: Path) -> None:
    """Nothing wakes an agent between two looks but news, and the end of a process is news."""
    senses = SimulatedSenses(["GPU-a"])
    runtime = Listed(time.time())
    spool = SqliteSpool(tmp_path / "spool.db", 1)
    agent = Agent(
        runtime=runtime,
        senses=senses,
        spool=spool,
        signer=IDENTITY,
        answerer=Answerer(senses.gpu_count, lambda: senses.second, NoSuite()),
    )
    turns: list[float] = []
    turn = agent.turn

    def counted() -> None:
        turns.append(time.monotonic())
        turn()

    agent.turn = counted  # type: ignore[method-assign]
    with subprocess.Popen([*SLEEP]) as renter:
        runtime.adopt(Found("1", 1, 1, "running", ("GPU-a",), pid=renter.pid))
        thread = threading.Thread(target=agent.run)
        thread.start()
        until(lambda: runtime.lists == 1)
        time.sleep(3)
        # One a second, one more at most for each report that falls due between two looks.
        assert 3 <= len(turns) <= 7, turns
        lists = runtime.lists
        renter.kill()
        killed_at = time.monotonic()
        until(lambda: runtime.lists > lists)
        assert time.monotonic() - killed_at < 1.0
    agent.end()
    thread.join(10)
    spool.close()


class Listed(RuntimeTwin):
    """A twin that counts its lists."""

    lists = 0

    def list(self) -> list[Found]:
        """What runs."""
        self.lists += 1
        return super().list()
