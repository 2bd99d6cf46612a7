"""Laws of what a host senses: no second twice, no byte invented, whatever the clocks do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.hostagent.sensing.clocks import HostTime
from adapters.hostagent.sensing.seconds import Bytes, Course
from adapters.hostagent.sensing.ticks import TickBook
from adapters.hostagent.sensing.traffic import Counter, advance
from tests.support.examples import examples
from tests.support.senses import SECOND_NS, START, MachineClock

MS = 1_000_000
HOUR = 3600
Trouble = Literal["step", "sync", "sleep", "reboot", "contact", "stall", "nothing"]


@dataclass
class Hour:
    """An hour of a machine whose clocks are in trouble; the server's clock is the true time."""

    clock: MachineClock = field(default_factory=lambda: MachineClock(is_synced=False))
    true_ns: int = START * SECOND_NS + SECOND_NS // 2
    time: HostTime = field(default_factory=HostTime)
    book: TickBook = field(default_factory=TickBook)
    course: Course = field(default_factory=Course)
    attested: list[int] = field(default_factory=list)
    carried: int = 0
    counted: int = 0
    lost: int = 0
    last: tuple[int, int | None] | None = None
    """Anchor and second of the last look, while nothing has happened since."""
    is_reached: bool = False
    """The server was reached in this boot."""
    doubt_ns: int = 0

    def __post_init__(self) -> None:
        """The container starts with the hour; an agent looks at its clocks first of all."""
        self.course.begin(self.clock.mono_ns)
        self.time.look(self.clock())

    def trouble(self, kind: Trouble, amount: int, *, is_back: bool) -> None:
        """Something happens to the clocks; *amount* is 0 to 1,000."""
        match kind:
            case "step":
                self.clock.step_wall((-1 if is_back else 1) * amount * 7)
            case "sync":
                self.clock.is_synced = not self.clock.is_synced
            case "sleep":
                self.clock.sleep(amount / 4)
                self.true_ns += amount * SECOND_NS // 4
                self.last = None
            case "reboot":
                self._reboot(30 + amount // 4)
            case "stall":
                self._pass_ns(2 * SECOND_NS + amount * SECOND_NS // 50)
                self.last = None
            case "contact":
                self._contact(amount, is_back=is_back)
            case "nothing":
                pass

    def _reboot(self, seconds: int) -> None:
        sealed_until = self.time.unused_from
        boot_id = self.clock.boot_id
        self.lost += self.course.cut(self.clock.mono_ns).up + self.course.take_lost().up
        self.clock.reboot(seconds)
        self.true_ns += seconds * SECOND_NS
        self.time, self.book, self.course = HostTime(sealed_until, boot_id), TickBook(), Course()
        self.course.begin(self.clock.mono_ns)
        self.time.look(self.clock())
        self.last, self.is_reached = None, False

    def _contact(self, round_trip_ms: int, *, is_back: bool) -> None:
        sent_ns, sent_true_ns = self.clock.mono_ns, self.true_ns
        there_ns = round_trip_ms * MS // (4 if is_back else 2)
        self._pass_ns(round_trip_ms * MS)
        server_ms = (sent_true_ns + there_ns) // MS
        self.time.contact(sent_ns, self.clock.mono_ns, server_ms)
        self.is_reached = True
        self.doubt_ns = max(self.doubt_ns, round_trip_ms * MS)
        self.last = None

    def _pass_ns(self, duration_ns: int) -> None:
        self.clock.pass_ns(duration_ns)
        self.true_ns += duration_ns

    def second(self, number: int) -> None:
        """A second passes: look, read a counter, seal every ten."""
        self.time.look(self.clock())
        second = self.time.second(self.clock.mono_ns)
        if self.last is not None and self.time.anchor_ns == self.last[0]:
            before = self.last[1]
            assert before is None or second == before + 1, "a gap that was not real"
        if self.time.anchor_ns is not None:
            self.last = (self.time.anchor_ns, second)
        if second is not None:
            begins_ns = self.time.begins_ns(second)
            self.book.look(second, begins_ns, begins_ns + SECOND_NS)
        more = number * 37 % 1000
        self.course.add(self.clock.mono_ns, Bytes(more, 0))
        self.carried += more
        self._pass_ns(SECOND_NS)
        if number % 10 == 0:
            self._seal()

    def _seal(self) -> None:
        while seconds := self.book.finished(self.clock.mono_ns - SECOND_NS, 300):
            for one in seconds:
                self.lost += self.course.cut(one.from_ns).up
                up = self.course.cut(one.until_ns).up
                assert up >= 0
                self.counted += up
                self.attested.append(one.second)
            self.book.drop(len(seconds))
            self.time.use_until(seconds[-1].second + 1)
        self.time.settle()
        if self.is_reached and self.time.anchor_ns is not None:
            off_ns = self.clock.mono_ns + self.time.anchor_ns - self.true_ns
            assert abs(off_ns) <= 500 * MS + self.doubt_ns + 2 * MS

    def close(self) -> None:
        """The laws of the whole hour."""
        assert self.attested == sorted(set(self.attested)), "a second was used twice"
        self.lost += self.course.take_lost().up
        rest = self.course.cut(self.clock.mono_ns + SECOND_NS).up
        assert self.counted + self.lost + rest == self.carried


_TROUBLES = st.tuples(
    st.sampled_from(["step", "sync", "sleep", "reboot", "contact", "contact", "stall", "nothing"]),
    st.integers(0, 1000),
    st.booleans(),
    st.integers(1, 240),
)


@settings(max_examples=examples(40))
@given(st.lists(_TROUBLES, min_size=10, max_size=30))
def test_an_hour_of_clock_chaos_uses_no_second_twice(
    troubles: list[tuple[Trouble, int, bool, int]],
) -> None:
    """Steps, sleep and reboots: no overlap, no gap but real ones, no byte twice, time near true."""
    hour = Hour()
    number = 0
    while number < HOUR:
        for kind, amount, is_back, quiet in troubles:
            hour.trouble(kind, amount, is_back=is_back)
            for _ in range(quiet):
                number += 1
                hour.second(number)
    hour.close()


_LINK = 125_000_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_bytes_are_never_negative_and_resets_lose_nothing_that_was_read(
    steps: list[tuple[bool, int]],
) -> None:
    """With any mix of growth and restarts, the sum is exactly what the counters showed."""
    counter, shown, total, expected = Counter(0), 0, 0, 0
    for is_restart, amount in steps:
        if is_restart and amount < shown:
            shown = amount
            expected += amount
        else:
            # Slower than the link, or it would look like a misread counter that came back.
            grown = amount % _LINK
            shown += grown
            expected += grown
        delta = advance(counter, shown, SECOND_NS, _LINK)
        assert delta.bytes >= 0
        total += delta.bytes
        counter = delta.counter
    assert total == expected


@given(
    st.lists(st.tuples(st.integers(1, 1_900_000_000), st.integers(0, 10**12)), max_size=80),
    st.integers(0, SECOND_NS - 1),
)
def test_seconds_add_up_to_what_was_read(readings: list[tuple[int, int]], offset: int) -> None:
    """However readings fall, no second is negative and their sum is the sum of the deltas."""
    course = Course()
    course.begin(offset)
    at_ns = offset
    for gap_ns, carried in readings:
        at_ns += gap_ns
        course.add(at_ns, Bytes(carried, carried // 3))
    found = [course.cut(second * SECOND_NS) for second in range(1, at_ns // SECOND_NS + 2)]
    assert all(one.up >= 0 and one.down >= 0 for one in found)
    assert sum(one.up for one in found) == sum(carried for _, carried in readings)
    assert sum(one.down for one in found) == sum(carried // 3 for _, carried in readings)
