from __future__ import annotations

from itertools import pairwise
from typing import Final, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.events import (
    Fact,
    InstanceBootChanged,
    InstanceCreated,
    InstanceDisplaced,
    InstanceFact,
    InstanceRan,
    InstanceRunning,
    StopReason,
    Terms,
)
from ledger.domain.instance import (
    ChangeBoot,
    DestroyInstance,
    ExpireInstance,
    GrantGpus,
    Instance,
    InstanceCommand,
    LabelInstance,
    Observe,
    RebootInstance,
    StartInstance,
    StopInstance,
    TimeOutLaunch,
    decide,
    evolve,
    fold,
)
from ledger.errors import LedgerError

CREATED: Final = InstanceCreated(
    instance_id=1,
    account_id=7,
    machine_id=4,
    host_id=9,
    listing_id=1,
    offer_id=None,
    bid=None,
    gpus=1,
    disk_bytes=10**9,
    terms=Terms(kind="on_demand", gpu_rate=1, storage_rate=1, up_rate=1, down_rate=1, fee_bp=1_500),
    until=None,
    label=None,
    launch=None,
    launch_hash=None,
    policy_version=1,
    reason="new",
    created_at=100,
)
instants = st.integers(0, 400) | st.just(2**63 - 1)
observations = st.builds(
    Observe,
    assignment=st.integers(0, 4),
    state=st.sampled_from(["loading", *["running"] * 4, "exited", "launch_failed", "disk_gone"]),
    at=instants,
    billed_until=st.just(0),
)
commands: st.SearchStrategy[InstanceCommand] = (
    observations
    | st.builds(
        Observe,
        assignment=st.just(1),
        state=st.just("running"),
        at=instants,
        billed_until=st.just(0),
    )
    | st.builds(StopInstance, st.sampled_from(get_args(StopReason)))
    | st.sampled_from(
        [
            StartInstance(),
            StartInstance(),
            RebootInstance(),
            ExpireInstance(),
            TimeOutLaunch(),
            LabelInstance("x"),
            DestroyInstance(by="renter"),
            ChangeBoot(boot_id="b", billed_until=0),
        ]
    )
)
histories = st.lists(st.tuples(st.integers(0, 9), commands), max_size=40)


def lived(steps: list[tuple[int, InstanceCommand]]) -> tuple[list[Fact], list[Instance]]:
    """Live through *steps*, each some seconds after the one before; GPUs are always free."""
    facts: list[Fact] = [CREATED]
    states = [fold([CREATED])]
    now, billed_until = CREATED.created_at, 0
    for wait, wish in steps:
        now += wait
        command = wish
        if isinstance(wish, Observe | ChangeBoot):
            command = msgspec.structs.replace(wish, billed_until=billed_until)
        try:
            happened = decide(states[-1], command, now)
        except LedgerError:
            continue
        record(facts, states, happened)
        if states[-1].status == "scheduling":
            grant = GrantGpus(slots=(0,), gpu_uuids=("GPU-a",))
            record(facts, states, decide(states[-1], grant, now))
        if states[-1].gpu_from is not None:
            billed_until = max(billed_until, now - 1)
    return facts, states


def record(facts: list[Fact], states: list[Instance], happened: list[Fact]) -> None:
    """Let *happened* happen."""
    for fact in happened:
        assert isinstance(fact, get_args(InstanceFact))
        facts.append(fact)
        states.append(evolve(states[-1], fact))


def gpu_intervals(facts: list[Fact], states: list[Instance]) -> list[tuple[int, int]]:
    """Every closed GPU interval, in the order in which they closed."""
    closed = []
    for fact, (before, after) in zip(facts[1:], pairwise(states), strict=True):
        if isinstance(fact, InstanceRan):
            closed.append((fact.gpu_from, fact.gpu_until))
        elif before.gpu_from is not None and after.gpu_from is None:
            assert after.gpu_until is not None
            closed.append((before.gpu_from, after.gpu_until))
    return closed


@given(histories)
def test_gpu_intervals_never_overlap(steps: list[tuple[int, InstanceCommand]]) -> None:
    """LIFE-10, LIFE-14: any history of any wishes gives intervals in order, none below zero."""
    facts, states = lived(steps)
    intervals = gpu_intervals(facts, states)
    assert all(start <= end for start, end in intervals)
    assert all(one[1] <= other[0] for one, other in pairwise(intervals))
    open_from = states[-1].gpu_from
    assert open_from is None or all(end <= open_from for _, end in intervals)


@given(histories)
def test_the_gpu_meter_runs_exactly_while_running(
    steps: list[tuple[int, InstanceCommand]],
) -> None:
    """LIFE-03: a GPU interval is open in the state running and in no other."""
    for state in lived(steps)[1]:
        assert (state.gpu_from is not None) == (state.status == "running")
        assert bool(state.slots) == state.holds_gpus == (state.status in {"loading", "running"})
        assert state.holds_gpus == (state.assignment_no > 0 and state.assignment_ended_at is None)


@given(histories)
def test_creation_and_first_run_never_move(steps: list[tuple[int, InstanceCommand]]) -> None:
    """LIFE-10: whatever happens, age and first run stay, and destroyed is final."""
    facts, states = lived(steps)
    for before, after in pairwise(states):
        assert after.created_at == CREATED.created_at
        assert before.first_run_at in {None, after.first_run_at}
        assert before.status != "destroyed" or after.status == "destroyed"
        assert after.assignment_no >= before.assignment_no
    assert fold(fact for fact in facts if isinstance(fact, get_args(InstanceFact))) == states[-1]


@given(histories)
def test_only_a_confirmation_opens_an_interval(steps: list[tuple[int, InstanceCommand]]) -> None:
    """LIFE-03, LIFE-13: nothing but the host's word starts the GPU meter, once per opening."""
    facts, states = lived(steps)
    for fact, (before, after) in zip(facts[1:], pairwise(states), strict=True):
        opened = before.gpu_from is None and after.gpu_from is not None
        assert opened == isinstance(fact, InstanceRunning)
        assert not isinstance(fact, InstanceDisplaced)
        if isinstance(fact, InstanceBootChanged):
            assert after.assignment_no == before.assignment_no
