"""Price increases that hosts proposed: listed, accepted, rejected.

The id of a pending increase names the instance and the proposal, so that an answer to one that was
replaced is seen to be stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, RENTER, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.permissions import Sent
from adapters.http.vast.wire import Json, answer, money, ratio, whole
from ledger.domain.money import NANOS_PER_DOLLAR, SECONDS_PER_HOUR, SECONDS_PER_RATE_MONTH
from ledger.errors import NotFoundError
from ledger.services import contracts, rentals
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.questions import market
from ledger.services.questions.instances import InstanceView
from ledger.services.questions.market import PriceIncreaseView
from ledger.store.database import Connection

_PROPOSALS: Final = 1_000
"""Ids leave room for this many proposals of one instance."""
_PLACES: Final = 15
_LIMIT: Final = 1_000


@endpoint(
    "GET",
    "/v0/instances/pending-price-increases",
    roles=ANYONE,
    needs="api.instance.list_price_increases",
)
async def pending(call: Caller) -> Response[Any]:
    """What waits for an answer; rates per second, per GPU and per GB."""

    def find(connection: Connection) -> list[tuple[PriceIncreaseView, InstanceView]]:
        views = market.price_increases(
            connection, call.now, account_id=call.account_id, pending=True, limit=_LIMIT + 1
        )
        instances = ask.instances_by_id(connection, [one.instance_id for one in views])
        return [(one, instances[one.instance_id]) for one in views]

    views = await call.question(find)
    found = [_row(one, instance.gpus, instance.host_id) for one, instance in views[:_LIMIT]]
    return answer(
        {
            "success": True,
            "count": len(found),
            "truncated": len(views) > _LIMIT,
            "pending_price_increases": found,
        }
    )


def _row(view: PriceIncreaseView, gpus: int, host_id: int) -> Json:
    return {
        "pending_price_increase_id": view.instance_id * _PROPOSALS + view.proposal_no,
        "contract_id": view.instance_id,
        "host_id": host_id,
        "machine_id": view.machine_id,
        "old_gpu_costpersec": _per_gpu_second(view.gpu_rate_now, gpus),
        "new_gpu_costpersec": _new(
            view.gpu_rate_now, view.gpu_rate, _per_gpu_second(view.gpu_rate, gpus)
        ),
        "old_disk_ram_costpersec": _per_gb_second(view.storage_rate_now),
        "new_disk_ram_costpersec": _new(
            view.storage_rate_now, view.storage_rate, _per_gb_second(view.storage_rate)
        ),
        "old_bwu_cost": money(view.up_rate_now),
        "new_bwu_cost": _new(view.up_rate_now, view.up_rate, money(view.up_rate)),
        "old_bwd_cost": money(view.down_rate_now),
        "new_bwd_cost": _new(view.down_rate_now, view.down_rate, money(view.down_rate)),
        "old_platform_fee": None,
        "new_platform_fee": None,
        "contract_end_date": view.until_now,
        "ask_end_date": view.until,
        "created_at": view.proposed_at,
    }


def _new(now: int, then: int, shown: Decimal) -> Decimal | None:
    return None if now == then else shown


def _per_gpu_second(nanos_per_hour: int, gpus: int) -> Decimal:
    return ratio(nanos_per_hour, gpus * SECONDS_PER_HOUR * NANOS_PER_DOLLAR, _PLACES)


def _per_gb_second(nanos_per_month: int) -> Decimal:
    return ratio(nanos_per_month, SECONDS_PER_RATE_MONTH * NANOS_PER_DOLLAR, _PLACES)


def _instance_of(sent: Sent) -> Sequence[Json]:
    """The instance that a pending increase is about."""
    asked = whole(sent.body.get("pending_price_increase_id"), "pending_price_increase_id")
    return [{"instance_id": asked // _PROPOSALS, "id": asked // _PROPOSALS}]


@endpoint(
    "PUT",
    "/v0/instances/accept-price-increase",
    roles=RENTER,
    needs="api.instance.accept",
    naming=_instance_of,
)
async def accept(call: Caller) -> Response[Any]:
    """Agree to the later end; its rates apply from the present end on."""
    return await _answered(call, is_accepted=True)


@endpoint(
    "PUT",
    "/v0/instances/reject-price-increase",
    roles=RENTER,
    needs="api.instance.reject",
    naming=_instance_of,
)
async def reject(call: Caller) -> Response[Any]:
    """Refuse the later end: the contract ends when it did, at its rates."""
    return await _answered(call, is_accepted=False)


async def _answered(call: Call, *, is_accepted: bool) -> Response[Any]:
    asked = whole(call.body.get("pending_price_increase_id"), "pending_price_increase_id")
    instance_id, number = divmod(asked, _PROPOSALS)

    def do(unit: Unit) -> Json:
        instance = rentals.owned(unit, instance_id, call.account_id)
        if instance.proposal is None or instance.proposal.number != number:
            message = "it was answered, replaced, or its contract has ended"
            raise NotFoundError("no_pending_price_increase", message)
        contracts.answer_price_increase(unit, instance_id, accept=is_accepted)
        return {"success": True, "pending_price_increase_id": asked, "contract_id": instance_id}

    try:
        return await call.command(do)
    except NotFoundError as error:
        message = f"there is no pending price increase {asked}: {error.message}"
        raise Refusal(404, "no_pending_price_increase", message) from error


ENDPOINTS: Sequence[Any] = [pending, accept, reject]
