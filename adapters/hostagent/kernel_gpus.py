"""The GPUs that the driver's kernel part shows: there without NVML and without opening a device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ledger.domain.hardware import GpuInventory

DRIVER: Final = Path("/proc/driver/nvidia")
_PCI: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"
_LINE: Final = re.compile(r"^\s*(?P<name>[A-Za-z0-9 ]+):\s+(?P<value>.+?)\s*$")


def pci_gpus(devices: Path = _PCI) -> int:
    """NVIDIA's display devices on the PCI bus, by the kernel's own list; no driver is asked."""
    found = 0
    for device in devices.glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue  # It was unplugged while we looked.
        found += vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASS)
    return found


def gpus(driver: Path = DRIVER) -> list[GpuInventory]:
    """Each GPU in the order of its bus address; empty where the driver is not loaded."""
    found = []
    for folder in sorted((driver / "gpus").glob("*")):
        facts = _facts(folder / "information")
        uuid = facts.get("GPU UUID", "")
        if uuid.startswith("GPU-") and "?" not in uuid:
            found.append(GpuInventory(uuid=uuid, name=facts.get("Model")))
    return found


def driver_version(driver: Path = DRIVER) -> str | None:
    """The version of the loaded kernel module; null when none is loaded."""
    try:
        text = (driver / "version").read_text()
    except OSError:
        return None
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return None if found is None else found[1]


def _facts(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return {}
    return {
        found["name"].strip(): found["value"]
        for line in text.splitlines()
        if (found := _LINE.match(line)) is not None
    }
