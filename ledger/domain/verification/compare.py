"""Is a machine what is stated of it (`marketplace.md` §11.1).

What was not measured contradicts nothing. Comparisons are exact, in integers.

A stated GB of memory is at least 10^9 bytes. Of a GPU it may also be a GiB, as on the box of the
card: what lies between is what driver and ECC keep for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from ledger.domain.hardware import Inventory
from ledger.domain.money import BYTES_PER_GB

Severity = Literal["deverify_at_once", "not_verified"]

MIB: Final = 2**20
MIB_PER_GIB: Final = 1_024


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration or listing says of a machine: a `MachineSpec`, and more if it says more.

    Sizes in GB, links in Mbit/s; GPU memory per GPU, everything else of the whole machine.
    """

    gpus: int
    gpu_name: str
    gpu_ram_gb: int
    cpu_cores: int
    ram_gb: int
    disk_gb: int
    up_mbps: int
    down_mbps: int
    driver: str | None = None
    cuda: str | None = None
    open_ports: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    region: str | None = None


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform found from outside; null means not measured.

    *under_load*: the inventory was taken while the GPUs worked. An idle link drops its generation,
    so only then do its PCIe generation and width say anything.
    """

    up_mbps: int | None = None
    down_mbps: int | None = None
    open_ports: int | None = None
    region: str | None = None
    under_load: bool = False


class Difference(NamedTuple):
    """A field in which a machine is not what was stated."""

    field: str
    stated: int | str
    found: int | str
    severity: Severity


_SAYS_NOTHING: Final = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|graphics|gpu|generation|sxm[0-9]*|hbm[0-9]\w?|[0-9]+ ?gi?b)\b"
)
_VERSION: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")


def normalised_gpu_name(name: str) -> str:
    """A GPU's name without maker, memory size, socket, case and punctuation.

    ``"NVIDIA GeForce RTX 4090"`` and ``"RTX_4090"`` are both ``"rtx4090"``. What tells two chips or
    boards apart stays: Ti, Super, Laptop, Ada, PCIe, NVL. A bare name stands for the SXM board.
    """
    words = re.sub(r"[^a-z0-9]+", " ", name.casefold())
    return _SAYS_NOTHING.sub(" ", words).replace(" ", "")


def version(text: str | None) -> tuple[int, ...] | None:
    """The numbers of a version, comparable; None for what is not one.

    CUDA's own integer (12080 for 12.8) is read like its dotted form, and 12.0 equals 12.
    """
    if text is None or not _VERSION.fullmatch(text):
        return None
    numbers = [int(part) for part in text.split(".")]
    if len(numbers) == 1 and numbers[0] >= 1_000:  # noqa: PLR2004 - 1000 · major + 10 · minor
        numbers = [numbers[0] // 1_000, numbers[0] % 1_000 // 10]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def differences(
    stated: Stated, inventory: Inventory, uuids: Collection[str], probed: Probed | None = None
) -> list[Difference]:
    """Every field in which the machine contradicts what was stated; empty when none does.

    Fewer GPUs or less memory than stated deverify at once, everything else prevents verification.
    An inventory without GPUs counts as zero GPUs found, never as not measured.

    Args:
        stated: What the host says.
        inventory: What the machine's agent says.
        uuids: The registered GPUs.
        probed: What the platform's own probes found.
    """
    probed = Probed() if probed is None else probed
    return [
        *_gpu_differences(stated, inventory, uuids, under_load=probed.under_load),
        *_host_differences(stated, inventory),
        *_link_differences(stated, probed),
    ]


def _gpu_differences(
    stated: Stated, inventory: Inventory, uuids: Collection[str], *, under_load: bool
) -> Iterator[Difference]:
    gpus = inventory.gpus
    found = {gpu.uuid for gpu in gpus}
    if len(found) != stated.gpus:
        severity: Severity = "deverify_at_once" if len(found) < stated.gpus else "not_verified"
        yield Difference("gpus", stated.gpus, len(found), severity)
    if found != set(uuids):
        yield Difference("gpu_uuids", _listed(uuids), _listed(found), "not_verified")
    wanted = normalised_gpu_name(stated.gpu_name)
    others = {gpu.name for gpu in gpus if gpu.name and normalised_gpu_name(gpu.name) != wanted}
    if others:
        yield Difference("gpu_name", stated.gpu_name, _listed(others), "not_verified")
    sizes = [gpu.mib for gpu in gpus if gpu.mib is not None]
    if sizes and 100 * min(sizes) * MIB < 98 * stated.gpu_ram_gb * BYTES_PER_GB:
        yield Difference("gpu_ram_mib", f"{stated.gpu_ram_gb} GB", min(sizes), "deverify_at_once")
    if sizes and 100 * max(sizes) > 102 * stated.gpu_ram_gb * MIB_PER_GIB:
        yield Difference("gpu_ram_mib", f"{stated.gpu_ram_gb} GB", max(sizes), "not_verified")
    if under_load:
        yield from _at_least("pcie_gen", stated.pcie_gen, [gpu.pcie_gen for gpu in gpus])
        yield from _at_least("pcie_width", stated.pcie_width, [gpu.pcie_width for gpu in gpus])


def _host_differences(stated: Stated, inventory: Inventory) -> Iterator[Difference]:
    for field, said, seen in (
        ("driver", stated.driver, inventory.driver),
        ("cuda", stated.cuda, inventory.cuda),
    ):
        wanted, found = version(said), version(seen)
        if wanted is not None and found is not None and found < wanted:
            yield Difference(field, said or "", seen or "", "not_verified")
    yield from _at_least("cpu_cores", stated.cpu_cores, [inventory.cpu_cores], percent=97)
    ram = inventory.ram_mib
    if ram is not None and 100 * ram * MIB < 97 * stated.ram_gb * BYTES_PER_GB:
        yield Difference("ram_mib", f"{stated.ram_gb} GB", ram, "deverify_at_once")
    yield from _at_least("disk_gb", stated.disk_gb, [inventory.disk_gb], percent=95)


def _link_differences(stated: Stated, probed: Probed) -> Iterator[Difference]:
    yield from _at_least("up_mbps", stated.up_mbps, [probed.up_mbps], percent=80)
    yield from _at_least("down_mbps", stated.down_mbps, [probed.down_mbps], percent=80)
    yield from _at_least("open_ports", stated.open_ports, [probed.open_ports])
    said, seen = stated.region, probed.region
    if said is not None and seen is not None and said.casefold() != seen.casefold():
        yield Difference("region", said, seen, "not_verified")


def _at_least(
    field: str, stated: int | None, found: Iterable[int | None], percent: int = 100
) -> Iterator[Difference]:
    least = min((one for one in found if one is not None), default=None)
    if stated is not None and least is not None and 100 * least < percent * stated:
        yield Difference(field, stated, least, "not_verified")


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts))
