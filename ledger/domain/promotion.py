"""What promotional grants paid for: a function of what was granted and spent, and of no clock.

A grant pays for the seconds `[granted_at, ends_at)`. What was spent is known per stretch of time
between two beginnings or ends of grants, so it does not matter in which order usage arrived: late
reports find the grant that was good in their seconds. The grant that expires first pays first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Grant(NamedTuple):
    """One grant; nanos, seconds and places in the log."""

    grant_id: str
    amount: int
    granted_at: int
    expires_at: int
    position: int
    revoked_at: int | None = None
    revoked_position: int | None = None

    @property
    def ends_at(self) -> int:
        """The first second that it does not pay for."""
        if self.revoked_at is None:
            return self.expires_at
        return min(self.expires_at, self.revoked_at)


class Spent(NamedTuple):
    """Nanos spent in a stretch that begins at *second*, or by one movement at *position*."""

    second: int
    amount: int
    position: int | None = None


def boundaries(grants: Iterable[Grant]) -> list[int]:
    """The seconds at which a grant begins or ends, ascending."""
    return sorted({second for one in grants for second in (one.granted_at, one.ends_at)})


def drawn(grants: Sequence[Grant], spending: Iterable[Spent]) -> dict[str, int]:
    """The nanos that each grant has paid."""
    paid = {one.grant_id: 0 for one in grants}
    for payment in payments(grants, spending):
        paid[payment.grant_id] += payment.amount
    return paid


class Payment(NamedTuple):
    """What one grant paid of one thing that was spent."""

    grant_id: str
    spent: Spent
    amount: int


def payments(grants: Sequence[Grant], spending: Iterable[Spent]) -> list[Payment]:
    """Who paid for what: the earliest expiry first, in the order of time.

    A stretch of usage must not hold a second at which a grant begins or ends. A movement is paid by
    the grants that stood before it in the log, also within one second.
    """
    bounds = boundaries(grants)
    in_order = sorted(
        spending, key=lambda one: (_stretch(bounds, one.second), one.position or 0, one.second)
    )
    by_expiry = sorted(grants, key=lambda one: (one.expires_at, one.position))
    rest = {one.grant_id: one.amount for one in grants}
    found = []
    for spent in in_order:
        left = spent.amount
        for grant in by_expiry:
            if left > 0 and _pays(grant, spent):
                part = min(left, rest[grant.grant_id])
                rest[grant.grant_id] -= part
                left -= part
                if part:
                    found.append(Payment(grant.grant_id, spent, part))
    return found


def _stretch(bounds: Sequence[int], second: int) -> int:
    return bisect_right(bounds, second)


def _pays(grant: Grant, spent: Spent) -> bool:
    if spent.position is None:
        return grant.granted_at <= spent.second < grant.ends_at
    if spent.position < grant.position or spent.second >= grant.expires_at:
        return False
    return grant.revoked_position is None or spent.position < grant.revoked_position
