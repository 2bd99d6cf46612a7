"""What instances and volumes have in common, as SQL: both are contracts with a disk on a machine.

Their ids come from one counter, so what is keyed by `instance_id` (terms, segments, hours, charges)
names either.
"""

from __future__ import annotations

from typing import Final

CONTRACTS: Final = """(
    SELECT instance_id, account_id, machine_id, host_id, disk_bytes, disk_lost_at, created_at,
           destroyed_at, false AS is_volume FROM instances
    UNION ALL
    SELECT volume_id, account_id, machine_id, host_id, disk_bytes, NULL::bigint, created_at,
           destroyed_at, true FROM volumes)"""
"""Every contract there ever was, for a FROM clause."""


def taken_gb(machine: str) -> str:
    """The GB of a machine's disk that a new instance cannot have; *machine* is an expression.

    These are the disks of instances, those of volumes, and what a volume offer has left to sell.
    Sizes are whole GB.
    """
    return f"""(
    (SELECT coalesce(sum(t.disk_bytes), 0) FROM {CONTRACTS} t
     WHERE t.machine_id = {machine} AND t.destroyed_at IS NULL) / 1000000000
    + (SELECT coalesce(sum(v.left_gb), 0) FROM volume_offers v
       WHERE v.machine_id = {machine} AND v.closed_at IS NULL))::bigint"""  # noqa: S608 - constants
