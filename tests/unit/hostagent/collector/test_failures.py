"""What fails on real machines, row by row of the failure table (`host-agent.md` §4)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.hostagent.collector.codes import GPU_LOST, SET_CHANGED, VERSION_MISMATCH
from adapters.hostagent.collector.port import Finding, GpuReading
from adapters.hostagent.collector.protocol import ProcessMemory, Xid
from adapters.hostagent.collector.supervisor import NvmlCollector
from adapters.hostagent.collector.twin import CollectorTwin, simulated_gpu
from adapters.hostagent.sensing.attribution import Occupants, is_idle
from adapters.hostagent.sensing.energy import EnergyMeter
from adapters.hostagent.sensing.kernel_log import KernelFault, Parser
from adapters.hostagent.sensing.traffic import Counter, advance
from adapters.hostagent.sensing.watched import Watched
from adapters.hostagent.sensing.xids import Fault, FaultBook
from tests.support.fake_nvml import (
    FAST,
    FakeGpus,
    InProcess,
    collecting,
    has_swept,
    is_process,
    read,
    sleeper,
    until,
    uuid,
)
from tests.support.senses import MachineClock, senses_of

Load = Callable[..., InProcess]
A, B = uuid(0), uuid(1)


def kinds(findings: list[Finding]) -> list[tuple[str, str | None]]:
    """Findings without their times."""
    return [(one.kind, one.gpu_uuid) for one in findings]


def collected(collector: NvmlCollector, *wanted: str) -> list[Finding]:
    """Findings up to and including all *wanted* kinds."""
    found: list[Finding] = []

    def has_all() -> bool:
        found.extend(collector.take_findings())
        return set(wanted) <= {one.kind for one in found}

    until(has_all)
    return found


def told(collector: NvmlCollector) -> list[Xid]:
    """The first faults that the driver tells of."""
    found: list[Xid] = []

    def has_any() -> bool:
        found.extend(collector.take_xids())
        return bool(found)

    until(has_any)
    return found


def test_01_a_container_that_lost_its_gpus_is_not_running() -> None:
    """A failing inside probe makes the seconds `gpu_lost`, while the host sees its GPU."""
    clock = MachineClock()
    senses = senses_of(CollectorTwin([simulated_gpu(A)]), clock)
    for _ in range(3):
        senses.look([Watched(7, "gpu_lost", gpu_uuids=(A,))])
        clock.pass_seconds(1)
    attested = senses.attest()
    assert attested is not None
    assert attested.blocks[0].state == [("gpu_lost", 2)]
    assert attested.blocks[0].util == bytes([255, 255])
    assert senses.gpu_count() == 1
    assert attested.health == []


def test_02_a_gpu_off_the_bus_is_lost_and_the_others_go_on(child_driver: FakeGpus) -> None:
    """XID 79 and code 15 take one GPU away; the other is read in the next generation as before."""
    child_driver.set({"gpus": 2, "gpu0.util": 55})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        child_driver.set({"gpu1.lost": 1, "xid": "1:79:a"})
        until(
            lambda: read(collector).gpus[B].state == "lost" and has_swept(collector, generation=2)
        )
        found = collected(collector, "gpu_lost")
        assert [(one.code, one.uuid) for one in told(collector)] == [(79, B)]
        assert read(collector).gpus[A].values["util"] == 55
        assert read(collector).gpus[B].values == {}
    assert ("gpu_lost", B) in kinds(found)


def test_02b_one_lost_gpu_does_not_end_every_generation(child_driver: FakeGpus) -> None:
    """A GPU that is still enumerated but lost costs one generation, not one per sweep."""
    child_driver.set({"gpus": 2})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        # Enumerated as ever, but no utilisation.
        child_driver.set({"gpu1.fail.nvmlDeviceGetUtilizationRates": GPU_LOST})
        until(lambda: has_swept(collector, generation=2))
        time.sleep(8 * FAST.second)
        assert read(collector).generation == 2
        assert read(collector).gpus[B].state == "lost"


def test_03_a_gpu_that_just_vanishes_is_missing(child_driver: FakeGpus) -> None:
    """Without any XID, counting fewer GPUs than are registered is found."""
    child_driver.set({"gpus": 2})
    with collecting([A, B]) as collector:
        until(lambda: has_swept(collector))
        child_driver.set({"gpus": 1})
        found = collected(collector, "gpu_missing")
        until(lambda: has_swept(collector, generation=2))
        assert read(collector).gpus[B].state == "missing"
    assert kinds(found).count(("gpu_missing", B)) == 1


def test_03b_the_bus_knows_of_a_gpu_that_nvml_does_not(child_driver: FakeGpus) -> None:
    """More devices on the PCI bus than in NVML are a difference, whoever is registered."""
    with collecting([A], pci=2) as collector:
        found = collected(collector, "gpu_missing")
    assert "pci 2" in str(found[0].detail)
    assert child_driver.path.exists()


LOGS = {
    "one line": (
        ["NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus."],
        ("0000:41:00", 79),
    ),
    "old form": (["[12.3] NVRM: Xid (0000:41:00): 13, 0001 00000000"], ("0000:41:00", 13)),
    "long domain": (["NVRM: Xid (PCI:00000000:41:00.0): 48, DBE"], ("0000:41:00", 48)),
    "words alone": (["NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."], ("0000:41:00", 79)),
    "three lines": (
        [
            "NVRM: The NVIDIA GPU 0000:41:00.0",
            "NVRM: (PCI ID: 10de:2684) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
        ("0000:41:00", 79),
    ),
    "broken inside the words": (
        ["NVRM: GPU at PCI:0000:41:00: has fallen off", "NVRM: the bus"],
        ("0000:41:00", 79),
    ),
    "no number": (["NVRM: Xid (PCI:0000:41:00): see the manual"], ("0000:41:00", None)),
    "no place": (["NVRM: Xid report 119"], (None, None)),
}


@pytest.mark.parametrize("name", LOGS)
def test_04_the_words_of_the_kernel_may_change(name: str) -> None:
    """Whatever the form, a fault is found once; what cannot be read of it is null, not dropped."""
    lines, expected = LOGS[name]
    parser = Parser()
    found = [one for one in (parser.line(line, 5) for line in lines) if one is not None]
    assert [(one.pci, one.code) for one in found] == [expected]
    assert found[0].raw in lines[-1]


def test_04b_other_lines_of_the_kernel_are_nobodys_fault() -> None:
    """Lines of the driver without a fault, and of others, give nothing."""
    parser = Parser()
    for line in (
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20",
        "usb 1-1: new device",
        "pcieport 0000:00:01.0: AER: Corrected error received",
    ):
        assert parser.line(line, 1) is None


def test_05_an_index_that_shifts_moves_no_number(child_driver: FakeGpus) -> None:
    """When two GPUs change places, each UUID keeps its own numbers, in a new generation."""
    child_driver.set({"gpus": 2, "gpu0.util": 10, "gpu1.util": 90})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        assert read(collector).gpus[A].values["util"] == 10
        child_driver.set({"gpu0.uuid": B, "gpu0.util": 90, "gpu1.uuid": A, "gpu1.util": 10})
        until(lambda: has_swept(collector, generation=2))
        assert read(collector).gpus[A].values["util"] == 10
        assert read(collector).gpus[B].values["util"] == 90
        assert {one.uuid: one.slot for one in collector.identities()} == {B: 0, A: 1}


def test_05b_handles_that_mean_another_gpu_end_the_generation(in_process: Load) -> None:
    """The 60 s sweep notices that a UUID has another handle than at the start."""
    session, _ = in_process().open()
    gpus = FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)
    gpus.set({"gpus": 2, "gpu0.uuid": B, "gpu1.uuid": A})
    assert session.sweep(60).ended == SET_CHANGED


def test_06_a_hanging_call_is_stale_and_nothing_is_repeated(child_driver: FakeGpus) -> None:
    """After the deadline no number is left, the gap is told, and a new child goes on afterwards."""
    child_driver.set({"gpu0.util": 77})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        before = collector.status().child_pid
        child_driver.set({"sleep_ms.nvmlDeviceGetUtilizationRates": 7000})
        found = collected(collector, "telemetry_gap")
        assert read(collector).gpus[A].values == {}
        assert read(collector).gpus[A].status["util"] == "stale"
        child_driver.set({"sleep_ms.nvmlDeviceGetUtilizationRates": None})
        until(lambda: has_swept(collector, generation=2))
        assert collector.status().child_pid != before
    assert [one.detail for one in found if one.kind == "telemetry_gap"] == [
        "the driver does not answer"
    ]
    assert (found[0].seconds or 0) >= int(FAST.deadline) - 1


def test_07_a_hanging_child_is_left_behind_and_never_killed(child_driver: FakeGpus) -> None:
    """A child that cannot react to SIGTERM outlives the agent's stop; SIGKILL is not used."""
    with collecting(pace=FAST._replace(grace=0.5), leaves_child=True) as collector:
        until(lambda: has_swept(collector))
        pid = collector.status().child_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # As one that waits in the kernel: no signal is delivered.
    try:
        assert is_process(pid)
        assert collector.status().abandoned_children == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: collector.status().abandoned_children == 0)
    assert child_driver.path.exists()


def test_08_that_nothing_can_be_read_is_told(child_driver: FakeGpus) -> None:
    """A driver that hangs in every sweep ends as `nvml_unavailable`, once, and each gap is told."""
    child_driver.set({"sleep_ms.nvmlDeviceGetUtilizationRates": 7000})
    with collecting(pace=FAST._replace(deadline=0.4)) as collector:
        found = collected(collector, "nvml_unavailable")
        time.sleep(1.0)
        found += collector.take_findings()
    kinds_told = [one.kind for one in found]
    assert kinds_told.count("nvml_unavailable") == 1
    assert kinds_told.count("telemetry_gap") >= 3


def test_08b_hanging_children_are_not_piled_up(
    child_driver: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When more than the allowed children hang for good, no other one is started until one ends."""
    monkeypatch.setattr("adapters.hostagent.collector.supervisor.MAX_ABANDONED", 0)
    with collecting(pace=FAST._replace(grace=0.2)) as collector:
        until(lambda: has_swept(collector))
        pid = collector.status().child_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        found = collected(collector, "nvml_unavailable")
        assert collector.status().abandoned_children == 1
        assert collector.status().child_pid is None
        os.kill(pid, signal.SIGCONT)
        until(lambda: has_swept(collector, generation=2))
        assert collector.status().abandoned_children == 0
    assert "hang" in str(found[-1].detail)
    assert child_driver.path.exists()


def test_09_the_driver_can_be_let_go_of(child_driver: FakeGpus) -> None:
    """After `release` NVML is asked nothing and nothing is known; `acquire` begins anew."""
    with collecting() as collector:
        until(lambda: has_swept(collector))
        collector.release()
        until(lambda: collector.status().state == "released")
        assert read(collector).gpus[A].status["util"] == "stale"
        # An open NVML would notice this and end; a released one asks nothing.
        child_driver.set({"fail.*": 1})
        time.sleep(4 * FAST.second)
        assert collector.status().state == "released"
        child_driver.set({"fail.*": None})
        collector.acquire()
        until(lambda: has_swept(collector, generation=2))
        assert collector.take_findings() == []


def test_10_a_crashed_child_is_replaced(child_driver: FakeGpus) -> None:
    """A child that dies takes no more than itself: the next one is another generation."""
    with collecting() as collector:
        until(lambda: has_swept(collector))
        pid = collector.status().child_pid
        assert pid is not None
        os.kill(pid, signal.SIGSEGV)
        until(lambda: has_swept(collector, generation=2))
        assert collector.status().child_pid != pid
        found = collector.take_findings()
    assert [one.detail for one in found] == ["the collector ended", "it is over"]
    assert child_driver.path.exists()


def test_11_it_recovers_after_the_first_failure(child_driver: FakeGpus) -> None:
    """While the driver is not loaded that is told once; afterwards the first generation begins."""
    child_driver.set({"fail.nvmlInitWithFlags": 9})
    with collecting() as collector:
        found = collected(collector, "nvml_unavailable")
        time.sleep(4 * FAST.last_retry)
        assert collector.take_findings() == []
        child_driver.set({"fail.nvmlInitWithFlags": None})
        until(lambda: has_swept(collector))
        assert collector.status().generation == 1
    assert [(one.kind, one.code) for one in found] == [("nvml_unavailable", 9)]


def test_12_an_upgraded_driver_wants_a_reboot_and_no_crash_loop(child_driver: FakeGpus) -> None:
    """A version mismatch is told once as `reboot_required`, and no child is started meanwhile."""
    child_driver.set({"fail.nvmlInitWithFlags": VERSION_MISMATCH})
    with collecting() as collector:
        found = collected(collector, "reboot_required")
        time.sleep(6 * FAST.last_retry)
        assert collector.status().state == "reboot_required"
        assert collector.status().child_pid is None
        assert collector.take_findings() == []
    assert [one.kind for one in found] == ["reboot_required"]


def test_12b_a_mismatch_in_the_middle_is_the_same(child_driver: FakeGpus) -> None:
    """An upgrade under a running agent ends the generation with `reboot_required`."""
    with collecting() as collector:
        until(lambda: has_swept(collector))
        child_driver.set({"fail.*": VERSION_MISMATCH})
        collected(collector, "reboot_required")
        assert collector.status().state == "reboot_required"


def test_13_old_drivers_are_asked_in_the_old_way(in_process: Load) -> None:
    """Without the newest calls, processes, memory and throttling come from their elders."""
    gpus = FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)
    gpus.set({"gpu0.procs": "4321:1048576", "gpu0.mem_used": 6144 << 20, "gpu0.throttle": 4})
    loaded = in_process("old-full")
    (row,) = loaded.sweep(5).rows
    assert row.procs == [ProcessMemory(4321, 1048576)]
    assert row.values["mem_used"] == 6656 << 20
    assert row.missing["mem_reserved"] == "function_missing"
    assert row.values["throttle"] == 4
    asked = [line for line in loaded.logged if "GetComputeRunningProcesses_v3" in line]
    assert len(asked) == 1


def test_13b_what_is_missing_is_asked_once_per_generation(in_process: Load) -> None:
    """A missing function is remembered for all GPUs: many sweeps log it once."""
    FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent).set(gpus=4)
    loaded = in_process("old")
    session, _ = loaded.open()
    for _ in range(5):
        session.sweep(5)
    missing = [line for line in loaded.logged if "nvmlDeviceGetMemoryInfo(33554472,)" in line]
    assert len(missing) == 1


def test_14_the_drivers_reserve_is_not_in_use(in_process: Load) -> None:
    """6,144 MiB in use and 512 MiB reserved stay apart, where the old call says 6,656 MiB."""
    gpus = FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)
    gpus.set({"gpu0.mem_used": 6144 << 20, "gpu0.mem_reserved": 512 << 20})
    (row,) = in_process().sweep(5).rows
    assert row.values["mem_used"] == 6144 << 20
    assert row.values["mem_reserved"] == 512 << 20


def test_15_unified_memory_is_null_and_not_zero(child_driver: FakeGpus) -> None:
    """A GPU without memory of its own has no figure for it, and the flag that says why."""
    child_driver.set(
        {
            "gpu0.fail.nvmlDeviceGetMemoryInfo_v2": 3,
            "gpu0.fail.nvmlDeviceGetMemoryInfo": 3,
        }
    )
    with collecting() as collector:
        until(lambda: has_swept(collector))
        gpu = read(collector).gpus[A]
        assert "mem_total" not in gpu.values
        assert gpu.has_unified_memory
        assert collector.identities()[0].memory_bytes is None


def test_16_a_mig_gpu_is_marked_and_not_read(child_driver: FakeGpus) -> None:
    """With MIG on, nothing is read: utilisation is null as not supported, never 0."""
    child_driver.set({"gpus": 2, "gpu0.mig": 1})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        gpu = read(collector).gpus[A]
        assert gpu.state == "mig_enabled"
        assert (gpu.values, gpu.procs) == ({}, None)
        assert gpu.status["util"] == "not_supported"
        assert gpu.overall == "not_supported"


@pytest.mark.parametrize(("key", "expected"), [(None, None), (0, False), (1, True)])
def test_17_mig_has_three_values(in_process: Load, key: int | None, expected: bool | None) -> None:
    """No MIG, MIG off and MIG on are told apart."""
    FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent).set({"gpu0.mig": key})
    _, opened = in_process().open()
    assert opened.gpus[0].mig is expected


def test_18_garbage_in_process_lists_is_dropped(in_process: Load) -> None:
    """Dead pids, pid 0 and absurd percentages go; no sample means idle, and none comes twice."""
    alive = sleeper()
    try:
        gpus = FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)
        gpus.set(
            {
                "gpu0.procs": f"0:5,{alive.pid}:3221225472,4194000",
                "gpu0.util": 40,
                "gpu0.sample_ts": 100,
            }
        )
        session, _ = in_process().open()
        (row,) = session.sweep(5).rows
        assert [one.pid for one in row.procs or []] == [alive.pid, 4194000]
        assert (row.procs or [])[1].mem is None
        assert [one.percent for one in row.proc_util or []] == [40, 40]
        assert session.sweep(5).rows[0].proc_util == []
        gpus.set({"gpu0.sample_ts": 200, "gpu0.util": 4000})
        assert session.sweep(5).rows[0].proc_util == []
        assert session.sweep(1).rows[0].missing["util"] == "error"
        gpus.set({"gpu0.procs": "", "gpu0.sample_ts": 300, "gpu0.util": 0})
        (row,) = session.sweep(5).rows
        assert (row.procs, row.proc_util) == ([], [])
        reading = GpuReading(
            A, "ok", 1, {}, {}, [ProcessMemory(alive.pid, 7), ProcessMemory(4194000, 8)], []
        )
        sample = Occupants().sample(reading, 100)
        assert [one.mem for one in sample.procs or []] == [7]
    finally:
        alive.terminate()
        alive.wait()


def test_19_full_utilisation_alone_is_no_work(in_process: Load) -> None:
    """A GPU stuck at 100 % with no process, no memory and resting power counts as idle."""
    gpus = FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)
    gpus.set({"gpu0.util": 100, "gpu0.power_mw": 40_000})
    session, _ = in_process().open()
    fast, slow = session.sweep(1).rows[0], session.sweep(5).rows[0]
    gpu = GpuReading(A, "ok", 1, fast.values | slow.values, {}, slow.procs, slow.proc_util)
    assert gpu.values["util"] == 100
    assert is_idle(gpu, 60_000) is True
    assert is_idle(gpu._replace(procs=[ProcessMemory(1, None)]), 60_000) is False
    assert is_idle(gpu._replace(values={**gpu.values, "power_mw": 300_000}), 60_000) is False
    assert is_idle(gpu._replace(procs=None), 60_000) is None


def test_20_a_fault_that_only_the_kernel_told_counts_and_none_counts_twice() -> None:
    """A log line alone is a fault; with the driver's event of the same second it is still one."""
    book = FaultBook()
    second = 1_000_000_000
    assert book.take(Fault(0, A, 31, "kernel"))
    assert book.take(Fault(5 * second, A, 31, "driver"))
    assert not book.take(Fault(5 * second + 400_000_000, A, 31, "kernel"))
    assert book.take(Fault(6 * second, B, 31, "kernel"))
    assert book.take(Fault(6 * second, A, 13, "driver"))
    assert book.take(Fault(6 * second, A, 13, "driver"))
    assert book.counts == {"31": 3, "13": 2}


def test_21_a_thousand_sweeps_leak_nothing(in_process: Load) -> None:
    """One initialisation serves a thousand sweeps; the number of descriptors stays."""
    session, _ = in_process().open()
    first = session.sweep(1).open_fds
    for _ in range(998):
        session.sweep(1)
    assert session.sweep(1).open_fds == first


def test_22_missing_persistence_mode_is_told_once(child_driver: FakeGpus) -> None:
    """A GPU that is initialised anew at each open is one warning a generation, not a sweep."""
    child_driver.set({"gpus": 2, "gpu1.persist": 0})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        time.sleep(3 * FAST.second)
        assert kinds(list(collector.take_findings())) == [("persistence_off", B)]


def test_23_energy_counts_only_inside_a_generation(child_driver: FakeGpus) -> None:
    """An absent counter is null, and one that is lower after a new start adds nothing."""
    meter = EnergyMeter()
    with collecting() as collector:
        until(lambda: has_swept(collector))
        assert "energy_mj" not in read(collector).gpus[A].values
    child_driver.set({"gpu0.energy_mj": 9_000_000})
    with collecting() as collector:
        until(lambda: has_swept(collector))
        meter.look(read(collector), 1)
        child_driver.set({"gpu0.energy_mj": 9_000_250})
        until(lambda: read(collector).gpus[A].values.get("energy_mj") == 9_000_250)
        meter.look(read(collector), 2)
        child_driver.set({"gpu0.energy_mj": 40, "fail.nvmlDeviceGetCount_v2": 1})
        until(lambda: read(collector).state != "ok")
        child_driver.set({"fail.nvmlDeviceGetCount_v2": None})
        until(lambda: has_swept(collector, generation=2))
        meter.look(read(collector), 3)
    assert meter.used_mj == {A: 250}


def test_24_a_counter_that_falls_and_comes_back_books_no_lifetime() -> None:
    """9 GB, 0, 9 GB and a bit a second later is a bit, not 9 GB; nothing wraps."""
    link, second = 125_000_000, 1_000_000_000
    first = advance(Counter(9_000_000_000), 0, second, link)
    assert (first.bytes, first.flags) == (0, ("counter_reset",))
    back = advance(first.counter, 9_000_001_000, second, link)
    assert (back.bytes, back.flags) == (1000, ("counter_glitch",))


def test_a_kernel_line_names_its_gpu_by_bus_address() -> None:
    """The parser's address is that of NVML without the function."""
    found = Parser().line("NVRM: Xid (PCI:0000:0A:00): 31, pid=7", 3)
    assert found == KernelFault(3, "0000:0a:00", 31, True, "NVRM: Xid (PCI:0000:0A:00): 31, pid=7")


def test_a_fault_without_a_gpu_makes_all_of_them_doubtful(child_driver: FakeGpus) -> None:
    """An event whose GPU cannot be read is passed on without one."""
    with collecting() as collector:
        until(lambda: has_swept(collector))
        child_driver.set({"xid": "9:48:n"})
        xids = told(collector)
    assert [(one.code, one.uuid) for one in xids] == [(48, None)]
