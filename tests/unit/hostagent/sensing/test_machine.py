"""Processes, kernel log, disks, inventory and fault classes: what is read of the machine itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from adapters.hostagent.collector.protocol import GpuIdentity, Versions
from adapters.hostagent.kernel_gpus import pci_gpus
from adapters.hostagent.runtime.process_files import start_of
from adapters.hostagent.sensing.inventory import is_same_hardware, measure_disk, take_inventory
from adapters.hostagent.sensing.kernel_log import KernelFault, KernelLog
from adapters.hostagent.sensing.processes import Containers, container_of, inside_pid, process
from adapters.hostagent.sensing.storage import Disks, DiskUse, crossed, disk_use
from adapters.hostagent.sensing.xids import APPLICATION, DEGRADED, FATAL, classify
from tests.support.fake_nvml import until, uuid
from tests.support.senses import SECOND_NS, FakeProc, MachineClock

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "line",
    [
        f"0::/system.slice/docker-{ID}.scope",
        f"12:devices:/docker/{ID}",
        f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope",
        f"0::/machine.slice/libpod-{ID}.scope/container",
    ],
)
def test_a_process_names_its_container(tmp_path: Path, line: str) -> None:
    """The id is found in the control group of every engine's form."""
    (tmp_path / "9").mkdir()
    (tmp_path / "9/cgroup").write_text(f"{line}\n")
    assert container_of(9, tmp_path) == ID


def test_a_process_of_the_host_has_no_container(tmp_path: Path) -> None:
    """Neither a login session nor a short number is a container."""
    (tmp_path / "9").mkdir()
    (tmp_path / "9/cgroup").write_text("0::/user.slice/user-0.slice\n1:x:/docker/123\n")
    assert container_of(9, tmp_path) is None


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    """The cache is kept by pid and start time, so the second holder of a pid is looked up anew."""
    proc, clock = FakeProc(tmp_path), MachineClock()
    containers = Containers(proc.folder)
    proc.start(70, clock, container=ID)
    assert [found and found[1] for found in [containers.of(70)]] == [ID]
    clock.pass_seconds(5)
    proc.start(70, clock)
    assert [found and found[1] for found in [containers.of(70)]] == [None]
    assert inside_pid(70, proc.folder) == 1


def test_a_process_whose_name_is_no_text_lives(tmp_path: Path) -> None:
    """A renter who names a program in bytes that are no UTF-8 ends neither ticks nor the agent."""
    program = os.fsencode(tmp_path) + b"/\xff) Z \xfe"
    os.symlink(b"/bin/sleep", program)
    with subprocess.Popen([program, b"60"]) as renter:
        until(lambda: b"\xff" in Path(f"/proc/{renter.pid}/comm").read_bytes())
        found = process(renter.pid)
        assert found is not None
        assert start_of(renter.pid) == found.started_ticks
        renter.kill()


def test_a_zombie_is_no_process() -> None:
    """A child that has ended and is not reaped has a pid and no life."""
    with subprocess.Popen(["/bin/true"]) as child:
        until(lambda: process(child.pid) is None)
    mine = process(os.getpid())
    assert mine is not None
    assert mine.started_ticks > 0


def test_the_kernels_log_is_followed(tmp_path: Path) -> None:
    """Records that arrive while it is followed give faults; lines from before the start do not."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)
    log = KernelLog(pipe)
    log.start()
    try:
        os.write(holder, b"6,1,99,-;usb 1-1: hello\n SUBSYSTEM=usb\n")
        os.write(holder, b"3,2,100,-;NVRM: Xid (PCI:0000:41:00): 31, pid=7, MMU Fault\n")
        found: list[KernelFault] = []

        def has_fault() -> bool:
            found.extend(log.take())
            return bool(found)

        until(has_fault)
        assert [(one.pci, one.code, one.is_xid) for one in found] == [("0000:41:00", 31, True)]
        assert log.is_followed
    finally:
        log.stop()
        os.close(holder)


def test_a_forbidden_log_is_no_failure(tmp_path: Path) -> None:
    """Where the kernel's log cannot be opened, faults come from the driver alone."""
    log = KernelLog(tmp_path / "none")
    log.start()
    assert not log.is_followed
    log.stop()


def test_classes_of_faults_do_not_overlap() -> None:
    """Every listed number has one class, and any other makes the GPU suspect."""
    assert not APPLICATION & DEGRADED
    assert not APPLICATION & FATAL
    assert not DEGRADED & FATAL
    assert {classify(code) for code in APPLICATION} == {"application"}
    assert {classify(code) for code in DEGRADED} == {"degraded"}
    assert {classify(code) for code in FATAL} == {"fatal"}
    assert {classify(None), classify(154), classify(999)} == {"suspect"}


def test_a_disk_is_told_once_per_crossing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """90 % and 98 % are told when they are crossed, looked at once an hour."""
    uses = iter([50, 91, 92, 98, 99, 93, 50, 95])

    def next_use(_: Path) -> DiskUse:
        return DiskUse(1000, next(uses) * 10)

    monkeypatch.setattr("adapters.hostagent.sensing.storage.disk_use", next_use)
    disks = Disks()
    hours = [disks.look(0, tmp_path, hour * 3600 * SECOND_NS) for hour in range(8)]
    assert [found and found.kind for found in hours] == [
        None, "disk_high", None, "disk_critical", None, None, None, "disk_high",
    ]  # fmt: skip
    assert disks.look(0, tmp_path, 7 * 3600 * SECOND_NS + 1) is None
    assert (crossed(89), crossed(90), crossed(98)) == (None, "disk_high", "disk_critical")


def test_a_disk_that_was_never_seen_is_not_gone(tmp_path: Path) -> None:
    """What the agent cannot see, from a container of its own say, costs nobody an instance."""
    disks = Disks()
    for second in (0, 10, 20):
        disks.look(7, tmp_path / "disk", second * SECOND_NS)
    assert disks.gone == set()


def test_a_disk_is_gone_after_two_looks(tmp_path: Path) -> None:
    """A path that is missing once may come back; one that is missing ten seconds later is gone."""
    disks, path = Disks(), tmp_path / "disk"
    path.mkdir()
    disks.look(7, path, 0)
    path.rmdir()
    disks.look(7, path, 0)
    assert disks.gone == set()
    disks.look(7, path, 10 * SECOND_NS)
    assert disks.gone == {7}
    path.mkdir()
    disks.look(7, path, 20 * SECOND_NS)
    assert disks.gone == set()


def test_a_disk_can_be_asked_and_timed(tmp_path: Path) -> None:
    """The file system says its size in one question; a timed write leaves nothing behind."""
    use = disk_use(tmp_path)
    assert use is not None
    assert 0 <= use.used <= use.total
    speed = measure_disk(tmp_path, 8 << 20)
    assert speed is None or speed > 0
    assert list(tmp_path.iterdir()) == []
    assert disk_use(tmp_path / "none") is None


def test_this_machine_has_an_inventory() -> None:
    """What is known carries the way it was measured; the driver's figures come from its library."""
    gpu = GpuIdentity(
        uuid=uuid(0), slot=0, name="RTX 4090", memory_bytes=24_576 << 20, pcie_gen_max=4,
        pcie_width_max=16,
    )  # fmt: skip
    found = take_inventory([gpu], Versions(driver="570.1", cuda="12.8"), port_range="40000-40999")
    assert found.cpu_cores == os.cpu_count()
    assert found.ram_mib is not None
    assert found.ram_mib > 100
    assert (found.driver, found.cuda, found.port_range) == ("570.1", "12.8", "40000-40999")
    assert (found.gpus[0].mib, found.gpus[0].pcie_mb_s) == (24_576, 1969 * 16)
    assert found.disk_mb_s is None
    assert "disk_mb_s" not in found.measured
    assert set(found.measured) >= {"cpu_cores", "ram_mib", "disk_gb", "driver", "gpus"}
    assert is_same_hardware(
        found,
        take_inventory([gpu], Versions(driver="570.1", cuda="12.8"), port_range="40000-40999"),
    )
    assert not is_same_hardware(found, take_inventory([], None))


def test_an_empty_machine_is_all_null(tmp_path: Path) -> None:
    """A machine that shows nothing has an inventory without a guess."""
    found = take_inventory([], None, disk=tmp_path / "none", root=tmp_path)
    assert (found.cpu_name, found.ram_mib, found.disk_gb, found.mainboard) == (None,) * 4
    assert (found.avx, found.uplink_tx_bytes, found.gpus) == (None, None, [])


def test_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    """Display devices of the one vendor count, its audio devices and others do not."""
    for name, vendor, kind in (
        ("0", "0x10de", "0x030000"),
        ("1", "0x10de", "0x030200"),
        ("2", "0x10de", "0x040300"),
        ("3", "0x8086", "0x030000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert pci_gpus(tmp_path) == 2
    assert pci_gpus(tmp_path / "none") == 0
