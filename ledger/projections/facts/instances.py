"""Instances and the GPUs that they hold: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import FAR_FUTURE, Change, counted
from ledger.projections.facts.contracts import agreed, due, in_force
from ledger.projections.facts.launches import ended_with
from ledger.projections.facts.market import REFRESH_OF_CONTRACT, refreshed


def instance_changes(fact: e.LifeFact, position: int) -> Iterator[Change]:
    """The present state of an instance, the GPUs it holds, and what its account burns."""
    instance_id = fact.instance_id
    match fact:
        case e.InstanceCreated():
            terms = fact.terms
            yield Change(
                "INSERT INTO instances (instance_id, account_id, machine_id, host_id, listing_id,"
                " offer_id, kind, gpus, disk_bytes, gpu_rate, storage_rate, up_rate, down_rate,"
                " fee_bp, bid, bid_effective_at, until, label, launch, status, reason, wants_run,"
                " requested_position, assignment_no, slots, gpu_uuids, created_at,"
                " changed_position) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
                " %s, %s, %s, %s, %s, 'scheduling', %s, true, %s, 0, '{}', '{}', %s, %s)",
                (
                    instance_id,
                    fact.account_id,
                    fact.machine_id,
                    fact.host_id,
                    fact.listing_id,
                    fact.offer_id,
                    terms.kind,
                    fact.gpus,
                    fact.disk_bytes,
                    terms.gpu_rate,
                    terms.storage_rate,
                    terms.up_rate,
                    terms.down_rate,
                    terms.fee_bp,
                    fact.bid,
                    fact.created_at,
                    fact.until,
                    fact.label,
                    fact.launch,
                    fact.reason,
                    position,
                    fact.created_at,
                    position,
                ),
            )
            yield Change(
                "UPDATE account_credit SET storage_product = storage_product + %s"
                " WHERE account_id = %s",
                (terms.storage_rate * fact.disk_bytes, fact.account_id),
            )
            yield counted("instance", instance_id)
            yield from agreed(
                instance_id, [e.Coming(effective_at=fact.created_at, terms=terms, bid=fact.bid)]
            )
            if fact.offer_id is not None:
                yield Change(
                    "UPDATE offers SET closed_at = %s, instance_id = %s WHERE offer_id = %s",
                    (fact.created_at, instance_id, fact.offer_id),
                )
            yield refreshed(fact.machine_id)
            yield _desired(instance_id, position)
        case e.BidChanged():
            yield from agreed(instance_id, fact.coming)
            yield due(instance_id, fact.changed_at)
        case e.TermsTookEffect():
            yield from in_force(instance_id, fact.terms, fact.bid, fact.effective_at)
            yield due(instance_id, fact.effective_at)
        case e.InstanceStartRequested():
            yield Change(
                "UPDATE instances SET status = 'scheduling', reason = 'no_capacity',"
                " wants_run = true, stopped_at = NULL, requested_position = %s,"
                " changed_position = %s WHERE instance_id = %s",
                (position, position, instance_id),
            )
            yield _desired(instance_id, position)
        case e.GpusAssigned():
            yield from _assigned(fact, position)
        case e.InstanceRunning():
            yield Change(
                "UPDATE instances SET status = 'running', reason = '', gpu_from = %s,"
                " gpu_until = NULL, first_run_at = coalesce(first_run_at, %s),"
                " changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_from, fact.gpu_from, position, instance_id),
            )
            yield _ran(instance_id, fact.gpu_from, FAR_FUTURE)
        case e.InstanceRan():
            yield Change(
                "UPDATE instances SET gpu_from = %s, gpu_until = %s,"
                " first_run_at = coalesce(first_run_at, %s), changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_from, fact.gpu_until, fact.gpu_from, position, instance_id),
            )
            yield _ran(instance_id, fact.gpu_from, fact.gpu_until)
        case e.InstanceBootChanged():
            yield Change(
                "UPDATE instances SET status = 'loading', reason = '',"
                " gpu_until = coalesce(%s, gpu_until), changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_until, position, instance_id),
            )
            if fact.gpu_until is not None:
                yield _ceased(instance_id, fact.gpu_until)
        case e.InstanceStopped():
            yield from _released(
                instance_id, fact.stopped_at, "stopped", fact.reason, position, wants_run=False
            )
        case e.InstanceDisplaced():
            yield from _released(
                instance_id, fact.displaced_at, "scheduling", fact.reason, position, wants_run=True
            )
        case e.InstanceExpired():
            yield from _released(
                instance_id, fact.expired_at, "expired", "", position, wants_run=False
            )
        case e.InstanceDestroyed():
            yield from _released(
                instance_id, fact.destroyed_at, "destroyed", "", position, wants_run=False
            )
            yield Change(
                "UPDATE account_credit SET storage_product = storage_product"
                " - (SELECT storage_rate * disk_bytes FROM instances WHERE instance_id = %s)"
                " WHERE account_id = (SELECT account_id FROM instances WHERE instance_id = %s)",
                (instance_id, instance_id),
            )
            yield Change(
                "UPDATE instances SET destroyed_at = %s, terms_due_at = NULL"
                " WHERE instance_id = %s",
                (fact.destroyed_at, instance_id),
            )
            yield from ended_with(instance_id, fact.destroyed_at)
        case e.InstanceDiskLost():
            yield Change(
                "UPDATE instances SET disk_lost_at = %s, changed_position = %s"
                " WHERE instance_id = %s",
                (fact.lost_at, position, instance_id),
            )
        case e.InstanceLabelled():
            yield Change(
                "UPDATE instances SET label = %s, changed_position = %s WHERE instance_id = %s",
                (fact.label, position, instance_id),
            )
        case e.InstanceRebooted():
            yield Change(
                "UPDATE instances SET reboots = reboots + 1 WHERE instance_id = %s",
                (instance_id,),
            )
            yield _desired(instance_id, position)
        case e.ObservationIgnored() | e.UsageGapRecorded():
            return


def _desired(instance_id: int, position: int) -> Change:
    return Change(
        "UPDATE machines SET desired_version = %s"
        " WHERE machine_id = (SELECT machine_id FROM instances WHERE instance_id = %s)",
        (position, instance_id),
    )


def _assigned(fact: e.GpusAssigned, position: int) -> Iterator[Change]:
    yield Change(
        "UPDATE instances SET status = 'loading', reason = '', assignment_no = %s,"
        " assigned_at = %s, slots = %s, gpu_uuids = %s, disk_lost_at = NULL,"
        " changed_position = %s WHERE instance_id = %s",
        (
            fact.assignment_no,
            fact.assigned_at,
            fact.slots,
            fact.gpu_uuids,
            position,
            fact.instance_id,
        ),
    )
    yield Change(
        "INSERT INTO gpu_assignments (instance_id, assignment_no, slot, machine_id, gpu, during)"
        " SELECT %s, %s, gpus.slot, gpus.machine_id, int8range(gpu_no, gpu_no, '[]'),"
        " int8range(%s, NULL) FROM gpus WHERE gpu_uuid = ANY(%s) ORDER BY gpus.slot",
        (fact.instance_id, fact.assignment_no, fact.assigned_at, fact.gpu_uuids),
    )
    yield Change(
        "UPDATE account_credit SET gpu_rate = account_credit.gpu_rate + instances.gpu_rate"
        " FROM instances WHERE instances.instance_id = %s AND instances.kind <> 'reserved'"
        " AND account_credit.account_id = instances.account_id",
        (fact.instance_id,),
    )
    yield Change(
        "UPDATE machines SET committed_gpus = committed_gpus + i.gpus FROM instances i"
        " WHERE i.instance_id = %s AND i.machine_id = machines.machine_id"
        " AND i.kind <> 'interruptible'",
        (fact.instance_id,),
    )
    yield _refreshed_of(fact.instance_id)
    yield _desired(fact.instance_id, position)


def _released(
    instance_id: int, at: int, status: str, reason: str, position: int, *, wants_run: bool
) -> Iterator[Change]:
    yield Change(
        "UPDATE account_credit SET gpu_rate = account_credit.gpu_rate - instances.gpu_rate"
        " FROM instances WHERE instances.instance_id = %s"
        " AND instances.status IN ('loading', 'running') AND instances.kind <> 'reserved'"
        " AND account_credit.account_id = instances.account_id",
        (instance_id,),
    )
    yield Change(
        "UPDATE machines SET committed_gpus = committed_gpus - i.gpus FROM instances i"
        " WHERE i.instance_id = %s AND i.machine_id = machines.machine_id"
        " AND i.status IN ('loading', 'running') AND i.kind <> 'interruptible'",
        (instance_id,),
    )
    yield _ceased(instance_id, at)
    yield Change(
        "UPDATE gpu_assignments SET during = int8range(lower(during), %s)"
        " WHERE instance_id = %s AND upper_inf(during)",
        (at, instance_id),
    )
    yield Change(
        "UPDATE instances SET status = %s, reason = %s, wants_run = %s,"
        " requested_position = CASE WHEN %s THEN %s ELSE requested_position END,"
        " gpu_until = CASE WHEN status = 'running' THEN %s ELSE gpu_until END,"
        " slots = CASE WHEN status IN ('loading', 'running') THEN '{}' ELSE slots END,"
        " gpu_uuids = CASE WHEN status IN ('loading', 'running') THEN '{}' ELSE gpu_uuids END,"
        " stopped_at = CASE WHEN %s THEN stopped_at ELSE coalesce(stopped_at, %s) END,"
        " changed_position = %s WHERE instance_id = %s",
        (
            status,
            reason,
            wants_run,
            wants_run,
            position,
            at,
            wants_run,
            at,
            position,
            instance_id,
        ),
    )
    yield _refreshed_of(instance_id)
    yield _desired(instance_id, position)


def _ran(instance_id: int, start: int, until: int) -> Change:
    return Change(
        "INSERT INTO gpu_spans VALUES (%s, %s, %s)"
        " ON CONFLICT (instance_id, start) DO UPDATE SET until = EXCLUDED.until",
        (instance_id, start, until),
    )


def _ceased(instance_id: int, at: int) -> Change:
    return Change(
        "UPDATE gpu_spans SET until = greatest(start, %s) WHERE instance_id = %s AND until = %s",
        (at, instance_id, FAR_FUTURE),
    )


def _refreshed_of(instance_id: int) -> Change:
    return Change(REFRESH_OF_CONTRACT, (instance_id,))
