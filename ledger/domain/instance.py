"""The life of one rental: state, `evolve` (fold facts) and `decide` (turn a wish into facts).

The table of `marketplace.md` §4.2 is `decide`, branch by branch. Who may send a command is judged
by the services; which instance gets which GPUs by `ledger.domain.auction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, assert_never, dataclass_transform

import msgspec

from ledger.domain.events import (
    Fact,
    GpusAssigned,
    InstanceBootChanged,
    InstanceCreated,
    InstanceDestroyed,
    InstanceDiskLost,
    InstanceDisplaced,
    InstanceExpired,
    InstanceFact,
    InstanceLabelled,
    InstanceRan,
    InstanceRebooted,
    InstanceRunning,
    InstanceStartRequested,
    InstanceStopped,
    ObservationIgnored,
    StopReason,
    Terms,
    UsageGapRecorded,
)
from ledger.errors import CorruptHistoryError, NotFoundError, RejectedError

Status = Literal["scheduling", "loading", "running", "stopped", "expired", "destroyed"]
HOLDS_GPUS: Final = frozenset({"loading", "running"})
LAUNCH_TIMEOUT_SECONDS: Final = 1_800


# --- commands -------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Command(msgspec.Struct, frozen=True):
    """A wish concerning one instance."""


class StartInstance(_Command):
    """The renter wants it to run."""


class StopInstance(_Command):
    """The GPU meter must end now; the disk stays."""

    reason: StopReason


class RebootInstance(_Command):
    """The renter wants a restart in place."""


class DestroyInstance(_Command):
    """Everything must end now."""

    by: Literal["renter", "admin", "host", "storage_debt"]
    reason: str | None = None


class ExpireInstance(_Command):
    """The contract's end is reached."""


class GrantGpus(_Command):
    """The allocation gave it these GPUs."""

    slots: tuple[int, ...]
    gpu_uuids: tuple[str, ...]


class LabelInstance(_Command):
    """The renter wants another label."""

    label: str | None


class Observe(_Command):
    """The host saw something, in a report received now.

    `billed_until` is the first second that no accepted report attests yet: an interval never
    shrinks below it.
    """

    assignment: int
    state: Literal["loading", "running", "exited", "launch_failed", "disk_gone", "gpu_lost"]
    at: int
    billed_until: int
    exit_code: int | None = None


class ChangeBoot(_Command):
    """The machine reports under a new boot id: nothing that ran before runs now."""

    boot_id: str
    billed_until: int


class TimeOutLaunch(_Command):
    """Nobody confirmed the container for too long."""


InstanceCommand = (
    StartInstance
    | StopInstance
    | RebootInstance
    | DestroyInstance
    | ExpireInstance
    | GrantGpus
    | LabelInstance
    | Observe
    | ChangeBoot
    | TimeOutLaunch
)


# --- state ----------------------------------------------------------------------------------------


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What the facts so far say about one instance.

    `assignment_no` is that of the last assignment, open or ended (0: none yet);
    `assignment_ended_at` is null while it is open. `gpu_from` is null unless the GPU interval is
    open; `ran_assignment` is the last one that ran.
    """

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    gpus: int
    disk_bytes: int
    terms: Terms
    until: int | None
    created_at: int
    status: Status = "scheduling"
    reason: str = "new"
    wants_run: bool = True
    label: str | None = None
    assignment_no: int = 0
    assigned_at: int | None = None
    assignment_ended_at: int | None = None
    slots: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    gpu_from: int | None = None
    gpu_until: int | None = None
    ran_assignment: int = 0
    first_run_at: int | None = None
    disk_lost_at: int | None = None
    ended_at: int | None = None

    @property
    def holds_gpus(self) -> bool:
        """True while an assignment is open."""
        return self.status in HOLDS_GPUS


def evolve(instance: Instance | None, fact: InstanceFact) -> Instance:
    """Fold one fact into the state. Total and pure: history is never refused."""
    if isinstance(fact, InstanceCreated):
        return Instance(
            instance_id=fact.instance_id,
            account_id=fact.account_id,
            machine_id=fact.machine_id,
            host_id=fact.host_id,
            gpus=fact.gpus,
            disk_bytes=fact.disk_bytes,
            terms=fact.terms,
            until=fact.until,
            created_at=fact.created_at,
            label=fact.label,
            reason=fact.reason,
        )
    if instance is None:
        message = f"the first fact of instance {fact.instance_id} is {type(fact).__name__}"
        raise CorruptHistoryError("corrupt_history", message)
    change = msgspec.structs.replace
    match fact:
        case InstanceStartRequested():
            return change(instance, status="scheduling", reason="no_capacity", wants_run=True)
        case GpusAssigned():
            return change(
                instance,
                status="loading",
                reason="",
                assignment_no=fact.assignment_no,
                assigned_at=fact.assigned_at,
                assignment_ended_at=None,
                slots=tuple(fact.slots),
                gpu_uuids=tuple(fact.gpu_uuids),
                gpu_from=None,
                disk_lost_at=None,
            )
        case InstanceRunning():
            return change(
                instance,
                status="running",
                reason="",
                gpu_from=fact.gpu_from,
                ran_assignment=fact.assignment_no,
                first_run_at=instance.first_run_at or fact.gpu_from,
            )
        case InstanceRan():
            return change(
                instance,
                gpu_until=fact.gpu_until,
                ran_assignment=fact.assignment_no,
                first_run_at=instance.first_run_at or fact.gpu_from,
            )
        case InstanceBootChanged():
            closed = instance.gpu_until if fact.gpu_until is None else fact.gpu_until
            return change(instance, status="loading", reason="", gpu_from=None, gpu_until=closed)
        case InstanceStopped():
            return _released(instance, fact.stopped_at, "stopped", fact.reason, wants_run=False)
        case InstanceDisplaced():
            return _released(instance, fact.displaced_at, "scheduling", fact.reason, wants_run=True)
        case InstanceExpired():
            return _released(instance, fact.expired_at, "expired", "", wants_run=False)
        case InstanceDestroyed():
            gone = _released(instance, fact.destroyed_at, "destroyed", "", wants_run=False)
            return change(gone, ended_at=fact.destroyed_at)
        case InstanceDiskLost():
            return change(instance, disk_lost_at=fact.lost_at)
        case InstanceLabelled():
            return change(instance, label=fact.label)
        case InstanceRebooted() | ObservationIgnored() | UsageGapRecorded():
            return instance
        case _:
            assert_never(fact)


def _released(
    instance: Instance, at: int, status: Status, reason: str, *, wants_run: bool
) -> Instance:
    """The state after its GPUs, if any, went back at second *at*."""
    held = instance.holds_gpus
    ran = instance.gpu_from is not None
    return msgspec.structs.replace(
        instance,
        status=status,
        reason=reason,
        wants_run=wants_run,
        assignment_ended_at=at if held else instance.assignment_ended_at,
        slots=() if held else instance.slots,
        gpu_uuids=() if held else instance.gpu_uuids,
        gpu_from=None,
        gpu_until=at if ran else instance.gpu_until,
    )


def fold(facts: Iterable[InstanceFact]) -> Instance:
    """The state after *facts*, which begin with the creation."""
    instance: Instance | None = None
    for fact in facts:
        instance = evolve(instance, fact)
    assert instance is not None, "an instance without facts"
    return instance


# --- decide ---------------------------------------------------------------------------------------


def decide(instance: Instance, command: InstanceCommand, now: int) -> list[Fact]:
    """Turn a wish into facts at second *now*; empty when it was already so.

    Raises:
        NotFoundError: `no_such_instance` for a wish of a person about a destroyed instance (except
            destroy).
        RejectedError: `contract_expired` or `not_running`.
    """
    status = instance.status
    match command:
        case StartInstance():
            _refuse_destroyed(instance)
            if status == "expired":
                raise RejectedError(
                    "contract_expired", "the contract has ended and cannot start again"
                )
            if status != "stopped":
                return []
            return [InstanceStartRequested(instance_id=instance.instance_id, requested_at=now)]
        case StopInstance():
            _refuse_destroyed(instance)
            if status not in {"scheduling", "loading", "running"}:
                return []
            return [_stop(instance, command.reason, now, now)]
        case RebootInstance():
            _refuse_destroyed(instance)
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
            _refuse_destroyed(instance)
            if command.label == instance.label:
                return []
            return [
                InstanceLabelled(
                    instance_id=instance.instance_id, label=command.label, labelled_at=now
                )
            ]
        case Observe():
            return _observe(instance, command, now)
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
            return [_stop(instance, "launch_failed", now, now)] if status == "loading" else []
        case _:
            assert_never(command)


def _refuse_destroyed(instance: Instance) -> None:
    if instance.status == "destroyed":
        message = f"instance {instance.instance_id} was destroyed"
        raise NotFoundError("no_such_instance", message)


def _stop(
    instance: Instance, reason: StopReason, at: int, now: int, exit_code: int | None = None
) -> InstanceStopped:
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


def _observe(instance: Instance, seen: Observe, now: int) -> list[Fact]:
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
        facts.append(_stop(instance, _STOP_REASONS[seen.state], at, now, seen.exit_code))
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
