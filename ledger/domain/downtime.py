"""When a machine is down: how early it must be told, who must agree, what its renters get for it.

Source: `marketplace.md` §16. Money is integer nanos.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.money import NANOS_PER_DOLLAR, SECONDS_PER_DAY, SECONDS_PER_HOUR

APPROVED_AHEAD_SECONDS: Final = 7 * SECONDS_PER_DAY
"""A window that was scheduled this early is approved: it counts for nothing in reliability."""
RENTALS_STOP_SECONDS: Final = 4 * SECONDS_PER_DAY
"""How long before an approved window nothing new is rented."""
ANNOUNCED_AHEAD_SECONDS: Final = SECONDS_PER_DAY
"""When renters are told again, before the window."""

WITNESSES: Final = 4
"""Probe locations that must agree that a machine is down, where that many are configured."""
WITNESSES_MIN: Final = 3
"""With fewer locations than this nothing is ever said to be down."""

MULTIPLIER: Final = 5
MULTIPLIER_SECURE: Final = 10
LOST_DISK_HOURS: Final = 40
SMALLEST_CREDIT: Final = 5 * NANOS_PER_DOLLAR


class Award(NamedTuple):
    """What a renter gets: *claim* by the formula, *amount* after the cap; nanos."""

    multiplier: int
    claim: int
    cap_applied: bool
    amount: int


def quorum(configured: int) -> int | None:
    """How many of so many probe locations must agree that a machine is down; None: never."""
    return None if configured < WITNESSES_MIN else min(configured, WITNESSES)


def outage_award(product: int, *, secure: bool, cap: int) -> Award:
    """What policy `sla-1` gives for an outage.

    Args:
        product: GPU rate in nanos per hour times the seconds of the outage; where the rate changed
            meanwhile, the sum of such products.
        secure: The machine is of the secure tier.
        cap: Nanos that the renter was charged on the machine in the last month, less what it got
            for the same outage already.
    """
    assert product >= 0, product
    multiplier = MULTIPLIER_SECURE if secure else MULTIPLIER
    claim = max(multiplier * product // SECONDS_PER_HOUR, SMALLEST_CREDIT)
    return _capped(multiplier, claim, cap)


def lost_disk_award(gpu_rate: int, *, cap: int) -> Award:
    """What policy `sla-1` gives for a disk that the host lost; *gpu_rate* in nanos per hour."""
    assert gpu_rate >= 0, gpu_rate
    return _capped(LOST_DISK_HOURS, LOST_DISK_HOURS * gpu_rate, cap)


def _capped(multiplier: int, claim: int, cap: int) -> Award:
    assert cap >= 0, cap
    return Award(multiplier, claim, cap < claim, min(claim, cap))
