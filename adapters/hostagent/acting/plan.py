"""From what is wanted and what runs to the next steps: a pure decision, made again and again.

The desired state is a level. Nothing here remembers that a step was ordered; an instance on which
a step is at work is left alone until it has ended, and what it came to is seen by the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from adapters.hostagent.runtime.port import Found
from ledger.domain.acknowledgement import DesiredInstance

GRACE_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 15
"""Without an answer for this long, the agent takes itself for cut off, and leases count."""

Phase = Literal["loading", "running", "exited", "failed", "stopped"]


class Kept(msgspec.Struct, kw_only=True):
    """What the agent did with one instance under its last assignment; survives a restart.

    It is committed with the report that tells of it, so the two never contradict each other.
    """

    instance: int
    assignment: int
    phase: Phase
    boot_id: str
    reboots: int = 0
    by_lease: bool = False
    """It was stopped because its lease ended while nobody could be reached."""


class Step(NamedTuple):
    """One thing to do with one container; done beside the loop, one per instance at a time."""

    kind: Literal["start", "stop", "reboot", "remove"]
    instance: int
    assignment: int
    container: str | None = None
    grace_s: float = 0.0
    reboots: int = 0
    by_lease: bool = False


class Situation(NamedTuple):
    """What a decision leans on."""

    wanted: Mapping[int, DesiredInstance]
    found: Mapping[int, Found]
    """By instance; of two containers of one instance the one of the later assignment."""
    kept: Mapping[int, Kept]
    busy: Collection[int]
    """Instances on which a step is at work."""
    ready: Collection[int]
    """Instances of which it is known what they are started from."""
    boot_id: str
    now: int
    silent_seconds: float
    """Since the last answer of the server."""
    may_start: bool = True
    """False while the spool is nearly full."""


def plan(seen: Situation) -> list[Step]:
    """The steps that can be begun now: what must go first, then what may come."""
    leaving: list[Step] = []
    coming: list[Step] = []
    for instance, want in seen.wanted.items():
        if instance in seen.busy:
            continue
        found = seen.found.get(instance)
        step = _run(seen, want, found) if want.want == "running" else _leave(want, found)
        if step is not None:
            (coming if step.kind == "start" else leaving).append(step)
    taken = _taken(seen, {one.instance for one in coming})
    steps = leaving
    for step in coming:
        gpus = set(seen.wanted[step.instance].gpu_uuids)
        if not gpus & taken:
            taken |= gpus
            steps.append(step)
    return steps


def ended_by_itself(kept: Kept | None, boot_id: str, want: DesiredInstance, found: Found) -> bool:
    """True when the container of the wanted assignment ended in this boot, and nobody asked.

    What a reboot of the machine ended is started again, under the same assignment.
    """
    return (
        found.state == "exited"
        and found.assignment == want.assignment
        and kept is not None
        and kept.assignment == want.assignment
        and kept.phase in {"loading", "running"}
        and kept.boot_id == boot_id
    )


def _leave(want: DesiredInstance, found: Found | None) -> Step | None:
    if found is None:
        return None
    grace = 0.0 if want.at_once else GRACE_SECONDS
    if want.want == "gone":
        return Step("remove", found.instance, found.assignment, found.id, grace)
    if found.is_alive:
        return Step("stop", found.instance, found.assignment, found.id, grace)
    return None


def _run(seen: Situation, want: DesiredInstance, found: Found | None) -> Step | None:
    kept = seen.kept.get(want.instance)
    is_over = (
        want.run_until is not None
        and seen.now >= want.run_until
        and seen.silent_seconds >= SILENCE_SECONDS
    )
    if found is not None and found.is_alive:
        if found.assignment != want.assignment:
            # Its assignment has ended; nobody pays for what it does now.
            return Step("stop", found.instance, found.assignment, found.id)
        if is_over:
            return Step("stop", found.instance, found.assignment, found.id, by_lease=True)
        if kept is not None and want.reboots > kept.reboots:
            return Step(
                "reboot", found.instance, found.assignment, found.id, GRACE_SECONDS, want.reboots
            )
        return None
    if is_over or not seen.may_start or want.instance not in seen.ready:
        return None
    if (
        kept is not None
        and kept.assignment == want.assignment
        and kept.phase in {"exited", "failed"}
        and kept.boot_id == seen.boot_id
    ):
        return None  # It ended, and the server was told; it is the server's turn.
    if found is not None and ended_by_itself(kept, seen.boot_id, want, found):
        return None  # Told first; whether it runs again is the server's decision.
    return Step("start", want.instance, want.assignment, reboots=want.reboots)


def _taken(seen: Situation, coming: Collection[int]) -> set[str]:
    """GPUs that a start must wait for: of what runs, and of what is being started or stopped."""
    taken = {
        gpu
        for one in seen.found.values()
        if one.is_alive and one.instance not in coming
        for gpu in one.gpu_uuids
    }
    for instance in seen.busy:
        want = seen.wanted.get(instance)
        taken |= set(want.gpu_uuids) if want is not None else set()
        held = seen.found.get(instance)
        taken |= set(held.gpu_uuids) if held is not None else set()
    return taken
