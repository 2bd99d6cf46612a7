"""Checks that nobody asked for: instance starts, and faults that fail the slot they were seen in.

A rental between linked accounts gives none (`marketplace.md` §10): whoever rents his own machine a
thousand times has proved nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ledger.domain.checks import MILD, JudgedKind, Verdict, judge_launch
from ledger.domain.events import (
    Fact,
    InstanceDiskLost,
    InstanceRan,
    InstanceRunning,
    InstanceStopped,
)
from ledger.domain.instance import Instance
from ledger.services.checks import Judgement, conclude
from ledger.services.ledger import Unit

_CODE: Final = re.compile(r"[a-z0-9_]{1,64}")


class Seen(NamedTuple):
    """A fact that followed from what a host saw, and the host's own word on it."""

    instance: Instance
    """As it was before the fact."""
    fact: Fact
    reason: str | None


def judge_life(unit: Unit, seen: Iterable[Seen]) -> None:
    """Judge what happened to instances: launches that ended, GPUs and disks that were lost."""
    judged = []
    for one in seen:
        found = _worth(one)
        if found is not None and not are_linked(one.instance.host_id, one.instance.account_id):
            kind, verdict = found
            instance = one.instance
            judged.append(
                Judgement(instance.machine_id, kind, unit.now, verdict, instance.instance_id)
            )
    conclude(unit, judged)


def judge_timeouts(unit: Unit, instance_ids: Collection[int]) -> None:
    """Judge launches that nobody confirmed for too long: the host's fault."""
    judged = []
    for instance_id in instance_ids:
        instance = unit.instance(instance_id)
        if not are_linked(instance.host_id, instance.account_id):
            verdict = judge_launch(confirmed=False, reason=None)
            judged.append(Judgement(instance.machine_id, "start", unit.now, verdict, instance_id))
    conclude(unit, judged)


def fail_slot(
    unit: Unit,
    machine_id: int,
    reason: str,
    *,
    at: int | None = None,
    instance_id: int | None = None,
) -> None:
    """Fail the slot of a fault that was seen: a fatal XID, no network, missing evidence.

    Args:
        unit: The command's transaction.
        machine_id: The machine.
        reason: A short code.
        at: The fault's second, not later than now, which is the default.
        instance_id: Whom it hit.
    """
    assert at is None or at <= unit.now, (at, unit.now)
    second = unit.now if at is None else at
    verdict = Verdict("failed", MILD, reason)
    conclude(unit, [Judgement(machine_id, "incident", second, verdict, instance_id)])


def are_linked(host_id: int, account_id: int) -> bool:
    """Whether a rental is between linked accounts: so far, an account and itself."""
    return host_id == account_id


def _worth(seen: Seen) -> tuple[JudgedKind, Verdict] | None:
    fact = seen.fact
    match fact:
        case InstanceRunning() | InstanceRan():
            # After a boot the same assignment is confirmed again; it was started only once.
            is_again = seen.instance.ran_assignment == fact.assignment_no
            return None if is_again else ("start", judge_launch(confirmed=True, reason=None))
        case InstanceStopped() if fact.reason == "launch_failed":
            return "start", judge_launch(confirmed=False, reason=_code(seen.reason))
        case InstanceStopped() if fact.reason == "host_fault":
            return "incident", Verdict("failed", MILD, "gpu_lost")
        case InstanceDiskLost():
            return "incident", Verdict("failed", MILD, "lost_disk")
        case _:
            return None


def _code(reason: str | None) -> str | None:
    """The host's word, where it is a code: what it says is kept for ever."""
    return reason if reason is not None and _CODE.fullmatch(reason) else None
