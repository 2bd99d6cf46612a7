"""Who runs on which GPUs of one machine.

`allocate` is the only place that answers it. On demand and reserved are served in request order
(`marketplace.md` §8.1, rule 1); what they leave is for bids, which are ranked here as well once
there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Waiting(NamedTuple):
    """An instance that wants to run and holds no GPU.

    *requested_at* is the place of its request in the log.
    """

    instance_id: int
    gpus: int
    requested_at: int


class Grant(NamedTuple):
    """GPU slots for one instance."""

    instance_id: int
    slots: tuple[int, ...]


def allocate(free_slots: Sequence[int], waiting: Sequence[Waiting]) -> list[Grant]:
    """The grants that follow from this state of a machine.

    Args:
        free_slots: Slots of healthy GPUs that nobody holds, ascending.
        waiting: On-demand and reserved instances that want to run, in any order.

    Returns:
        Grants in request order; an instance that does not fit is skipped and keeps waiting.
    """
    free = list(free_slots)
    grants = []
    for request in sorted(waiting, key=lambda one: one.requested_at):
        if request.gpus <= len(free):
            slots = place(free, request.gpus)
            free = [slot for slot in free if slot not in slots]
            grants.append(Grant(request.instance_id, slots))
    return grants


def place(free_slots: Sequence[int], gpus: int) -> tuple[int, ...]:
    """The slots that *gpus* new GPUs take.

    The lowest free block of *gpus* slots that starts at a multiple of *gpus*, else the lowest free
    slots.
    """
    free = set(free_slots)
    for first in range(0, max(free, default=-1) + 1, gpus):
        block = range(first, first + gpus)
        if free.issuperset(block):
            return tuple(block)
    return tuple(sorted(free)[:gpus])
