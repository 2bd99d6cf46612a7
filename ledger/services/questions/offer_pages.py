"""The search as programs and people ask it: checked, page by page, under the names of its fields.

A cursor holds the sort keys of the last row and a digest of the search, so that it goes on exactly
there, however many offers came or went meanwhile, and never in another search.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final

import msgspec

from ledger.domain.money import BASIS_POINTS
from ledger.errors import RejectedError
from ledger.services.questions import offers
from ledger.services.questions.offer_fields import Field, SearchKind, fields
from ledger.services.questions.offers import OfferView, Search
from ledger.store.database import Connection

MAX_ORDER: Final = 8
_MAX_LIST: Final = 100
_LISTS: Final = frozenset({"in", "notin"})


class MarketOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer under the names of the search's fields; amounts in nanos, sizes in GB.

    `dph_total = dph_base + storage_total`: exactly the first hour's charges at zero traffic.
    """

    offer_id: int
    machine_id: int
    host_id: int
    listing_id: int
    kind: SearchKind
    num_gpus: int
    gpu_name: str
    gpu_ram: int
    gpu_total_ram: int
    gpu_frac: float
    machine_gpus: int
    disk_gb: int
    """The disk that the prices are for."""
    dph_base: int | None
    """GPU price of the slice per hour; null where no bid would run."""
    dph_per_gpu: int | None
    """`dph_base` over the GPUs, rounded down."""
    storage_total: int
    dph_total: int | None
    gpu_rate: int
    """On demand, for the slice."""
    gpu_rate_per_gpu: int
    min_bid: int | None
    """The smallest bid for the slice that would run now."""
    floor_per_gpu: int | None
    reserved_rate: int
    """Prepaid for a month."""
    reserved_discount_max: float
    storage_cost: int
    inet_up_cost: int
    inet_down_cost: int
    score: float | None
    score_effective: float | None
    score_per_dollar: float | None
    reliability: float | None
    reliability_checks: int
    reliability_lower_bound: float
    verification: str
    verified: bool
    secure: bool
    rentable: bool
    until: int | None
    duration: int | None
    """Seconds until the listing ends; null: it does not."""
    opened_at: int
    cpu_cores: int
    cpu_ram: int
    disk_space: int
    """The largest disk that the slice can have now."""
    inet_up: int
    inet_down: int
    country: str | None
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


class FieldView(msgspec.Struct, frozen=True, kw_only=True):
    """What a field is called, what it holds, and what it means."""

    name: str
    type: str
    """`whole`, `number`, `dollars`, `text` or `flag`."""
    meaning: str


def field_list() -> list[FieldView]:
    """Every field that a search filters and sorts by; they are the same for every rental kind."""
    return [
        FieldView(name=name, type=field.type, meaning=field.about)
        for name, field in fields("on_demand").items()
    ]


def market_offer(view: OfferView, now: int) -> MarketOffer:
    """*view* under the names of the search's fields."""
    own = {name: getattr(view, name) for name in MarketOffer.__struct_fields__ if name in _SHARED}
    base = view.dph_base
    return MarketOffer(
        **own,
        gpu_total_ram=view.gpu_ram * view.num_gpus,
        gpu_frac=view.num_gpus / view.machine_gpus if view.machine_gpus else 0.0,
        dph_per_gpu=None if base is None else base // view.num_gpus,
        reserved_discount_max=view.reserved_discount_max_bp / BASIS_POINTS,
        storage_cost=view.storage_rate,
        inet_up_cost=view.up_rate,
        inet_down_cost=view.down_rate,
        verified=view.verification == "verified",
        duration=None if view.until is None else view.until - now,
    )


_SHARED: Final = frozenset(OfferView.__struct_fields__)


# --- pages ----------------------------------------------------------------------------------------


def search_page(
    connection: Connection, wish: Search, now: int, cursor: str | None = None
) -> tuple[list[MarketOffer], str | None]:
    """A page of the search and the cursor of the next one; no cursor on the last page.

    Raises:
        RejectedError: `invalid_args` for a search that cannot be meant, or a cursor that this
            search never gave.
    """
    _check(wish)
    digest = _digest(wish)
    if cursor is not None:
        after = _keys_of(cursor, digest, wish, now)
        wish = msgspec.structs.replace(wish, after=after)
    found = offers.search(connection, wish, now)
    following = None
    if found.after is not None:
        following = _encode((digest, now, [_plain(key) for key in found.after]))
    return [market_offer(one, now) for one in found.offers], following


def _check(wish: Search) -> None:
    names = [name for name, _ in wish.order]
    if len(names) > MAX_ORDER or len(set(names)) != len(names):
        message = f"a search sorts by at most {MAX_ORDER} different fields"
        raise RejectedError("invalid_args", message)
    for name, conditions in wish.filters.items():
        for operator, value in conditions.items():
            _check_value(name, operator, value)


def _check_value(name: str, operator: str, value: Any) -> None:
    """Refuse what no field could be compared with; what a field holds is the search's to judge."""
    if operator not in _LISTS:
        given = [value]
    elif isinstance(value, list) and len(value) <= _MAX_LIST:
        given = value
    else:
        message = f"`{name}` {operator}: give a list of 1 to {_MAX_LIST} values"
        raise RejectedError("invalid_args", message)
    for one in given:
        if not isinstance(one, str | int | float):
            message = f"`{name}` {operator}: {one!r} is no text, number or flag"
            raise RejectedError("invalid_args", message)
        if isinstance(one, str) and "\x00" in one:
            message = f"`{name}` {operator}: no text holds a NUL"
            raise RejectedError("invalid_args", message)


# --- cursors --------------------------------------------------------------------------------------


def _digest(wish: Search) -> bytes:
    """What makes one search another than the next: all of it but the size of a page."""
    asked: Mapping[str, Any] = {
        name: getattr(wish, name)
        for name in wish.__struct_fields__
        if name not in {"limit", "after"}
    }
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).digest()[:8]


def _plain(key: Any) -> Any:
    return str(key) if isinstance(key, Decimal) else key


def _encode(mark: tuple[bytes, int, list[Any]]) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(mark)).decode().rstrip("=")


def _keys_of(cursor: str, digest: bytes, wish: Search, now: int) -> Sequence[Any]:
    """The sort keys that a cursor names, as they are at second *now*."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        given, at, keys = msgspec.msgpack.decode(raw, type=tuple[bytes, int, list[Any]])
        if given != digest or len(keys) != len(wish.order) + 1 or type(keys[-1]) is not int:
            return _refuse_cursor()
        known = fields(wish.kind)
        read = [_read(known[name], key) for (name, _), key in zip(wish.order, keys, strict=False)]
    except (ValueError, KeyError, InvalidOperation, binascii.Error, msgspec.DecodeError):
        return _refuse_cursor()
    # How long a listing still lasts counts from now: a row of then has moved with the clock.
    for number, (name, _) in enumerate(wish.order):
        if name == "duration" and read[number] is not None:
            read[number] += at - now
    return [*read, keys[-1]]


def _read(field: Field, key: Any) -> Any:
    """A sort key of one field, or an error for what that field never holds."""
    if key is None:
        return None
    match field.type:
        case "text":
            expected = isinstance(key, str) and "\x00" not in key
        case "flag":
            expected = isinstance(key, bool)
        case _:
            if isinstance(key, str):
                key = Decimal(key)
            expected = isinstance(key, int | float | Decimal) and not isinstance(key, bool)
            expected = expected and isfinite(key)
    if not expected:
        raise ValueError(key)
    return key


def _refuse_cursor() -> Sequence[Any]:
    message = "the cursor is not one that this search gave"
    raise RejectedError("invalid_args", message, status=400)
