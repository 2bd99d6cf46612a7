"""One fact of every kind of operations: maintenance, outages, compensation, removed machines."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

OPERATIONS: Final[tuple[e.AnyFact, ...]] = (
    e.MaintenanceScheduled(
        machine_id=4001,
        maintenance_id=3,
        starts_at=T + 691_200,
        duration_seconds=7_200,
        category="power",
        approved=True,
        scheduled_at=T,
    ),
    e.MaintenanceAnnounced(machine_id=4001, maintenance_id=3, announced_at=T + 604_800),
    e.MaintenanceRentalsStopped(machine_id=4001, maintenance_id=3, stopped_at=T + 345_600),
    e.MaintenanceCancelled(machine_id=4001, maintenance_id=4, cancelled_at=T + 60),
    e.MaintenanceStarted(machine_id=4001, maintenance_id=3, started_at=T + 691_200),
    e.MaintenanceEnded(machine_id=4001, maintenance_id=3, ended_at=T + 698_400),
    e.ProbeLocationRegistered(location="fra1", region="DE", registered_at=T),
    e.ProbeLocationRemoved(location="fra1", removed_at=T + 60),
    e.OutageDetected(
        outage_id=2,
        machine_id=4001,
        witnesses=["ams1", "fra1", "lon1", "nyc1"],
        detected_at=T + 120,
    ),
    e.OutageEnded(outage_id=2, machine_id=4001, ended_at=T + 7_320),
    e.CompensationCredited(
        account_id=7,
        instance_id=1001,
        machine_id=4001,
        host_id=9,
        outage_id=2,
        lost_at=None,
        policy="sla-1",
        policy_version=2,
        multiplier=5,
        seconds=7_200,
        claim=5_000_000_000,
        spent=3_000_000_000,
        cap_applied=True,
        amount=3_000_000_000,
        credited_at=T + 7_321,
    ),
    e.OutageSettled(
        outage_id=2,
        machine_id=4001,
        policy="sla-1",
        policy_version=2,
        credited=3_000_000_000,
        settled_at=T + 7_321,
    ),
    e.MachineRemoved(machine_id=4001, removed_at=T + 60),
)
"""One fact of every kind that operations add."""
