"""The market: `bundles` and `search/asks`, and what an offer looks like."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import Call, Caller, endpoint
from adapters.http.vast.hardware import hardware
from adapters.http.vast.search import Asked, inner_query, read_search, selected
from adapters.http.vast.wire import (
    Json,
    answer,
    maybe_money,
    money,
    per_hour,
    quotient,
    ratio,
)
from ledger.domain.money import BASIS_POINTS, SECONDS_PER_DAY
from ledger.services.ledger import read_policy
from ledger.services.questions import hosted, offers, trust, volumes
from ledger.services.questions.offer_fields import LASTING_SECONDS
from ledger.services.questions.offers import OfferView
from ledger.services.questions.volumes import OnMachine
from ledger.store.database import Connection

_GB_PER_TB: Final = 1_000


@endpoint("GET", "/v0/gpu_names/unique", roles=None, needs="api.misc.list_offers")
async def gpu_names(call: Caller) -> Response[Any]:
    """The names of all GPUs on offer: what every start of the client asks for."""
    return answer({"gpu_names": await call.question(hosted.gpu_names)})


@endpoint("GET", "/v0/gpu_types", roles=None, needs="api.misc.list_offers")
async def gpu_types(call: Caller) -> Response[Any]:
    """The same under another name."""
    return answer({"gpu_types": await call.question(hosted.gpu_names)})


@endpoint("POST", "/v0/bundles", roles=None, needs="api.misc.search_offers")
async def bundles(call: Caller) -> Response[Any]:
    """Search the offers; no key is needed."""
    return answer({"offers": await find(call, call.body)})


@endpoint("PUT", "/v0/search/asks", roles=None, needs="api.misc.search_offers")
async def asks(call: Caller) -> Response[Any]:
    """Search the offers, with the columns that are wanted."""
    found = await find(call, inner_query(call.body))
    return answer({"offers": selected(found, call.body.get("select_cols"))})


async def find(call: Call, query: Json) -> list[Json]:
    """The offers that a search of these clients finds, in its order."""
    renter = None if call.principal is None else call.account_id
    asked = read_search(query, renter)
    return await call.question(lambda connection: found_offers(connection, asked, renter, call.now))


def found_offers(connection: Connection, asked: Asked, renter: int | None, now: int) -> list[Json]:
    """The offers of a search as rows."""
    if asked.search is None:
        return []
    found = offers.search(connection, asked.search, now).offers
    machines = list({one.machine_id for one in found})
    expected = trust.expectations(connection, machines, now)
    mine = set() if renter is None else offers.machines_of(connection, renter, machines)
    fee = read_policy(connection).fee_bp
    disks = volumes.on_machines(connection, machines, now)
    return [
        {
            **_row(view, asked, now),
            "rn": number,
            "rented": view.machine_id in mine,
            "expected_reliability": expected[view.machine_id],
            "platform_fee": ratio(fee, BASIS_POINTS),
            **_volumes(disks.get(view.machine_id)),
        }
        for number, view in enumerate(found, 1)
    ]


def _row(view: OfferView, asked: Asked, now: int) -> Json:
    is_bid = asked.pricing == "bid"
    until = now + LASTING_SECONDS if view.until is None else view.until
    base = view.min_bid if is_bid else view.gpu_rate
    storage = per_hour(view.storage_rate, asked.disk_gb)
    total = None if base is None else money(base) + storage
    prepaid = money(view.reserved_rate) + storage
    return {
        **hardware(view, view.num_gpus),
        "id": view.offer_id,
        "ask_contract_id": view.offer_id,
        "machine_id": view.machine_id,
        "host_id": view.host_id,
        "bundle_id": view.listing_id,
        "disk_space": view.disk_space,
        "public_ipaddr": None,
        **prices(base, storage, view),
        "dph_total_adj": total,
        "min_bid": maybe_money(view.min_bid),
        "is_bid": is_bid,
        **scores(view.score, view.score_effective, total, view.gpu_ram * view.num_gpus),
        "credit_discount_max": ratio(view.reserved_discount_max_bp, BASIS_POINTS),
        "discount_rate": ratio(view.reserved_discount_max_bp, 2 * BASIS_POINTS),
        "discounted_hourly": money(view.reserved_rate),
        "discounted_dph_total": prepaid,
        "search": _parts(base, storage, prepaid),
        "instance": _parts(0, storage, storage),
        "rentable": view.bookable and view.min_bid is not None if is_bid else view.rentable,
        "start_date": view.opened_at,
        "end_date": until,
        "duration": until - now,
        "time_remaining": f"{(until - now) // SECONDS_PER_DAY} days",
        "time_remaining_isbid": "",
        "bundled_results": None,
    }


def _volumes(offered: OnMachine | None) -> Json:
    """What of the same machine's disk can be had as volumes, and its dollars per GB and hour."""
    if offered is None:
        return {"avail_vol_ask_id": None, "avail_vol_dph": None, "avail_vol_size": None}
    return {
        "avail_vol_ask_id": offered.volume_offer_id,
        "avail_vol_dph": per_hour(offered.storage_rate, 1),
        "avail_vol_size": offered.left_gb,
    }


def prices(base: int | None, storage: Decimal, view: Any) -> Json:
    """What an hour costs, all in, and its parts; *view* has the rates of disk and traffic."""
    return {
        "dph_base": maybe_money(base),
        "storage_total_cost": storage,
        "dph_total": None if base is None else money(base) + storage,
        "storage_cost": money(view.storage_rate),
        "inet_up_cost": money(view.up_rate),
        "inet_down_cost": money(view.down_rate),
        "internet_up_cost_per_tb": money(view.up_rate * _GB_PER_TB),
        "internet_down_cost_per_tb": money(view.down_rate * _GB_PER_TB),
    }


def scores(raw: float | None, effective: float | None, total: Decimal | None, ram_gb: int) -> Json:
    """The performance of a slice, and what a dollar buys of it."""
    per_dollar = quotient(effective, total)
    return {
        "dlperf": effective,
        "dlperf_per_dphtotal": per_dollar,
        "score": per_dollar,
        "score_raw": raw,
        "score_suite": None,
        "vram_costperhour": quotient(total, Decimal(ram_gb * 1_000)),
    }


def _parts(base: int | None, storage: Decimal, prepaid: Decimal) -> Json:
    gpu = money(base or 0)
    total = gpu + storage
    return {
        "gpuCostPerHour": gpu,
        "diskHour": storage,
        "totalHour": total,
        "discountTotalHour": max(total - prepaid, Decimal(0)),
        "discountedTotalPerHour": min(prepaid, total),
    }


ENDPOINTS: Sequence[Any] = [gpu_names, gpu_types, bundles, asks]
