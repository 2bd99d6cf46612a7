"""The agent's next steps: a level is moved towards, first what must go, then what may come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.hostagent.acting.plan import (
    GRACE_SECONDS,
    SILENCE_SECONDS,
    Kept,
    Situation,
    Step,
    plan,
)
from adapters.hostagent.acting.wanted import Wanted
from adapters.hostagent.runtime.port import Found
from ledger.domain.acknowledgement import Desired, DesiredInstance

NOW = 1_798_761_600


def want(
    instance: int = 1, assignment: int = 1, want: Any = "running", **fields: Any
) -> DesiredInstance:
    """An instance on GPU-a."""
    return DesiredInstance(
        instance=instance, assignment=assignment, want=want, **{"gpu_uuids": ["GPU-a"], **fields}
    )


def found(instance: int = 1, assignment: int = 1, state: Any = "running", **fields: Any) -> Found:
    """Its container."""
    return Found(str(instance), instance, assignment, state, **{"gpu_uuids": ("GPU-a",), **fields})


def kept(phase: Any, instance: int = 1, assignment: int = 1, **fields: Any) -> Kept:
    """What the agent remembers of it."""
    return Kept(
        instance=instance, assignment=assignment, phase=phase, **{"boot_id": "b1", **fields}
    )


def situation(
    wants: list[DesiredInstance],
    finds: list[Found] | None = None,
    keeps: list[Kept] | None = None,
    **fields: Any,
) -> Situation:
    """Everything known, in the first boot, with the server in reach."""
    return Situation(
        wanted={one.instance: one for one in wants},
        found={one.instance: one for one in finds or []},
        kept={one.instance: one for one in keeps or []},
        **{
            "busy": [],
            "ready": [one.instance for one in wants],
            "boot_id": "b1",
            "now": NOW,
            "silent_seconds": 0.0,
            **fields,
        },
    )


def kinds(steps: list[Step]) -> list[tuple[str, int]]:
    """Steps in short."""
    return [(one.kind, one.instance) for one in steps]


def test_what_is_wanted_and_runs_needs_nothing() -> None:
    """A machine that is as it should be gets no step."""
    assert plan(situation([want()], [found()], [kept("running")])) == []


def test_a_new_instance_is_started_once_its_launch_is_known() -> None:
    """Nothing is started before it was heard from what."""
    assert plan(situation([want()], ready=[])) == []
    assert kinds(plan(situation([want()]))) == [("start", 1)]


def test_a_displaced_instance_is_killed_and_a_stopped_one_gets_its_grace() -> None:
    """The grace is 10 s, and none where the server says at once."""
    for at_once, grace in ((True, 0.0), (False, GRACE_SECONDS)):
        (step,) = plan(situation([want(want="stopped", at_once=at_once)], [found()]))
        assert (step.kind, step.grace_s) == ("stop", grace)


def test_who_comes_waits_for_who_goes_on_the_same_gpus() -> None:
    """A start is begun only when no container is left on its GPUs, nor a step at work on them."""
    wants = [want(2), want(1, want="stopped", gpu_uuids=[])]
    assert kinds(plan(situation(wants, [found(1)]))) == [("stop", 1)]
    assert plan(situation(wants, [found(1)], busy=[1])) == []
    assert kinds(plan(situation(wants, [found(1, state="exited")]))) == [("start", 2)]


def test_two_starts_on_one_gpu_are_never_begun_together() -> None:
    """Even if the server said so, one GPU gets one container."""
    assert len(plan(situation([want(1), want(2)]))) == 1


def test_another_assignment_is_a_new_start() -> None:
    """A container of an older assignment is killed first, then the instance starts again."""
    wants = [want(assignment=2)]
    (step,) = plan(situation(wants, [found()], [kept("running")]))
    assert (step.kind, step.assignment, step.grace_s) == ("stop", 1, 0.0)
    (step,) = plan(situation(wants, [found(state="exited")], [kept("stopped")]))
    assert (step.kind, step.assignment) == ("start", 2)


@pytest.mark.parametrize("phase", ["exited", "failed"])
def test_what_ended_by_itself_is_not_started_again(phase: str) -> None:
    """Under the same assignment it is the server's turn."""
    assert plan(situation([want()], [found(state="exited")], [kept(phase)])) == []


@pytest.mark.parametrize("phase", ["loading", "running", "exited"])
def test_a_reboot_of_the_machine_starts_everything_again(phase: str) -> None:
    """What ran before the boot is started under the same assignment."""
    seen = situation([want()], [found(state="exited")], [kept(phase)], boot_id="b2")
    assert kinds(plan(seen)) == [("start", 1)]


def test_a_reboot_of_the_instance_is_carried_out_once() -> None:
    """The number is a level: reached, it asks for nothing more."""
    (step,) = plan(situation([want(reboots=2)], [found()], [kept("running", reboots=1)]))
    assert (step.kind, step.reboots, step.grace_s) == ("reboot", 2, GRACE_SECONDS)
    assert plan(situation([want(reboots=2)], [found()], [kept("running", reboots=2)])) == []


def test_a_lease_ends_only_in_silence() -> None:
    """Past its lease an instance is stopped when nobody can be reached, and runs on otherwise."""
    wants = [want(run_until=NOW)]
    assert plan(situation(wants, [found()], [kept("running")])) == []
    seen = situation(wants, [found()], [kept("running")], silent_seconds=SILENCE_SECONDS)
    (step,) = plan(seen)
    assert (step.kind, step.by_lease) == ("stop", True)
    early = situation([want(run_until=NOW + 1)], [found()], [kept("running")], silent_seconds=10**6)
    assert plan(early) == []


def test_what_a_lease_stopped_goes_on_when_the_server_is_back() -> None:
    """A stop by lease is not the server's decision, and ends with the silence."""
    stopped = [found(state="exited")]
    keeps = [kept("stopped", by_lease=True)]
    assert plan(situation([want(run_until=NOW)], stopped, keeps, silent_seconds=10**6)) == []
    assert kinds(plan(situation([want(run_until=NOW + 60)], stopped, keeps))) == [("start", 1)]


def test_a_destroyed_instance_is_removed_with_its_disk() -> None:
    """Gone means removed, running or not; what is not there needs nothing."""
    for state in ("running", "exited"):
        (step,) = plan(situation([want(want="gone")], [found(state=state)]))
        assert step.kind == "remove"
    assert plan(situation([want(want="gone")])) == []


def test_what_nobody_named_is_left_alone() -> None:
    """A container that the server does not name is neither stopped nor removed."""
    assert plan(situation([], [found(9)])) == []


def test_a_nearly_full_spool_starts_nothing_and_stops_everything() -> None:
    """Without room to tell of it nothing new begins; ends are carried out."""
    seen = situation([want(2), want(1, want="stopped")], [found(1)], may_start=False)
    assert kinds(plan(seen)) == [("stop", 1)]


_WANT = st.builds(
    want,
    instance=st.integers(1, 4),
    assignment=st.integers(1, 3),
    want=st.sampled_from(["running", "stopped", "gone"]),
    gpu_uuids=st.lists(st.sampled_from(["GPU-a", "GPU-b"]), unique=True, max_size=2),
    at_once=st.booleans(),
)
_FOUND = st.builds(
    found,
    instance=st.integers(1, 4),
    assignment=st.integers(1, 3),
    state=st.sampled_from(["created", "running", "paused", "exited"]),
)


@given(st.lists(_WANT, max_size=5), st.lists(_FOUND, max_size=4), st.sets(st.integers(1, 4)))
def test_no_gpu_is_ever_given_to_two(
    wants: list[DesiredInstance], finds: list[Found], busy: set[int]
) -> None:
    """Whatever is wanted and found: one step per instance, none on a busy one, no GPU twice."""
    seen = situation(wants, finds, busy=busy)
    steps = plan(seen)
    assert len({one.instance for one in steps}) == len(steps)
    assert not {one.instance for one in steps} & busy
    starts = [seen.wanted[one.instance] for one in steps if one.kind == "start"]
    started = [gpu for one in starts for gpu in one.gpu_uuids]
    assert len(started) == len(set(started))
    held = {gpu for one in seen.found.values() if one.is_alive for gpu in one.gpu_uuids}
    assert not held & set(started)


# --- what was heard -------------------------------------------------------------------------------


def test_an_older_version_changes_nothing() -> None:
    """Answers that overtake each other leave the newest wish."""
    wanted = Wanted()
    assert wanted.take(Desired(version=5, instances=[want()]))
    assert not wanted.take(Desired(version=4, instances=[]))
    assert list(wanted.instances) == [1]


def test_a_launch_is_kept_in_memory_only() -> None:
    """An acknowledgement without a launch does not forget it; what is stored does not hold it."""
    wanted = Wanted()
    wanted.take(Desired(version=5, instances=[want(spec={"env": {"A": "tulip"}})]))
    wanted.take(Desired(version=6, instances=[want(run_until=NOW)]))
    known = wanted.spec(1)
    assert known is not None
    assert (known.spec, known.run_until) == ({"env": {"A": "tulip"}}, NOW)
    assert b"tulip" not in wanted.stored()
    again = Wanted(wanted.stored())
    assert (again.version, again.spec(1)) == (6, None)
    assert again.instances == {1: msgspec.structs.replace(known, spec=None)}
