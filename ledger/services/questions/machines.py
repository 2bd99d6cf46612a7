"""Machines and what they are offered at."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.services.ledger import read_policy
from ledger.services.rentals import slice_sizes
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
    listing: ListingTerms | None


_QUERY = """
SELECT m.machine_id, m.host_id, m.gpus, m.gpu_name, m.gpu_ram_gb, m.cpu_cores, m.ram_gb, m.disk_gb,
       m.up_mbps, m.down_mbps, m.registered_at, m.enrolled_at,
       (SELECT max(h.recorded_at) FROM stream_heads h WHERE h.machine_id = m.machine_id),
       (SELECT count(*) FROM gpus g WHERE g.machine_id = m.machine_id) -
       (SELECT count(*) FROM gpu_assignments a WHERE a.machine_id = m.machine_id
           AND upper_inf(a.during)),
       m.disk_gb - (SELECT coalesce(sum(i.disk_bytes), 0) / 1000000000 FROM instances i
           WHERE i.machine_id = m.machine_id AND i.destroyed_at IS NULL),
       l.listing_id, l.gpu_rate_per_gpu, l.storage_rate, l.up_rate, l.down_rate, l.min_bid_per_gpu,
       l.min_gpus, l.until, l.listed_at
FROM machines m LEFT JOIN listings l USING (listing_id)
WHERE m.machine_id > %(after)s AND (%(host)s::bigint IS NULL OR m.host_id = %(host)s)
  AND (NOT %(offered)s OR l.listing_id IS NOT NULL)
ORDER BY m.machine_id LIMIT %(limit)s
"""


def machines(
    connection: Connection,
    now: int,
    *,
    host_id: int | None = None,
    offered: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[MachineView]:
    """Machines by id: all, one host's, or those with a listing."""
    silence = read_policy(connection).offline_after_seconds
    found = []
    for row in connection.execute(
        _QUERY, {"after": after, "host": host_id, "offered": offered, "limit": limit}
    ):
        contact = row[11] if row[12] is None else row[12]
        online = contact is not None and (silence is None or now <= contact + silence)
        listing = None
        if row[15] is not None:
            listing = ListingTerms(
                listing_id=row[15],
                gpu_rate_per_gpu=int(row[16]),
                storage_rate=int(row[17]),
                up_rate=int(row[18]),
                down_rate=int(row[19]),
                min_bid_per_gpu=None if row[20] is None else int(row[20]),
                min_gpus=row[21],
                slices=slice_sizes(row[2], row[21]),
                until=row[22],
                listed_at=row[23],
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
