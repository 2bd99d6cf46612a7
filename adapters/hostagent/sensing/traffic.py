"""From counters to bytes that were really carried: the delta rule (`host-agent.md` §8.2). Pure.

Nothing is ever negative, and nothing is added for a wrap: a counter that fell has begun anew.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

SECOND_NS: Final = 1_000_000_000
_TOLERANCE_PERCENT: Final = 105

Flag = Literal[
    "counter_reset", "counter_glitch", "new_key", "baseline_lost", "bandwidth_implausible"
]


class CounterKey(msgspec.Struct, frozen=True, array_like=True):
    """What makes two readings the same counter; a network namespace lives within one boot."""

    boot_id: str
    namespace: int
    ifindex: int


class Counter(msgspec.Struct, frozen=True, array_like=True):
    """One direction of one interface as last read."""

    last: int
    fell_from: int | None = None
    """Where it was before it fell, until one reading has shown whether that was a glitch."""


class Delta(NamedTuple):
    """Bytes since the last reading, the counter as it is now, and what was odd."""

    bytes: int
    counter: Counter
    flags: tuple[Flag, ...]


def advance(counter: Counter, new: int, elapsed_ns: int, link_bytes_per_second: int) -> Delta:
    """The bytes between the last reading of a counter and *new*, some time later."""
    last, fell_from = counter.last, counter.fell_from
    allowed = link_bytes_per_second * elapsed_ns // SECOND_NS
    if new < last:
        return _checked(new, Counter(new, fell_from=last), ("counter_reset",), allowed)
    if fell_from is not None and new >= fell_from and new - last > allowed:
        # It had not begun anew: it was misread as low, and is back where it was.
        return _checked(new - fell_from, Counter(new), ("counter_glitch",), allowed)
    return _checked(new - last, Counter(new), (), allowed)


def begin(
    new: int, elapsed_ns: int, link_bytes_per_second: int, *, is_older_than_state: bool
) -> Delta:
    """The bytes of a counter that was never read.

    Args:
        new: Its first reading.
        elapsed_ns: Since the container started.
        link_bytes_per_second: What the link can carry.
        is_older_than_state: The container was there before the agent's last committed state, which
            does not know it: what it carried was counted already, or never will be.
    """
    if is_older_than_state:
        return Delta(0, Counter(new), ("baseline_lost",))
    allowed = link_bytes_per_second * elapsed_ns // SECOND_NS
    return _checked(new, Counter(new), ("new_key",), allowed)


def _checked(carried: int, counter: Counter, flags: tuple[Flag, ...], allowed: int) -> Delta:
    assert carried >= 0, carried
    if carried * 100 > allowed * _TOLERANCE_PERCENT:
        flags = (*flags, "bandwidth_implausible")
    return Delta(carried, counter, flags)
