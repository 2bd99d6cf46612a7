"""What was used: a row per instance or volume and UTC day, an item per meter and rate."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.windows import limit_of, page, require_columns, window
from adapters.http.vast.wire import Json, keys_of, money
from ledger.domain.money import BYTES_PER_GB, SECONDS_PER_HOUR, format_dollars
from ledger.services.questions import daily_charges
from ledger.services.questions.daily_charges import ChargeDays, ChargeItem, Contract, DayCharge
from ledger.store.database import Connection

_CONTRACTS: Final[frozenset[Contract]] = frozenset({"instance", "volume"})
_CHARGE_TYPES: Final = frozenset({"instance", "volume", "serverless"})
_ITEM_TYPES: Final = {
    "gpu": "gpu",
    "reserved_idle": "gpu",
    "disk": "disk",
    "bwu": "bwu",
    "bwd": "bwd",
}


@endpoint("GET", "/v0/charges", roles=ANYONE, needs="api.billing.list_charges")
async def charges(call: Caller) -> Response[Any]:
    """What was used, a row per instance or volume and UTC day, an item per meter and rate."""
    asked = call.query("select_filters") or {}
    first, last = window(asked, "day", call.now)
    require_columns(asked, ("day", "type"))
    types = _types(asked)
    keys = keys_of(call.query_text("after_token"), (int, int))

    def find(connection: Connection) -> ChargeDays:
        return daily_charges.charge_days(
            connection,
            call.account_id,
            first=first,
            last=last,
            contract=contract,
            latest_first=bool(call.query("latest_first")),
            after=None if keys is None else (keys[0], keys[1]),
            limit=limit_of(call),
        )

    wanted = _CONTRACTS & types
    contract: Contract | None = next(iter(wanted)) if len(wanted) == 1 else None
    found = ChargeDays(days=[], total=0, after=None)
    if wanted:
        found = await call.question(find)
    return page([_day(one) for one in found.days], found.total, found.after)


def _types(asked: Json) -> frozenset[str]:
    given = asked.get("type")
    if given is None:
        return _CHARGE_TYPES
    values = given.get("in", given.get("eq")) if isinstance(given, dict) else given
    found = frozenset(str(one) for one in (values if isinstance(values, list) else [values]))
    if not found <= _CHARGE_TYPES:
        shown = ", ".join(sorted(_CHARGE_TYPES))
        raise Refusal(400, "invalid_request", f"a charge's type is one of {shown}")
    return found


def _day(view: DayCharge) -> Json:
    return {
        "start": view.start,
        "end": view.until,
        "type": view.contract,
        "source": f"{view.contract}-{view.instance_id}",
        "description": f"{view.contract.capitalize()} {view.instance_id} Charges - 1 days",
        "amount": money(view.amount),
        "metadata": {"label": view.label, "template_id": view.template_id, "day": view.day},
        "items": [_item(one, view) for one in view.items],
    }


def _item(item: ChargeItem, day: DayCharge) -> Json:
    return {
        "start": item.start,
        "end": item.until,
        "type": _ITEM_TYPES[item.item],
        "source": None,
        "description": described(item, day),
        "amount": money(item.amount),
        "metadata": {
            "rental_type": item.kind,
            "meter": item.item,
            "quantity": item.quantity,
            "rate": money(item.rate),
        },
        "items": [],
    }


def described(item: ChargeItem, day: DayCharge) -> str:
    """How much of what at which rate, for people."""
    rate = format_dollars(item.rate)
    hours = Decimal(item.quantity) / SECONDS_PER_HOUR
    match item.item:
        case "gpu":
            return f"{hours:.3f} hours at ${rate}/hour ({item.kind})"
        case "reserved_idle":
            return f"{hours:.3f} hours reserved and not running, at ${rate}/hour"
        case "disk":
            size = day.disk_bytes // BYTES_PER_GB
            return f"{hours:.3f} hours of {size} GB at ${rate}/GB/month"
        case "bwu" | "bwd":
            way = "up" if item.item == "bwu" else "down"
            return f"{item.quantity} bytes {way} at ${rate}/GB"


ENDPOINTS: Sequence[Any] = [charges]
