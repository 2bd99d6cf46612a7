"""Keeping machines up: maintenance, outages, what is paid for them, and the end of a machine."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact
from ledger.domain.events.platform import Compensation

MaintenanceCategory = Literal["power", "internet", "disk", "gpu", "software", "other"]


class MaintenanceScheduled(Fact, tag="maintenance.scheduled.v1"):
    """The host will work on its machine in `[starts_at, starts_at + duration_seconds)`.

    `approved`: it was told early enough to count for nothing in the machine's reliability.
    """

    machine_id: int
    maintenance_id: int
    starts_at: int
    duration_seconds: int
    category: MaintenanceCategory
    approved: bool
    scheduled_at: int


class MaintenanceAnnounced(Fact, tag="maintenance.announced.v1"):
    """The second notice, a day before: every renter on the machine was told again."""

    machine_id: int
    maintenance_id: int
    announced_at: int


class MaintenanceRentalsStopped(Fact, tag="maintenance.rentals_stopped.v1"):
    """Nothing new is rented on the machine until the window is over; contracts go on."""

    machine_id: int
    maintenance_id: int
    stopped_at: int


class MaintenanceCancelled(Fact, tag="maintenance.cancelled.v1"):
    """The window will not happen."""

    machine_id: int
    maintenance_id: int
    cancelled_at: int


class MaintenanceStarted(Fact, tag="maintenance.started.v1"):
    """The window has come."""

    machine_id: int
    maintenance_id: int
    started_at: int


class MaintenanceEnded(Fact, tag="maintenance.ended.v1"):
    """The window is over, at its end or before it when the host was done earlier."""

    machine_id: int
    maintenance_id: int
    ended_at: int


class ProbeLocationRegistered(Fact, tag="probe_location.registered.v1"):
    """The platform looks at machines from here too; its word counts in quorums from now on."""

    location: str
    region: str
    registered_at: int


class ProbeLocationRemoved(Fact, tag="probe_location.removed.v1"):
    """Nobody looks from here any more."""

    location: str
    removed_at: int


class OutageDetected(Fact, tag="outage.detected.v1"):
    """A quorum of probe locations, the *witnesses*, agrees that the machine is down."""

    outage_id: int
    machine_id: int
    witnesses: list[str]
    detected_at: int


class OutageEnded(Fact, tag="outage.ended.v1"):
    """The quorum no longer says that the machine is down."""

    outage_id: int
    machine_id: int
    ended_at: int


class CompensationCredited(Fact, tag="compensation.credited.v1"):
    """What the host pays a renter for one instance and one outage, or one lost disk.

    Either `outage_id` or `lost_at` says what for; `seconds` is how long the outage hit the instance
    (0 for a disk). `claim` is what the policy's formula gives, `spent` what the renter was charged
    on the machine in the last UTC month: `amount` is never more than what is left of that. It is 0
    for somebody who was charged nothing.
    """

    account_id: int
    instance_id: int
    machine_id: int
    host_id: int
    outage_id: int | None
    lost_at: int | None
    policy: Compensation
    policy_version: int
    multiplier: int
    seconds: int
    claim: int
    spent: int
    cap_applied: bool
    amount: int
    credited_at: int


class OutageSettled(Fact, tag="outage.settled.v1"):
    """Every instance that the outage hit was judged; *credited* is what all of them got."""

    outage_id: int
    machine_id: int
    policy: Compensation
    policy_version: int
    credited: int
    settled_at: int


class MachineRemoved(Fact, tag="machine.removed.v1"):
    """A machine without contracts is gone; its GPUs may be enrolled elsewhere."""

    machine_id: int
    removed_at: int


MaintenanceFact = (
    MaintenanceScheduled
    | MaintenanceAnnounced
    | MaintenanceRentalsStopped
    | MaintenanceCancelled
    | MaintenanceStarted
    | MaintenanceEnded
)
OperationFact = (
    MaintenanceFact
    | ProbeLocationRegistered
    | ProbeLocationRemoved
    | OutageDetected
    | OutageEnded
    | CompensationCredited
    | OutageSettled
    | MachineRemoved
)
