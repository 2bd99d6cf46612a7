"""What an instance looks like to these clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from adapters.http.vast.connections import connection_columns
from adapters.http.vast.hardware import hardware
from adapters.http.vast.launches import launch_columns
from adapters.http.vast.offers import prices, scores
from adapters.http.vast.states import message, shown
from adapters.http.vast.wire import Json, maybe_money, money, names, per_hour, ratio
from ledger.domain.money import BASIS_POINTS, BYTES_PER_GB, SECONDS_PER_DAY
from ledger.services.connections import ways_into
from ledger.services.questions import fleet, market, trust, volumes
from ledger.services.questions.fleet import FromTemplate, Rented
from ledger.services.questions.instances import MountedVolume
from ledger.services.questions.offer_fields import LASTING_SECONDS
from ledger.store.database import Connection
from ledger.store.vault import Vault

RENTAL_TYPES: Final = {"on_demand": "on-demand", "interruptible": "bid", "reserved": "reserved"}
_UNKNOWN: Final = -1
_MINUTE: Final = 60


class Sees(NamedTuple):
    """Of which instances the reader may see what they run, and how they are reached."""

    launch: Callable[[int], bool]
    connection: Callable[[int], bool]


def rows(
    connection: Connection, vault: Vault, found: Sequence[Rented], now: int, sees: Sees
) -> list[Json]:
    """Instances as rows, with what they run and what their machines are expected to be."""
    numbers = [one.instance.instance_id for one in found]
    launches = fleet.launches(
        connection,
        vault,
        [one.launch for one in found if one.launch and sees.launch(one.instance.instance_id)],
    )
    templates = fleet.templates_of(connection, vault, list(filter(sees.launch, numbers)))
    ways = ways_into(connection, vault, list(filter(sees.connection, numbers)))
    sizes = volumes.sizes(
        connection, [mount.volume_id for one in found for mount in one.instance.volumes]
    )
    machines = list({one.instance.machine_id for one in found})
    expected = trust.expectations(connection, machines, now)
    deposits = market.deposits_left(
        connection, [one.instance.instance_id for one in found if one.instance.reservation]
    )
    return [
        {
            **_row(one, now),
            **launch_columns(launches.get(one.launch or "", {})),
            **connection_columns(ways.get(one.instance.instance_id)),
            **_template(templates.get(one.instance.instance_id)),
            "volume_info": [_volume(mount, sizes) for mount in one.instance.volumes],
            "expected_reliability": expected[one.instance.machine_id],
            "credit_balance": money(deposits.get(one.instance.instance_id, 0)),
        }
        for one in found
    ]


def _template(made: FromTemplate | None) -> Json:
    return {
        "template_id": None if made is None else made.template_id,
        "template_hash_id": None if made is None else made.hash_id,
        "template_name": None if made is None else made.name,
    }


def _volume(mount: MountedVolume, sizes: dict[int, int]) -> Json:
    """A volume of an instance; nobody measures how much of it is left."""
    return {
        "id": mount.volume_id,
        "mount_path": mount.mount_path,
        "avail_space": _UNKNOWN,
        "total_space": sizes[mount.volume_id] // BYTES_PER_GB,
    }


def _row(view: Rented, now: int) -> Json:
    instance = view.instance
    state = shown(view.state, view.last_tick)
    disk_gb = instance.disk_bytes // BYTES_PER_GB
    storage = per_hour(instance.storage_rate, disk_gb)
    total = money(instance.dph_base) + storage
    raw = None if view.score is None else view.score * instance.gpus
    effective = None if raw is None else raw * view.reliability_lower_bound
    until = now + LASTING_SECONDS if instance.until is None else instance.until
    return {
        **hardware(view, instance.gpus),
        **prices(instance.dph_base, storage, instance),
        **scores(raw, effective, total, view.gpu_ram * instance.gpus),
        "id": instance.instance_id,
        "ask_contract_id": instance.offer_id,
        "machine_id": instance.machine_id,
        "host_id": instance.host_id,
        "bundle_id": instance.listing_id,
        "actual_status": state.actual,
        "intended_status": state.intended,
        "cur_state": state.current,
        "next_state": state.next,
        "status_msg": message(view.state),
        "state": instance.status,
        "reason": instance.reason,
        "wants_run": view.wants_run,
        "waiting_seconds": None if instance.waiting_since is None else now - instance.waiting_since,
        "label": instance.label,
        "start_date": instance.created_at,
        "end_date": until,
        "duration": max(until - now, 0),
        "time_remaining": f"{max(until - now, 0) // SECONDS_PER_DAY} days",
        "time_remaining_isbid": "",
        "uptime_mins": None if view.running_since is None else (now - view.running_since) / _MINUTE,
        "client_run_time": float(instance.gpu_seconds),
        "host_run_time": float(now - instance.created_at),
        **_metrics(view),
        "disk_space": disk_gb,
        "gpu_totalram": view.gpu_ram * 1_000 * instance.gpus,
        "dph_total_adj": total,
        "is_bid": instance.kind == "interruptible",
        "rental_type": RENTAL_TYPES[instance.kind],
        "bid": maybe_money(instance.bid),
        "min_bid": maybe_money(view.min_bid),
        **_discount(view),
        "search": _parts(money(instance.dph_base), storage),
        "instance": _parts(money(instance.dph_base if state.current == "running" else 0), storage),
        "platform_fee": ratio(instance.fee_bp, BASIS_POINTS),
        "country_code": view.country or "",
        "rentable": False,
        "rented": True,
        "offline_since": instance.offline_since,
        "gpu_uuids": instance.gpu_uuids,
    }


def _metrics(view: Rented) -> Json:
    """What is measured now: the last tick knows the GPUs' use, and nobody the rest."""
    used = _UNKNOWN if view.last_tick is None else view.last_tick.utilisation
    return {
        "gpu_util": float(max(used, 0) if view.instance.status == "running" else 0),
        "gpu_temp": _UNKNOWN,
        "cpu_util": _UNKNOWN,
        "mem_usage": _UNKNOWN,
        "mem_limit": _UNKNOWN,
        "vmem_usage": _UNKNOWN,
        "disk_usage": _UNKNOWN,
        "disk_util": _UNKNOWN,
    }


def _discount(view: Rented) -> Json:
    term = view.instance.reservation
    discount = Decimal(0)
    if term is not None:
        discount = ratio(term.base_rate - term.rate, term.base_rate)
    return {
        "credit_discount": discount,
        "credit_discount_max": ratio(view.reserved_discount_max_bp, BASIS_POINTS),
        "discount_rate": discount,
    }


def _parts(gpu: Decimal, storage: Decimal) -> Json:
    return {
        "gpuCostPerHour": gpu,
        "diskHour": storage,
        "totalHour": gpu + storage,
        "discountTotalHour": Decimal(0),
        "discountedTotalPerHour": gpu + storage,
    }


COLUMNS: Final = names(
    "ask_contract_id actual_status bid bundle_id bw_nvlink client_run_time cluster_id",
    "compute_cap country_code cpu_arch cpu_cores cpu_cores_effective cpu_ghz cpu_name",
    "cpu_ram cpu_util credit_balance credit_discount credit_discount_max cuda_max_good",
    "cur_state datacenter direct_port_count direct_port_end direct_port_start",
    "discount_rate disk_bw disk_name disk_space disk_usage disk_util dlperf",
    "dlperf_per_dphtotal dph_base dph_total dph_total_adj driver_vers driver_version",
    "duration end_date expected_reliability external extra_env flops_per_dphtotal",
    "geolocation geolocode gpu_arch gpu_display_active gpu_frac gpu_ids gpu_lanes",
    "gpu_max_power gpu_max_temp gpu_mem_bw gpu_name gpu_ram gpu_temp gpu_total_ram",
    "gpu_totalram gpu_util gpu_uuids has_avx host_id host_run_time hostname hosting_type",
    "id image_args image_runtype image_uuid inet_down inet_down_cost inet_up inet_up_cost",
    "instance intended_status internet_down_cost_per_tb internet_up_cost_per_tb is_bid",
    "is_vm_deverified jupyter_token label local_ipaddrs logo machine_dir_ssh_port",
    "machine_id mem_limit mem_usage min_bid mobo_name next_state num_gpus nw_disk_avg_bw",
    "nw_disk_max_bw nw_disk_min_bw offline_since onstart os_version pci_gen pcie_bw",
    "platform_fee ports public_ipaddr reason reliability reliability2 reliability_mult",
    "rentable rental_type rented resource_type score score_raw score_suite search ssh_host",
    "ssh_idx ssh_port start_date state static_ip status_msg storage_cost",
    "storage_total_cost template_hash_id template_id template_name time_remaining",
    "time_remaining_isbid total_flops ubuntu_version uptime_mins vericode verification",
    "vmem_usage vms_enabled volume_info vram_costperhour waiting_seconds wants_run webpage",
)
"""Every column of a row: what a client may ask for by name."""
