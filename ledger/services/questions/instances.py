"""Instances: their contract, their state, and what they cost so far."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.meters.pricing import storage_charge
from ledger.store.database import Connection


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance. Rates are nanos for the slice; quantities and charges are folded so far."""

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    listing_id: int
    kind: str
    gpus: int
    disk_bytes: int
    gpu_rate: int
    storage_rate: int
    storage_rate_per_hour: int
    """What the disk goes on costing while the instance is stopped; nanos per hour, rounded down."""
    up_rate: int
    down_rate: int
    fee_bp: int
    until: int | None
    label: str | None
    status: str
    reason: str
    assignment_no: int
    gpu_uuids: list[str]
    created_at: int
    first_run_at: int | None
    stopped_at: int | None
    destroyed_at: int | None
    gpu_seconds: int
    gpu_charge: int
    storage_seconds: int
    storage_charge: int
    up_bytes: int
    up_charge: int
    down_bytes: int
    down_charge: int


_QUERY = """
SELECT i.instance_id, i.account_id, i.machine_id, i.host_id, i.listing_id, i.kind, i.gpus,
       i.disk_bytes, i.gpu_rate, i.storage_rate, i.up_rate, i.down_rate, i.fee_bp, i.until, i.label,
       i.status, i.reason, i.assignment_no, i.gpu_uuids, i.created_at, i.first_run_at, i.stopped_at,
       i.destroyed_at,
       coalesce(s.gpu_quantity, 0), coalesce(s.gpu_charge, 0),
       coalesce(s.storage_quantity, 0), coalesce(s.storage_charge, 0),
       coalesce(s.up_quantity, 0), coalesce(s.up_charge, 0),
       coalesce(s.down_quantity, 0), coalesce(s.down_charge, 0)
FROM instances i LEFT JOIN LATERAL (
    SELECT sum(gpu_quantity) AS gpu_quantity, sum(gpu_charge) AS gpu_charge,
           sum(storage_quantity) AS storage_quantity, sum(storage_charge) AS storage_charge,
           sum(up_quantity) AS up_quantity, sum(up_charge) AS up_charge,
           sum(down_quantity) AS down_quantity, sum(down_charge) AS down_charge
    FROM rate_segments r WHERE r.instance_id = i.instance_id) s ON true
WHERE i.instance_id > %(after)s
  AND (%(account)s::bigint IS NULL OR i.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR i.host_id = %(host)s)
  AND (%(machine)s::bigint IS NULL OR i.machine_id = %(machine)s)
  AND (%(status)s::text IS NULL OR i.status = %(status)s)
  AND (%(label)s::text IS NULL OR i.label = %(label)s)
ORDER BY i.instance_id LIMIT %(limit)s
"""


def instances(
    connection: Connection,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    machine_id: int | None = None,
    status: str | None = None,
    label: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[InstanceView]:
    """Instances by id, filtered."""
    rows = connection.execute(
        _QUERY,
        {
            "after": after,
            "account": account_id,
            "host": host_id,
            "machine": machine_id,
            "status": status,
            "label": label,
            "limit": limit,
        },
    )
    return [
        InstanceView(
            instance_id=row[0],
            account_id=row[1],
            machine_id=row[2],
            host_id=row[3],
            listing_id=row[4],
            kind=row[5],
            gpus=row[6],
            disk_bytes=row[7],
            gpu_rate=int(row[8]),
            storage_rate=int(row[9]),
            storage_rate_per_hour=storage_charge(int(row[9]), row[7], 3_600),
            up_rate=int(row[10]),
            down_rate=int(row[11]),
            fee_bp=row[12],
            until=row[13],
            label=row[14],
            status=row[15],
            reason=row[16],
            assignment_no=row[17],
            gpu_uuids=row[18],
            created_at=row[19],
            first_run_at=row[20],
            stopped_at=row[21],
            destroyed_at=row[22],
            gpu_seconds=int(row[23]),
            gpu_charge=int(row[24]),
            storage_seconds=int(row[25]),
            storage_charge=int(row[26]),
            up_bytes=int(row[27]),
            up_charge=int(row[28]),
            down_bytes=int(row[29]),
            down_charge=int(row[30]),
        )
        for row in rows
    ]


def instance(connection: Connection, instance_id: int) -> InstanceView:
    """One instance.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    found = instances(connection, after=instance_id - 1, limit=1)
    if not found or found[0].instance_id != instance_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return found[0]
