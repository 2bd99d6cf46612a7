"""Machines and what they are offered at."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.projections.contracts import taken_gb
from ledger.services.ledger import read_policy
from ledger.services.slices import slice_sizes
from ledger.store.database import Connection


class ListingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of a listing: nanos per GPU and hour, per GB-month, per GB."""

    listing_id: int
    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int
    down_rate: int
    min_bid_per_gpu: int | None
    min_gpus: int
    slices: list[int]
    """Numbers of GPUs in which the machine is offered."""
    slices_free: list[int]
    """Those of them that can be rented now; none while the machine is offline."""
    until: int | None
    listed_at: int


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: sizes of the whole computer in GB, links in Mbit/s."""

    machine_id: int
    host_id: int
    gpus: int
    gpu_name: str
    gpu_ram_gb: int
    cpu_cores: int
    ram_gb: int
    disk_gb: int
    up_mbps: int
    down_mbps: int
    registered_at: int
    enrolled_at: int | None
    online: bool
    last_report_at: int | None
    free_gpus: int
    free_disk_gb: int
    instances: int
    """Instances that were not destroyed, whatever their state."""
    listing: ListingTerms | None
    """None when nothing is offered, or the listing has ended."""


_QUERY = f"""
WITH found AS (
    SELECT m.machine_id, m.host_id, m.gpus, m.gpu_name, m.gpu_ram_gb, m.cpu_cores, m.ram_gb,
           m.disk_gb, m.up_mbps, m.down_mbps, m.registered_at, m.enrolled_at,
           (SELECT max(h.recorded_at) FROM stream_heads h WHERE h.machine_id = m.machine_id)
               AS reported_at,
           (SELECT count(*) FROM gpus g WHERE g.machine_id = m.machine_id) -
           (SELECT count(*) FROM gpu_assignments a WHERE a.machine_id = m.machine_id
               AND upper_inf(a.during)) AS free_gpus,
           m.disk_gb - {taken_gb("m.machine_id")} AS free_disk_gb, alive.instances,
           l.listing_id, l.gpu_rate_per_gpu, l.storage_rate, l.up_rate, l.down_rate,
           l.min_bid_per_gpu, l.min_gpus, l.until, l.listed_at
    FROM machines m
    CROSS JOIN LATERAL (
        SELECT count(*) AS instances
        FROM instances i WHERE i.machine_id = m.machine_id AND i.destroyed_at IS NULL) alive
    LEFT JOIN listings l ON l.listing_id = m.listing_id AND (l.until IS NULL OR l.until > %(now)s)
    WHERE m.machine_id > %(after)s AND (%(host)s::bigint IS NULL OR m.host_id = %(host)s)
)
SELECT * FROM found WHERE NOT %(market)s OR (
    listing_id IS NOT NULL AND free_gpus >= min_gpus AND free_disk_gb >= 1
    AND (%(silence)s::bigint IS NULL
         OR coalesce(reported_at, enrolled_at) + %(silence)s >= %(now)s))
ORDER BY machine_id LIMIT %(limit)s
"""  # noqa: S608 - a constant


def machines(
    connection: Connection,
    now: int,
    *,
    host_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[MachineView]:
    """Machines by id: all, or one host's."""
    return _machines(connection, now, host_id=host_id, market=False, after=after, limit=limit)


def market(
    connection: Connection, now: int, *, after: int = 0, limit: int = 100
) -> list[MachineView]:
    """Machines of which something can be rented now: listed, online, with a free slice and disk."""
    return _machines(connection, now, host_id=None, market=True, after=after, limit=limit)


def _machines(
    connection: Connection, now: int, *, host_id: int | None, market: bool, after: int, limit: int
) -> list[MachineView]:
    silence = read_policy(connection).offline_after_seconds
    found = []
    for row in connection.execute(
        _QUERY,
        {
            "now": now,
            "silence": silence,
            "after": after,
            "host": host_id,
            "market": market,
            "limit": limit,
        },
    ):
        contact = row[11] if row[12] is None else row[12]
        online = contact is not None and (silence is None or now <= contact + silence)
        listing = None
        if row[16] is not None:
            slices = slice_sizes(row[2], row[22])
            listing = ListingTerms(
                listing_id=row[16],
                gpu_rate_per_gpu=int(row[17]),
                storage_rate=int(row[18]),
                up_rate=int(row[19]),
                down_rate=int(row[20]),
                min_bid_per_gpu=None if row[21] is None else int(row[21]),
                min_gpus=row[22],
                slices=slices,
                slices_free=[size for size in slices if online and size <= row[13]],
                until=row[23],
                listed_at=row[24],
            )
        found.append(
            MachineView(
                machine_id=row[0],
                host_id=row[1],
                gpus=row[2],
                gpu_name=row[3],
                gpu_ram_gb=row[4],
                cpu_cores=row[5],
                ram_gb=row[6],
                disk_gb=row[7],
                up_mbps=row[8],
                down_mbps=row[9],
                registered_at=row[10],
                enrolled_at=row[11],
                online=online,
                last_report_at=row[12],
                free_gpus=row[13],
                free_disk_gb=int(row[14]),
                instances=row[15],
                listing=listing,
            )
        )
    return found


def machine(connection: Connection, machine_id: int, now: int) -> MachineView:
    """One machine.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    found = machines(connection, now, after=machine_id - 1, limit=1)
    if not found or found[0].machine_id != machine_id:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    return found[0]
