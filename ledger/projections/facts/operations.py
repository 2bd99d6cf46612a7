"""Maintenance, outages, compensation and removed machines: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    RENTER_CREDIT,
    credited,
    moved,
    paid_to_host,
)
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.market import refreshed


def operation_changes(fact: e.OperationFact, position: int) -> Iterator[Change]:
    """When machines are not there, who saw it, what it costs their hosts."""
    match fact:
        case (
            e.MaintenanceScheduled()
            | e.MaintenanceAnnounced()
            | e.MaintenanceRentalsStopped()
            | e.MaintenanceCancelled()
            | e.MaintenanceStarted()
            | e.MaintenanceEnded()
        ):
            yield from _maintenance(fact, position)
        case e.ProbeLocationRegistered():
            yield Change(
                "INSERT INTO probe_locations VALUES (%s, %s, %s, NULL) ON CONFLICT (location)"
                " DO UPDATE SET region = EXCLUDED.region, registered_at = EXCLUDED.registered_at,"
                " removed_at = NULL",
                (fact.location, fact.region, fact.registered_at),
            )
        case e.ProbeLocationRemoved():
            yield Change(
                "UPDATE probe_locations SET removed_at = %s WHERE location = %s",
                (fact.removed_at, fact.location),
            )
        case e.OutageDetected():
            yield Change(
                "INSERT INTO outages (outage_id, machine_id, witnesses, detected_at)"
                " VALUES (%s, %s, %s, %s)",
                (fact.outage_id, fact.machine_id, fact.witnesses, fact.detected_at),
            )
            yield counted("outage", fact.outage_id)
        case e.OutageEnded():
            yield Change(
                "UPDATE outages SET ended_at = %s, ended_position = %s WHERE outage_id = %s",
                (fact.ended_at, position, fact.outage_id),
            )
        case e.CompensationCredited():
            yield from _credited(fact, position)
        case e.OutageSettled():
            yield Change(
                "UPDATE outages SET credited = %s, settled_at = %s WHERE outage_id = %s",
                (fact.credited, fact.settled_at, fact.outage_id),
            )
        case e.MachineRemoved():
            # What it did stays in the log, in instances and in usage; nobody finds it any more.
            for table in _OF_MACHINES:
                yield Change(
                    f"DELETE FROM {table} WHERE machine_id = %s",  # noqa: S608 - constants
                    (fact.machine_id,),
                )


_OF_MACHINES: Final = ("smallest_bids", "machine_details", "machine_standing", "gpus", "machines")


def _maintenance(fact: e.MaintenanceFact, position: int) -> Iterator[Change]:
    maintenance_id = fact.maintenance_id
    match fact:
        case e.MaintenanceScheduled():
            yield Change(
                "INSERT INTO maintenance_windows (machine_id, maintenance_id, start, until,"
                " approved, status, category, scheduled_at, position)"
                " VALUES (%s, %s, %s, %s, %s, 'scheduled', %s, %s, %s)",
                (
                    fact.machine_id,
                    maintenance_id,
                    fact.starts_at,
                    fact.starts_at + fact.duration_seconds,
                    fact.approved,
                    fact.category,
                    fact.scheduled_at,
                    position,
                ),
            )
            yield counted("maintenance", maintenance_id)
        case e.MaintenanceAnnounced():
            yield Change(
                "UPDATE maintenance_windows SET announced_at = %s WHERE maintenance_id = %s",
                (fact.announced_at, maintenance_id),
            )
        case e.MaintenanceRentalsStopped():
            yield Change(
                "UPDATE maintenance_windows SET rentals_stopped_at = %s WHERE maintenance_id = %s",
                (fact.stopped_at, maintenance_id),
            )
            yield from _stopped_or_not(fact.machine_id)
        case e.MaintenanceStarted():
            yield Change(
                "UPDATE maintenance_windows SET status = 'started' WHERE maintenance_id = %s",
                (maintenance_id,),
            )
        case e.MaintenanceCancelled():
            yield Change(
                "UPDATE maintenance_windows SET status = 'cancelled', closed_at = %s"
                " WHERE maintenance_id = %s",
                (fact.cancelled_at, maintenance_id),
            )
            yield from _stopped_or_not(fact.machine_id)
        case e.MaintenanceEnded():
            yield Change(
                "UPDATE maintenance_windows SET status = 'ended', closed_at = %s,"
                " until = least(until, %s) WHERE maintenance_id = %s",
                (fact.ended_at, fact.ended_at, maintenance_id),
            )
            yield from _stopped_or_not(fact.machine_id)


def _stopped_or_not(machine_id: int) -> Iterator[Change]:
    """New rentals stand still while any window of the machine that stopped them is not over."""
    yield Change(
        "UPDATE machine_standing SET stopped_for_maintenance = EXISTS ("
        "SELECT 1 FROM maintenance_windows w WHERE w.machine_id = machine_standing.machine_id"
        " AND w.rentals_stopped_at IS NOT NULL AND w.status IN ('scheduled', 'started'))"
        " WHERE machine_id = %s",
        (machine_id,),
    )
    yield refreshed(machine_id)


def _credited(fact: e.CompensationCredited, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO compensations VALUES"
        " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            position,
            fact.account_id,
            fact.instance_id,
            fact.machine_id,
            fact.host_id,
            fact.outage_id,
            fact.lost_at,
            fact.policy,
            fact.policy_version,
            fact.multiplier,
            fact.seconds,
            fact.claim,
            fact.spent,
            fact.cap_applied,
            fact.amount,
            fact.credited_at,
        ),
    )
    if not fact.amount:
        return
    yield from credited(fact.account_id, fact.amount)
    yield paid_to_host(fact.host_id, -fact.amount)
    yield moved(
        position,
        "compensation",
        f"instance-{fact.instance_id}",
        (HOST_PAYABLE, fact.host_id),
        (RENTER_CREDIT, fact.account_id),
        fact.amount,
        fact.credited_at,
    )
