"""What the machine is made of, as kernel and driver say; each number with its source."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from adapters.hostagent.collector.protocol import GpuIdentity, Versions
from adapters.hostagent.sensing.storage import disk_use
from ledger.domain.hardware import GpuInventory, Inventory

_ROOT: Final = Path("/")
_LANE_MB_S: Final = {1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}
"""One PCIe lane, one way, after line coding."""
_BLOCK: Final = 1 << 22
_MAX_NAME: Final = 256


def take_inventory(
    gpus: Sequence[GpuIdentity],
    versions: Versions | None,
    *,
    disk: Path = _ROOT,
    port_range: str | None = None,
    disk_mb_s: int | None = None,
    root: Path = _ROOT,
) -> Inventory:
    """The machine's inventory; what cannot be read is null.

    Args:
        gpus: As the driver names them.
        versions: Of driver and CUDA.
        disk: A path on the disk that instances get.
        port_range: What the operator says that is open, as `40000-40999`.
        disk_mb_s: From `measure_disk`, which takes seconds.
        root: Where `proc`, `sys` and `etc` are.
    """
    use = disk_use(disk)
    cpu = _cpu(root)
    tx, rx = _uplink(root)
    found: dict[str, tuple[Any, str]] = {
        "cpu_name": (cpu.get("model name"), "/proc/cpuinfo"),
        "cpu_cores": (os.cpu_count(), "scheduler"),
        "cpu_mhz": _mhz(cpu, root),
        "architecture": (platform.machine() or None, "kernel"),
        "avx": (_avx(cpu), "/proc/cpuinfo"),
        "ram_mib": (_ram_mib(root), "/proc/meminfo"),
        "disk_name": (_disk_name(disk, root), "sysfs"),
        "disk_gb": (None if use is None else use.total // 10**9, "statvfs"),
        "disk_mb_s": (disk_mb_s, "timed: 1 GiB written and read"),
        "mainboard": (_mainboard(root), "dmi"),
        "os_version": (_os_version(root), "os-release"),
        "driver": (None if versions is None else versions.driver, "nvml"),
        "cuda": (None if versions is None else versions.cuda, "nvml"),
        "port_range": (port_range, "operator"),
        "uplink_tx_bytes": (tx, "interface of the default route"),
        "uplink_rx_bytes": (rx, "interface of the default route"),
    }
    known = {name: value for name, (value, _) in found.items() if value is not None}
    measured = {name: found[name][1] for name in known}
    if gpus:
        measured |= {"gpus": "nvml", "gpus.pcie_mb_s": "computed: generation × width"}
        measured["gpus.memory_bandwidth_mb_s"] = "computed: bus width × maximum clock"
    return Inventory(gpus=[_gpu(one) for one in gpus], measured=measured, **known)


def is_same_hardware(one: Inventory, other: Inventory) -> bool:
    """True when nothing differs but counters."""
    return _without_counters(one) == _without_counters(other)


def measure_disk(folder: Path, size: int = 1 << 30) -> int | None:
    """MB/s of the slower of writing and reading *size* bytes, durable; null when there is no room.

    Takes seconds and loads the disk: at enrolment, and weekly while the machine is idle.
    """
    use = disk_use(folder)
    if use is None or use.total - use.used < 2 * size:
        return None
    path = folder / f".speed-{os.getpid()}"
    block = os.urandom(_BLOCK)
    try:
        began = time.monotonic_ns()
        with path.open("wb", buffering=0) as file:
            for _ in range(size // _BLOCK):
                file.write(block)
            os.fsync(file.fileno())
            written_ns = time.monotonic_ns() - began
            # What was just written would be read from memory otherwise.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.monotonic_ns()
        with path.open("rb", buffering=0) as file:
            while file.read(_BLOCK):
                pass
        read_ns = time.monotonic_ns() - began
    finally:
        path.unlink(missing_ok=True)
    return size * 1000 // max(written_ns, read_ns, 1)


def _without_counters(one: Inventory) -> dict[str, Any]:
    return {
        name: getattr(one, name)
        for name in one.__struct_fields__
        if name not in {"uplink_tx_bytes", "uplink_rx_bytes", "cpu_mhz", "measured"}
    }


def _gpu(gpu: GpuIdentity) -> GpuInventory:
    lane = _LANE_MB_S.get(gpu.pcie_gen_max or 0)
    width = gpu.pcie_width_max
    return GpuInventory(
        uuid=gpu.uuid,
        name=gpu.name,
        mib=None if gpu.memory_bytes is None else gpu.memory_bytes >> 20,
        compute_capability=gpu.compute_capability,
        memory_bandwidth_mb_s=gpu.memory_bandwidth_mb_s,
        pcie_gen=gpu.pcie_gen_max,
        pcie_width=width,
        pcie_mb_s=None if lane is None or width is None else lane * width,
        max_power_mw=gpu.power_limit_mw,
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()[:_MAX_NAME] or None
    except OSError:
        return None


def _cpu(root: Path) -> dict[str, str]:
    """The first processor's lines."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _mhz(cpu: dict[str, str], root: Path) -> tuple[int | None, str]:
    limit = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if limit is not None and limit.isdigit():
        return int(limit) // 1000, "cpufreq"
    now = cpu.get("cpu MHz")
    return (None if now is None else int(now.partition(".")[0])), "/proc/cpuinfo"


def _avx(cpu: dict[str, str]) -> bool | None:
    flags = cpu.get("flags") or cpu.get("Features")
    return None if flags is None else "avx" in flags.split()


def _ram_mib(root: Path) -> int | None:
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return None if found is None else int(found.group(1)) // 1024


def _disk_name(path: Path, root: Path) -> str | None:
    """The model of the device below a path; null for network and virtual file systems."""
    try:
        number = path.stat().st_dev
    except OSError:
        return None
    device = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    # A partition's model is that of the disk above it.
    for place in (device / "device/model", device / "../device/model"):
        found = _text(place)
        if found is not None:
            return found
    return device.resolve().name if device.exists() else None


def _mainboard(root: Path) -> str | None:
    parts = [_text(root / f"sys/class/dmi/id/board_{part}") for part in ("vendor", "name")]
    return " ".join(part for part in parts if part) or None


def _os_version(root: Path) -> str | None:
    text = _text(root / "etc/os-release") or ""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)"?', text, re.MULTILINE)
    return None if found is None else f"{found.group(1)}, Linux {platform.release()}"[:_MAX_NAME]


def _uplink(root: Path) -> tuple[int | None, int | None]:
    """Bytes sent and received by the interface of the default route."""
    try:
        lines = (root / "proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return None, None
    routes = [words for line in lines if len(words := line.split()) > 1]
    name = next((words[0] for words in routes if words[1] == "00000000"), None)
    if name is None:
        return None, None
    folder = root / "sys/class/net" / name / "statistics"
    sent, received = _text(folder / "tx_bytes"), _text(folder / "rx_bytes")
    return (
        int(sent) if sent is not None else None,
        int(received) if received is not None else None,
    )
