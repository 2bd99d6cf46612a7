"""Hosts: their machines, and what ends on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, HOST, Caller, endpoint
from adapters.http.vast.permissions import of_body
from adapters.http.vast.places import place
from adapters.http.vast.wire import (
    Json,
    answer,
    ids,
    maybe_money,
    money,
    ratio,
)
from ledger.domain.money import BASIS_POINTS
from ledger.errors import NotFoundError
from ledger.services import cleanup_expired
from ledger.services.ledger import Unit
from ledger.services.machines import owned, require_machine
from ledger.services.questions import hosted
from ledger.services.questions.hosted import HostedMachine
from ledger.store.database import Connection

_HOLDERS: Final = {"on_demand": "D", "reserved": "R", "interruptible": "I", None: "x"}


@endpoint("GET", "/v0/machines", roles=ANYONE, needs="api.machine.list_machines")
async def machines(call: Caller) -> Response[Any]:
    """One's machines."""
    found = await call.question(
        lambda connection: hosted.hosted(connection, call.account_id, call.now)
    )
    return answer({"success": True, "machines": [_machine(one) for one in found]})


@endpoint("GET", "/v0/machines/{machine_id:int}", roles=ANYONE, needs="api.machine.show_machine")
async def machine(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """One of one's machines, as a list of one."""
    found = await call.question(
        lambda connection: hosted.hosted(connection, call.account_id, call.now, machine_id)
    )
    if not found:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return answer([_machine(one) for one in found])


def _machine(view: HostedMachine) -> Json:
    machine, listing = view.machine, view.machine.listing
    discount = view.reserved_discount_max_bp
    return {
        "id": machine.machine_id,
        "machine_id": machine.machine_id,
        "host_id": machine.host_id,
        "num_gpus": machine.gpus,
        "gpu_name": machine.gpu_name,
        "gpu_ram": machine.gpu_ram_gb * 1_000,
        "gpu_total_ram": machine.gpu_ram_gb * 1_000 * machine.gpus,
        "cpu_cores": machine.cpu_cores,
        "cpu_ram": machine.ram_gb * 1_000,
        "disk_space": machine.disk_gb,
        "hostname": f"machine-{machine.machine_id}",
        "driver_version": view.driver or "",
        "cuda_max_good": view.cuda or 0,
        "inet_up": machine.up_mbps,
        "inet_down": machine.down_mbps,
        "reliability2": view.reliability,
        "reliability_mult": view.reliability_lower_bound,
        "verification": view.verification,
        "hosting_type": int(view.secure),
        "public_ipaddr": "",
        "geolocation": place(view.country),
        "num_reports": view.reports,
        "listed": listing is not None,
        "listed_gpu_cost": None if listing is None else money(listing.gpu_rate_per_gpu),
        "listed_storage_cost": None if listing is None else money(listing.storage_rate),
        "listed_inet_up_cost": money(listing.up_rate if listing else 0),
        "listed_inet_down_cost": money(listing.down_rate if listing else 0),
        "min_bid_price": None if listing is None else maybe_money(listing.min_bid_per_gpu),
        "listed_min_gpu_count": None if listing is None else listing.min_gpus,
        "credit_discount_max": None if discount is None else ratio(discount, BASIS_POINTS),
        "end_date": None if listing is None else listing.until,
        "gpu_occupancy": " ".join(_HOLDERS[one] for one in view.occupancy),
        "current_rentals_running": sum(one is not None for one in view.occupancy),
        "num_instances": machine.instances,
        "online": machine.online,
        "timeout": 0,
        "error_description": None,
    }


# --- ends -----------------------------------------------------------------------------------------


@endpoint("PUT", "/v0/machines/{machine_id:int}/cleanup", roles=HOST, needs="api.machine.clean_up")
async def cleanup(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Destroy what is left of contracts that ended two days ago or earlier."""

    def do(unit: Unit) -> Json:
        owned(unit.connection, machine_id, call.account_id)
        ended = cleanup_expired.clean_up(unit, machine_id)
        return {
            "success": True,
            "num_deleted": len(ended),
            "deleted": ended,
            "msg": f"{len(ended)} expired contracts were removed",
        }

    return await call.command(do)


@endpoint(
    "POST",
    "/v0/machines/{machine_id:int}/force_delete",
    roles=HOST,
    needs="api.machine.remove_machine",
)
async def delete(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """Take a machine without contracts out of the marketplace."""

    def do(unit: Unit) -> Json:
        owned(unit.connection, machine_id, call.account_id)
        cleanup_expired.remove_machine(unit, machine_id)
        return {"success": True, "msg": f"machine {machine_id} is removed"}

    return await call.command(do)


@endpoint(
    "PUT",
    "/v0/machines/defrag_offers",
    roles=HOST,
    needs="api.machine.show_machine",
    naming=of_body("machine_ids", "machine_id"),
)
async def defrag(call: Caller) -> Response[Any]:
    """Nothing needs moving: every slice size is on offer at any time."""
    wanted = ids(call.body.get("machine_ids"), "machine_ids")

    def do(unit: Unit) -> Json:
        for one in wanted:
            owned(unit.connection, one, call.account_id)
        return {"success": True, "moved": 0, "machine_ids": wanted}

    return await call.command(do)


@endpoint(
    "GET", "/v0/machines/{machine_id:int}/reports", roles=ANYONE, needs="api.machine.list_checks"
)
async def reports(call: Caller, machine_id: FromPath[int]) -> Response[Any]:
    """What went wrong on a machine: upheld disputes and failed checks."""

    def find(connection: Connection) -> list[Json]:
        require_machine(connection, machine_id)
        return [
            {"problem": one.problem, "message": one.about, "created_at": one.at}
            for one in hosted.reports(connection, machine_id)
        ]

    return answer(await call.question(find))


ENDPOINTS: Sequence[Any] = [machines, machine, cleanup, delete, defrag, reports]
