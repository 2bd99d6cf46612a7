"""Volumes and volume offers: what is sold, what exists, and which instances have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ledger.errors import NotFoundError
from ledger.meters.pricing import storage_charge
from ledger.services.ledger import read_policy
from ledger.store.database import Connection


class VolumeOfferView(msgspec.Struct, frozen=True, kw_only=True):
    """An open volume offer: sizes in GB, the rate in nanos per GB-month.

    `available`: a volume of `left_gb` could be made now.
    """

    volume_offer_id: int
    machine_id: int
    host_id: int
    disk_gb: int
    left_gb: int
    storage_rate: int
    until: int | None
    verification: str
    country: str | None
    disk_name: str | None
    disk_mb_s: int | None
    up_mbps: int
    down_mbps: int
    reliability: float | None
    available: bool
    offered_at: int
    reliability_lower_bound: float
    cuda: float | None
    cpu_ghz: float | None
    driver: str | None


class MountView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that has the volume, and where."""

    instance_id: int
    mount_path: str


class VolumeView(msgspec.Struct, frozen=True, kw_only=True):
    """A volume: its contract, what it cost so far, and the living instances that have it."""

    volume_id: int
    account_id: int
    machine_id: int
    host_id: int
    volume_offer_id: int
    name: str | None
    disk_bytes: int
    storage_rate: int
    storage_rate_per_hour: int
    """What it goes on costing until it is deleted; nanos per hour, rounded down."""
    fee_bp: int
    until: int | None
    status: str
    """`active`, `expired` or `destroyed`."""
    cloned_from: int | None
    offline_since: int | None
    """Since when its machine is silent: nothing of it is billed."""
    instances: list[MountView]
    created_at: int
    destroyed_at: int | None
    storage_seconds: int
    storage_charge: int


_OFFERS = """
SELECT o.volume_offer_id, o.machine_id, o.host_id, o.disk_gb, o.left_gb, o.storage_rate, o.until,
       s.verification, s.country, d.disk_name, d.disk_mb_s, m.up_mbps, m.down_mbps, s.reliability,
       o.left_gb > 0 AND NOT s.stopped_for_maintenance AND NOT s.below_bars
       AND (%(silence)s::bigint IS NULL OR coalesce(
           (SELECT max(h.recorded_at) FROM stream_heads h WHERE h.machine_id = m.machine_id),
           m.enrolled_at) + %(silence)s >= %(now)s) AS available,
       o.offered_at, s.lower_bound, d.cuda, d.cpu_ghz, d.driver
FROM volume_offers o JOIN machines m USING (machine_id) JOIN machine_standing s USING (machine_id)
LEFT JOIN machine_details d USING (machine_id)
WHERE o.closed_at IS NULL AND (o.until IS NULL OR o.until > %(now)s)
  AND (o.storage_rate, o.volume_offer_id) > (%(rate)s, %(id)s)
  AND (%(machine)s::bigint IS NULL OR o.machine_id = %(machine)s)
  AND (%(host)s::bigint IS NULL OR o.host_id = %(host)s)
  AND (%(gb)s::bigint IS NULL OR o.left_gb >= %(gb)s)
  AND (%(most)s::numeric IS NULL OR o.storage_rate <= %(most)s)
  AND (NOT %(verified)s OR s.verification = 'verified')
"""


def volume_offers(
    connection: Connection,
    now: int,
    *,
    machine_id: int | None = None,
    host_id: int | None = None,
    disk_gb: int | None = None,
    storage_rate_max: int | None = None,
    verified: bool = False,
    only_available: bool = True,
    after: tuple[int, int] = (-1, 0),
    limit: int = 100,
) -> list[VolumeOfferView]:
    """Open volume offers, the cheapest first, then by id.

    Args:
        connection: An open connection.
        now: The present second: what is over or offline at it is not available.
        machine_id: Only this machine's.
        host_id: Only this host's.
        disk_gb: Only with at least so much left.
        storage_rate_max: Only at this rate or below, nanos per GB-month.
        verified: Only of verified machines.
        only_available: Only those from which something can be made now.
        after: Rate and id of the last one of the page before.
        limit: Rows at most.
    """
    rows = connection.execute(
        f"SELECT * FROM ({_OFFERS}) AS found WHERE available OR NOT %(only)s"  # noqa: S608 - a constant
        " ORDER BY storage_rate, volume_offer_id LIMIT %(limit)s",
        {
            "now": now,
            "silence": read_policy(connection).offline_after_seconds,
            "rate": after[0],
            "id": after[1],
            "machine": machine_id,
            "host": host_id,
            "gb": disk_gb,
            "most": storage_rate_max,
            "verified": verified,
            "only": only_available,
            "limit": limit,
        },
    )
    names = VolumeOfferView.__struct_fields__
    return [
        VolumeOfferView(**{**dict(zip(names, row, strict=True)), "storage_rate": int(row[5])})
        for row in rows
    ]


class OnMachine(NamedTuple):
    """The open volume offer of a machine: GB, nanos per GB-month."""

    volume_offer_id: int
    left_gb: int
    storage_rate: int


def on_machines(
    connection: Connection, machine_ids: Sequence[int], now: int
) -> dict[int, OnMachine]:
    """What some machines have left for volumes, where they have anything."""
    rows = connection.execute(
        "SELECT machine_id, volume_offer_id, left_gb, storage_rate FROM volume_offers"
        " WHERE machine_id = ANY(%s) AND closed_at IS NULL AND left_gb > 0"
        " AND (until IS NULL OR until > %s)",
        [list(machine_ids), now],
    )
    return {row[0]: OnMachine(row[1], row[2], int(row[3])) for row in rows}


class Place(NamedTuple):
    """What the machine of a volume is like; null: not known."""

    disk_name: str | None
    driver: str | None
    up_mbps: int
    down_mbps: int
    reliability: float | None
    verification: str
    country: str | None


def places(connection: Connection, machine_ids: Sequence[int]) -> dict[int, Place]:
    """What some machines are like that hold volumes."""
    rows = connection.execute(
        "SELECT m.machine_id, d.disk_name, d.driver, m.up_mbps, m.down_mbps, s.reliability,"
        " s.verification, s.country FROM machines m JOIN machine_standing s USING (machine_id)"
        " LEFT JOIN machine_details d USING (machine_id) WHERE m.machine_id = ANY(%s)",
        [list(machine_ids)],
    )
    return {row[0]: Place(*row[1:]) for row in rows}


def sizes(connection: Connection, volume_ids: Sequence[int]) -> dict[int, int]:
    """How large some volumes are, in bytes."""
    rows = connection.execute(
        "SELECT volume_id, disk_bytes FROM volumes WHERE volume_id = ANY(%s)", [list(volume_ids)]
    )
    return {row[0]: row[1] for row in rows}


_VOLUMES = """
SELECT v.volume_id, v.account_id, v.machine_id, v.host_id, v.volume_offer_id, v.name, v.disk_bytes,
       v.storage_rate, v.fee_bp, v.until, v.status, v.cloned_from,
       CASE WHEN v.destroyed_at IS NULL THEN m.offline_since END, mounted.by, v.created_at,
       v.destroyed_at, coalesce(r.storage_quantity, 0), coalesce(r.storage_charge, 0)
FROM volumes v JOIN machines m USING (machine_id)
LEFT JOIN rate_segments r ON r.instance_id = v.volume_id
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_array(a.instance_id, a.mount_path) ORDER BY a.instance_id) AS by
    FROM volume_attachments a JOIN instances i USING (instance_id)
    WHERE a.volume_id = v.volume_id AND i.destroyed_at IS NULL) mounted ON true
WHERE v.volume_id > %(after)s
  AND (%(account)s::bigint IS NULL OR v.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR v.host_id = %(host)s)
  AND (%(machine)s::bigint IS NULL OR v.machine_id = %(machine)s)
  AND (%(status)s::text IS NULL OR v.status = %(status)s)
ORDER BY v.volume_id LIMIT %(limit)s
"""


def volumes(
    connection: Connection,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    machine_id: int | None = None,
    status: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[VolumeView]:
    """Volumes by id: of an account, on a host's machines, or on one machine."""
    rows = connection.execute(
        _VOLUMES,
        {
            "after": after,
            "account": account_id,
            "host": host_id,
            "machine": machine_id,
            "status": status,
            "limit": limit,
        },
    )
    return [_view(row) for row in rows]


def volume(connection: Connection, volume_id: int) -> VolumeView:
    """One volume.

    Raises:
        NotFoundError: `no_such_volume`.
    """
    found = volumes(connection, after=volume_id - 1, limit=1)
    if not found or found[0].volume_id != volume_id:
        raise NotFoundError("no_such_volume", f"there is no volume {volume_id}")
    return found[0]


def _view(row: Sequence[Any]) -> VolumeView:
    return VolumeView(
        volume_id=row[0],
        account_id=row[1],
        machine_id=row[2],
        host_id=row[3],
        volume_offer_id=row[4],
        name=row[5],
        disk_bytes=row[6],
        storage_rate=int(row[7]),
        storage_rate_per_hour=storage_charge(int(row[7]), row[6], 3_600),
        fee_bp=row[8],
        until=row[9],
        status=row[10],
        cloned_from=row[11],
        offline_since=row[12],
        instances=[MountView(instance_id=one, mount_path=path) for one, path in row[13] or ()],
        created_at=row[14],
        destroyed_at=row[15],
        storage_seconds=int(row[16]),
        storage_charge=int(row[17]),
    )
