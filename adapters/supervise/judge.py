"""What the job's instances ask for: which one is kept, which ones go, whether to rent another.

A pure function of what the server says, so that it does not matter who asks, or how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.supervise.records import Instance

DONE: Final = 0
OUT_OF_MONEY: Final = 3
NOT_RUNNING: Final = 4
ENDED_BY_OTHERS: Final = 5

_ACTIVE: Final = frozenset({"running", "loading", "scheduling"})
_FAILED: Final = frozenset({"launch_failed", "host_fault", "lost_by_host"})
_FINISHED: Final = frozenset({"container_exit", "idle_policy", "lease"})
_NO_MONEY: Final = frozenset({"zero_balance", "spend_cap"})


class End(NamedTuple):
    """There is nothing left to keep alive: the exit code, and why."""

    code: int
    why: str
    instance: Instance


class Verdict(NamedTuple):
    """What to do with the job's instances."""

    keep: Instance | None
    """Runs, loads, or waits for its GPUs."""
    release: tuple[Instance, ...] = ()
    """Were replaced, and must not run or cost any longer."""
    rent: str | None = None
    """Why another one is needed."""
    avoid: frozenset[int] = frozenset()
    """Machines that just failed the job."""
    end: End | None = None


def judge(
    mine: Sequence[Instance], now: float, stuck_seconds: float, known: int | None = None
) -> Verdict:
    """Decide by everything that was ever rented under the job's label.

    Args:
        mine: All of it, destroyed ones too.
        now: The server's second.
        stuck_seconds: How long the job may wait for GPUs, or for a silent machine.
        known: The instance that was kept the last time, if any.
    """
    active = sorted((one for one in mine if one.is_alive and one.status in _ACTIVE), key=_rank)
    by_id = sorted(mine, key=lambda one: one.instance_id)
    failed = [one for one in by_id if one.is_alive and _has_failed(one)]
    if active:
        keep, *others = active
        since = keep.idle_since
        if since is None:
            return Verdict(keep, release=(*others, *failed))
        if now - since < stuck_seconds:
            return Verdict(keep, release=tuple(others))
        rent = f"instance {keep.instance_id} is {keep.shown} for {now - since:.0f} s"
        avoid = frozenset(one.machine_id for one in (*active, *failed))
        return Verdict(keep, release=tuple(others), rent=rent, avoid=avoid)
    if not mine:
        return Verdict(None, rent="nothing is rented under this label")
    newest = by_id[-1]
    avoid = frozenset(one.machine_id for one in failed)
    name = f"instance {newest.instance_id}"
    if not newest.is_alive:
        if newest.instance_id == known:
            return Verdict(None, end=End(ENDED_BY_OTHERS, f"{name} was destroyed", newest))
        return Verdict(None, rent=f"{name}, the last one, is destroyed", avoid=avoid)
    if _has_failed(newest):
        return Verdict(None, rent=f"{name} cannot go on: {newest.shown}", avoid=avoid)
    return Verdict(None, end=_end(newest, name))


def _rank(one: Instance) -> tuple[int, int]:
    """What does the job's work comes first, and then what has the older disk."""
    if one.has_gpus and one.offline_since is None:
        return (0 if one.status == "running" else 1), one.instance_id
    return (2 if one.has_gpus else 3), one.instance_id


def _has_failed(one: Instance) -> bool:
    return one.status == "expired" or (one.status == "stopped" and one.reason in _FAILED)


def _end(newest: Instance, name: str) -> End:
    if newest.reason in _FINISHED:
        return End(DONE, f"{name} ended by itself ({newest.reason})", newest)
    if newest.reason in _NO_MONEY:
        return End(OUT_OF_MONEY, f"{name} was stopped ({newest.reason})", newest)
    why = f"{name} was stopped by somebody ({newest.reason}): start or destroy it to go on"
    return End(ENDED_BY_OTHERS, why, newest)
