"""Instances: their contract, their state, and what they cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ledger.errors import NotFoundError
from ledger.meters.pricing import gpu_charge, storage_charge
from ledger.store.database import Connection


class ComingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that are agreed and apply from `effective_at` on; rates in nanos for the slice."""

    effective_at: int
    kind: str
    gpu_rate: int
    storage_rate: int
    up_rate: int
    down_rate: int


class RunningTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation that runs: what is locked for it, and its seconds `[term_from, term_until)`."""

    reservation_no: int
    base_rate: int
    rate: int
    deposit: int
    term_from: int
    term_until: int


class MountedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that the instance has while it lives, and where."""

    volume_id: int
    mount_path: str


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance. Rates are nanos for the slice; quantities and charges are folded so far.

    `dph_total = dph_base + storage_rate_per_hour`: what an hour costs while it runs, without
    traffic; an hour of a reserved instance is paid from its deposit, except for the storage.
    """

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    listing_id: int
    offer_id: int | None
    kind: str
    gpus: int
    disk_bytes: int
    gpu_rate: int
    storage_rate: int
    storage_rate_per_hour: int
    """What the disk goes on costing while the instance is stopped; nanos per hour, rounded down."""
    up_rate: int
    down_rate: int
    dph_base: int
    dph_total: int
    fee_bp: int
    bid: int | None
    """Nanos per hour for the slice; null unless it is interruptible."""
    bid_effective_at: int | None
    terms_due_at: int | None
    """When the first of `coming` applies."""
    coming: list[ComingTerms]
    reservation: RunningTerm | None
    until: int | None
    label: str | None
    status: str
    reason: str
    waiting_since: int | None
    """Since when it waits for GPUs; null unless it does."""
    offline_since: int | None
    """Since when its machine is silent: nothing of it is billed, whatever its state."""
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
    volumes: list[MountedVolume]


_SELECT = """
SELECT i.instance_id, i.account_id, i.machine_id, i.host_id, i.listing_id, i.kind, i.gpus,
       i.disk_bytes, i.gpu_rate, i.storage_rate, i.up_rate, i.down_rate, i.fee_bp, i.until, i.label,
       i.status, i.reason, i.assignment_no, i.gpu_uuids, i.created_at, i.first_run_at, i.stopped_at,
       i.destroyed_at,
       coalesce(s.gpu_quantity, 0), coalesce(s.gpu_charge, 0),
       coalesce(s.storage_quantity, 0), coalesce(s.storage_charge, 0),
       coalesce(s.up_quantity, 0), coalesce(s.up_charge, 0),
       coalesce(s.down_quantity, 0), coalesce(s.down_charge, 0),
       i.offer_id, i.bid, i.bid_effective_at, i.terms_due_at, c.terms,
       r.reservation_no, r.base_rate, r.rate, r.deposit, r.term_from, r.term_until,
       CASE WHEN i.status = 'scheduling' THEN
           (SELECT e.recorded_at FROM events e WHERE e.position = i.requested_position) END,
       CASE WHEN i.destroyed_at IS NULL THEN m.offline_since END,
       (SELECT json_agg(json_build_array(a.volume_id, a.mount_path) ORDER BY a.volume_id)
        FROM volume_attachments a WHERE a.instance_id = i.instance_id)
FROM instances i JOIN machines m USING (machine_id) LEFT JOIN LATERAL (
    SELECT sum(gpu_quantity) AS gpu_quantity, sum(gpu_charge) AS gpu_charge,
           sum(storage_quantity) AS storage_quantity, sum(storage_charge) AS storage_charge,
           sum(up_quantity) AS up_quantity, sum(up_charge) AS up_charge,
           sum(down_quantity) AS down_quantity, sum(down_charge) AS down_charge
    FROM rate_segments r WHERE r.instance_id = i.instance_id) s ON true
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_array(t.since, t.kind, t.gpu_rate, t.storage_rate, t.up_rate,
                                     t.down_rate) ORDER BY t.since, t.terms_no) AS terms
    FROM instance_terms t WHERE t.instance_id = i.instance_id AND t.since >= i.terms_due_at
      AND t.until > t.since) c ON true
LEFT JOIN reservations r ON r.instance_id = i.instance_id AND r.ended_at IS NULL
"""
_QUERY = f"""{_SELECT}
WHERE i.instance_id > %(after)s
  AND (%(account)s::bigint IS NULL OR i.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR i.host_id = %(host)s)
  AND (%(machine)s::bigint IS NULL OR i.machine_id = %(machine)s)
  AND (%(status)s::text IS NULL OR i.status = %(status)s)
  AND (%(label)s::text IS NULL OR i.label = %(label)s)
ORDER BY i.instance_id LIMIT %(limit)s
"""
_BY_ID = f"{_SELECT} WHERE i.instance_id = ANY(%(ids)s)"


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
    return [_view(row) for row in rows]


def instances_by_id(connection: Connection, instance_ids: Sequence[int]) -> dict[int, InstanceView]:
    """These instances; those that never were are left out."""
    rows = connection.execute(_BY_ID, {"ids": list(instance_ids)})
    return {row[0]: _view(row) for row in rows}


def _view(row: Sequence[Any]) -> InstanceView:
    gpu_rate, storage_rate = int(row[8]), int(row[9])
    base, storage = gpu_charge(gpu_rate, 3_600), storage_charge(storage_rate, row[7], 3_600)
    bid = None if row[32] is None else int(row[32])
    return InstanceView(
        instance_id=row[0],
        account_id=row[1],
        machine_id=row[2],
        host_id=row[3],
        listing_id=row[4],
        offer_id=row[31],
        kind=row[5],
        gpus=row[6],
        disk_bytes=row[7],
        gpu_rate=gpu_rate,
        storage_rate=storage_rate,
        storage_rate_per_hour=storage,
        up_rate=int(row[10]),
        down_rate=int(row[11]),
        dph_base=base,
        dph_total=base + storage,
        fee_bp=row[12],
        bid=bid,
        bid_effective_at=None if bid is None else row[33],
        terms_due_at=row[34],
        coming=[_coming(terms) for terms in row[35] or ()],
        reservation=None if row[36] is None else _running_term(row[36:42]),
        until=row[13],
        label=row[14],
        status=row[15],
        reason=row[16],
        waiting_since=row[42],
        offline_since=row[43],
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
        volumes=[MountedVolume(volume_id=one, mount_path=path) for one, path in row[44] or ()],
    )


def _coming(terms: Sequence[Any]) -> ComingTerms:
    since, kind, *rates = terms
    gpu, storage, up, down = map(int, rates)
    return ComingTerms(
        effective_at=since,
        kind=kind,
        gpu_rate=gpu,
        storage_rate=storage,
        up_rate=up,
        down_rate=down,
    )


def _running_term(row: Sequence[Any]) -> RunningTerm:
    return RunningTerm(
        reservation_no=row[0],
        base_rate=int(row[1]),
        rate=int(row[2]),
        deposit=int(row[3]),
        term_from=row[4],
        term_until=row[5],
    )


def instance(connection: Connection, instance_id: int) -> InstanceView:
    """One instance.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    found = instances(connection, after=instance_id - 1, limit=1)
    if not found or found[0].instance_id != instance_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return found[0]


def image_digest(connection: Connection, instance_id: int) -> str | None:
    """What the image's reference meant when it was given; none where nobody asked."""
    row = connection.execute(
        "SELECT image_digest FROM instance_launches WHERE instance_id = %s", [instance_id]
    ).fetchone()
    return None if row is None else row[0]


def living(connection: Connection, account_id: int, label: str) -> list[int]:
    """The instances of an account with this label that were not destroyed, by id."""
    rows = connection.execute(
        "SELECT instance_id FROM instances WHERE account_id = %s AND label = %s"
        " AND destroyed_at IS NULL ORDER BY instance_id",
        [account_id, label],
    )
    return [row[0] for row in rows]
