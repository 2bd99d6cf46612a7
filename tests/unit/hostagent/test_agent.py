"""The agent's loop on the runtime twin: what it does, and what it tells the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.hostagent.acting.agent import Agent
from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.senses import Attested, Watched
from adapters.hostagent.acting.simulated_senses import SimulatedSenses
from adapters.hostagent.delivery import Heard
from adapters.hostagent.runtime.port import Found
from adapters.hostagent.runtime.twin import RuntimeTwin
from adapters.hostagent.spool import SqliteSpool
from adapters.hostagent.suite.port import NoSuite
from ledger.domain.acknowledgement import Acknowledgement, Desired, DesiredInstance, UsageAnswer
from ledger.domain.usage import CheckAnswer, HealthEvent, Observation, UsageReport, decode_report
from ledger.errors import UnavailableError
from tests.unit.hostagent.server import IDENTITY

MACHINE = 4001


class Senses(SimulatedSenses):
    """Senses that may not know the time."""

    is_timeless = False

    @property
    def second(self) -> int | None:  # type: ignore[override]
        """The running second, or none."""
        return None if self.is_timeless else super().second

    def attest(self) -> Attested | None:
        """Nothing without the time."""
        return None if self.is_timeless else super().attest()

    def look(self, watched: Sequence[Watched]) -> None:
        """Nothing without the time."""
        if not self.is_timeless:
            super().look(watched)


class Host:
    """An agent on a twin, turned by hand."""

    def __init__(self, path: Path, runtime: RuntimeTwin, boot_id: str = "b1") -> None:
        """Go on from the spool in *path*."""
        self.runtime = runtime
        self.spool = SqliteSpool(path, MACHINE)
        self.senses = Senses(["GPU-a"], sealed_until=self.spool.sealed_until, boot_id=boot_id)
        self.late = 0.0
        answerer = Answerer(self.senses.gpu_count, lambda: self.senses.second, NoSuite())
        self.agent = Agent(
            runtime=runtime,
            senses=self.senses,
            spool=self.spool,
            signer=IDENTITY,
            answerer=answerer,
            lives=lambda _: True,
            monotonic=lambda: time.monotonic() + self.late,
        )
        self._version = self.agent.wanted.version

    def want(self, *instances: DesiredInstance) -> None:
        """The server wants this, from now on."""
        self._version += 1
        self.agent.want(Desired(version=self._version, instances=list(instances)))

    def turn(self, until: Callable[[], object] = lambda: True) -> None:
        """Turn until *until* holds, with no step at work."""
        deadline = time.monotonic() + 10
        while True:
            self.late += 11  # lists are due at every turn
            self.agent.turn()
            if until() and not self.agent.crew.busy:
                self.agent.turn()
                return
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)

    def reports(self) -> list[UsageReport]:
        """What was sealed so far."""
        return [decode_report(one.body) for one in self.spool.oldest(10**4, ())]

    def told(self) -> list[tuple[int, int, str]]:
        """The observations, in order."""
        return [(one.instance, one.assignment, one.state) for one in self.observed()]

    def observed(self) -> list[Observation]:
        """The observations, whole."""
        return [one for report in self.reports() for one in report.observed]

    def health(self) -> list[HealthEvent]:
        """The health events."""
        return [one for report in self.reports() for one in report.health]

    def answers(self) -> list[CheckAnswer]:
        """The answers to checks."""
        return [one for report in self.reports() for one in report.answers]


def run(instance: int = 1, assignment: int = 1, **fields: Any) -> DesiredInstance:
    """An instance that is to run on GPU-a."""
    wish = {"gpu_uuids": ["GPU-a"], "spec": {"args": ["x"]}, "want": "running", **fields}
    return DesiredInstance(instance=instance, assignment=assignment, **wish)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the spool lies."""
    return tmp_path / "spool.db"


@pytest.fixture
def host(path: Path) -> Iterator[Host]:
    """A machine without instances."""
    one = Host(path, RuntimeTwin(time.time()))
    yield one
    one.spool.close()


def test_nothing_is_done_before_it_is_known_what_is_wanted(host: Host) -> None:
    """An agent that has heard nothing starts nothing, stops nothing and removes nothing."""
    host.runtime.adopt(Found("9", 9, 1, "running", ("GPU-a",)))
    host.turn()
    assert (host.runtime.started, host.runtime.stopped, host.runtime.removed) == ([], [], [])


def test_a_start_is_told_with_its_assignment_at_once(host: Host) -> None:
    """Loading and running are observed in order, under the assignment that was started."""
    host.want(run(1, 3))
    host.turn(lambda: host.runtime.started)
    assert host.runtime.started == [(1, 3)]
    assert host.told() == [(1, 3, "loading"), (1, 3, "running")]


def test_a_displacement_kills_and_then_starts_the_next(host: Host) -> None:
    """The loser is killed without grace before the winner starts on its GPU."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.want(run(1, want="stopped", at_once=True, gpu_uuids=[]), run(2))
    host.turn(lambda: len(host.runtime.started) > 1)
    assert host.runtime.stopped == [(1, 0.0)]
    assert host.told()[-3:] == [(1, 1, "exited"), (2, 1, "loading"), (2, 1, "running")]


def test_a_launch_that_is_refused_is_told_once(host: Host) -> None:
    """The reason goes to the server, and the agent does not try again by itself."""
    host.runtime.refuses[1] = "image_not_found"
    host.want(run(1))
    host.turn(lambda: host.told()[-1:] == [(1, 1, "launch_failed")])
    assert host.observed()[-1].reason == "image_not_found"
    before = len(host.told())
    host.turn()
    host.turn()
    assert len(host.told()) == before


def test_an_exit_is_told_with_its_code(host: Host) -> None:
    """A container that ends by itself is observed once, and not started again."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.exit(1, 3)
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))
    assert host.observed()[-1].exit_code == 3
    host.turn()
    assert host.runtime.started == [(1, 1)]


def test_a_new_agent_finds_what_the_old_one_started(host: Host, path: Path) -> None:
    """After a restart nothing is started or told twice."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    told = host.told()
    host.spool.close()
    again = Host(path, host.runtime)
    again.want(run(1))
    again.turn()
    assert (again.runtime.started, again.told()) == ([(1, 1)], told)
    again.spool.close()


def test_an_end_while_the_agent_was_away_is_told_by_the_next(host: Host, path: Path) -> None:
    """What happened without an agent is seen by what was kept with the reports."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.spool.close()
    host.runtime.exit(1, 9)
    again = Host(path, host.runtime)
    again.want(run(1))
    again.turn(lambda: again.told()[-1] == (1, 1, "exited"))
    assert again.observed()[-1].exit_code == 9
    again.spool.close()


def test_a_reboot_of_the_machine_starts_the_instance_again(host: Host, path: Path) -> None:
    """In a new boot the same assignment is started and confirmed anew, and no exit is told."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    told = host.told()
    host.spool.close()
    host.runtime.reboot_host()
    again = Host(path, host.runtime, boot_id="b2")
    again.want(run(1))
    again.turn(lambda: len(again.runtime.started) > 1)
    assert again.told() == [*told, (1, 1, "loading"), (1, 1, "running")]
    again.spool.close()


def test_a_runtime_that_is_away_changes_nothing(host: Host) -> None:
    """No answer is not "no containers": nothing is told, and it goes on when it is back."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    told = host.told()
    host.runtime.is_away = True
    host.turn()
    assert host.told() == told
    host.runtime.is_away = False
    host.turn()
    assert host.told() == told


def test_lost_and_repeated_events_make_no_difference(host: Host) -> None:
    """The list is the truth, whatever the stream of events says."""
    host.runtime.loses_events = True
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.exit(1, 0)
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))


def test_a_stop_that_does_nothing_is_repeated(host: Host) -> None:
    """A container that outlives its stop is stopped again, and no end is told meanwhile."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.ignores_stop = True
    host.want(run(1, want="stopped"))
    host.turn(lambda: len(host.runtime.stopped) > 1)
    assert host.told()[-1] == (1, 1, "running")
    host.runtime.ignores_stop = False
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))


def test_nothing_is_lost_while_the_time_is_not_known(host: Host, path: Path) -> None:
    """An end that no report could tell of is told by the next agent, and nothing is started."""
    host.senses.is_timeless = True
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.exit(1, 3)
    host.turn(lambda: not host.runtime.containers["1"].is_alive)
    assert host.reports() == []
    host.spool.close()
    again = Host(path, host.runtime)
    again.want(run(1))
    again.turn(lambda: again.told()[-1:] == [(1, 1, "exited")])
    assert again.told() == [(1, 1, "loading"), (1, 1, "running"), (1, 1, "exited")]
    assert again.observed()[-1].exit_code == 3
    assert again.runtime.started == [(1, 1)]
    told = again.told()
    again.spool.close()
    third = Host(path, host.runtime)
    third.turn()
    assert third.told() == told
    third.spool.close()


def test_a_disk_that_the_senses_miss_is_told(host: Host) -> None:
    """A container without its disk is no instance any more, after two looks."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.senses.gone_disks = frozenset({1})
    host.turn(lambda: host.told()[-1] == (1, 1, "disk_gone"))
    assert "disk is gone" in host.agent.diary.text(1)
    told = host.told()
    for _ in range(3):
        host.turn()
    assert host.told() == told


def test_a_hint_brings_the_next_look_forward(host: Host) -> None:
    """A container that was paused is seen at the next turn after a hint, not 10 s later."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.containers["1"] = host.runtime.containers["1"]._replace(state="paused")
    host.agent.turn()
    assert host.agent.status()["instances"][0]["state"] == "running"
    host.agent.hint()
    host.agent.turn()
    assert host.agent.status()["instances"][0]["state"] == "frozen"


def test_what_runs_as_it_is_wanted_is_said(host: Host) -> None:
    """Ways in are asked for of what runs under the wanted assignment, and of nothing else."""
    said: list[list[int]] = []
    host.agent.running.on_running = lambda found: said.append([one.instance for one in found])
    host.runtime.adopt(Found("9", 9, 1, "running"))
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    assert said[-1] == [1]
    host.want(run(1, want="stopped"))
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))
    assert said[-1] == []


def test_a_refusal_is_written_down_in_words(host: Host) -> None:
    """The diary names the code and the reason of a launch that was refused."""
    host.want(run(1, spec={"args": ["x"], "extra": "--privileged"}))
    host.turn(lambda: host.told()[-1:] == [(1, 1, "launch_failed")])
    text = host.agent.diary.text(1)
    assert "bad_configuration" in text
    assert "leave it out" in text


def test_a_container_of_nobody_is_told_once_and_left(host: Host) -> None:
    """What carries the label and is not wanted is reported, and goes on."""
    host.runtime.adopt(Found("9", 9, 1, "running"))
    host.want(run(1))
    host.turn(host.health)
    host.turn()
    (event,) = host.health()
    assert (event.kind, "unknown instance 9" in (event.detail or "")) == ("foreign_process", True)
    assert host.runtime.containers["9"].is_alive


def test_a_disk_that_is_gone_is_told_after_two_looks(host: Host) -> None:
    """A stopped instance whose container vanished has lost its disk."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.want(run(1, want="stopped"))
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))
    del host.runtime.containers["1"]
    host.turn(lambda: host.told()[-1] == (1, 1, "disk_gone"))


def test_gpus_that_are_gone_inside_are_told(host: Host) -> None:
    """A probe that fails inside makes the instance's seconds `gpu_lost`, and is observed once."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.runtime.fails_probe.add(1)
    host.senses.doubtful.add(1)
    host.turn(lambda: host.told()[-1] == (1, 1, "gpu_lost"))
    host.turn()
    assert host.told().count((1, 1, "gpu_lost")) == 1
    assert host.agent.status()["instances"][0]["state"] == "gpu_lost"


def test_a_destroyed_instance_leaves_nothing(host: Host) -> None:
    """Gone removes the container, whatever its state."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    host.want(run(1, want="gone"))
    host.turn(lambda: host.runtime.removed)
    assert (host.runtime.containers, host.runtime.stopped) == ({}, [(1, 10.0)])


def test_a_ping_is_answered_once_with_its_nonce(host: Host) -> None:
    """A check that comes with every acknowledgement is answered in one report."""
    check = {"slot": 5, "at": 1, "kind": "ping", "nonce": "ab", "deadline": 2**40}
    slow = {"slot": 6, "at": 1, "kind": "challenge", "nonce": "cd", "deadline": 2**40}
    ack = Acknowledgement(
        machine=MACHINE, epoch=host.spool.epoch, acked_through=0, checks=[check, slow]
    )
    answer = UsageAnswer(server_time_ms=1, reports=[], acks=[ack])
    for _ in range(3):
        host.agent.hear(Heard(answer, 0, 1))
        host.turn()
    host.turn(lambda: len(host.answers()) > 1)
    by_slot = {one.slot: one for one in host.answers()}
    assert len(host.answers()) == 2
    assert (by_slot[5].result, by_slot[5].measures) == ("passed", {"gpus": 1, "nonce": "ab"})
    assert by_slot[6].result == "inconclusive"


def test_a_report_that_the_disk_refuses_is_sealed_when_there_is_room(host: Host) -> None:
    """Nothing that was to be told is lost while the spool cannot be written."""
    host.want(run(1))
    host.turn(lambda: host.runtime.started)
    pages = host.spool._db.execute("PRAGMA page_count").fetchone()[0]
    host.spool._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(UnavailableError):
        host.spool.save("filler", b"x" * 4_096_000)
    host.runtime.exit(1, 4)
    for _ in range(3):
        host.agent.turn()
        host.late += 11
    host.spool._db.execute("PRAGMA max_page_count=1000000")
    host.turn(lambda: host.told()[-1] == (1, 1, "exited"))
    assert [one.seq for one in host.reports()] == list(range(1, len(host.reports()) + 1))
