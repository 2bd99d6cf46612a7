"""How far a machine can be relied on, from its health checks (`marketplace.md` §10).

The platform issues one slot per machine every 300 s. At most one conclusive result counts per slot,
the worst; checks in an approved maintenance window count for nothing. All numbers follow from the
checks alone: `rating` computes them from scratch, `Decayed` keeps the decaying sums one check at a
time, and both agree. Floats are fine here, nothing in this file posts money.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

SLOT_SECONDS: Final = 300
WINDOW_SECONDS: Final = 30 * 86_400
"""Span of `reliability`, of its lower bound and of the cap on maintenance."""

HALF_LIFE: Final = 14 * 86_400
"""Seconds after which a check weighs half."""

IGNORED_AFTER: Final = 140 * 86_400
"""A check of this age still weighs 2^-10; one second later it weighs nothing."""

MIN_CHECKS: Final = 12
"""Below this many conclusive checks a proportion says nothing."""

MAX_EXCLUDED_SECONDS: Final = 8 * 3_600
"""Maintenance that may go unchecked, per machine and 30 days."""

WINDOW_SLOTS: Final = WINDOW_SECONDS // SLOT_SECONDS
MAX_EXCLUDED_SLOTS: Final = MAX_EXCLUDED_SECONDS // SLOT_SECONDS

_Z: Final = 1.96
_PRIOR_PASSES: Final = 6
_PRIOR_CHECKS: Final = 10

Result = Literal["passed", "failed", "inconclusive"]
Severity = Literal[1, 2, 3]
"""Of a failure: 3 unreachable while rented, 2 an instance failed to start, 1 otherwise."""


class Check(NamedTuple):
    """One judged check; *at* is its own random second, not the start of its slot."""

    slot: int
    at: int
    result: Result
    severity: Severity = 1
    excluded: bool = False


class Rating(NamedTuple):
    """What is shown of a machine; *lower_bound* alone ranks and gates."""

    passed: int
    n: int
    reliability: float | None
    expected_reliability: float
    lower_bound: float


def slot_of(second: int) -> int:
    """Number of the slot that holds *second*; slots touch and start at multiples of 300 s."""
    return second // SLOT_SECONDS


def slot_start(slot: int) -> int:
    """First second of a slot."""
    return slot * SLOT_SECONDS


def worst(results: Iterable[Check]) -> Check | None:
    """The one check that counts for a slot, None when nothing conclusive is left.

    A failure is worse than a pass, a severe one worse than a mild one; of equals the earliest
    counts, so the order of arrival does not matter.
    """
    conclusive = (one for one in results if one.result != "inconclusive" and not one.excluded)
    return max(conclusive, key=_badness, default=None)


def _badness(check: Check) -> tuple[bool, int, int]:
    failed = check.result == "failed"
    return failed, check.severity if failed else 0, -check.at


def counted(checks: Iterable[Check], before: int) -> list[Check]:
    """The worst check of each slot, as known just before the second *before*."""
    slots: dict[int, list[Check]] = {}
    for check in checks:
        if check.at < before:
            slots.setdefault(check.slot, []).append(check)
    return [found for one in slots.values() if (found := worst(one)) is not None]


def reliability(passed: int, n: int) -> float | None:
    """Share of the conclusive checks that passed; None while there are fewer than 12."""
    assert 0 <= passed <= n, (passed, n)
    return passed / n if n >= MIN_CHECKS else None


def lower_bound(passed: int, n: int) -> float:
    """Wilson's lower bound at z = 1.96: what the true share exceeds in all but 2.5 % of cases.

    0 without a pass. With n passes out of n it is n / (n + 3.8416).
    """
    assert 0 <= passed <= n, (passed, n)
    if passed == 0:
        return 0.0
    p, square = passed / n, _Z * _Z
    centre = p + square / (2 * n)
    spread = _Z * math.sqrt(p * (1 - p) / n + square / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + square / n))


def expected(pass_weight: float, severity_weight: float) -> float:
    """Share of checks expected to pass: the weights on top of six passes in ten checks."""
    return (pass_weight + _PRIOR_PASSES) / (severity_weight + _PRIOR_CHECKS)


class Decayed(NamedTuple):
    """The two sums behind `expected_reliability`, as they weigh at the second *at*.

    Costs the same for any number of checks. Who keeps it says which checks count: it replaces the
    result of a slot by a worse one, or by a reclassified one, with `remove` and `add`, and removes
    a check that gets older than `IGNORED_AFTER`.
    """

    at: int
    pass_weight: float = 0.0
    severity_weight: float = 0.0

    def moved(self, to: int) -> Decayed:
        """The same checks, seen from the second *to*, which is not earlier."""
        assert to >= self.at, (self.at, to)
        factor = _weight(to - self.at)
        return Decayed(to, self.pass_weight * factor, self.severity_weight * factor)

    def add(self, result: Result, severity: Severity = 1, at: int | None = None) -> Decayed:
        """One check more, made now or at an earlier second *at*; an inconclusive one adds nothing.

        A pass always counts as severity 1.
        """
        return self._changed(result, severity, self.at if at is None else at, 1)

    def remove(self, result: Result, severity: Severity = 1, at: int | None = None) -> Decayed:
        """The opposite of `add` with the same arguments, also after the sums have moved on."""
        return self._changed(result, severity, self.at if at is None else at, -1)

    @property
    def expected(self) -> float:
        """The expected reliability at the second *at*."""
        return expected(self.pass_weight, self.severity_weight)

    def _changed(self, result: Result, severity: Severity, at: int, sign: int) -> Decayed:
        assert at <= self.at, (self.at, at)
        if result == "inconclusive":
            return self
        weight = sign * _weight(self.at - at)
        if result == "passed":
            return Decayed(self.at, self.pass_weight + weight, self.severity_weight + weight)
        return Decayed(self.at, self.pass_weight, self.severity_weight + weight * severity)


def _weight(age: int) -> float:
    return float(2.0 ** (-age / HALF_LIFE))


def expected_reliability(checks: Iterable[Check], now: int) -> float:
    """The expected reliability at *now*, from scratch; a check made at *now* has full weight."""
    sums = Decayed(now)
    for check in counted(checks, now + 1):
        if now - check.at <= IGNORED_AFTER:
            sums = sums.add(check.result, check.severity, check.at)
    return sums.expected


def rating(checks: Iterable[Check], now: int) -> Rating:
    """Everything shown of a machine at *now*; the proportions are over `[now − 30 d, now)`."""
    checks = list(checks)
    recent = [one for one in counted(checks, now) if one.at >= now - WINDOW_SECONDS]
    n, passed = len(recent), sum(one.result == "passed" for one in recent)
    return Rating(
        passed=passed,
        n=n,
        reliability=reliability(passed, n),
        expected_reliability=expected_reliability(checks, now),
        lower_bound=lower_bound(passed, n),
    )


def excluded_slots(windows: Iterable[tuple[int, int]], now: int) -> frozenset[int]:
    """The slots begun by *now* that approved maintenance takes out of the count.

    A slot is excluded when all of it lies in maintenance and fewer than 96 slots (8 h) are excluded
    in the 30 days that end with it. Decided in time order, so a slot once decided stays so whatever
    is scheduled after it.

    Args:
        windows: Approved windows `[start, until)` of one machine, in any order; they may overlap.
        now: Slots that begin later are left out.
    """
    recent: deque[int] = deque()
    excluded = []
    for start, until in _merged(windows):
        slot, end = -(-start // SLOT_SECONDS), min(until // SLOT_SECONDS, slot_of(now) + 1)
        while slot < end:
            while recent and recent[0] <= slot - WINDOW_SLOTS:
                recent.popleft()
            if len(recent) == MAX_EXCLUDED_SLOTS:
                slot = recent[0] + WINDOW_SLOTS  # no room before the oldest leaves the 30 days
                continue
            recent.append(slot)
            excluded.append(slot)
            slot += 1
    return frozenset(excluded)


def _merged(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, until in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((start, until))
    return merged
