"""Seconds as they are seen, until they are in a report (`host-agent.md` §11.1).

A second that nobody looked into stays missing. What is seen last in a second is its state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.domain.usage import TickState


class Seen(NamedTuple):
    """One instance in one second: its state, and the GPUs whose utilisation counts for it."""

    state: TickState
    gpu_uuids: tuple[str, ...]


@dataclass(slots=True)
class SeenSecond:
    """One second that the agent looked into. Moments are CLOCK_MONOTONIC nanoseconds."""

    second: int
    from_ns: int
    until_ns: int
    instances: dict[int, Seen] = field(default_factory=dict)


class TickBook:
    """The seconds that were looked into and are in no report yet, in order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._seconds: list[SeenSecond] = []
        self.missed = 0
        """Seconds between two looks that nobody looked into."""

    def look(self, second: int, from_ns: int, until_ns: int) -> None:
        """The agent looks, in *second*, which lies between two moments."""
        if self._seconds and self._seconds[-1].second >= second:
            assert self._seconds[-1].second == second, "seconds only rise"
            return
        if self._seconds:
            last = self._seconds[-1]
            self.missed += second - last.second - 1
            # The clock may have been moved in between: no moment lies in two seconds.
            last.until_ns = min(last.until_ns, max(from_ns, last.from_ns))
            from_ns = max(from_ns, last.until_ns)
        self._seconds.append(SeenSecond(second, from_ns, max(until_ns, from_ns)))

    def see(self, instance: int, state: TickState, gpu_uuids: tuple[str, ...]) -> None:
        """An instance, in the second of the last look."""
        self._seconds[-1].instances[instance] = Seen(state, gpu_uuids)

    def finished(self, now_ns: int, limit: int) -> list[SeenSecond]:
        """The first *limit* seconds in a row that were over before *now_ns*, the last look."""
        found: list[SeenSecond] = []
        for one in self._seconds:
            is_next = not found or one.second == found[-1].second + 1
            if len(found) == limit or one.until_ns > now_ns or not is_next:
                break
            found.append(one)
        return found

    @property
    def first(self) -> int | None:
        """The first second that is in no report yet; null when there is none."""
        return self._seconds[0].second if self._seconds else None

    def drop(self, count: int) -> None:
        """Forget the first *count* seconds: they are in a report."""
        del self._seconds[:count]

    def __len__(self) -> int:
        return len(self._seconds)
