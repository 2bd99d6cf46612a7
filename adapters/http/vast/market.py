"""The market by GPU: what there is, what of it is rented, and at which prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.wire import (
    Json,
    answer,
    money,
    ratio,
    whole,
)
from ledger.services.questions import hosted
from ledger.services.questions.hosted import GpuSupply


@endpoint("GET", "/v0/metrics/gpu/current", roles=ANYONE, needs="api.misc.list_offers")
async def gpu_metrics(call: Caller) -> Response[Any]:
    """What the market has of each GPU now, and what it asks for it."""
    verified = _choice(call.query("verified"), {"verified": True, "unverified": False})
    secure = _choice(call.query("hosting_type"), {"datacenter": True, "secure": True})
    gpus = call.query("num_gpus")
    found = await call.question(
        lambda connection: hosted.supply(
            connection,
            call.now,
            verified=verified,
            secure=secure,
            gpus=None if gpus in {None, "all", ""} else whole(gpus, "num_gpus"),
        )
    )
    return answer({"success": True, "gpus": [_supply(one) for one in found]})


def _choice(asked: Any, named: dict[str, bool]) -> bool | None:
    if asked in {None, "all", "any", ""}:
        return None
    shown = str(asked).lower()
    return named.get(shown, shown in {"true", "1"})


def _supply(view: GpuSupply) -> Json:
    unverified = view.total - view.total_verified
    rented_unverified = view.rented - view.rented_verified
    return {
        "gpu_name": view.gpu_name,
        "total": view.total,
        "available": view.total - view.rented,
        "unavailable": view.rented,
        "usage": ratio(100 * view.rented, view.total, 3),
        "rented_verified": view.rented_verified,
        "avail_verified": view.total_verified - view.rented_verified,
        "rented_unverified": rented_unverified,
        "avail_unverified": unverified - rented_unverified,
        "dlperf": view.score,
        "tflops": 0,
        "tflops_per_dollar": 0,
        "price_p10": money(view.price_low),
        "price_median": money(view.price_median),
        "price_p90": money(view.price_high),
    }


ENDPOINTS: Sequence[Any] = [gpu_metrics]
