"""Turning a wish into facts: the table of `marketplace.md` §4.2, branch by branch."""

from __future__ import annotations

from ledger.domain.events import (
    ConnectionPublished,
    Fact,
    GpusAssigned,
    InstanceBootChanged,
    InstanceDestroyed,
    InstanceDisplaced,
    InstanceExpired,
    InstanceLabelled,
    InstanceLaunchChanged,
    InstanceRebooted,
    InstanceStartRequested,
    TermsTookEffect,
)
from ledger.domain.instance.commands import (
    ApplyTerms,
    ChangeBoot,
    ChangeLaunchConfig,
    DestroyInstance,
    DisplaceInstance,
    ExpireInstance,
    GrantGpus,
    InstanceCommand,
    LabelInstance,
    Observe,
    PublishConnection,
    RebootInstance,
    StartInstance,
    StopInstance,
    TimeOutLaunch,
)
from ledger.domain.instance.contract import decide_contract, require_alive
from ledger.domain.instance.observe import observe, stopped
from ledger.domain.instance.state import Instance
from ledger.errors import RejectedError


def decide(instance: Instance, command: InstanceCommand, now: int) -> list[Fact]:
    """Turn a wish into facts at second *now*; empty when it was already so.

    Raises:
        NotFoundError: `no_such_instance` for a wish of a person about a destroyed instance (except
            destroy).
        RejectedError: `contract_expired`, `not_running`, or `stale_assignment` for a way into a
            container that is no more.
    """
    status = instance.status
    match command:
        case StartInstance():
            require_alive(instance)
            if status == "expired":
                raise RejectedError(
                    "contract_expired", "the contract has ended and cannot start again"
                )
            if status != "stopped":
                return []
            return [InstanceStartRequested(instance_id=instance.instance_id, requested_at=now)]
        case StopInstance():
            require_alive(instance)
            if status not in {"scheduling", "loading", "running"}:
                return []
            return [stopped(instance, command.reason, now, now)]
        case RebootInstance():
            require_alive(instance)
            if status != "running":
                raise RejectedError("not_running", "only a running instance can be rebooted")
            return [InstanceRebooted(instance_id=instance.instance_id, rebooted_at=now)]
        case DestroyInstance():
            if status == "destroyed":
                return []
            return [
                InstanceDestroyed(
                    instance_id=instance.instance_id,
                    by=command.by,
                    reason=command.reason,
                    destroyed_at=now,
                )
            ]
        case ExpireInstance():
            if status in {"expired", "destroyed"}:
                return []
            return [InstanceExpired(instance_id=instance.instance_id, expired_at=now)]
        case GrantGpus():
            assert status == "scheduling", (instance.instance_id, status)
            return [
                GpusAssigned(
                    instance_id=instance.instance_id,
                    assignment_no=instance.assignment_no + 1,
                    slots=list(command.slots),
                    gpu_uuids=list(command.gpu_uuids),
                    assigned_at=now,
                )
            ]
        case LabelInstance():
            require_alive(instance)
            if command.label == instance.label:
                return []
            return [
                InstanceLabelled(
                    instance_id=instance.instance_id, label=command.label, labelled_at=now
                )
            ]
        case ChangeLaunchConfig():
            require_alive(instance)
            if command.launch_hash == instance.launch_hash:
                return []
            return [
                InstanceLaunchChanged(
                    instance_id=instance.instance_id,
                    launch=command.launch,
                    launch_hash=command.launch_hash,
                    image_digest=command.image_digest,
                    changed_at=now,
                )
            ]
        case PublishConnection():
            require_alive(instance)
            if not instance.holds_gpus or command.assignment != instance.assignment_no:
                message = (
                    f"instance {instance.instance_id} does not run under assignment"
                    f" {command.assignment}"
                )
                raise RejectedError("stale_assignment", message)
            return [
                ConnectionPublished(
                    instance_id=instance.instance_id,
                    assignment_no=command.assignment,
                    ports=list(command.ports),
                    addresses=command.addresses,
                    addresses_hash=command.addresses_hash,
                    digest=command.digest,
                    published_at=now,
                )
            ]
        case Observe():
            return observe(instance, command, now)
        case ChangeBoot():
            if not instance.holds_gpus:
                return []
            closed = None
            if instance.gpu_from is not None:
                closed = min(max(instance.gpu_from, command.billed_until), now)
            return [
                InstanceBootChanged(
                    instance_id=instance.instance_id,
                    boot_id=command.boot_id,
                    gpu_until=closed,
                    changed_at=now,
                )
            ]
        case TimeOutLaunch():
            return [stopped(instance, "launch_failed", now, now)] if status == "loading" else []
        case DisplaceInstance():
            assert instance.holds_gpus, (instance.instance_id, status)
            return [
                InstanceDisplaced(
                    instance_id=instance.instance_id, reason=command.reason, displaced_at=now
                )
            ]
        case ApplyTerms():
            return [
                TermsTookEffect(
                    instance_id=instance.instance_id,
                    terms=one.terms,
                    bid=one.bid,
                    effective_at=one.effective_at,
                )
                for one in instance.coming
                if one.effective_at <= now and status != "destroyed"
            ]
        case _:
            return decide_contract(instance, command, now)
