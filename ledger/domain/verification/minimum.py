"""Is a machine enough for this market: the minimum bars (`marketplace.md` §11.1).

What was not measured meets no bar. Comparisons are exact: integers and fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Literal, NamedTuple

import msgspec

from ledger.domain.hardware import Inventory
from ledger.domain.money import BYTES_PER_GB
from ledger.domain.verification.compare import (
    MIB,
    MIB_PER_GIB,
    Probed,
    normalised_gpu_name,
    version,
)


class Shortfall(NamedTuple):
    """A minimum that is not met; *found* is null when it was not measured."""

    bar: str
    needed: int | str
    found: int | str | None


class MinimumBars(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine must have at least; the defaults are the rule book's."""

    cuda_to_list: str = "11.8"
    cuda_to_verify: str = "12.0"
    ports_per_gpu: int = 3
    pcie_mb_s_above: int = 2_850
    gpu_ram_gb: int = 7
    cores_per_gpu: int = 2
    ram_percent_of_vram: int = 95
    ram_mib_cap: int = 2_000_000
    disk_gb_per_gpu: int = 128
    kbps_per_gib_of_vram: int = 2_600
    mbps_least: int = 100
    mbps_most: int = 500

    def mbps(self, vram_mib: int) -> Fraction:
        """Mbit/s that this much GPU memory in all needs, up and down each."""
        wanted = Fraction(self.kbps_per_gib_of_vram * vram_mib, 1_000 * MIB_PER_GIB)
        return min(max(wanted, Fraction(self.mbps_least)), Fraction(self.mbps_most))

    def ram_mib(self, vram_mib: int) -> int:
        """MiB of RAM that this much GPU memory in all needs, rounded up."""
        return min(-(-self.ram_percent_of_vram * vram_mib // 100), self.ram_mib_cap)


def bars(
    purpose: Literal["list", "verify"],
    inventory: Inventory,
    probed: Probed | None = None,
    minimum: MinimumBars | None = None,
) -> list[Shortfall]:
    """Every minimum that the machine misses for this purpose; empty when it may go ahead.

    Judged on what was found, never on what is stated. Per GPU, the worst one counts. Needs that
    follow from GPU memory take what is known of it; unknown memory is a shortfall by itself.
    """
    probed = Probed() if probed is None else probed
    least = MinimumBars() if minimum is None else minimum
    gpus = inventory.gpus
    n = len(gpus)
    vram_mib = sum(gpu.mib or 0 for gpu in gpus)
    mbps = ceil(least.mbps(vram_mib))
    needs: list[tuple[str, int, int | None]] = [
        ("gpus", 1, n),  # having none meets no need per GPU
        ("open_ports", least.ports_per_gpu * n, probed.open_ports),
        ("pcie_mb_s", least.pcie_mb_s_above + 1, _worst([gpu.pcie_mb_s for gpu in gpus])),
        (
            "gpu_ram_mib",
            -(-least.gpu_ram_gb * BYTES_PER_GB // MIB),
            _worst([gpu.mib for gpu in gpus]),
        ),
        ("cpu_cores", least.cores_per_gpu * n, inventory.cpu_cores),
        ("ram_mib", least.ram_mib(vram_mib), inventory.ram_mib),
        ("disk_gb", least.disk_gb_per_gpu * n, inventory.disk_gb),
        ("up_mbps", mbps, probed.up_mbps),
        ("down_mbps", mbps, probed.down_mbps),
    ]
    missed = [
        Shortfall(bar, needed, found)
        for bar, needed, found in needs
        if found is None or found < needed
    ]
    cuda = least.cuda_to_list if purpose == "list" else least.cuda_to_verify
    has, wanted = version(inventory.cuda), version(cuda)
    if has is None or wanted is None or has < wanted:
        missed.insert(0, Shortfall("cuda", cuda, inventory.cuda))
    return missed + _unlike(inventory)


def _worst(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _unlike(inventory: Inventory) -> list[Shortfall]:
    gpus = inventory.gpus
    names = {normalised_gpu_name(gpu.name) if gpu.name else None for gpu in gpus}
    sizes = [gpu.mib for gpu in gpus if gpu.mib is not None]
    spread = bool(sizes) and 100 * min(sizes) < 98 * max(sizes)
    if len(names) <= 1 and not spread and (len(gpus) <= 1 or None not in names):
        return []
    kinds = {f"{gpu.name} {gpu.mib} MiB" for gpu in gpus if gpu.name}
    return [Shortfall("gpus_alike", "one kind of GPU", ", ".join(sorted(kinds)) or None)]
