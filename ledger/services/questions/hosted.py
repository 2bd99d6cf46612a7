"""A host's machines as its owner sees them, and the market as a whole by GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.services.questions.machines import MachineView, machines
from ledger.store.database import Connection

_PAGE: Final = 1_000


class HostedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with what is thought of it and who is on it."""

    machine: MachineView
    verification: str
    secure: bool
    reliability: float | None
    reliability_lower_bound: float
    country: str | None
    driver: str | None
    cuda: float | None
    ports: int | None
    reports: int
    """Disputes that were upheld against it."""
    occupancy: list[str | None]
    """Per slot the rental kind of who holds the GPU; null: free."""
    reserved_discount_max_bp: int | None


_MORE: Final = """
SELECT m.machine_id, s.verification, s.secure, s.reliability, s.lower_bound, s.country, d.driver,
       d.cuda, d.ports, (SELECT count(*) FROM disputes p WHERE p.machine_id = m.machine_id
           AND p.status IN ('upheld', 'partial')), coalesce(held.kinds, '{}'),
       l.reserved_discount_max_bp
FROM machines m JOIN machine_standing s USING (machine_id)
LEFT JOIN machine_details d USING (machine_id)
LEFT JOIN listings l ON l.listing_id = m.listing_id
LEFT JOIN LATERAL (SELECT array_agg(i.kind ORDER BY g.slot) AS kinds FROM gpus g
    LEFT JOIN gpu_assignments a ON a.machine_id = g.machine_id AND a.slot = g.slot
        AND upper_inf(a.during)
    LEFT JOIN instances i ON i.instance_id = a.instance_id
    WHERE g.machine_id = m.machine_id) held ON true
WHERE m.machine_id = ANY(%s)
"""


def hosted(
    connection: Connection, host_id: int, now: int, machine_id: int | None = None
) -> list[HostedMachine]:
    """All machines of a host by id, or the one that is named."""
    found: list[MachineView] = []
    after = 0 if machine_id is None else machine_id - 1
    while True:
        limit = _PAGE if machine_id is None else 1
        page = machines(connection, now, host_id=host_id, after=after, limit=limit)
        found += [one for one in page if machine_id in {None, one.machine_id}]
        if machine_id is not None or len(page) < _PAGE:
            break
        after = page[-1].machine_id
    more = {
        row[0]: row[1:] for row in connection.execute(_MORE, [[one.machine_id for one in found]])
    }
    names = HostedMachine.__struct_fields__[1:]
    return [
        HostedMachine(machine=one, **dict(zip(names, more[one.machine_id], strict=True)))
        for one in found
    ]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong on a machine, and when."""

    problem: str
    about: str
    at: int


def reports(connection: Connection, machine_id: int, limit: int = 1_000) -> list[Report]:
    """Upheld disputes and failed checks of a machine, newest first."""
    rows = connection.execute(
        "SELECT reason, 'dispute ' || dispute_id || ' of instance ' || instance_id || ': '"
        "  || status AS about, coalesce(resolved_at, opened_at) AS at FROM disputes"
        " WHERE machine_id = %(machine)s AND status IN ('upheld', 'partial')"
        " UNION ALL SELECT coalesce(reason, kind), 'failed check of kind ' || kind, at FROM checks"
        " WHERE machine_id = %(machine)s AND result = 'failed' AND NOT excluded"
        " ORDER BY at DESC LIMIT %(limit)s",
        {"machine": machine_id, "limit": limit},
    )
    return [Report(problem=row[0], about=row[1], at=row[2]) for row in rows]


class GpuSupply(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of one name on listed machines; prices in nanos per GPU and hour."""

    gpu_name: str
    total: int
    rented_verified: int
    total_verified: int
    rented: int
    score: float | None
    price_low: int
    price_median: int
    price_high: int


_SUPPLY: Final = """
SELECT m.gpu_name, sum(m.gpus), sum(held.gpus) FILTER (WHERE s.verification = 'verified'),
       sum(m.gpus) FILTER (WHERE s.verification = 'verified'), sum(held.gpus), avg(s.score),
       percentile_disc(0.1) WITHIN GROUP (ORDER BY l.gpu_rate_per_gpu),
       percentile_disc(0.5) WITHIN GROUP (ORDER BY l.gpu_rate_per_gpu),
       percentile_disc(0.9) WITHIN GROUP (ORDER BY l.gpu_rate_per_gpu)
FROM machines m JOIN machine_standing s USING (machine_id)
JOIN listings l ON l.listing_id = m.listing_id AND (l.until IS NULL OR l.until > %(now)s)
CROSS JOIN LATERAL (SELECT count(*) AS gpus FROM gpu_assignments a
    WHERE a.machine_id = m.machine_id AND upper_inf(a.during)) held
WHERE (%(verified)s::boolean IS NULL OR (s.verification = 'verified') = %(verified)s)
  AND (%(secure)s::boolean IS NULL OR s.secure = %(secure)s)
  AND (%(gpus)s::int IS NULL OR m.gpus = %(gpus)s)
GROUP BY m.gpu_name ORDER BY m.gpu_name
"""


def supply(
    connection: Connection,
    now: int,
    *,
    verified: bool | None = None,
    secure: bool | None = None,
    gpus: int | None = None,
) -> list[GpuSupply]:
    """What the market has of each GPU, and what it asks for it."""
    rows = connection.execute(
        _SUPPLY, {"now": now, "verified": verified, "secure": secure, "gpus": gpus}
    )
    return [_supplied(row) for row in rows]


def _supplied(row: Sequence[Any]) -> GpuSupply:
    return GpuSupply(
        gpu_name=row[0],
        total=int(row[1]),
        rented_verified=int(row[2] or 0),
        total_verified=int(row[3] or 0),
        rented=int(row[4]),
        score=row[5],
        price_low=int(row[6]),
        price_median=int(row[7]),
        price_high=int(row[8]),
    )


def gpu_names(connection: Connection) -> list[str]:
    """The names of all GPUs on offer."""
    rows = connection.execute("SELECT DISTINCT gpu_name FROM open_offers ORDER BY gpu_name")
    return [row[0] for row in rows]


def contract_ends(connection: Connection, machine_id: int) -> dict[int, int | None]:
    """When the contracts on a machine end."""
    rows = connection.execute(
        "SELECT instance_id, until FROM instances WHERE machine_id = %s AND destroyed_at IS NULL",
        [machine_id],
    )
    return dict(rows.fetchall())
