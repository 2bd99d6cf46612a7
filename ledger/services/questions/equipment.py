"""What a machine is equipped with, as its agent found it: for its offers and its tenants alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec


class Equipped(msgspec.Struct, frozen=True, kw_only=True):
    """The equipment of a machine, under the names of the search's fields; null: not told.

    Rates of links and memory in GB a second, of disks in MB a second; power in watts.
    """

    cuda: float | None
    direct_port_count: int | None
    static_ip: bool | None
    nvlink_bw: float | None
    driver: str | None
    driver_number: int | None
    compute_capability: int | None
    cpu_name: str | None
    cpu_ghz: float | None
    cpu_arch: str | None
    has_avx: bool | None
    disk_name: str | None
    disk_bw: int | None
    pcie_gen: int | None
    pcie_bw: float | None
    gpu_mem_bw: float | None
    gpu_max_power: int | None
    os_version: str | None
    mobo_name: str | None


EQUIPMENT: Final = (
    "d.cuda, d.ports, d.static_ip, d.nvlink_gb_s, d.driver, d.driver_number, d.compute_capability,"
    " d.cpu_name, d.cpu_ghz, d.architecture, d.avx, d.disk_name, d.disk_mb_s, d.pcie_gen,"
    " d.pcie_gb_s, d.gpu_memory_gb_s, d.gpu_power_w, d.os_version, d.mainboard"
)
"""Its columns in `machine_details d`, in the order of the fields."""


def equipment(columns: Sequence[Any]) -> dict[str, Any]:
    """The fields of `Equipped` from the columns of `EQUIPMENT`."""
    return dict(zip(Equipped.__struct_fields__, columns, strict=True))
