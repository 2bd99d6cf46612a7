"""Offers and what a place costs: what those facts change, and the rows that the search reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from ledger.domain import events as e
from ledger.projections.contracts import CONTRACTS, taken_gb
from ledger.projections.facts.change import Change, counted

if TYPE_CHECKING:
    from ledger.store.database import Connection

REFRESH: Final = "-- the open offers of a machine"
REFRESH_OF_CONTRACT: Final = "-- the open offers of the machine of an instance or volume"


def offer_changes(fact: e.OfferFact, position: int) -> Iterator[Change]:
    """Which slices can be rented, and what a newcomer must bid for each."""
    del position
    match fact:
        case e.OfferOpened():
            yield Change(
                "INSERT INTO offers (offer_id, machine_id, listing_id, gpus, opened_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.offer_id, fact.machine_id, fact.listing_id, fact.gpus, fact.opened_at),
            )
            yield counted("offer", fact.offer_id)
        case e.AllocationDecided():
            for one in fact.min_bids:
                yield Change(
                    "INSERT INTO smallest_bids VALUES (%s, %s, %s)"
                    " ON CONFLICT (machine_id, gpus) DO UPDATE SET amount = EXCLUDED.amount",
                    (fact.machine_id, one.gpus, one.amount),
                )
        case e.GpuHealthChanged():
            yield health_changed(fact.gpu_uuid, fact.reason, fact.changed_at, healthy=fact.healthy)
    yield refreshed(fact.machine_id)


def health_changed(gpu_uuid: str, reason: str, at: int, *, healthy: bool) -> Change:
    """A GPU can be rented from now on, or cannot."""
    return Change(
        "UPDATE gpus SET healthy = %s, health_reason = %s, health_changed_at = %s"
        " WHERE gpu_uuid = %s",
        (healthy, reason, at, gpu_uuid),
    )


def refreshed(machine_id: int) -> Change:
    """The open offers of a machine are stale; `apply` rewrites them when it is done."""
    return Change(REFRESH, (machine_id,))


def refresh(
    connection: Connection, machine_ids: Collection[int], contract_ids: Collection[int]
) -> None:
    """Rewrite the search's rows of these machines, and of the machines of these contracts."""
    machines = set(machine_ids)
    if contract_ids:
        machines.update(
            row[0]
            for row in connection.execute(
                f"SELECT DISTINCT machine_id FROM {CONTRACTS} c WHERE c.instance_id = ANY(%s)",  # noqa: S608 - a constant
                [list(contract_ids)],
            )
        )
    ids = sorted(machines)
    connection.execute(
        "DELETE FROM open_offers o USING offers f WHERE f.offer_id = o.offer_id"
        " AND f.closed_at IS NOT NULL AND o.machine_id = ANY(%s)",
        [ids],
    )
    connection.execute(_REWRITE, [ids])


_BOOKABLE: Final = (
    "(m.offline_since IS NULL AND NOT s.stopped_for_maintenance AND NOT s.below_bars)"
)
_WORTH: Final = "s.score * f.gpus * s.lower_bound * 1e9 / nullif({cost}, 0)::float8"
_COSTS: Final = {
    "on_demand": "(l.gpu_rate_per_gpu * f.gpus)",
    "interruptible": "b.amount",
    # A term of one month: half of the host's largest discount (`ledger.domain.reserved`).
    "reserved": "div(l.gpu_rate_per_gpu * f.gpus * (20000 - l.reserved_discount_max_bp), 20000)",
}
_COLUMNS: Final[dict[str, str]] = {
    "offer_id": "f.offer_id",
    "machine_id": "f.machine_id",
    "host_id": "m.host_id",
    "listing_id": "f.listing_id",
    "gpus": "f.gpus",
    "machine_gpus": "healthy.gpus",
    "gpu_name": "m.gpu_name",
    "gpu_ram_gb": "m.gpu_ram_gb",
    "cpu_cores": "m.cpu_cores * f.gpus / m.gpus",
    "ram_gb": "m.ram_gb * f.gpus / m.gpus",
    "disk_gb": "least(m.disk_gb::bigint * f.gpus / m.gpus, m.disk_gb - taken.disk_gb)",
    "up_mbps": "m.up_mbps",
    "down_mbps": "m.down_mbps",
    "gpu_rate": _COSTS["on_demand"],
    "reserved_rate": _COSTS["reserved"],
    "storage_rate": "l.storage_rate",
    "up_rate": "l.up_rate",
    "down_rate": "l.down_rate",
    "floor": "l.min_bid_per_gpu",
    "min_bid": _COSTS["interruptible"],
    "reserved_discount_max_bp": "l.reserved_discount_max_bp",
    "until": "l.until",
    "opened_at": "f.opened_at",
    "bookable": _BOOKABLE,
    "rentable": f"{_BOOKABLE} AND f.gpus <= healthy.gpus - m.committed_gpus",
    "verification": "s.verification",
    "verified": "s.verification = 'verified'",
    "secure": "s.secure",
    "reliability": "s.reliability",
    "checks": "s.checks",
    "lower_bound": "s.lower_bound",
    "score": "s.score * f.gpus",
    "country": "s.country",
    "cuda": "d.cuda",
    "ports": "d.ports",
    "static_ip": "d.static_ip",
    "nvlink_gb_s": "d.nvlink_gb_s",
    "storage_cost": "l.storage_rate::float8",
    **{f"{kind}_cost": f"{cost}::float8" for kind, cost in _COSTS.items()},
    **{f"{kind}_worth": _WORTH.format(cost=cost) for kind, cost in _COSTS.items()},
}
_REWRITE: Final = (
    f"INSERT INTO open_offers ({', '.join(_COLUMNS)})"  # noqa: S608 - constants of this module
    f" SELECT {', '.join(_COLUMNS.values())}"
    " FROM offers f JOIN machines m USING (machine_id) JOIN machine_standing s USING (machine_id)"
    " JOIN listings l ON l.listing_id = f.listing_id"
    " LEFT JOIN machine_details d ON d.machine_id = f.machine_id"
    " LEFT JOIN smallest_bids b ON b.machine_id = f.machine_id AND b.gpus = f.gpus"
    " CROSS JOIN LATERAL (SELECT count(*)::int AS gpus FROM gpus g"
    "  WHERE g.machine_id = f.machine_id AND g.healthy"
    "  AND (NOT EXISTS (SELECT 1 FROM gpu_suspects x WHERE x.gpu_uuid = g.gpu_uuid)"
    "   OR EXISTS (SELECT 1 FROM gpu_assignments a WHERE a.machine_id = g.machine_id"
    "    AND a.slot = g.slot AND upper_inf(a.during)))) healthy"
    f" CROSS JOIN LATERAL (SELECT {taken_gb('f.machine_id')} AS disk_gb) taken"
    " WHERE f.machine_id = ANY(%s) AND f.closed_at IS NULL"
    " ON CONFLICT (offer_id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS if name != "offer_id")
)
