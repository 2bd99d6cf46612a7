"""Every field of an offer: how it is read from the market, what it holds, and how it is compared.

Prices depend on the rental kind and on the requested disk. Sorting and filtering use floats of the
rates; what is shown, and what is paid, are the exact nanos beside them.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from ledger.domain.money import parse_dollars
from ledger.errors import RejectedError

SearchKind = Literal["on_demand", "interruptible", "reserved"]
FieldType = Literal["whole", "number", "dollars", "text", "flag"]

OPERATORS: Final = {
    "eq": "=",
    "neq": "<>",
    "gt": ">",
    "gte": ">=",
    "lt": "<",
    "lte": "<=",
    "in": "= ANY",
    "notin": "<> ALL",
}


class Field(NamedTuple):
    """A field of an offer. `sql` may name the parameters `disk` and `now`."""

    sql: str
    type: FieldType
    about: str
    in_details: bool = False
    """It stands in the machine's inventory, not in the search's own row."""
    in_machine: bool = False
    """It stands in the machine's registration, not in the search's own row."""
    bound: str | None = None
    """A column that is no greater than a price, or no less than what a dollar buys, on any row."""


def fields(kind: SearchKind) -> dict[str, Field]:
    """The fields of an offer, priced for one rental kind."""
    return {**_FIELDS, **_priced(kind, STORAGE)}


def _priced(kind: SearchKind, storage: str) -> dict[str, Field]:
    base = f"o.{kind}_cost"
    total = f"({base} + {storage})"
    return {
        "dph_base": Field(base, "dollars", "GPU price of the slice per hour", bound=base),
        "dph_total": Field(
            total, "dollars", "with the requested disk; never with traffic", bound=base
        ),
        "score_per_dollar": Field(
            f"(o.score * o.lower_bound * 1e9 / nullif({total}, 0))",
            "number",
            "score_effective / dph_total: the default order",
            bound=f"o.{kind}_worth",
        ),
    }


def frontend_fields(kind: SearchKind) -> dict[str, Field]:
    """What frontends of other markets also sort and filter by; `renter` is whose search it is.

    They show an hour of a disk rounded half to even, and filter by what they show.
    """
    available = "(o.bookable AND o.interruptible_cost IS NOT NULL)"
    return {
        **_FRONTEND_FIELDS,
        **_priced(kind, _ROUNDED),
        "available": Field(
            available if kind == "interruptible" else "o.rentable",
            "flag",
            "it would run now when rented as this kind",
        ),
    }


LASTING_SECONDS: Final = 10 * 365 * 86_400
"""How long a listing without an end is said to last where an end has to be named."""
_ROUNDED: Final = "round(o.storage_cost * %(disk)s / 720)"
_LASTS: Final = f"coalesce(o.until, %(now)s + {LASTING_SECONDS})"
_FRONTEND_FIELDS: Final[dict[str, Field]] = {
    "machine_gpus": Field("m.gpus", "whole", "GPUs of the machine", in_machine=True),
    "machine_cpu_cores": Field("m.cpu_cores", "whole", "its cores", in_machine=True),
    "machine_ram": Field("m.ram_gb", "whole", "its GB of memory", in_machine=True),
    "share": Field(
        "(o.gpus::float8 / m.gpus)", "number", "share of the machine's GPUs", in_machine=True
    ),
    "reserved_base": Field(
        "o.reserved_cost", "dollars", "prepaid for a month, per hour", bound="o.reserved_cost"
    ),
    "reserved_total": Field(
        f"(o.reserved_cost + {_ROUNDED})",
        "dollars",
        "the same with the requested disk",
        bound="o.reserved_cost",
    ),
    "storage_total": Field(_ROUNDED, "dollars", "$ per hour of the requested disk"),
    "opened_at": Field("o.opened_at", "whole", "since when the offer is open"),
    "ends_at": Field(_LASTS, "whole", "when the listing ends; far ahead where it does not"),
    "lasts": Field(f"({_LASTS} - %(now)s)", "whole", "seconds until then"),
    "rented_by_me": Field(
        "EXISTS (SELECT FROM instances i WHERE i.machine_id = o.machine_id"
        " AND i.account_id = %(renter)s::bigint AND i.destroyed_at IS NULL)",
        "flag",
        "the searching account has an instance on this machine",
    ),
}


STORAGE: Final = "floor(o.storage_cost * %(disk)s / 720)"
_FIELDS: Final[dict[str, Field]] = {
    "offer_id": Field("o.offer_id", "whole", "what a create request names"),
    "machine_id": Field("o.machine_id", "whole", "the machine that is cut"),
    "host_id": Field("o.host_id", "whole", "account of the host"),
    "num_gpus": Field("o.gpus", "whole", "GPUs of the slice"),
    "gpu_frac": Field(
        "(o.gpus::float8 / nullif(o.machine_gpus, 0))", "number", "share of the machine's GPUs"
    ),
    "gpu_name": Field("o.gpu_name", "text", "such as RTX 4090"),
    "gpu_ram": Field("o.gpu_ram_gb", "whole", "GB per GPU"),
    "gpu_total_ram": Field("(o.gpu_ram_gb * o.gpus)", "whole", "GB over the slice"),
    "cpu_cores": Field("o.cpu_cores", "whole", "cores of the slice"),
    "cpu_ram": Field("o.ram_gb", "whole", "GB of the slice"),
    "disk_space": Field("o.disk_gb", "whole", "GB that the slice can have now"),
    "inet_up": Field("o.up_mbps", "whole", "Mbit/s of the machine"),
    "inet_down": Field("o.down_mbps", "whole", "Mbit/s of the machine"),
    "inet_up_cost": Field("o.up_rate", "dollars", "$ per GB leaving"),
    "inet_down_cost": Field("o.down_rate", "dollars", "$ per GB entering"),
    "storage_cost": Field("o.storage_cost", "dollars", "$ per GB and month of 720 h"),
    "storage_total": Field(STORAGE, "dollars", "$ per hour of the requested disk"),
    "min_bid": Field("o.interruptible_cost", "dollars", "lowest bid that would run now"),
    "reserved_discount_max": Field(
        "(o.reserved_discount_max_bp / 10000.0)", "number", "0 to 1, for an endless term"
    ),
    "reliability": Field("o.reliability", "number", "0 to 1 over 30 days; null below 12 checks"),
    "reliability_checks": Field("o.checks", "whole", "conclusive checks behind it"),
    "reliability_lower_bound": Field("o.lower_bound", "number", "what ranks and gates"),
    "score": Field("o.score", "number", "performance, a GTX 1080 Ti being about 10"),
    "score_effective": Field(
        "(o.score * o.lower_bound)", "number", "score × reliability_lower_bound"
    ),
    "verification": Field("o.verification", "text", "verified, unverified or deverified"),
    "verified": Field("o.verified", "flag", "true when it is"),
    "secure": Field("o.secure", "flag", "secure tier: certified facility and host"),
    "rentable": Field("o.rentable", "flag", "an on-demand renter would get it now"),
    "country": Field("o.country", "text", "two letters"),
    "duration": Field("(o.until - %(now)s)", "whole", "seconds until the listing ends"),
    "cuda": Field("o.cuda", "number", "highest CUDA version of the driver"),
    "direct_port_count": Field("o.ports", "whole", "open ports of the machine"),
    "static_ip": Field("o.static_ip", "flag", "the public address stays"),
    "nvlink_bw": Field("o.nvlink_gb_s", "number", "GB/s"),
    "driver": Field("d.driver", "text", "version of the driver", in_details=True),
    "driver_number": Field("d.driver_number", "whole", "570.86.10 is 570086010", in_details=True),
    "compute_capability": Field(
        "d.compute_capability", "whole", "times 100: 8.9 is 890", in_details=True
    ),
    "cpu_name": Field("d.cpu_name", "text", "the machine's processor", in_details=True),
    "cpu_ghz": Field("d.cpu_ghz", "number", "its clock", in_details=True),
    "cpu_arch": Field("d.architecture", "text", "such as x86_64", in_details=True),
    "has_avx": Field("d.avx", "flag", "its vector units", in_details=True),
    "disk_name": Field("d.disk_name", "text", "the machine's disk", in_details=True),
    "disk_bw": Field("d.disk_mb_s", "whole", "MB/s", in_details=True),
    "pcie_gen": Field("d.pcie_gen", "whole", "generation under load", in_details=True),
    "pcie_bw": Field("d.pcie_gb_s", "number", "GB/s measured", in_details=True),
    "gpu_mem_bw": Field("d.gpu_memory_gb_s", "number", "GB/s", in_details=True),
    "gpu_max_power": Field("d.gpu_power_w", "whole", "W", in_details=True),
    "os_version": Field("d.os_version", "text", "of the host", in_details=True),
    "mobo_name": Field("d.mainboard", "text", "the machine's mainboard", in_details=True),
}


def read_value(name: str, field: Field, operator: str, value: Any) -> Any:
    """A filter's value as the field holds it; numbers may come as text.

    Raises:
        RejectedError: `invalid_args`.
    """
    if operator in {"in", "notin"}:
        if not isinstance(value, list) or not value:
            message = f"`{name}` {operator}: give a list of at least one value"
            raise RejectedError("invalid_args", message)
        return [_read(name, field, "eq", one) for one in value]
    return _read(name, field, operator, value)


def _read(name: str, field: Field, operator: str, value: Any) -> Any:
    try:
        match field.type:
            case "text":
                if isinstance(value, str):
                    return value
            case "flag":
                if isinstance(value, bool):
                    return value
                if value in {"true", "false"}:
                    return value == "true"
            case "dollars":
                if not isinstance(value, bool):
                    return float(parse_dollars(str(value), code="invalid_args"))
            case "whole" | "number":
                number = Decimal("NaN") if isinstance(value, bool) else Decimal(str(value))
                if isfinite(number):
                    return _whole(operator, number) if field.type == "whole" else float(number)
    except (InvalidOperation, ValueError):
        pass
    kinds = {
        "text": "a text",
        "flag": "true or false",
        "dollars": "an amount of dollars",
        "whole": "a number",
        "number": "a number",
    }
    message = f"`{name}` is compared with {kinds[field.type]}, not with {value!r}"
    raise RejectedError("invalid_args", message)


def _whole(operator: str, number: Decimal) -> int:
    """The whole number that a column of whole numbers is compared with, with the same answer.

    A comparison of integers can use an index, and one with a float cannot.
    """
    if abs(number) >= _BEYOND:
        return _BEYOND if number > 0 else -_BEYOND
    if number == number.to_integral_value():
        return int(number)
    if operator in {"gt", "lte"}:
        return int(number.to_integral_value(ROUND_FLOOR))
    if operator in {"gte", "lt"}:
        return int(number.to_integral_value(ROUND_CEILING))
    return _BEYOND  # nothing equals a fraction


_BEYOND: Final = 2**53
"""Above everything that a column of whole numbers holds."""
