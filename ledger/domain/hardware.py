"""What a machine is made of, as its agent reports it.

Every number is a claim; null means not measured.
"""

from __future__ import annotations

from typing import Annotated, dataclass_transform

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Hardware(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of an inventory."""


class GpuInventory(_Hardware):
    """One GPU. Sizes in MiB, bandwidths in GB/s (measured) and MB/s, power in milliwatts."""

    uuid: Name
    name: Name | None = None
    mib: Count | None = None
    compute_capability: Name | None = None
    memory_bandwidth_mb_s: Count | None = None
    pcie_gen: Count | None = None
    pcie_width: Count | None = None
    pcie_mb_s: Count | None = None
    nvlink_mb_s: Count | None = None
    max_power_mw: Count | None = None


class Inventory(_Hardware):
    """A host computer. `measured` says per field how its number was obtained."""

    cpu_name: Name | None = None
    cpu_cores: Count | None = None
    cpu_mhz: Count | None = None
    architecture: Name | None = None
    avx: bool | None = None
    ram_mib: Count | None = None
    disk_name: Name | None = None
    disk_gb: Count | None = None
    disk_mb_s: Count | None = None
    mainboard: Name | None = None
    os_version: Name | None = None
    driver: Name | None = None
    cuda: Name | None = None
    port_range: Name | None = None
    uplink_tx_bytes: Count | None = None
    uplink_rx_bytes: Count | None = None
    gpus: Annotated[list[GpuInventory], Meta(max_length=16)] = []
    measured: dict[Name, Name] = {}


class ConnectionPort(_Hardware):
    """A port of the container and where the host publishes it."""

    container_port: Count
    host_port: Count
    protocol: Name = "tcp"
