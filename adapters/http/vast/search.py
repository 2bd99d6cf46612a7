"""A search as these clients write it, turned into the core's: names, units, types and wildcards.

A column that every offer has the same value of is judged here, once per search; all others are
conditions of one query. A filter on a column that offers do not have matches nothing: whoever
filters by it must not rent what was never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, Literal, NamedTuple

from adapters.http.vast.wire import Json, mapping, number, whole
from ledger.errors import RejectedError
from ledger.services.questions.offer_fields import OPERATORS, SearchKind
from ledger.services.questions.offers import DEFAULT_ORDER, MAX_LIMIT, Direction, Search

Filters = dict[str, dict[str, Any]]
Pricing = Literal["on-demand", "bid", "reserved"]
DEFAULT_STORAGE_GB: Final = 8
MAX_DISK_GB: Final = 2**31 - 1
MAX_LIST: Final = 1_000
_TRUTHS: Final = frozenset({"true", "false", "none"})
_ANY: Final = frozenset({"any", "?", "*"})
_NOT_FILTERS: Final = frozenset({"order", "type", "limit", "allocated_storage", "disable_bundling"})
_PRICINGS: Final[dict[str, Pricing]] = {
    "on-demand": "on-demand",
    "ondemand": "on-demand",
    "on_demand": "on-demand",
    "ask": "on-demand",
    "bid": "bid",
    "interruptible": "bid",
    "reserved": "reserved",
}
_KINDS: Final[dict[Pricing, SearchKind]] = {
    "on-demand": "on_demand",
    "bid": "interruptible",
    # A prepaid offer is an on-demand one; its discounted prices stand in columns of their own.
    "reserved": "on_demand",
}


class Asked(NamedTuple):
    """A search in the core's terms; `search` is none when no offer can match."""

    search: Search | None
    pricing: Pricing
    disk_gb: int


class _Column(NamedTuple):
    """A column of an offer: the core's name of it, and how a value becomes one of the core's."""

    name: str
    value: Callable[[Any, str], Any] | None = None


def read_search(query: Json, renter: int | None) -> Asked:
    """The search that a body describes.

    Raises:
        RejectedError: `invalid_args` for an operator, a type, an order or a value that cannot be.
    """
    pricing = _pricing(query.get("type"))
    disk = disk_gb(query.get("allocated_storage"), DEFAULT_STORAGE_GB)
    filters: Filters | None = {}
    for name, comparisons in query.items():
        if name not in _NOT_FILTERS and filters is not None:
            found = _filter(name, _comparisons(name, comparisons), pricing)
            filters = None if found is None else _merged(filters, found)
    if filters is None:
        return Asked(None, pricing, disk)
    limit = query.get("limit")
    search = Search(
        kind=_KINDS[pricing],
        disk_gb=disk,
        filters=filters,
        order=_order(query.get("order")),
        limit=MAX_LIMIT if limit is None else _limit(whole(limit, "limit")),
        verified_only=False,
        rentable_only=False,
        for_frontend=True,
        renter=renter,
    )
    return Asked(search, pricing, disk)


def disk_gb(value: Any, default: int) -> int:
    """Whole gigabytes; a fraction is rounded up, as a disk must hold what was asked for.

    Raises:
        RejectedError: `invalid_args`.
    """
    if value is None:
        return default
    size = int(number(value, "disk").to_integral_value(ROUND_CEILING))
    if not 0 <= size <= MAX_DISK_GB:
        raise RejectedError("invalid_args", f"a disk has 0 to {MAX_DISK_GB} GB")
    return size


def _limit(limit: int) -> int:
    if limit < 1:
        raise RejectedError(
            "invalid_args", "a search finds at least one offer: `limit` is 1 or more"
        )
    return min(limit, MAX_LIMIT)


def _pricing(value: Any) -> Pricing:
    shown = "on-demand" if value is None else str(value)
    if shown not in _PRICINGS:
        message = f"`type` is on-demand, bid or reserved, not {shown[:40]!r}"
        raise RejectedError("invalid_args", message)
    return _PRICINGS[shown]


# --- filters --------------------------------------------------------------------------------------


def _comparisons(name: str, value: Any) -> dict[str, Any]:
    """Operator → value, without wildcards; a bare value is an equality."""
    found = value if isinstance(value, Mapping) else {"eq": value}
    kept = {}
    for operator, one in found.items():
        if operator not in OPERATORS:
            message = f"`{name}`: {operator!r} is no operator; use {' '.join(OPERATORS)}"
            raise RejectedError("invalid_args", message)
        is_list = operator in {"in", "notin"}
        if is_list and not (isinstance(one, list) and len(one) <= MAX_LIST):
            raise RejectedError("invalid_args", f"`{name}` {operator}: give a list of values")
        for scalar in one if is_list else [one]:
            if not (scalar is None or isinstance(scalar, str | int | Decimal)):
                message = f"`{name}` {operator}: {str(scalar)[:40]} is no text, number or flag"
                raise RejectedError("invalid_args", message)
            if isinstance(scalar, str) and "\x00" in scalar:
                raise RejectedError("invalid_args", f"`{name}` {operator}: no text holds a NUL")
        if not (isinstance(one, str) and one.lower() in _ANY):
            kept[operator] = one
    return kept


def _filter(name: str, asked: dict[str, Any], pricing: Pricing) -> Filters | None:
    """The core's conditions for one column; none when no offer can meet them."""
    if not asked:
        return {}
    if name in CONSTANTS or name == "is_bid":
        held = pricing == "bid" if name == "is_bid" else CONSTANTS[name]
        return {} if all(_holds(held, op, value) for op, value in asked.items()) else None
    if name in FLAGS:
        return _flag_filter(name, asked)
    column = COLUMNS.get(name)
    if column is None or any(_is_null(value) for value in asked.values()):
        return None
    return {column.name: _translated(name, column, asked)}


def _translated(name: str, column: _Column, asked: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for operator, value in asked.items():
        given = value if isinstance(value, list) else [value]
        read = [one if column.value is None else column.value(one, name) for one in given]
        values = [one for part in read for one in (part if isinstance(part, list) else [part])]
        if len(values) > 1 and operator in {"eq", "neq"}:
            operator = "in" if operator == "eq" else "notin"  # noqa: PLW2901 - a name with two spellings
        if operator in {"in", "notin"}:
            found[operator] = [*found.get(operator, []), *values]
        else:
            found[operator] = values[-1]
    return {op: value for op, value in found.items() if value != [] or op == "in"}


def _is_null(value: Any) -> bool:
    return value is None or value == []


def _holds(held: Any, operator: str, value: Any) -> bool:
    """Whether a value that every offer has meets one comparison."""
    if isinstance(value, list):
        found = any(_same(held, one) for one in value)
        return found if operator == "in" else not found
    if operator in {"eq", "neq"}:
        return _same(held, value) == (operator == "eq")
    if held is None or isinstance(held, str):
        return False
    known, asked = Decimal(int(held)), number(value, operator)
    return {
        "gt": known > asked,
        "gte": known >= asked,
        "lt": known < asked,
        "lte": known <= asked,
    }[operator]


def _same(held: Any, value: Any) -> bool:
    if isinstance(held, bool) and str(value).lower() in _TRUTHS:
        return (str(value).lower() == "true") == held
    if held is None or value is None:
        return held is value
    if isinstance(held, int):
        return number(value, "value") == int(held)
    return str(held) == str(value)


def _flag_filter(name: str, asked: dict[str, Any]) -> Filters | None:
    """Conditions on a column of two values: those of them that meet every comparison."""
    for value in asked.values():
        for one in value if isinstance(value, list) else [value]:
            if str(one).lower() not in _TRUTHS:
                number(one, name)
    met = [one for one in (False, True) if all(_holds(one, op, v) for op, v in asked.items())]
    column = FLAGS[name]
    if not met:
        return None
    return {column: {"in": met} if len(met) > 1 else {"eq": met[0]}}


def _merged(filters: Filters, more: Filters) -> Filters | None:
    """Both; a column that is compared twice under two names must meet both comparisons."""
    for name, comparisons in more.items():
        have = filters.setdefault(name, {})
        for operator, value in comparisons.items():
            if operator in have:
                both = _both(operator, have[operator], value)
                if both is None:
                    return None
                have[operator] = both
            else:
                have[operator] = value
    return filters


def _both(operator: str, one: Any, other: Any) -> Any:
    if operator == "in":
        return [value for value in one if value in other] or None
    if operator == "notin":
        return [*one, *other]
    if operator == "eq":
        return one if str(one) == str(other) else None
    if operator == "neq":
        return one
    pick = max if operator in {"gt", "gte"} else min
    return pick(one, other, key=lambda value: number(value, operator))


# --- values ---------------------------------------------------------------------------------------


def _thousandth(value: Any, name: str) -> Decimal:
    return number(value, name) / 1_000


def _name(value: Any, _name: str) -> list[str]:
    """A name with spaces, however it was written."""
    shown = str(value)
    return list(dict.fromkeys([shown, shown.replace("_", " ")]))


def _country(value: Any, _name: str) -> str:
    """The code at the end of a place such as `Sweden, SE`."""
    return str(value).rpartition(",")[2].strip().strip("\"'").upper()


def _driver(value: Any, name: str) -> int:
    """570.86.10 is 570086010: three digits per part."""
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2:  # noqa: PLR2004 - not a version: the number itself
        return whole(value, name)
    found = 0
    for part in (*parts, "0", "0")[:3]:
        found = found * 1_000 + whole(part, name)
    return found


def _architecture(value: Any, _name: str) -> list[str]:
    shown = str(value).lower()
    return list(dict.fromkeys([shown, _ARCHITECTURES.get(shown, shown)]))


_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

# --- columns --------------------------------------------------------------------------------------

CONSTANTS: Final[dict[str, Any]] = {
    "external": False,
    "gpu_arch": "nvidia",
    "gpu_display_active": False,
    "vms_enabled": False,
    "is_vm_deverified": False,
    "resource_type": "gpu",
    "cluster_id": None,
    "total_flops": 0,
    "flops_per_dphtotal": 0,
    "gpu_max_temp": -1,
    "gpu_lanes": 0,
    "nw_disk_min_bw": None,
    "nw_disk_max_bw": None,
    "nw_disk_avg_bw": None,
}
"""What is the same of every offer here, or measured by nobody."""
FLAGS: Final = {
    "verified": "verified",
    "datacenter": "secure",
    "hosting_type": "secure",
    "rentable": "available",
    "rented": "rented_by_me",
    "static_ip": "static_ip",
    "has_avx": "has_avx",
}
COLUMNS: Final[dict[str, _Column]] = {
    **{name: _Column("offer_id") for name in ("id", "ask_contract_id")},
    **{name: _Column("score_per_dollar") for name in ("score", "dlperf_per_dphtotal")},
    **{name: _Column("reliability") for name in ("reliability", "reliability2")},
    **{name: _Column("compute_capability") for name in ("compute_cap", "compute_capability")},
    **{name: _Column("driver_number", _driver) for name in ("driver_version", "driver_vers")},
    **{name: _Column("os_version") for name in ("ubuntu_version", "os_version")},
    **{
        name: _Column(name)
        for name in (
            *("machine_id", "host_id", "num_gpus", "disk_space", "inet_up", "inet_down"),
            *("inet_up_cost", "inet_down_cost", "storage_cost", "min_bid", "verification"),
            *("direct_port_count", "cpu_name", "cpu_ghz", "disk_name", "disk_bw", "pcie_bw"),
            *("gpu_mem_bw", "gpu_max_power", "mobo_name"),
        )
    },
    "gpu_frac": _Column("share"),
    "gpu_name": _Column("gpu_name", _name),
    "gpu_ram": _Column("gpu_ram", _thousandth),
    "gpu_total_ram": _Column("gpu_total_ram", _thousandth),
    "bw_nvlink": _Column("nvlink_bw"),
    "pci_gen": _Column("pcie_gen"),
    "cuda_max_good": _Column("cuda"),
    "cpu_arch": _Column("cpu_arch", _architecture),
    "cpu_cores": _Column("machine_cpu_cores"),
    "cpu_cores_effective": _Column("cpu_cores"),
    "cpu_ram": _Column("machine_ram", _thousandth),
    "internet_up_cost_per_tb": _Column("inet_up_cost", _thousandth),
    "internet_down_cost_per_tb": _Column("inet_down_cost", _thousandth),
    "storage_total_cost": _Column("storage_total"),
    "dph_base": _Column("dph_base"),
    "dph_total": _Column("dph_total"),
    "dph_total_adj": _Column("dph_total"),
    "discounted_hourly": _Column("reserved_base"),
    "discounted_dph_total": _Column("reserved_total"),
    "credit_discount_max": _Column("reserved_discount_max"),
    "dlperf": _Column("score_effective"),
    "score_raw": _Column("score"),
    "reliability_mult": _Column("reliability_lower_bound"),
    "geolocation": _Column("country", _country),
    "duration": _Column("lasts"),
    "start_date": _Column("opened_at"),
    "end_date": _Column("ends_at"),
}


# --- order ----------------------------------------------------------------------------------------


def _order(value: Any) -> Sequence[tuple[str, Direction]]:
    """The order asked for, without columns that order nothing; then the core's own."""
    found: dict[str, Direction] = {}
    for part in value if isinstance(value, list) else []:
        if not (isinstance(part, list) and len(part) == 2 and isinstance(part[0], str)):  # noqa: PLR2004 - a pair
            message = '`order` is a list of pairs such as ["dph_total", "asc"]'
            raise RejectedError("invalid_args", message)
        column = COLUMNS.get(part[0])
        name = FLAGS.get(part[0]) if column is None else column.name
        if name is not None:
            found.setdefault(name, "desc" if str(part[1]).lower() == "desc" else "asc")
    if not found or next(iter(found.items())) == DEFAULT_ORDER[0]:
        for name, way in DEFAULT_ORDER:
            found.setdefault(name, way)
    return list(found.items())[:_MAX_ORDER]


_MAX_ORDER: Final = 8


def selected(rows: Sequence[Json], columns: Any) -> list[Json]:
    """The rows with these columns only; all of them without names or with `*`."""
    if not isinstance(columns, list) or not columns or "*" in columns:
        return list(rows)
    kept = {str(one) for one in columns}
    return [{name: value for name, value in row.items() if name in kept} for row in rows]


def inner_query(body: Json) -> Json:
    """The search inside a body of `search/asks` or `launch_instance`."""
    return mapping(body.get("q"), "q")
