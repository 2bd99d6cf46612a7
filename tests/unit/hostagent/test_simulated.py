from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.hostagent.reports import SealedReport
from adapters.hostagent.simulated import SimulatedHost
from ledger.domain.acknowledgement import Desired, DesiredInstance, WantedState
from ledger.domain.hardware import Inventory
from ledger.domain.usage import Tick, UsageReport, body_hash, decode_report, ticks_of
from tests.unit.hostagent.server import EPOCH, IDENTITY

T = 1_798_761_600
"""A multiple of 300."""


def a_host(
    *,
    now: int = T,
    report_seconds: int = 10,
    boot_seconds: int = 0,
    inventory: Inventory | None = None,
) -> SimulatedHost:
    """A host whose first boot has been announced."""
    host = SimulatedHost(
        4001,
        IDENTITY,
        now=now,
        epoch=EPOCH,
        boot_id="b1",
        report_seconds=report_seconds,
        boot_seconds=boot_seconds,
        inventory=inventory,
    )
    host.seal(now)
    return host


def wants(
    want: WantedState,
    assignment: int = 1,
    *,
    instance: int = 1001,
    version: int = 1,
    run_until: int | None = None,
) -> Desired:
    """A desired state of one instance."""
    wanted = DesiredInstance(
        instance=instance, assignment=assignment, want=want, run_until=run_until
    )
    return Desired(version=version, instances=[wanted])


def opened(sealed: list[SealedReport]) -> list[UsageReport]:
    """What the reports say; each must be one that the server accepts."""
    return [decode_report(one.body) for one in sealed]


def windows(sealed: list[SealedReport]) -> list[tuple[int, int]]:
    """Start and end of each window, in seconds after T."""
    return [(one.start - T, one.until - T) for one in sealed]


def ticks(sealed: list[SealedReport]) -> list[Tick]:
    """Every tick, by instance and second, without its place in the log."""
    found = [tick._replace(position=0) for one in opened(sealed) for tick in ticks_of(one, 1)]
    return sorted(found)


def states(sealed: list[SealedReport], instance: int = 1001) -> list[tuple[int, int, str]]:
    """The states of an instance as runs (first second, end second, state), in seconds after T."""
    runs: list[tuple[int, int, str]] = []
    for tick in ticks(sealed):
        second = tick.second - T
        if tick.instance != instance:
            continue
        if runs and runs[-1][1] == second and runs[-1][2] == tick.state:
            runs[-1] = (runs[-1][0], second + 1, tick.state)
        else:
            runs.append((second, second + 1, tick.state))
    return runs


def seen(sealed: list[SealedReport]) -> list[tuple[str, int, int]]:
    """Every observation as (state, assignment, second after T)."""
    return [(o.state, o.assignment, o.at - T) for one in opened(sealed) for o in one.observed]


def test_a_new_host_says_at_once_that_it_is_up() -> None:
    """The first report attests no second and carries the inventory; the next does not."""
    inventory = Inventory(cpu_cores=8)
    host = SimulatedHost(4001, IDENTITY, now=T, epoch=EPOCH, boot_id="b1", inventory=inventory)
    first = opened(host.seal(T))
    assert [(one.start, one.count, one.inventory) for one in first] == [(T, 0, inventory)]
    assert [one.inventory for one in opened(host.seal(T + 10))] == [None]


def test_reports_end_at_multiples_of_the_interval() -> None:
    """Windows are cut at multiples of Unix time and at the second of the seal."""
    host = a_host(now=T + 3)
    host.obey(wants("stopped"), T + 3)
    assert windows(host.seal(T + 25)) == [(3, 10), (10, 20), (20, 25)]
    assert windows(host.seal(T + 40)) == [(25, 30), (30, 40)]


def test_a_host_without_instances_sends_long_windows() -> None:
    """Idle windows end at multiples of 300 s, and where an instance comes."""
    host = a_host()
    assert windows(host.seal(T + 650)) == [(0, 300), (300, 600), (600, 650)]
    host.obey(wants("stopped"), T + 655)
    assert windows(host.seal(T + 670)) == [(650, 655), (655, 660), (660, 670)]
    host.obey(wants("gone", version=2), T + 675)
    assert windows(host.seal(T + 1000)) == [(670, 680), (680, 900), (900, 1000)]


def test_a_grant_is_confirmed_in_the_same_second() -> None:
    """Without boot time an empty report says so, and every second runs."""
    host = a_host()
    host.obey(wants("running"), T)
    confirmed = host.seal(T)
    assert (windows(confirmed), seen(confirmed)) == ([(0, 0)], [("running", 1, 0)])
    assert states(host.seal(T + 10)) == [(0, 10, "running")]


def test_seconds_before_the_confirmation_are_loading() -> None:
    """With boot time the confirmation is in the report that holds its second."""
    host = a_host(boot_seconds=14)
    host.obey(wants("running"), T)
    sealed = host.seal(T + 30)
    assert states(sealed) == [(0, 14, "loading"), (14, 30, "running")]
    assert [seen([one]) for one in sealed] == [[], [("running", 1, 14)], []]


def test_a_confirmation_at_the_second_of_the_seal_goes_with_it() -> None:
    """What happens at the end of the last window is told in it, not later."""
    host = a_host(boot_seconds=10)
    host.obey(wants("running"), T)
    assert host.next_report_at(T) == T + 10
    assert seen(host.seal(T + 10)) == [("running", 1, 10)]
    assert host.seal(T + 10) == []


def test_a_boot_of_its_own_overrides_that_of_the_host() -> None:
    """An instance with a manual boot runs when it is confirmed."""
    host = a_host()
    host.set_boot(1001, None)
    host.obey(wants("running"), T)
    assert states(host.seal(T + 50)) == [(0, 50, "loading")]
    host.confirm(1001, T + 55)
    host.confirm(1001, T + 56)
    sealed = host.seal(T + 60)
    assert states(sealed) == [(50, 55, "loading"), (55, 60, "running")]
    assert seen(sealed) == [("running", 1, 55)]


def test_a_stopped_instance_is_attested_until_it_is_gone() -> None:
    """Stopping ends traffic in its second, destroying ends the ticks in its second."""
    host = a_host()
    host.set_traffic(1001, T, up=5, down=7)
    host.obey(wants("running"), T)
    host.obey(wants("stopped", version=2), T + 4)
    host.obey(wants("gone", version=3), T + 8)
    sealed = host.seal(T + 20)
    assert states(sealed) == [(0, 4, "running"), (4, 8, "stopped")]
    assert [(tick.up_bytes, tick.down_bytes) for tick in ticks(sealed)] == [(5, 7)] * 4 + [
        (0, 0)
    ] * 4
    assert host.containers == {}


def test_an_instance_that_came_and_went_in_one_second_has_no_tick() -> None:
    """Without a finished second there is nothing to attest."""
    host = a_host()
    host.obey(wants("stopped"), T + 5)
    host.obey(wants("gone", version=2), T + 5)
    assert ticks(host.seal(T + 10)) == []


def test_a_new_assignment_restarts_a_running_container() -> None:
    """A displacement and a grant in one second are a new start, confirmed under the new number."""
    host = a_host(boot_seconds=3)
    host.obey(wants("running"), T)
    host.obey(wants("running", 2, version=2), T + 10)
    sealed = host.seal(T + 20)
    assert seen(sealed) == [("running", 1, 3), ("running", 2, 13)]
    assert states(sealed)[1:] == [(3, 10, "running"), (10, 13, "loading"), (13, 20, "running")]


def test_the_same_wish_again_changes_nothing() -> None:
    """Desired state is a level: obeying twice, or an older version, leaves all as it is."""
    host = a_host()
    host.obey(wants("running", version=5), T)
    host.obey(wants("running", version=5), T + 2)
    host.obey(wants("gone", version=4), T + 3)
    sealed = host.seal(T + 10)
    assert (states(sealed), seen(sealed)) == ([(0, 10, "running")], [("running", 1, 0)])


def test_an_instance_that_is_not_named_is_left_alone() -> None:
    """A desired state without an instance does not end it."""
    host = a_host()
    host.obey(wants("running"), T)
    host.obey(Desired(version=2, instances=[]), T + 5)
    assert states(host.seal(T + 10)) == [(0, 10, "running")]


def test_traffic_flows_only_while_running_and_survives_a_restart() -> None:
    """Bytes per second set once come back with the next start."""
    host = a_host()
    host.obey(wants("running"), T)
    host.set_traffic(1001, T + 2, up=0, down=100)
    host.obey(wants("stopped", version=2), T + 4)
    host.obey(wants("running", 2, version=3), T + 6)
    bytes_down = [tick.down_bytes for tick in ticks(host.seal(T + 8))]
    assert bytes_down == [0, 0, 100, 100, 0, 0, 100, 100]


def test_utilisation_is_that_of_running_seconds() -> None:
    """A set percentage begins in its second; a container that does not run has none."""
    host = a_host(boot_seconds=1)
    host.obey(wants("running"), T)
    host.set_utilisation(1001, T + 2, 37)
    host.set_utilisation(1001, T + 3, -1)
    assert [tick.utilisation for tick in ticks(host.seal(T + 4))] == [-1, 100, 37, -1]


def test_an_exit_is_observed_and_not_undone() -> None:
    """A container that ended by itself starts again only under a new assignment."""
    host = a_host()
    host.obey(wants("running"), T)
    host.exit(1001, T + 5, code=137)
    host.exit(1001, T + 6)
    host.obey(wants("running"), T + 7)
    sealed = host.seal(T + 10)
    assert states(sealed) == [(0, 5, "running"), (5, 10, "exited")]
    assert seen(sealed) == [("running", 1, 0), ("exited", 1, 5)]
    assert [o.exit_code for one in opened(sealed) for o in one.observed] == [None, 137]
    host.obey(wants("running", 2, version=2), T + 10)
    assert states(host.seal(T + 12)) == [(10, 12, "running")]


def test_a_reboot_keeps_the_assignment_and_is_no_news() -> None:
    """Seconds of a reboot are rebooting; then it runs on without a confirmation."""
    host = a_host()
    host.obey(wants("running"), T)
    host.seal(T)
    host.reboot(1001, T + 3, 4)
    sealed = host.seal(T + 10)
    assert states(sealed) == [(0, 3, "running"), (3, 7, "rebooting"), (7, 10, "running")]
    assert seen(sealed) == []


def test_a_crash_seals_what_is_finished_and_leaves_a_hole() -> None:
    """No second of the outage is attested; the chain and the epoch go on under a new boot."""
    host = a_host(boot_seconds=2)
    host.obey(wants("running"), T)
    before = host.crash(T + 15)
    assert windows(before) == [(0, 10), (10, 15)]
    assert (host.seal(T + 100), host.next_report_at(T + 100)) == ([], None)
    host.recover(T + 100, "b2")
    up = host.seal(T + 100)
    after = host.seal(T + 110)
    assert [(one.count, one.boot_id) for one in opened(up)] == [(0, "b2")]
    assert states(after) == [(100, 102, "loading"), (102, 110, "running")]
    assert seen(after) == [("running", 1, 102)]
    assert opened(up)[0].prev == body_hash(before[-1].body).hex()


def test_what_does_not_want_to_run_stays_stopped_over_a_boot() -> None:
    """A recovery starts neither what was stopped nor what had exited."""
    host = a_host()
    host.obey(wants("stopped"), T)
    host.obey(wants("running", instance=1002, version=2), T)
    host.exit(1002, T + 1)
    host.crash(T + 10)
    host.recover(T + 20, "b2")
    sealed = host.seal(T + 30)
    assert states(sealed) == [(20, 30, "stopped")]
    assert states(sealed, 1002) == [(20, 30, "exited")]
    assert seen(sealed) == []


def test_what_was_ordered_during_an_outage_is_done_at_recovery() -> None:
    """A destroy that the host missed ends the instance before it attests anything."""
    host = a_host()
    host.obey(wants("running"), T)
    host.crash(T + 10)
    host.obey(wants("gone", version=2), T + 15)
    host.recover(T + 20, "b2")
    assert (ticks(host.seal(T + 30)), host.containers) == ([], {})


def test_a_silent_host_stops_at_the_end_of_its_lease() -> None:
    """Without contact the last second that runs is the one before `run_until`."""
    host = a_host()
    host.obey(wants("running", run_until=T + 25), T)
    host.silence(T + 10)
    host.resume(T + 40)
    assert states(host.seal(T + 40)) == [(0, 25, "running"), (25, 40, "stopped")]


def test_a_host_in_contact_leaves_the_lease_to_the_server() -> None:
    """The end of a lease stops nothing while the server can be asked."""
    host = a_host()
    host.obey(wants("running", run_until=T + 25), T)
    assert states(host.seal(T + 40)) == [(0, 40, "running")]


def test_a_renewed_lease_starts_what_it_had_stopped() -> None:
    """The same assignment runs again once the server says that it is paid for."""
    host = a_host()
    host.obey(wants("running", run_until=T + 5), T)
    host.silence(T)
    host.resume(T + 10)
    host.obey(wants("running", run_until=T + 90), T + 10)
    sealed = host.seal(T + 20)
    assert states(sealed) == [(0, 5, "running"), (5, 10, "stopped"), (10, 20, "running")]
    assert seen(sealed) == [("running", 1, 0), ("running", 1, 10)]


def test_time_never_goes_back() -> None:
    """A call with an earlier second than the last is refused."""
    host = a_host()
    host.seal(T + 10)
    with pytest.raises(ValueError, match="back"):
        host.set_traffic(1001, T + 9, up=1, down=1)


def test_the_next_report_is_due_at_the_next_multiple_or_confirmation() -> None:
    """An owner that seals at these seconds misses no news."""
    host = a_host(boot_seconds=4)
    assert host.next_report_at(T + 1) == T + 300
    host.obey(wants("running"), T + 1)
    assert host.next_report_at(T + 1) == T + 5
    host.seal(T + 5)
    assert host.next_report_at(T + 5) == T + 10


Step = Callable[[SimulatedHost, int], list[SealedReport] | None]


def an_order(instance: int, assignment: int, want: WantedState, lease: int | None) -> Step:
    """A step that obeys, with a lease of so many seconds."""

    def obey(host: SimulatedHost, now: int) -> None:
        run_until = None if lease is None else now + lease
        host.obey(wants(want, assignment, instance=instance, run_until=run_until), now)

    return obey


def an_outage(host: SimulatedHost, now: int) -> list[SealedReport] | None:
    """Crash, or recover when it is down."""
    if not host.is_down:
        return host.crash(now)
    host.recover(now, f"boot at {now}")
    return None


def contact(host: SimulatedHost, now: int) -> None:
    """Fall silent, or be heard again."""
    if host.silent_since is None:
        host.silence(now)
    else:
        host.resume(now)


INSTANCES = st.sampled_from([1001, 1002])
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        an_order,
        INSTANCES,
        st.integers(1, 4),
        st.sampled_from(["running", "running", "stopped"]),
        st.none() | st.integers(-2, 40),
    ),
    st.just(an_outage),
    st.just(contact),
    INSTANCES.map(lambda one: lambda host, now: host.exit(one, now)),
    INSTANCES.map(lambda one: lambda host, now: host.reboot(one, now, 3)),
    st.tuples(INSTANCES, st.integers(0, 2)).map(
        lambda one: lambda host, now: host.set_traffic(one[0], now, up=one[1], down=1)
    ),
    st.tuples(INSTANCES, st.integers(-1, 100)).map(
        lambda one: lambda host, now: host.set_utilisation(one[0], now, one[1])
    ),
)
STORY = st.lists(st.tuples(st.integers(0, 25), STEPS), max_size=12)


def tell(story: list[tuple[int, Step]], seals: set[int], report_seconds: int) -> list[SealedReport]:
    """Everything that is sealed when the host is also asked at the seconds *seals*."""
    host = a_host(report_seconds=report_seconds, boot_seconds=2)
    sealed: list[SealedReport] = []
    now = T

    def seal_until(end: int) -> None:
        for second in sorted(seals):
            if now <= second <= end:
                sealed.extend(host.seal(second))

    for delay, step in story:
        seal_until(now + delay)
        now += delay
        sealed.extend(step(host, now) or [])
    end = now + 30
    seal_until(end)
    return sealed + host.seal(end)


@given(STORY, st.sets(st.integers(T, T + 330)), st.sampled_from([1, 7, 10, 60, 300]))
def test_ticks_do_not_depend_on_when_they_are_sealed(
    story: list[tuple[int, Step]], seals: set[int], report_seconds: int
) -> None:
    """Any pattern of seals and any interval give the same ticks and the same observations."""
    often = tell(story, seals, report_seconds)
    once = tell(story, set(), 300)
    assert ticks(often) == ticks(once)
    assert sorted(seen(often)) == sorted(seen(once))
    seconds = [(tick.instance, tick.second) for tick in ticks(often)]
    assert len(seconds) == len(set(seconds))


@given(STORY, st.sets(st.integers(T, T + 330)))
def test_observations_never_follow_their_seconds(
    story: list[tuple[int, Step]], seals: set[int]
) -> None:
    """No report attests a second at or after an observation that a later report brings."""
    attested_until = 0
    for one in opened(tell(story, seals, 10)):
        assert one.start >= attested_until
        assert all(attested_until <= o.at <= one.until for o in one.observed)
        attested_until = one.until
