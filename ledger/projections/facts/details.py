"""An inventory as the numbers and texts that the search compares."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ledger.domain.hardware import GpuInventory, Inventory
from ledger.domain.verification import version
from ledger.projections.facts.change import Change

_NUMBERED: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3}){0,2}")
_PORTS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PORT_MAX: Final = 65_535
_INTEGER_MAX: Final = 2**31 - 1


def details(machine_id: int, inventory: Inventory) -> Change:
    """The row of `machine_details`; of several GPUs the least counts."""
    values: dict[str, object] = {
        "machine_id": machine_id,
        "cuda": _cuda(inventory.cuda),
        "driver": _shown(inventory.driver),
        "driver_number": driver_number(inventory.driver),
        "compute_capability": compute_capability(inventory),
        "cpu_name": _shown(inventory.cpu_name),
        "cpu_ghz": _thousandth(inventory.cpu_mhz),
        "architecture": _shown(inventory.architecture),
        "avx": inventory.avx,
        "disk_name": _shown(inventory.disk_name),
        "disk_mb_s": inventory.disk_mb_s,
        "pcie_gen": _possible(_least(inventory, lambda gpu: gpu.pcie_gen)),
        "pcie_gb_s": _thousandth(_least(inventory, lambda gpu: gpu.pcie_mb_s)),
        "nvlink_gb_s": _thousandth(_least(inventory, lambda gpu: gpu.nvlink_mb_s)),
        "gpu_memory_gb_s": _thousandth(_least(inventory, lambda gpu: gpu.memory_bandwidth_mb_s)),
        "gpu_power_w": _watts(_least(inventory, lambda gpu: gpu.max_power_mw)),
        "ports": port_count(inventory.port_range),
        "os_version": _shown(inventory.os_version),
        "mainboard": _shown(inventory.mainboard),
    }
    return Change(_PUT, tuple(values.values()))


_NAMES: Final = (
    "machine_id", "cuda", "driver", "driver_number", "compute_capability", "cpu_name", "cpu_ghz",
    "architecture", "avx", "disk_name", "disk_mb_s", "pcie_gen", "pcie_gb_s", "nvlink_gb_s",
    "gpu_memory_gb_s", "gpu_power_w", "ports", "os_version", "mainboard",
)  # fmt: skip
_PUT: Final = (
    f"INSERT INTO machine_details ({', '.join(_NAMES)})"  # noqa: S608 - constants of this module
    f" VALUES ({', '.join(['%s'] * len(_NAMES))}) ON CONFLICT (machine_id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _NAMES[1:])
)


def driver_number(driver: str | None) -> int | None:
    """Three digits per part: 570.86.10 is 570086010; null for what is no such version."""
    if driver is None or not _NUMBERED.fullmatch(driver):
        return None
    parts = [int(part) for part in driver.split(".")]
    major, minor, patch = [*parts, 0, 0][:3]
    return major * 1_000_000 + minor * 1_000 + patch


def compute_capability(inventory: Inventory) -> int | None:
    """A hundred times the version: 8.9 is 890."""
    found = [version(gpu.compute_capability) for gpu in inventory.gpus]
    known = [[*one, 0, 0][:2] for one in found if one]
    return _possible(min((100 * major + 10 * minor for major, minor in known), default=None))


def port_count(port_range: str | None) -> int | None:
    """How many ports ``40000-40099`` holds; null for what is no range."""
    found = _PORTS.fullmatch(port_range or "")
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    return last - first + 1 if first <= last <= _PORT_MAX else None


def _cuda(text: str | None) -> float | None:
    """The version as a number, as searches compare it: 12.8."""
    numbers = version(text)
    if not numbers or max(numbers) >= 1_000:  # noqa: PLR2004 - no version of CUDA
        return None
    return float(".".join(str(part) for part in [*numbers, 0][:2]))


def _least(inventory: Inventory, of: Callable[[GpuInventory], int | None]) -> int | None:
    return min((value for gpu in inventory.gpus if (value := of(gpu)) is not None), default=None)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1_000


def _watts(milliwatts: int | None) -> int | None:
    return None if milliwatts is None else _possible(milliwatts // 1_000)


def _possible(value: int | None) -> int | None:
    """An agent may claim any number; one that no GPU can have is as good as none."""
    return value if value is not None and value <= _INTEGER_MAX else None


def _shown(text: str | None) -> str | None:
    """Without the one character that the database cannot keep."""
    return None if text is None else text.replace("\0", "")
