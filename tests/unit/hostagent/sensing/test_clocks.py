from __future__ import annotations

from adapters.hostagent.sensing.clock_source import read_clocks
from adapters.hostagent.sensing.clocks import ClockEvent, HostTime
from tests.support.senses import SECOND_NS, START, MachineClock

MS = 1_000_000


def test_without_ntp_and_server_there_is_no_second() -> None:
    """A wall clock that nobody vouches for gives no ticks; the first answer of the server does."""
    clock, time = MachineClock(is_synced=False), HostTime()
    time.look(clock())
    assert time.second(clock.mono_ns) is None
    time.contact(clock.mono_ns, clock.mono_ns + 20 * MS, START * 1000 + 10)
    assert time.second(clock.mono_ns) == START


def test_ntp_gives_seconds_before_any_contact() -> None:
    """With a disciplined wall clock the seconds are those of the wall, from the first look on."""
    clock, time = MachineClock(), HostTime()
    assert time.look(clock()) == []
    assert time.second(clock.mono_ns) == START


def test_a_stepped_wall_clock_moves_no_second() -> None:
    """An hour forwards and two backwards are told, and the seconds go on one by one."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    seconds, told = [], []
    for step in (0, 3600, 0, -7200, 0):
        clock.step_wall(step)
        told += time.look(clock())
        seconds.append(time.second(clock.mono_ns))
        clock.pass_seconds(1)
    assert seconds == [START + n for n in range(5)]
    assert told == [ClockEvent("clock_step", ms=3_600_000), ClockEvent("clock_step", ms=-7_200_000)]


def test_a_slewed_wall_clock_is_nobodys_concern() -> None:
    """Differences below half a second are not told."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    clock.pass_seconds(1)
    clock.step_wall(0.4)
    assert time.look(clock()) == []


def test_sleep_is_a_hole_and_not_time_worked() -> None:
    """After 90 s of suspend the next second is 91 later, and no second between is given out."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    assert time.second(clock.mono_ns) == START
    clock.pass_seconds(1)
    clock.sleep(90)
    assert time.look(clock()) == [ClockEvent("suspended", seconds=90)]
    assert time.second(clock.mono_ns) == START + 91


def test_short_naps_add_up() -> None:
    """Suspends below a second each are not lost: they count once they are a second together."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    told = []
    for _ in range(4):
        clock.pass_seconds(1)
        clock.sleep(0.6)
        told += time.look(clock())
    assert told == [ClockEvent("suspended", seconds=1), ClockEvent("suspended", seconds=1)]
    assert time.second(clock.mono_ns) == (clock.wall_ns // SECOND_NS)


def test_the_server_moves_the_anchor_only_between_reports() -> None:
    """Three seconds off changes nothing until the report is sealed; then it is told."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    time.second(clock.mono_ns)
    time.contact(clock.mono_ns, clock.mono_ns, START * 1000 + 3_500)
    assert time.second(clock.mono_ns) == START
    time.use_until(START + 1)
    assert time.settle() == ClockEvent("clock_step", ms=3000)
    clock.pass_seconds(1)
    assert time.second(clock.mono_ns) == START + 4
    assert time.settle() is None


def test_backwards_it_waits_for_an_unused_second() -> None:
    """Moved three seconds back, it gives nothing until the newest second seen is over."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    for _ in range(10):
        time.second(clock.mono_ns)
        clock.pass_seconds(1)
    time.use_until(START + 9)
    now_ms = clock.wall_ns // MS
    time.contact(clock.mono_ns, clock.mono_ns, now_ms - 3_000)
    assert time.settle() == ClockEvent("clock_step", ms=-3000)
    found = []
    for _ in range(5):
        found.append(time.second(clock.mono_ns))
        clock.pass_seconds(1)
    assert found == [None, None, None, START + 10, START + 11]


def test_half_a_second_is_left_alone() -> None:
    """An anchor within 500 ms of the server's time stays."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    time.contact(clock.mono_ns, clock.mono_ns, clock.wall_ns // MS + 500)
    assert time.settle() is None


def test_the_quickest_answer_counts_until_it_is_old() -> None:
    """A slow answer does not replace a quick one, unless that one is hours ago."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    now_ms = clock.wall_ns // MS
    time.contact(clock.mono_ns - 2 * MS, clock.mono_ns, now_ms)
    time.contact(clock.mono_ns - 900 * MS, clock.mono_ns, now_ms + 5_000)
    assert time.settle() is None
    clock.pass_seconds(3 * 3600)
    time.look(clock())
    time.contact(clock.mono_ns - 900 * MS, clock.mono_ns, clock.wall_ns // MS + 5_000)
    assert time.settle() is not None


def test_another_boot_forgets_the_anchor_and_keeps_what_is_sealed() -> None:
    """After a reboot the clock is unknown again, and seconds that are sealed are not given out."""
    clock = MachineClock()
    time = HostTime(START + 100, clock.boot_id)
    clock.reboot(1)
    assert time.look(clock()) == [ClockEvent("boot_changed")]
    assert time.second(clock.mono_ns) is None
    clock.pass_seconds(99)
    assert time.second(clock.mono_ns) == START + 100


def test_a_report_tells_its_clocks() -> None:
    """Offset and round trip are those of the best answer; null before there is one."""
    clock, time = MachineClock(), HostTime()
    time.look(clock())
    assert time.attestation().offset_ms is None
    time.contact(clock.mono_ns - 40 * MS, clock.mono_ns, clock.wall_ns // MS - 250)
    told = time.attestation()
    assert (told.rtt_ms, told.offset_ms) == (40, 230)
    assert (told.mono_ns, told.wall_ns, told.synced) == (clock.mono_ns, clock.wall_ns, True)


def test_the_clocks_of_this_machine_can_be_read() -> None:
    """Monotonic time rises, the boot has a name of 32 digits, and sleep is not negative."""
    first, second = read_clocks(), read_clocks()
    assert second.mono_ns > first.mono_ns
    assert len(bytes.fromhex(first.boot_id)) == 16
    assert first.boottime_ns - first.mono_ns > -MS
