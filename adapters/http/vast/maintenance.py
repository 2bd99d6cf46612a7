"""Maintenance that hosts announce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, HOST, Caller, endpoint
from adapters.http.vast.wire import (
    Json,
    answer,
    ids,
    number,
    ratio,
)
from ledger.domain.events import MaintenanceCategory
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.services import maintenance
from ledger.services.ledger import Unit
from ledger.services.machines import owned
from ledger.services.questions import operations

_CATEGORIES: Final[dict[str, MaintenanceCategory]] = {
    "power": "power",
    "internet": "internet",
    "disk": "disk",
    "gpu": "gpu",
    "software": "software",
}
_WINDOWS: Final = 1_000


@endpoint(
    "PUT",
    "/v0/machines/{machine_id:int}/dnotify",
    roles=HOST,
    needs="api.machine.schedule_maintenance",
)
async def schedule(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Say when a machine will be worked on; its renters are told, and contracts stay in force."""
    start = int(number(call.body.get("sdate"), "sdate"))
    seconds = int(number(call.body.get("duration"), "duration") * SECONDS_PER_HOUR)
    category = _CATEGORIES.get(str(call.body.get("maintenance_category")).lower(), "other")

    def do(unit: Unit) -> Json:
        owned(unit.connection, machine_id, call.account_id)
        for window in maintenance.open_windows(unit, machine_id):
            if (window.start, window.until) == (start, start + seconds):
                return {"success": True, "id": window.maintenance_id, "replayed": True}
        made = maintenance.schedule(unit, machine_id, start, seconds, category)
        return {"success": True, "id": made, "replayed": False, "maintenance_category": category}

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/machines/{machine_id:int}/cancel_maint",
    roles=HOST,
    needs="api.machine.cancel_maintenance",
)
async def cancel_maintenance(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Call every planned window of a machine off."""

    def do(unit: Unit) -> Json:
        owned(unit.connection, machine_id, call.account_id)
        found = maintenance.open_windows(unit, machine_id)
        for window in found:
            maintenance.cancel(unit, machine_id, window.maintenance_id)
        return {"success": True, "cancelled": len(found)}

    return await call.command(do)


@endpoint("GET", "/v0/machines/maintenances", roles=ANYONE, needs="api.machine.list_maintenance")
async def maintenances(call: Caller) -> Response[Any]:
    """The planned windows of one's machines, or of some of them."""
    asked = call.query("machine_ids")
    wanted = None if asked is None or asked == [] else set(ids(asked, "machine_ids"))
    found = await call.question(
        lambda connection: operations.windows(
            connection, host_id=call.account_id, only_open=True, limit=_WINDOWS
        )
    )
    return answer(
        [
            {
                "machine_id": one.machine_id,
                "start_time": one.start,
                "end_time": one.until,
                "duration_hours": ratio(one.until - one.start, SECONDS_PER_HOUR),
                "maintenance_category": one.category,
                "id": one.maintenance_id,
            }
            for one in found
            if wanted is None or one.machine_id in wanted
        ]
    )


ENDPOINTS: Sequence[Any] = [schedule, cancel_maintenance, maintenances]
