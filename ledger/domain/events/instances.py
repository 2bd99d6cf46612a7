"""The life of an instance."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import ContractKind, Fact, Retired, StopReason, WaitReason


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a second costs: rates for the whole slice, frozen when the contract was made.

    gpu: nanos per hour; storage: nanos per GB-month; up, down: nanos per GB; fee in basis points.
    """

    kind: ContractKind
    gpu_rate: int
    storage_rate: int
    up_rate: int
    down_rate: int
    fee_bp: int


class Coming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Terms that apply from a second on; a rate segment begins there.

    A fact that carries some says everything that applies from the first of them on. `bid` is what
    an interruptible instance bids under them.
    """

    effective_at: int
    terms: Terms
    bid: int | None


class InstanceCreated(Fact, tag="instance.created.v2"):
    """A contract exists, and its storage meter runs from *created_at*.

    `offer_id` is the offer that it closed. `bid` is what an interruptible one offers for the whole
    slice: what it pays, except on its owner's own machine, where nothing is charged.
    """

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    listing_id: int
    offer_id: int | None
    gpus: int
    disk_bytes: int
    terms: Terms
    bid: int | None
    until: int | None
    label: str | None
    launch: str | None
    launch_hash: str | None
    policy_version: int
    reason: WaitReason
    created_at: int


class InstanceCreatedV1(Retired, tag="instance.created.v1"):
    """A contract from before there were offers and bids."""

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    listing_id: int
    gpus: int
    disk_bytes: int
    terms: Terms
    until: int | None
    label: str | None
    launch: str | None
    launch_hash: str | None
    policy_version: int
    reason: WaitReason
    created_at: int

    def upcast(self) -> InstanceCreated:
        """The same contract: on demand, from no particular offer."""
        return InstanceCreated(
            instance_id=self.instance_id,
            account_id=self.account_id,
            machine_id=self.machine_id,
            host_id=self.host_id,
            listing_id=self.listing_id,
            offer_id=None,
            gpus=self.gpus,
            disk_bytes=self.disk_bytes,
            terms=self.terms,
            bid=None,
            until=self.until,
            label=self.label,
            launch=self.launch,
            launch_hash=self.launch_hash,
            policy_version=self.policy_version,
            reason=self.reason,
            created_at=self.created_at,
        )


class InstanceStartRequested(Fact, tag="instance.start_requested.v1"):
    """The instance wants to run again and waits for its GPUs."""

    instance_id: int
    requested_at: int


class BidChanged(Fact, tag="instance.bid_changed.v1"):
    """An interruptible instance bids another amount for its slice from *effective_at* on.

    Several changes with one effective second: the last one governs, the others have no second.
    """

    instance_id: int
    bid: int
    effective_at: int
    coming: list[Coming]
    changed_at: int


class TermsTookEffect(Fact, tag="instance.terms_took_effect.v1"):
    """Terms that were agreed before apply from *effective_at* on."""

    instance_id: int
    terms: Terms
    bid: int | None
    effective_at: int


class GpusAssigned(Fact, tag="gpus.assigned.v1"):
    """The server granted GPUs.

    Nothing is billed for them before the host confirms the container.
    """

    instance_id: int
    assignment_no: int
    slots: list[int]
    gpu_uuids: list[str]
    assigned_at: int


class InstanceRunning(Fact, tag="instance.running.v1"):
    """The host confirmed the container of this assignment; the GPU meter runs from *gpu_from*."""

    instance_id: int
    assignment_no: int
    gpu_from: int
    observed_at: int
    confirmed_at: int


class InstanceRan(Fact, tag="instance.ran.v1"):
    """A confirmation that came after its assignment had ended.

    The interval opened and closed at once.
    """

    instance_id: int
    assignment_no: int
    gpu_from: int
    gpu_until: int
    confirmed_at: int


class InstanceBootChanged(Fact, tag="instance.boot_changed.v1"):
    """The machine booted anew: the GPU interval closed at *gpu_until*, the assignment is kept."""

    instance_id: int
    boot_id: str
    gpu_until: int | None
    changed_at: int


class InstanceRebooted(Fact, tag="instance.rebooted.v1"):
    """The renter asked for a restart in place; GPUs and priority are kept."""

    instance_id: int
    rebooted_at: int


class InstanceStopped(Fact, tag="instance.stopped.v1"):
    """The GPU meter ended at *stopped_at* and the GPUs are free.

    The disk is kept and its meter goes on.
    """

    instance_id: int
    reason: StopReason
    exit_code: int | None
    stopped_at: int
    decided_at: int


class InstanceDisplaced(Fact, tag="instance.displaced.v1"):
    """A higher claim took the GPUs; the instance resumes by itself."""

    instance_id: int
    reason: WaitReason
    displaced_at: int


class InstanceExpired(Fact, tag="instance.expired.v1"):
    """The contract reached its end; it cannot start again, and its storage meter goes on."""

    instance_id: int
    expired_at: int


class InstanceDiskLost(Fact, tag="instance.disk_lost.v1"):
    """The host lost the disk: no storage is billed until the next GPUs are granted."""

    instance_id: int
    lost_at: int


class InstanceDestroyed(Fact, tag="instance.destroyed.v1"):
    """Every meter ended; final."""

    instance_id: int
    by: Literal["renter", "admin", "host", "storage_debt", "cleanup"]
    reason: str | None
    destroyed_at: int


class InstanceLabelled(Fact, tag="instance.labelled.v1"):
    """The renter gave the instance another label."""

    instance_id: int
    label: str | None
    labelled_at: int


class ObservationIgnored(Fact, tag="observation.ignored.v1"):
    """A host reported something that cannot happen.

    It changed nothing and is kept as an anomaly.
    """

    instance_id: int
    machine_id: int
    assignment_no: int
    state: str
    why: str
    observed_at: int
    ignored_at: int


class UsageGapRecorded(Fact, tag="usage.gap_recorded.v1"):
    """Seconds of a GPU interval that no timely tick can cover any more; forfeited."""

    instance_id: int
    machine_id: int
    gap_from: int
    gap_until: int
    recorded_at: int


LifeFact = (
    InstanceCreated
    | InstanceStartRequested
    | BidChanged
    | TermsTookEffect
    | GpusAssigned
    | InstanceRunning
    | InstanceRan
    | InstanceBootChanged
    | InstanceRebooted
    | InstanceStopped
    | InstanceDisplaced
    | InstanceExpired
    | InstanceDiskLost
    | InstanceDestroyed
    | InstanceLabelled
    | ObservationIgnored
    | UsageGapRecorded
)
