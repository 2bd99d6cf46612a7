"""What waits to be told while the time is not known, and what becomes of it."""

from __future__ import annotations

from adapters.hostagent.acting.telling import Telling
from ledger.domain.usage import CheckAnswer, HealthEvent, Observation


class Clock:
    """A machine that may not know the time."""

    def __init__(self) -> None:
        """Know nothing but how long it runs."""
        self.second: int | None = None
        self.monotonic = 100.0

    def telling(self, stored: bytes | None = None, boot_id: str = "b1") -> Telling:
        """What waits, under this clock."""
        return Telling(lambda: self.second, boot_id, stored, lambda: self.monotonic)


def seen(instance: int) -> Observation:
    """An instance that runs."""
    return Observation(instance=instance, assignment=1, state="running", at=0)


def test_what_happened_without_the_time_is_dated_when_it_is_known() -> None:
    """The age by the monotonic clock is taken off the second in which it is told."""
    clock = Clock()
    telling = clock.telling()
    telling.observe(seen(1))
    telling.say(HealthEvent(at=0, kind="spool_high"))
    clock.monotonic += 40
    clock.second = 1_000_000
    telling.observe(seen(2))
    clock.monotonic += 2
    clock.second += 2
    batch = telling.batch(9)
    assert [one.at for one in batch.observed] == [1_000_000 - 40, 1_000_000]
    assert batch.health[0].at == 1_000_000 - 40


def test_the_next_agent_tells_what_the_one_before_could_not() -> None:
    """In the same boot the age goes on; of another boot only the order is known."""
    clock = Clock()
    telling = clock.telling()
    telling.observe(seen(1))
    telling.answer([CheckAnswer(slot=1, at=5, result="passed", measures={})])
    stored = telling.stored()
    clock.monotonic += 7
    same, other = clock.telling(stored), clock.telling(stored, "b2")
    clock.second = 1_000_000
    assert same.batch(9).observed[0].at == 1_000_000 - 7
    assert other.batch(9).observed[0].at == 1_000_000
    assert len(same.batch(9).answers) == 1


def test_only_what_was_told_is_dropped() -> None:
    """What came after a batch was made, and what had no room in it, waits for the next one."""
    clock = Clock()
    clock.second = 1_000_000
    telling = clock.telling()
    telling.observe(seen(1))
    telling.say(HealthEvent(at=0, kind="spool_high"))
    batch = telling.batch(0)
    telling.observe(seen(2))
    telling.told(batch)
    assert (telling.is_news, telling.is_empty) == (True, False)
    rest = telling.batch(9)
    assert ([one.instance for one in rest.observed], len(rest.health)) == ([2], 1)
    telling.told(rest)
    assert telling.is_empty
