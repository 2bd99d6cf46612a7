"""What follows for a machine: unverified → verified → deverified → unverified."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from ledger.domain.reliability import MIN_CHECKS
from ledger.domain.verification.compare import Difference
from ledger.domain.verification.minimum import Shortfall

Verification = Literal["unverified", "verified", "deverified"]

CLEAN_SLOTS: Final = 12
"""Slots in a row without a fault after which a deverified machine may try again."""

MIN_LOWER_BOUND: Final = 0.90


def next_state(
    state: Verification,
    *,
    differences: Collection[Difference],
    shortfalls: Collection[Shortfall],
    clean_slots: int,
    lower_bound: float,
    n: int,
    by_admin: bool = False,
) -> Verification:
    """The state that follows: at most one step of unverified → verified → deverified → unverified.

    Args:
        state: The state so far.
        differences: All of now; see `differences`.
        shortfalls: All of now, for the purpose to verify; see `bars`.
        clean_slots: Slots in a row, up to the last one that ended, that neither failed nor ended
            with a difference or a shortfall. What is not bad enough to deverify at once does so
            when a slot has ended with it, that is with `clean_slots` 0.
        lower_bound: Of the machine's reliability; a verified machine is judged by it from n = 12
            on, and no machine becomes verified before that.
        n: Conclusive checks behind *lower_bound*.
        by_admin: An admin vouches for the machine: for its record, its bars and its differences,
            but not for GPUs or memory that are missing.
    """
    at_once = any(one.severity == "deverify_at_once" for one in differences)
    at_fault = bool(differences) or bool(shortfalls)
    reliable = lower_bound >= MIN_LOWER_BOUND
    if by_admin:
        return ("deverified" if state == "verified" else state) if at_once else "verified"
    if state == "unverified":
        earned = n >= MIN_CHECKS and reliable and not at_fault
        return "verified" if earned else "unverified"
    if state == "verified":
        lost = at_once or (at_fault and clean_slots == 0) or (n >= MIN_CHECKS and not reliable)
        return "deverified" if lost else "verified"
    return "unverified" if clean_slots >= CLEAN_SLOTS and not at_fault else "deverified"
