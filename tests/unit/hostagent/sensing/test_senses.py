"""From looks to what a report attests, on simulated GPUs."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from adapters.hostagent.collector.protocol import ProcessMemory
from adapters.hostagent.collector.twin import CollectorTwin, simulated_gpu
from adapters.hostagent.control import MetricsServer
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain
from adapters.hostagent.sensing.metrics import registry, render
from adapters.hostagent.sensing.senses import Senses
from adapters.hostagent.sensing.watched import Settings, Watched
from ledger.domain.usage import column_values, decode_report
from tests.support.fake_nvml import FAST, FakeGpus, collecting, has_swept, until, uuid
from tests.support.senses import START, FakeProc, MachineClock, senses_of

A, B = uuid(0), uuid(1)
QUIET = Settings(disk=Path("/proc"))
"""A disk that is never full."""


class Machine:
    """Two simulated GPUs, a clock, and containers."""

    def __init__(self, folder: Path) -> None:
        """Begin without containers."""
        self.clock = MachineClock()
        self.proc = FakeProc(folder)
        self.gpus = CollectorTwin([simulated_gpu(A, 0), simulated_gpu(B, 1)])
        self.senses = self.restart(None)

    def restart(self, state: bytes | None, sealed_until: int = 0) -> Senses:
        """An agent that starts now."""
        self.senses = senses_of(
            self.gpus, self.clock, state=state, sealed_until=sealed_until,
            proc=self.proc.folder, settings=QUIET,
        )  # fmt: skip
        return self.senses

    def look(self, *watched: Watched, times: int = 1) -> None:
        """A look in the middle of each second."""
        for _ in range(times):
            self.senses.look(watched)
            self.gpus.reading(self.clock.mono_ns)
            self.clock.pass_seconds(1)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has just started."""
    return Machine(tmp_path)


def test_seconds_become_columns_that_a_chain_seals(machine: Machine) -> None:
    """States, utilisation and bytes of four looks are a report of three seconds that decodes."""
    machine.proc.start(50, machine.clock)
    machine.gpus.gpus[A].values["util"] = 97
    for number, state in enumerate(("loading", "running", "running", "running")):
        machine.proc.count(50, {"eth0": (9, 1000 * number, 10 * number)})
        machine.look(Watched(7, state, 50, (A,)))  # type: ignore[arg-type] # a literal of the list
    found = machine.senses.attest()
    assert found is not None
    assert (found.start, found.count) == (START, 3)
    chain = ReportChain(1, HostIdentity.from_seed(bytes(32)), boot_id=machine.senses.boot_id)
    sealed = chain.seal(
        found.start, found.count, found.blocks, health=found.health, gpus=found.gpus,
        inventory=found.inventory, clock=found.clock,
    )  # fmt: skip
    report = decode_report(sealed.body)
    (block,) = report.instances
    assert block.state == [("loading", 1), ("running", 2)]
    assert block.util == bytes([255, 97, 97])
    assert column_values(block.up) == [500, 1000, 1000]
    assert column_values(block.down) == [5, 10, 10]
    assert {one.gpu_uuid: one.util for one in report.gpus} == {A: 97, B: 0}
    assert report.inventory is not None
    assert [gpu.uuid for gpu in report.inventory.gpus] == [A, B]
    assert machine.senses.attest() is None


def test_the_machine_is_told_as_soon_as_its_driver_answers(machine: Machine) -> None:
    """A driver that answers a second late is in the report after it, whatever it loses then."""
    machine.gpus.hang(machine.clock.mono_ns)
    machine.look()
    machine.gpus.recover(machine.clock.mono_ns)
    machine.look(times=2)
    found = machine.senses.attest()
    assert found is not None
    assert found.inventory is not None
    assert [gpu.uuid for gpu in found.inventory.gpus] == [A, B]


def test_a_second_that_nobody_looked_into_stays_missing(machine: Machine) -> None:
    """A stall of three seconds splits the attested seconds; its bytes are told and in no second."""
    machine.proc.start(50, machine.clock)
    machine.look(Watched(7, "running", 50, (A,)), times=3)
    machine.clock.pass_seconds(3)
    machine.proc.count(50, {"eth0": (9, 4000, 0)})
    machine.look(Watched(7, "running", 50, (A,)), times=3)
    first, second = machine.senses.attest(), machine.senses.attest()
    assert first is not None
    assert second is not None
    assert (first.start, first.count) == (START, 3)
    assert (second.start, second.count) == (START + 6, 2)
    gaps = [one for part in (first, second) for one in part.health if one.kind == "counter_gap"]
    assert [(one.instance, one.up) for one in gaps] == [(7, 4000)]
    assert sum(column_values(second.blocks[0].up)) == 0
    assert machine.senses.missed_seconds_total == 3


def test_an_instance_missing_in_between_is_unknown(machine: Machine) -> None:
    """Where the runtime did not name the instance, the second has a tick that says so."""
    there = Watched(7, "running", gpu_uuids=(A,))
    machine.look(there)
    machine.look()
    machine.look(there, times=2)
    found = machine.senses.attest()
    assert found is not None
    assert found.blocks[0].state == [("running", 1), ("unknown", 1), ("running", 1)]
    assert found.blocks[0].util == bytes([0, 255, 0])


def test_a_process_that_is_gone_or_another_does_not_run(machine: Machine) -> None:
    """The pid that the runtime names must be the same process: pids are used again."""
    machine.proc.start(50, machine.clock)
    watched = Watched(7, "running", 50, (A,))
    machine.look(watched)
    machine.proc.end(50)
    machine.look(watched)
    machine.proc.start(50, machine.clock)
    machine.look(watched, times=2)
    found = machine.senses.attest()
    assert found is not None
    assert found.blocks[0].state == [("running", 1), ("exited", 2)]


def test_a_lost_gpu_is_lost_for_its_instance_alone(machine: Machine) -> None:
    """XID 79 makes the ticks of the holder `gpu_lost`; the neighbour runs on."""
    both = (Watched(7, "running", gpu_uuids=(A,)), Watched(8, "running", gpu_uuids=(B,)))
    machine.look(*both)
    machine.gpus.tell_xid(machine.clock.mono_ns, 79, A)
    machine.look(*both)
    doubtful = machine.senses.doubtful.copy()
    machine.look(*both)
    found = machine.senses.attest()
    assert found is not None
    states = {one.instance: one.state for one in found.blocks}
    assert states == {7: [("running", 1), ("gpu_lost", 1)], 8: [("running", 2)]}
    assert [(one.kind, one.code, one.instance) for one in found.health] == [("xid", 79, 7)]
    assert doubtful == {7}


@pytest.mark.parametrize(
    ("code", "gpu_uuid", "doubtful"),
    [(31, A, set()), (63, A, set()), (48, A, {7}), (777, B, {8}), (31, None, {7, 8})],
)
def test_which_faults_make_the_agent_look_inside(
    machine: Machine, code: int, gpu_uuid: str | None, doubtful: set[int]
) -> None:
    """Fatal and unknown faults, and those of no known GPU, have instances probed; others do not."""
    both = (Watched(7, "running", gpu_uuids=(A,)), Watched(8, "running", gpu_uuids=(B,)))
    machine.look(*both)
    machine.gpus.tell_xid(machine.clock.mono_ns, code, gpu_uuid)
    machine.look(*both)
    assert machine.senses.doubtful == doubtful


def test_news_leave_room_for_the_running_second(machine: Machine) -> None:
    """A report without seconds begins no later than the first second still to be attested."""
    watched = Watched(7, "running", gpu_uuids=(A,))
    machine.look(watched)
    machine.gpus.tell_xid(machine.clock.mono_ns, 13, A)
    machine.look(watched)
    news = machine.senses.news()
    assert (news.start, news.count, [one.code for one in news.health]) == (START, 0, [13])
    machine.look(watched)
    found = machine.senses.attest()
    assert found is not None
    assert (found.start, found.count, found.health) == (START, 2, [])


def test_a_doubt_is_of_one_look(machine: Machine) -> None:
    """An instance is doubtful until the next look, so that one fault is one probe."""
    watched = Watched(7, "running", gpu_uuids=(A,))
    machine.look(watched)
    machine.gpus.tell_xid(machine.clock.mono_ns, 48, A)
    machine.look(watched)
    assert machine.senses.doubtful == {7}
    machine.look(watched)
    assert machine.senses.doubtful == set()


def test_without_a_driver_the_count_of_gpus_is_unknown(machine: Machine) -> None:
    """A hanging driver has no count, a lost GPU counts no more: zero and unknown differ."""
    machine.look()
    assert machine.senses.gpu_count() == 2
    machine.gpus.gpus[A].is_lost = True
    machine.look()
    assert machine.senses.gpu_count() == 1
    machine.gpus.hang(machine.clock.mono_ns)
    assert machine.senses.gpu_count() is None


def test_a_hanging_driver_takes_the_evidence_and_not_the_ticks(machine: Machine) -> None:
    """While the driver hangs, seconds go on with utilisation unknown, and never an old number."""
    machine.gpus.gpus[A].values["util"] = 88
    watched = Watched(7, "running", gpu_uuids=(A,))
    machine.look(watched, times=2)
    machine.gpus.hang(machine.clock.mono_ns)
    machine.look(watched, times=2)
    machine.gpus.recover(machine.clock.mono_ns)
    machine.look(watched, times=2)
    found = machine.senses.attest()
    assert found is not None
    assert found.blocks[0].state == [("running", 5)]
    assert found.blocks[0].util == bytes([88, 88, 255, 255, 88])


def test_nothing_is_attested_twice_after_a_restart(machine: Machine) -> None:
    """A new agent with the committed state goes on behind the sealed seconds, bytes included."""
    machine.proc.start(50, machine.clock)
    watched = Watched(7, "running", 50, (A,))
    total = 0
    for number in range(1, 9):
        machine.proc.count(50, {"eth0": (9, 100 * number, 0)})
        machine.look(watched)
        if number == 4:
            found = machine.senses.attest()
            assert found is not None
            total += sum(column_values(found.blocks[0].up))
            committed, sealed_until = found.state, found.start + found.count
        if number == 6:
            # What it saw since the commit dies with it.
            machine.restart(committed, sealed_until)
    found = machine.senses.attest()
    assert found is not None
    assert found.start >= sealed_until
    total += sum(column_values(found.blocks[0].up))
    rest = sum(one.up or 0 for one in found.health if one.kind == "counter_gap")
    assert [one.kind for one in found.health if one.kind != "counter_gap"] == []
    assert total <= total + rest <= 800
    assert total + rest >= 700


def test_foreign_processes_are_seen_twice_before_they_are_told(machine: Machine) -> None:
    """A process of no platform container, or memory on a free GPU, is found after ten seconds."""
    container = "ab" * 32
    machine.proc.start(60, machine.clock, container=container)
    machine.proc.start(61, machine.clock, container="cd" * 32)
    machine.gpus.gpus[A].procs = [ProcessMemory(60, 1 << 30), ProcessMemory(61, 1 << 30)]
    machine.gpus.gpus[B].values["mem_used"] = 3 << 30
    watched = Watched(7, "running", 60, (A,), container)
    machine.look(watched, times=9)
    assert [one.kind for one in machine.senses.news().health if "foreign" in one.kind] == []
    machine.look(watched, times=20)
    foreign = [one for one in machine.senses.news().health if one.kind == "foreign_process"]
    assert [(one.gpu_uuid, one.instance) for one in foreign] == [(A, 7), (B, None)]
    assert "container cdcdcdcdcdcd" in str(foreign[0].detail)


def test_the_platforms_own_check_is_nobodys_process(machine: Machine) -> None:
    """A challenge fills the memory of a free GPU; who does it is known, and anybody else is not."""
    machine.proc.start(60, machine.clock)
    machine.gpus.gpus[A].procs = [ProcessMemory(60, 20 << 30)]
    machine.gpus.gpus[A].values["mem_used"] = 20 << 30
    machine.senses.spare(lambda: {60})
    machine.look(times=20)
    assert [one for one in machine.senses.news().health if one.kind == "foreign_process"] == []
    machine.senses.spare(set)
    machine.look(times=20)
    (found,) = [one for one in machine.senses.news().health if one.kind == "foreign_process"]
    assert found.detail == "process 60 of the host itself"


def test_metrics_have_dcgms_names_and_no_zero_for_unknown(machine: Machine) -> None:
    """Known values carry slot, UUID and instance; what the card does not say is absent."""
    machine.gpus.gpus[A].values |= {"util": 42, "mem_used": 1 << 30}
    machine.gpus.tell_xid(machine.clock.mono_ns, 31, A)
    machine.clock.mono_ns = time.monotonic_ns()
    machine.look(Watched(7, "running", gpu_uuids=(A,)))
    text = render(registry(machine.senses)).decode()
    labels = f'UUID="{A}",gpu="0",instance="7"'
    assert f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 42.0" in text
    assert f"DCGM_FI_DEV_FB_FREE{{{labels}}} 23040.0" in text
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{" not in text
    assert "DCGM_FI_DEV_XID_ERRORS" not in text
    assert 'ledger_agent_xid_total{code="31"} 1.0' in text
    assert 'ledger_agent_nvml_state{state="ok"} 1.0' in text


def test_metrics_are_served_on_this_machine(machine: Machine) -> None:
    """A scrape of the local port gives the same page."""
    server = MetricsServer(0, machine.senses.metrics)
    try:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/metrics", timeout=5)
    finally:
        server.close()
    assert answer.status_code == 200
    assert "ledger_agent_nvml_generation 1.0" in answer.text


def test_looks_and_sweeps_meet_in_the_middle_of_seconds(machine: Machine) -> None:
    """The next look is in the middle of the next second of the machine's time."""
    now = machine.clock.mono_ns
    next_ns = machine.senses.next_look_ns(now)
    assert (next_ns + machine.senses.phase()) % 1_000_000_000 == 500_000_000
    assert 0 < next_ns - now <= 1_000_000_000


def test_real_gpus_of_the_stub_reach_the_columns(child_driver: FakeGpus, tmp_path: Path) -> None:
    """The utilisation that the real binding reads in a child ends in the second it was read in."""
    child_driver.set({"gpu0.util": 63})
    with collecting(pace=FAST._replace(second=0.2)) as collector:
        until(lambda: has_swept(collector))
        senses = Senses(collector, settings=Settings(disk=tmp_path))
        # The clock of the test's machine may not be disciplined; the server's word does it.
        senses.contact(time.monotonic_ns(), time.monotonic_ns(), START * 1000)
        for _ in range(4):
            time.sleep(max(0, senses.next_look_ns(time.monotonic_ns()) - time.monotonic_ns()) / 1e9)
            senses.look([Watched(7, "running", gpu_uuids=(A,))])
        found = senses.attest()
    assert found is not None
    assert set(found.blocks[0].util) == {63}
