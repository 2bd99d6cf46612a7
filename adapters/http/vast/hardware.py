"""What offers and instances say of their machine, under these clients' names and in their units."""

from __future__ import annotations

from typing import Final

from adapters.http.vast.places import place
from adapters.http.vast.search import CONSTANTS
from adapters.http.vast.wire import Json
from ledger.services.questions.fleet import Rented
from ledger.services.questions.offers import OfferView

_UNKNOWN: Final = 0
_CODES: Final = {"verified": 1, "unverified": 0, "deverified": 2}
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def hardware(view: OfferView | Rented, gpus: int) -> Json:
    """The columns that describe a slice of *gpus* GPUs; no metric is ever null."""
    share = gpus / view.registered_gpus
    return {
        **{name: value for name, value in CONSTANTS.items() if value is not None},
        "num_gpus": gpus,
        "gpu_frac": share,
        "gpu_name": view.gpu_name,
        "gpu_ids": [],
        "compute_cap": view.compute_capability or _UNKNOWN,
        "gpu_ram": view.gpu_ram * 1_000,
        "gpu_total_ram": view.gpu_ram * 1_000 * gpus,
        "gpu_mem_bw": view.gpu_mem_bw or _UNKNOWN,
        "bw_nvlink": view.nvlink_bw or _UNKNOWN,
        "pcie_bw": view.pcie_bw or _UNKNOWN,
        "pci_gen": view.pcie_gen or _UNKNOWN,
        "gpu_max_power": view.gpu_max_power or _UNKNOWN,
        "cuda_max_good": view.cuda or _UNKNOWN,
        "driver_version": view.driver or "",
        "driver_vers": view.driver_number or _UNKNOWN,
        "cpu_name": view.cpu_name or "",
        "cpu_cores": view.machine_cpu_cores,
        "cpu_cores_effective": view.machine_cpu_cores * gpus // view.registered_gpus,
        "cpu_ghz": view.cpu_ghz or _UNKNOWN,
        "cpu_ram": view.machine_ram * 1_000,
        "cpu_arch": _ARCHITECTURES.get(view.cpu_arch or "", view.cpu_arch or ""),
        "has_avx": int(bool(view.has_avx)),
        "disk_bw": view.disk_bw or _UNKNOWN,
        "disk_name": view.disk_name or "",
        "inet_up": view.inet_up,
        "inet_down": view.inet_down,
        "direct_port_count": view.direct_port_count or _UNKNOWN,
        "static_ip": bool(view.static_ip),
        "geolocation": place(view.country),
        "geolocode": _UNKNOWN,
        "os_version": view.os_version or "",
        "ubuntu_version": view.os_version or "",
        "mobo_name": view.mobo_name or "",
        "reliability": view.reliability,
        "reliability2": view.reliability,
        "reliability_mult": view.reliability_lower_bound,
        "verification": view.verification,
        "vericode": _CODES.get(view.verification, 0),
        "hosting_type": int(view.secure),
        "datacenter": view.secure,
        "hostname": "",
        "logo": "",
        "webpage": None,
        "cluster_id": None,
        "nw_disk_min_bw": None,
        "nw_disk_max_bw": None,
        "nw_disk_avg_bw": None,
    }
