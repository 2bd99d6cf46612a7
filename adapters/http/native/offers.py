"""The market: search, quotes, the fields of an offer, and how each machine's auction went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from litestar import get, post
from litestar.openapi.spec import Operation
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, Caller, allowed
from adapters.http.native.accounts import Cursor, Limit
from adapters.http.native.own import seen_machine
from adapters.http.wire import (
    MAX_PAGE,
    Body,
    Dollars,
    Instant,
    Page,
    decode_cursor,
    page,
    render,
    render_all,
)
from ledger.domain.money import parse_dollars
from ledger.errors import RejectedError
from ledger.services.questions import market, offer_pages, offers
from ledger.services.questions.offer_fields import OPERATORS
from ledger.services.questions.offer_words import parse_order
from ledger.services.questions.offers import DEFAULT_DISK_GB, DEFAULT_ORDER, Search
from ledger.store.database import Connection

Kind = Literal["on_demand", "interruptible", "reserved"]
Scalar = str | int | float | bool
_MAX_DISK_GB: Final = 2**31 - 1
_PAGE: Final = 64

KindOption = Annotated[Kind, QueryParameter(description="The rental kind that prices are for.")]
DiskOption = Annotated[
    int, QueryParameter(ge=0, le=_MAX_DISK_GB, description="GB of disk that prices include.")
]


class OfferSearch(Body):
    """What to look for. All `filters` must hold: field → operator → value.

    Operators are `eq neq gt gte lt lte in notin`; a null field matches none of them. Numbers may be
    texts, amounts are dollars. The fields are those of `GET /v1/offers/fields`.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "kind": "interruptible",
        "disk_gb": 100,
        "filters": {
            "gpu_name": {"in": ["RTX 4090", "RTX 5090"]},
            "num_gpus": {"eq": 1},
            "reliability": {"gt": 0.98},
            "dph_total": {"lte": "0.35"},
        },
        "order": [["score_per_dollar", "desc"], ["dph_total", "asc"]],
        "limit": 10,
    }

    kind: Kind = "on_demand"
    disk_gb: Annotated[int, Meta(ge=0, le=_MAX_DISK_GB)] = DEFAULT_DISK_GB
    filters: dict[str, dict[str, Scalar | list[Scalar]]] = msgspec.field(default_factory=dict)
    order: list[tuple[str, Literal["asc", "desc"]]] = msgspec.field(
        default_factory=lambda: list(DEFAULT_ORDER)
    )
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = _PAGE
    cursor: str | None = None
    verified_only: bool = True
    rentable_only: bool = True


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer: one rentable slice, under the names of the search's fields.

    `dph_total = dph_base + storage_total` is exactly the first hour's charges at zero traffic, for
    the rental kind and the disk that were asked for; traffic is never inside. The GPU price is null
    where no bid would run. Sizes are GB, links Mbit/s.
    """

    offer_id: int
    machine_id: int
    host_id: int
    listing_id: int
    kind: str
    num_gpus: int
    gpu_name: str
    gpu_ram: int
    gpu_total_ram: int
    gpu_frac: float
    machine_gpus: int
    disk_gb: int
    dph_base: Dollars | None
    dph_per_gpu: Dollars | None
    storage_total: Dollars
    dph_total: Dollars | None
    gpu_rate: Dollars
    gpu_rate_per_gpu: Dollars
    min_bid: Dollars | None
    floor_per_gpu: Dollars | None
    reserved_rate: Dollars
    reserved_discount_max: float
    storage_cost: Dollars
    inet_up_cost: Dollars
    inet_down_cost: Dollars
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
    until: Instant | None
    duration: int | None
    opened_at: Instant
    cpu_cores: int
    cpu_ram: int
    disk_space: int
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


class OfferField(msgspec.Struct, frozen=True, kw_only=True):
    """A field that the search filters and sorts by; `dollars` are compared as dollars."""

    name: str
    type: str
    meaning: str


class OfferFields(msgspec.Struct, frozen=True, kw_only=True):
    """Every field of an offer, and the operators that filters use."""

    fields: list[OfferField]
    operators: list[str]


class GrantedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that got GPUs, and their slots on the machine."""

    instance_id: int
    slots: list[int]


class SmallestBid(msgspec.Struct, frozen=True, kw_only=True):
    """What a newcomer must bid per hour for a slice of so many GPUs; null: no bid would run."""

    gpus: int
    amount: Dollars | None


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a machine's auction; `min_bids` names the slices whose price changed."""

    position: int
    decided_at: Instant
    displaced: list[int]
    granted: list[GrantedGpus]
    min_bids: list[SmallestBid]
    policy_version: int


def _describe(operation: Operation) -> None:
    operation.description = (
        f"{operation.description} It changes nothing and needs no `Idempotency-Key`."
    )


@post(
    "/v1/offers/search",
    opt={**allowed(*ANYONE), "errors": (400, 401, 403, 413, 422, 503), "describe": _describe},
    status_code=200,
    summary="Search offers",
)
async def search_offers(call: Caller, data: JSONBody[OfferSearch]) -> Page[Offer]:
    """Find open offers by any of their fields, priced for one rental kind and disk."""
    return await _search(
        call,
        Search(
            kind=data.kind,
            disk_gb=data.disk_gb,
            filters=data.filters,
            order=data.order,
            limit=data.limit,
            verified_only=data.verified_only,
            rentable_only=data.rentable_only,
        ),
        data.cursor,
    )


@get(
    "/v1/offers",
    opt={**allowed(*ANYONE), "errors": (400, 401, 403, 404, 422, 503)},
    summary="List offers",
)
async def list_offers(
    call: Caller,
    kind: KindOption = "on_demand",
    disk_gb: DiskOption = DEFAULT_DISK_GB,
    where: Annotated[
        list[str] | None,
        QueryParameter(
            description="A condition `field:operator:value`, as often as needed; the values of `in`"
            " and `notin` are separated by commas."
        ),
    ] = None,
    order: Annotated[
        str | None,
        QueryParameter(description="Fields such as `dph_total,-score`; a minus: large first."),
    ] = None,
    verified_only: Annotated[bool, QueryParameter(description="Only verified machines.")] = True,
    rentable_only: Annotated[bool, QueryParameter(description="Only what is free now.")] = True,
    limit: Limit = _PAGE,
    cursor: Cursor = None,
) -> Page[Offer]:
    """Find open offers with a URL alone, such as `?where=num_gpus:eq:2&order=dph_total`."""
    wish = Search(
        kind=kind,
        disk_gb=disk_gb,
        filters=_filters(where or []),
        order=DEFAULT_ORDER if order is None else parse_order(order),
        limit=limit,
        verified_only=verified_only,
        rentable_only=rentable_only,
    )
    return await _search(call, wish, cursor)


def _filters(where: list[str]) -> Mapping[str, Mapping[str, Any]]:
    """The conditions of a URL.

    Raises:
        RejectedError: `invalid_args`.
    """
    filters: dict[str, dict[str, Any]] = {}
    for text in where:
        name, first, rest = text.partition(":")
        operator, second, value = rest.partition(":")
        if not (first and second):
            message = f"where: {text!r} is no condition such as num_gpus:gte:2"
            raise RejectedError("invalid_args", message, status=400)
        conditions = filters.setdefault(name, {})
        if operator in conditions:
            message = f"where: `{name}` has two conditions with {operator}; use in or notin"
            raise RejectedError("invalid_args", message, status=400)
        conditions[operator] = value.split(",") if operator in {"in", "notin"} else value
    return filters


async def _search(call: Caller, wish: Search, cursor: str | None) -> Page[Offer]:
    now = call.ledger.clock()
    found, following = await call.question(
        lambda connection: offer_pages.search_page(connection, wish, now, cursor)
    )
    return Page(items=render_all(Offer, found), next_cursor=following)


@get("/v1/offers/fields", opt=allowed(*ANYONE), summary="List the fields of offers")
async def list_fields(call: Caller) -> OfferFields:
    """List every field that offers are searched by: its name, its type, and what it means."""
    fields = render_all(OfferField, offer_pages.field_list())
    return OfferFields(fields=fields, operators=list(OPERATORS))


@get(
    "/v1/offers/{offer_id:int}",
    opt={**allowed(*ANYONE), "errors": (400, 401, 403, 404, 422, 503)},
    summary="Quote an offer",
)
async def quote_offer(
    call: Caller,
    offer_id: FromPath[int],
    kind: Annotated[
        Kind | None, QueryParameter(description="Default: on demand; with a bid, interruptible.")
    ] = None,
    disk_gb: DiskOption = DEFAULT_DISK_GB,
    bid: Annotated[
        str | None, QueryParameter(description="Dollars per hour for the whole slice.")
    ] = None,
) -> Offer:
    """Quote an open offer: what its first hour costs, to the nano, with this disk and this bid."""
    if bid is not None and kind not in {None, "interruptible"}:
        message = f"kind: a bid is for interruptible rentals, not for {kind}"
        raise RejectedError("invalid_args", message, status=400)
    nanos = None if bid is None else parse_dollars(bid)
    now = call.ledger.clock()
    found = await call.question(
        lambda connection: offers.offer(
            connection, offer_id, now, kind=kind or "on_demand", disk_gb=disk_gb, bid=nanos
        )
    )
    return render(Offer, offer_pages.market_offer(found, now))


@get(
    "/v1/machines/{machine_id:int}/allocations",
    opt=allowed(*ANYONE),
    summary="List auction decisions",
)
async def list_allocations(
    call: Caller, machine_id: FromPath[int], limit: Limit = 100, cursor: Cursor = None
) -> Page[Allocation]:
    """List how the auction of a machine was decided, from the first time on.

    It can be read for a machine that is offered, and for one's own.
    """
    after = decode_cursor(cursor, int, 0)

    def ask(connection: Connection) -> list[market.AllocationView]:
        seen_machine(call, connection, machine_id)
        return market.allocations(connection, machine_id, after=after, limit=limit + 1)

    return page(Allocation, await call.question(ask), limit, lambda one: one.position)


HANDLERS = [search_offers, list_offers, list_fields, quote_offer, list_allocations]
