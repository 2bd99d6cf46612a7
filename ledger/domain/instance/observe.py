"""What follows from something that a host saw: confirmations, exits, lost GPUs and disks."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import (
    Fact,
    InstanceDiskLost,
    InstanceRan,
    InstanceRunning,
    InstanceStopped,
    ObservationIgnored,
    StopReason,
)
from ledger.domain.instance.commands import Observe
from ledger.domain.instance.state import Instance


def stopped(
    instance: Instance, reason: StopReason, at: int, now: int, exit_code: int | None = None
) -> InstanceStopped:
    """The fact of a stop at second *at*, decided at *now*."""
    return InstanceStopped(
        instance_id=instance.instance_id,
        reason=reason,
        exit_code=exit_code,
        stopped_at=at,
        decided_at=now,
    )


_STOP_REASONS: Final[dict[str, StopReason]] = {
    "exited": "container_exit",
    "launch_failed": "launch_failed",
    "gpu_lost": "host_fault",
    "disk_gone": "lost_by_host",
}


def observe(instance: Instance, seen: Observe, now: int) -> list[Fact]:
    """What follows from something the host saw (`marketplace.md` §3.1, §4.2)."""
    if seen.state == "loading":
        return []
    if seen.assignment != instance.assignment_no:
        return [_ignored(instance, seen, now, "it names another assignment")]
    if seen.state == "running":
        return _confirm(instance, seen, now)
    facts: list[Fact] = []
    lower = max(instance.gpu_from or instance.assigned_at or instance.created_at, seen.billed_until)
    at = min(max(seen.at, lower), now)
    if seen.state == "disk_gone":
        if instance.status == "destroyed":
            return [_ignored(instance, seen, now, "the instance was destroyed")]
        if instance.disk_lost_at is None:
            facts.append(InstanceDiskLost(instance_id=instance.instance_id, lost_at=at))
    if instance.status == "loading" or (
        instance.status == "running" and seen.state != "launch_failed"
    ):
        facts.append(stopped(instance, _STOP_REASONS[seen.state], at, now, seen.exit_code))
    elif seen.state in {"launch_failed", "gpu_lost"}:
        facts.append(_ignored(instance, seen, now, f"the instance is {instance.status}"))
    # An exit after a stop of the same assignment is the host's confirmation of the kill, not an
    # anomaly.
    return facts


def _confirm(instance: Instance, seen: Observe, now: int) -> list[Fact]:
    """The container of the last assignment runs, or ran until the assignment ended."""
    if instance.status == "running" or instance.assigned_at is None:
        return []
    after_last = instance.gpu_until if instance.ran_assignment == instance.assignment_no else None
    gpu_from = min(max(seen.at, instance.assigned_at, after_last or 0), now)
    if instance.status == "loading":
        return [
            InstanceRunning(
                instance_id=instance.instance_id,
                assignment_no=instance.assignment_no,
                gpu_from=gpu_from,
                observed_at=seen.at,
                confirmed_at=now,
            )
        ]
    ended_at = instance.assignment_ended_at
    if after_last is not None and after_last == ended_at and seen.at < ended_at:
        return []  # It ran and ended; this is the old confirmation again.
    if ended_at is not None and gpu_from < ended_at:
        return [
            InstanceRan(
                instance_id=instance.instance_id,
                assignment_no=instance.assignment_no,
                gpu_from=gpu_from,
                gpu_until=ended_at,
                confirmed_at=now,
            )
        ]
    return [_ignored(instance, seen, now, "its assignment had ended before")]


def _ignored(instance: Instance, seen: Observe, now: int, why: str) -> ObservationIgnored:
    return ObservationIgnored(
        instance_id=instance.instance_id,
        machine_id=instance.machine_id,
        assignment_no=seen.assignment,
        state=seen.state,
        why=why,
        observed_at=seen.at,
        ignored_at=now,
    )
