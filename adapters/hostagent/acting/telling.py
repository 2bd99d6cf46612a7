"""What waits to be told: changes of instances, the machine's health, answers to checks.

Before the first answer of the server a machine may not know the time, and without it no report can
be sealed. What happens meanwhile is noted by the monotonic clock, kept on disk, and dated when the
time is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from ledger.domain.usage import MAX_INSTANCES, CheckAnswer, HealthEvent, Observation

_MAX_OBSERVED: Final = 4 * MAX_INSTANCES
_MAX_HEALTH: Final = 256

_Fact = TypeVar("_Fact", Observation, HealthEvent)


class _Noted(msgspec.Struct):
    """An observation; *since* is the monotonic second of one that is not dated yet."""

    seen: Observation
    since: float | None


class _NotedHealth(msgspec.Struct):
    event: HealthEvent
    since: float | None


class _Stored(msgspec.Struct):
    boot_id: str
    observed: list[_Noted]
    health: list[_NotedHealth]
    answers: list[CheckAnswer]


class Batch(NamedTuple):
    """What one report takes with it, all of it dated."""

    observed: list[Observation]
    health: list[HealthEvent]
    answers: list[CheckAnswer]


class Telling:
    """Keeps the order in which things happened; what a report told is dropped with `told`."""

    def __init__(
        self,
        second: Callable[[], int | None],
        boot_id: str,
        stored: bytes | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with what *stored* says, as `stored` of an agent before gave it.

        Args:
            second: The running Unix second; null while it is not known.
            boot_id: This boot of the machine: what was noted in another one has no time any more.
            stored: What an agent before could not tell.
            monotonic: Seconds that never go back.
        """
        self._second = second
        self._boot_id = boot_id
        self._monotonic = monotonic
        before = msgspec.json.decode(stored, type=_Stored) if stored else None
        self._observed = before.observed if before else []
        self._health = before.health if before else []
        self._answers = before.answers if before else []
        if before is not None and before.boot_id != boot_id:
            for seen in self._observed:
                seen.since = None if seen.since is None else monotonic()
            for said in self._health:
                said.since = None if said.since is None else monotonic()

    @property
    def is_news(self) -> bool:
        """Whether something is worth a report of its own."""
        return bool(self._observed or self._answers)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._observed or self._answers or self._health)

    def observe(self, seen: Observation) -> None:
        """An instance changed now; whatever *seen* says of the time is replaced."""
        second, since = self._now()
        self._observed.append(_Noted(msgspec.structs.replace(seen, at=second), since))

    def say(self, event: HealthEvent) -> None:
        """Something is with the machine now; of very many the first are kept."""
        if len(self._health) < _MAX_HEALTH:
            second, since = self._now()
            self._health.append(_NotedHealth(msgspec.structs.replace(event, at=second), since))

    def answer(self, answers: Sequence[CheckAnswer]) -> None:
        """Checks were answered."""
        self._answers += answers

    def batch(self, health_room: int) -> Batch:
        """What goes with the next report, beside so many health events; the time is known now."""
        return Batch(
            [
                one.seen if one.since is None else self._dated(one.seen, one.since)
                for one in self._observed[:_MAX_OBSERVED]
            ],
            [
                one.event if one.since is None else self._dated(one.event, one.since)
                for one in self._health[: max(0, min(health_room, _MAX_HEALTH))]
            ],
            self._answers[:_MAX_HEALTH],
        )

    def told(self, batch: Batch) -> None:
        """*batch* is in a report that was committed."""
        del self._observed[: len(batch.observed)]
        del self._health[: len(batch.health)]
        del self._answers[: len(batch.answers)]

    def stored(self) -> bytes:
        """All that waits, for the next agent."""
        return msgspec.json.encode(
            _Stored(self._boot_id, self._observed, self._health, self._answers)
        )

    def _now(self) -> tuple[int, float | None]:
        """The second, or a place for it and when it was on the monotonic clock."""
        second = self._second()
        return (0, self._monotonic()) if second is None else (second, None)

    def _dated(self, one: _Fact, since: float) -> _Fact:
        second = self._second()
        assert second is not None
        return msgspec.structs.replace(one, at=second - int(self._monotonic() - since))
