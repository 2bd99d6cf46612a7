"""The table of `marketplace.md` §4.2, cell by cell, and what a cell cannot say."""

from __future__ import annotations

from typing import Final, cast

import msgspec
import pytest

from ledger.domain.events import (
    Fact,
    GpusAssigned,
    InstanceBootChanged,
    InstanceCreated,
    InstanceDestroyed,
    InstanceDiskLost,
    InstanceDisplaced,
    InstanceExpired,
    InstanceFact,
    InstanceLabelled,
    InstanceRan,
    InstanceRebooted,
    InstanceRunning,
    InstanceStartRequested,
    InstanceStopped,
    ObservationIgnored,
    Terms,
    UsageGapRecorded,
)
from ledger.domain.instance import (
    LAUNCH_TIMEOUT_SECONDS,
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
from ledger.errors import CorruptHistoryError, LedgerError, NotFoundError

T: Final = 1_798_761_600
NOW: Final = T + 1_000
"""Later than everything in the histories below."""

TERMS: Final = Terms(
    kind="on_demand",
    gpu_rate=400_000_000,
    storage_rate=150_000_000,
    up_rate=3_000_000,
    down_rate=3_000_000,
    fee_bp=1_500,
)
CREATED: Final = InstanceCreated(
    instance_id=1001,
    account_id=7,
    machine_id=4001,
    host_id=9,
    listing_id=1,
    offer_id=None,
    bid=None,
    gpus=2,
    disk_bytes=100 * 10**9,
    terms=TERMS,
    until=None,
    label=None,
    launch=None,
    launch_hash=None,
    policy_version=1,
    reason="new",
    created_at=T,
)
ASSIGNED: Final = GpusAssigned(
    instance_id=1001,
    assignment_no=1,
    slots=[0, 1],
    gpu_uuids=["GPU-a", "GPU-b"],
    assigned_at=T + 10,
)
RUNNING: Final = InstanceRunning(
    instance_id=1001,
    assignment_no=1,
    gpu_from=T + 25,
    observed_at=T + 25,
    confirmed_at=T + 27,
)
STOPPED: Final = InstanceStopped(
    instance_id=1001, reason="renter", exit_code=None, stopped_at=T + 500, decided_at=T + 500
)
DISPLACED: Final = InstanceDisplaced(instance_id=1001, reason="outbid", displaced_at=T + 500)
EXPIRED: Final = InstanceExpired(instance_id=1001, expired_at=T + 500)
DESTROYED: Final = InstanceDestroyed(
    instance_id=1001, by="renter", reason=None, destroyed_at=T + 500
)
REQUESTED: Final = InstanceStartRequested(instance_id=1001, requested_at=T + 600)

HISTORIES: Final[dict[str, tuple[InstanceFact, ...]]] = {
    "scheduling": (CREATED,),
    "loading": (CREATED, ASSIGNED),
    "running": (CREATED, ASSIGNED, RUNNING),
    "stopped": (CREATED, ASSIGNED, RUNNING, STOPPED),
    "expired": (CREATED, ASSIGNED, RUNNING, EXPIRED),
    "destroyed": (CREATED, ASSIGNED, RUNNING, DESTROYED),
}
STATES: Final = tuple(HISTORIES)


def seen(
    state: str, *, at: int = T + 700, billed: int = 0, assignment: int = 1, code: int | None = None
) -> Observe:
    """What a host says about the assignment of the histories above."""
    return msgspec.convert(
        {
            "assignment": assignment,
            "state": state,
            "at": at,
            "billed_until": billed,
            "exit_code": code,
        },
        Observe,
    )


def given(*facts: InstanceFact) -> Instance:
    """The instance with this history."""
    return fold(facts)


def after(instance: Instance, facts: list[Fact]) -> Instance:
    """The instance once *facts* happened as well."""
    for fact in facts:
        instance = evolve(instance, cast("InstanceFact", fact))
    return instance


# --- the table ------------------------------------------------------------------------------------
# One cell per state of STATES, in that order:
#   a state and its reason   the instance is so afterwards
#   =                        accepted, nothing changes
#   ! code                   refused with that code
#   -                        cannot happen: nothing changes
#   - recorded               cannot happen: nothing changes, the host's word is kept as an anomaly
#   - bug                    cannot happen: only our own code could ask, and it is told

GRANT = GrantGpus(slots=(0, 1), gpu_uuids=("GPU-a", "GPU-b"))
NO_SUCH = "! no_such_instance"
BOOT = ChangeBoot(boot_id="b2", billed_until=T + 100)
TABLE: dict[str, tuple[InstanceCommand, tuple[str, str, str, str, str, str]]] = {
    "start": (
        StartInstance(),
        ("=", "=", "=", "scheduling no_capacity", "! contract_expired", NO_SUCH),
    ),
    "GPUs granted": (GRANT, ("loading", "- bug", "- bug", "- bug", "- bug", "- bug")),
    "confirmed running, seen after the end": (
        seen("running"),
        ("- recorded", "running", "=", "- recorded", "- recorded", "- recorded"),
    ),
    "confirmed running, the old confirmation again": (
        seen("running", at=T + 25),
        ("- recorded", "running", "=", "=", "=", "="),
    ),
    "stop by the renter": (
        StopInstance(reason="renter"),
        ("stopped renter", "stopped renter", "stopped renter", "=", "=", NO_SUCH),
    ),
    "stop by an admin": (
        StopInstance(reason="admin"),
        ("stopped admin", "stopped admin", "stopped admin", "=", "=", NO_SUCH),
    ),
    "zero balance": (
        StopInstance(reason="zero_balance"),
        ("stopped zero_balance", "stopped zero_balance", "stopped zero_balance", "=", "=", NO_SUCH),
    ),
    "spend cap": (
        StopInstance(reason="spend_cap"),
        ("stopped spend_cap", "stopped spend_cap", "stopped spend_cap", "=", "=", NO_SUCH),
    ),
    "launch failed": (
        seen("launch_failed"),
        (
            "- recorded",
            "stopped launch_failed",
            "- recorded",
            "- recorded",
            "- recorded",
            "- recorded",
        ),
    ),
    "1800 s without confirmation": (
        TimeOutLaunch(),
        ("-", "stopped launch_failed", "-", "-", "-", "-"),
    ),
    "container exit": (
        seen("exited"),
        ("- recorded", "stopped container_exit", "stopped container_exit", "-", "-", "-"),
    ),
    "GPU lost": (
        seen("gpu_lost"),
        (
            "- recorded",
            "stopped host_fault",
            "stopped host_fault",
            "- recorded",
            "- recorded",
            "- recorded",
        ),
    ),
    "new boot id": (BOOT, ("=", "=", "loading", "=", "=", "-")),
    "reboot": (
        RebootInstance(),
        ("! not_running", "! not_running", "=", "! not_running", "! not_running", NO_SUCH),
    ),
    "contract end": (
        ExpireInstance(),
        ("expired", "expired", "expired", "expired", "=", "-"),
    ),
    "destroy by the renter": (DestroyInstance(by="renter"), ("destroyed",) * 5 + ("=",)),
    "destroy by an admin": (DestroyInstance(by="admin", reason="x"), ("destroyed",) * 5 + ("=",)),
    "destroy by the host": (DestroyInstance(by="host"), ("destroyed",) * 5 + ("=",)),
    "destroy for storage debt": (DestroyInstance(by="storage_debt"), ("destroyed",) * 5 + ("=",)),
    "another label": (LabelInstance("x"), ("labelled",) * 5 + (NO_SUCH,)),
    "the same label": (LabelInstance(None), ("=",) * 5 + (NO_SUCH,)),
    "loading": (seen("loading"), ("=",) * 6),
}
CELLS = [
    pytest.param(state, command, cell, id=f"{row}-{state}")
    for row, (command, cells) in TABLE.items()
    for state, cell in zip(STATES, cells, strict=True)
]


@pytest.mark.parametrize(("state", "command", "cell"), CELLS)
def test_every_event_in_every_state(state: str, command: InstanceCommand, cell: str) -> None:
    """LIFE-03, LIFE-08: each cell of §4.2 is what happens, and nothing else does."""
    before = given(*HISTORIES[state])
    assert before.status == state
    if cell.startswith("!"):
        with pytest.raises(LedgerError) as refused:
            decide(before, command, NOW)
        assert f"! {refused.value.code}" == cell
        return
    if cell == "- bug":
        with pytest.raises(AssertionError):
            decide(before, command, NOW)
        return
    facts = decide(before, command, NOW)
    now = after(before, facts)
    if cell == "labelled":
        assert now == msgspec.structs.replace(before, label="x")
    elif cell[0] in "=-":
        assert now == before
        assert [fact for fact in facts if isinstance(fact, ObservationIgnored)] == (
            facts if cell == "- recorded" else []
        )
        assert bool(facts) or cell != "- recorded"
    else:
        status, _, reason = cell.partition(" ")
        assert (now.status, now.reason) == (status, reason)
        assert len(facts) == 1


WISHES = [
    pytest.param(state, command, id=f"{row}-{state}")
    for row, (command, cells) in TABLE.items()
    for state, cell in zip(STATES, cells, strict=True)
    if cell[0] not in "=-!" and not isinstance(command, GrantGpus | Observe)
]


@pytest.mark.parametrize(("state", "command"), WISHES)
def test_a_repeated_wish_changes_nothing_more(state: str, command: InstanceCommand) -> None:
    """LIFE-04: whatever was done once is already so the second time."""
    once = after(given(*HISTORIES[state]), decide(given(*HISTORIES[state]), command, NOW))
    twice = after(once, decide(once, command, NOW + 5))
    assert twice == once


@pytest.mark.parametrize("status", ["loading", "running"])
@pytest.mark.parametrize(
    "command",
    [
        StopInstance(reason="renter"),
        StopInstance(reason="zero_balance"),
        DestroyInstance(by="renter"),
        ExpireInstance(),
        seen("exited"),
        seen("gpu_lost"),
        seen("disk_gone"),
    ],
    ids=["stop", "zero balance", "destroy", "expire", "exit", "GPU lost", "disk gone"],
)
def test_leaving_loading_or_running_releases_the_gpus_in_the_same_second(
    status: str, command: InstanceCommand
) -> None:
    """LIFE-05: the assignment, the GPUs and the GPU interval end together."""
    before = given(*HISTORIES[status])
    now = after(before, decide(before, command, NOW))
    end = T + 700 if isinstance(command, Observe) else NOW
    assert (now.holds_gpus, now.slots, now.gpu_uuids) == (False, (), ())
    assert (now.gpu_from, now.assignment_ended_at) == (None, end)
    assert now.gpu_until == (end if status == "running" else None)


def test_a_gpu_may_be_granted_again_in_the_second_of_its_release() -> None:
    """Assignments may touch: stopped and granted again in one second, nothing overlaps."""
    one = given(*HISTORIES["running"])
    one = after(one, decide(one, StopInstance(reason="renter"), NOW))
    one = after(one, decide(one, StartInstance(), NOW))
    one = after(one, decide(one, GRANT, NOW))
    assert (one.status, one.assignment_no, one.assigned_at) == ("loading", 2, NOW)
    assert (one.gpu_until, one.gpu_from, one.assignment_ended_at) == (NOW, None, None)


@pytest.mark.parametrize("status", ["loading", "running"])
def test_a_displaced_instance_gives_up_its_gpus_and_still_wants_to_run(status: str) -> None:
    """AUC-04: displacement closes the interval and leaves the wish to run."""
    now = given(*HISTORIES[status], DISPLACED)
    assert (now.status, now.reason, now.wants_run) == ("scheduling", "outbid", True)
    assert (now.holds_gpus, now.gpu_from, now.assignment_ended_at) == (False, None, T + 500)


@pytest.mark.parametrize("fact", [STOPPED, EXPIRED, DESTROYED])
def test_stop_expiry_and_destroy_take_the_wish_to_run_away(fact: InstanceFact) -> None:
    """What was stopped, has expired or was destroyed never resumes by itself."""
    assert given(CREATED, ASSIGNED, RUNNING).wants_run
    assert not given(CREATED, ASSIGNED, RUNNING, fact).wants_run


def test_a_start_brings_the_wish_to_run_back() -> None:
    """CRED-03: a stop for an empty balance is undone by a start, and only by a start."""
    exhausted = msgspec.structs.replace(STOPPED, reason="zero_balance")
    one = given(CREATED, ASSIGNED, RUNNING, exhausted)
    assert (one.status, one.reason, one.wants_run) == ("stopped", "zero_balance", False)
    one = after(one, decide(one, StartInstance(), NOW))
    assert (one.status, one.wants_run) == ("scheduling", True)


def test_created_is_scheduling_and_holds_nothing() -> None:
    """LIFE-03: a contract alone opens no GPU interval and remembers no run."""
    one = given(CREATED)
    assert (one.status, one.reason, one.wants_run) == ("scheduling", "new", True)
    assert (one.holds_gpus, one.gpu_from, one.first_run_at) == (False, None, None)


def test_loading_opens_no_gpu_interval() -> None:
    """LIFE-03: GPUs that are assigned but not confirmed are not billed, also when destroyed so."""
    one = given(CREATED, ASSIGNED)
    assert (one.status, one.gpu_from) == ("loading", None)
    one = after(one, decide(one, DestroyInstance(by="renter"), T + 610))
    assert (one.gpu_until, one.first_run_at, one.ended_at) == (None, None, T + 610)


# --- gpu_from = min(max(observed_at, assigned_at), received_at) -----------------------------------


@pytest.mark.parametrize(
    ("observed_at", "received_at", "gpu_from"),
    [
        pytest.param(T + 25, T + 27, T + 25, id="as-observed"),
        pytest.param(T + 10, T + 27, T + 10, id="in-the-second-of-the-assignment"),
        pytest.param(T + 9, T + 27, T + 10, id="not-before-the-assignment"),
        pytest.param(0, T + 27, T + 10, id="a-clock-that-stands-at-zero"),
        pytest.param(T + 27, T + 27, T + 27, id="in-the-second-of-receipt"),
        pytest.param(T + 28, T + 27, T + 27, id="not-after-receipt"),
        pytest.param(2**63 - 1, T + 27, T + 27, id="a-clock-at-the-end-of-time"),
    ],
)
def test_the_gpu_meter_starts_between_assignment_and_receipt(
    observed_at: int, received_at: int, gpu_from: int
) -> None:
    """LIFE-03: no host clock moves the start before the assignment or after the receipt."""
    facts = decide(given(CREATED, ASSIGNED), seen("running", at=observed_at), received_at)
    assert facts == [
        InstanceRunning(
            instance_id=1001,
            assignment_no=1,
            gpu_from=gpu_from,
            observed_at=observed_at,
            confirmed_at=received_at,
        )
    ]


@pytest.mark.parametrize("assignment", [0, 1, 3])
@pytest.mark.parametrize("state", ["running", "exited", "launch_failed", "gpu_lost", "disk_gone"])
def test_a_word_about_another_assignment_is_an_anomaly(state: str, assignment: int) -> None:
    """LIFE-14: an old container, or one that never was, cannot touch the present assignment."""
    second = msgspec.structs.replace(ASSIGNED, assignment_no=2, assigned_at=T + 650)
    one = given(CREATED, ASSIGNED, RUNNING, STOPPED, REQUESTED, second)
    facts = decide(one, seen(state, assignment=assignment), NOW)
    assert [type(fact) for fact in facts] == [ObservationIgnored]
    assert after(one, facts) == one


def test_an_anomaly_says_what_the_host_said() -> None:
    """An ignored observation keeps machine, assignment, state, both instants and a reason."""
    (fact,) = decide(given(CREATED, ASSIGNED), seen("running", assignment=7), NOW)
    assert isinstance(fact, ObservationIgnored)
    assert (fact.machine_id, fact.assignment_no, fact.state) == (4001, 7, "running")
    assert (fact.observed_at, fact.ignored_at) == (T + 700, NOW)
    assert fact.why


# --- a confirmation that comes after the assignment ended -----------------------------------------

NEVER_CONFIRMED: dict[str, tuple[InstanceFact, ...]] = {
    "stopped": (CREATED, ASSIGNED, STOPPED),
    "displaced": (CREATED, ASSIGNED, DISPLACED),
    "expired": (CREATED, ASSIGNED, EXPIRED),
    "destroyed": (CREATED, ASSIGNED, DESTROYED),
    "waiting again": (CREATED, ASSIGNED, STOPPED, REQUESTED),
}


@pytest.mark.parametrize("end", NEVER_CONFIRMED)
@pytest.mark.parametrize(
    ("observed_at", "gpu_from"),
    [(T + 25, T + 25), (T, T + 10), (T + 499, T + 499)],
    ids=["as-observed", "not-before-the-assignment", "the-last-second"],
)
def test_a_late_confirmation_opens_and_closes_the_interval_at_once(
    end: str, observed_at: int, gpu_from: int
) -> None:
    """LIFE-06: what ran before the end is billed up to the end, whatever ended it, once."""
    one = given(*NEVER_CONFIRMED[end])
    facts = decide(one, seen("running", at=observed_at), NOW)
    assert facts == [
        InstanceRan(
            instance_id=1001,
            assignment_no=1,
            gpu_from=gpu_from,
            gpu_until=T + 500,
            confirmed_at=NOW,
        )
    ]
    now = after(one, facts)
    assert (now.status, now.wants_run) == (one.status, one.wants_run)
    assert (now.gpu_from, now.gpu_until, now.first_run_at) == (None, T + 500, gpu_from)
    assert after(now, decide(now, seen("running", at=observed_at), NOW + 1)) == now


@pytest.mark.parametrize("end", NEVER_CONFIRMED)
@pytest.mark.parametrize("observed_at", [T + 500, T + 501, 2**63 - 1])
def test_a_confirmation_of_nothing_before_the_end_is_an_anomaly(end: str, observed_at: int) -> None:
    """LIFE-05: a container first seen at or after the end of its assignment is never billed."""
    one = given(*NEVER_CONFIRMED[end])
    facts = decide(one, seen("running", at=observed_at), NOW)
    assert [type(fact) for fact in facts] == [ObservationIgnored]


def test_a_confirmation_without_any_assignment_opens_nothing() -> None:
    """A container of an instance that was never granted a GPU opens no interval."""
    one = given(CREATED)
    assert after(one, decide(one, seen("running", assignment=0), NOW)) == one


# --- exits and losses are clamped -----------------------------------------------------------------


@pytest.mark.parametrize("state", ["exited", "gpu_lost", "disk_gone"])
@pytest.mark.parametrize(
    ("observed_at", "billed_until", "stopped_at"),
    [
        pytest.param(T + 300, T + 100, T + 300, id="as-observed"),
        pytest.param(T + 99, T + 100, T + 100, id="not-below-what-was-billed"),
        pytest.param(T + 100, T + 100, T + 100, id="right-after-the-last-billed-second"),
        pytest.param(0, 0, T + 25, id="not-before-gpu-from"),
        pytest.param(T + 24, T + 20, T + 25, id="gpu-from-when-nothing-was-billed"),
        pytest.param(NOW, T + 100, NOW, id="in-the-second-of-receipt"),
        pytest.param(2**63 - 1, T + 100, NOW, id="not-after-receipt"),
    ],
)
def test_an_exit_never_shrinks_what_was_billed_nor_reaches_past_receipt(
    state: str, observed_at: int, billed_until: int, stopped_at: int
) -> None:
    """LIFE-06, LIFE-10: the end lies in [max(gpu_from, last billed second + 1), received_at]."""
    one = given(*HISTORIES["running"])
    facts = decide(one, seen(state, at=observed_at, billed=billed_until), NOW)
    stop = facts[-1]
    assert isinstance(stop, InstanceStopped)
    assert (stop.stopped_at, stop.decided_at) == (stopped_at, NOW)
    now = after(one, facts)
    assert (now.gpu_until, now.assignment_ended_at) == (stopped_at, stopped_at)


@pytest.mark.parametrize(("observed_at", "stopped_at"), [(T + 5, T + 10), (T + 40, T + 40)])
def test_an_exit_while_loading_ends_the_assignment_not_before_it_began(
    observed_at: int, stopped_at: int
) -> None:
    """An assignment without a run ends at or after its first second, and bills nothing."""
    one = given(*HISTORIES["loading"])
    now = after(one, decide(one, seen("exited", at=observed_at), NOW))
    assert (now.assignment_ended_at, now.gpu_until) == (stopped_at, None)


@pytest.mark.parametrize("code", [0, 137, None])
def test_the_exit_code_is_kept(code: int | None) -> None:
    """LIFE-08: how the container ended is on record with the stop."""
    (fact,) = decide(given(*HISTORIES["running"]), seen("exited", code=code), NOW)
    assert isinstance(fact, InstanceStopped)
    assert (fact.exit_code, fact.reason) == (code, "container_exit")


def test_a_stop_bills_up_to_the_decision_and_the_kill_changes_nothing() -> None:
    """LIFE-05: the confirmed kill after a stop neither moves the end nor counts as an anomaly."""
    one = given(*HISTORIES["running"])
    one = after(one, decide(one, StopInstance(reason="renter"), T + 500))
    assert one.gpu_until == T + 500
    assert decide(one, seen("exited", at=T + 503, billed=T + 502), T + 504) == []


# --- launches that never come up ------------------------------------------------------------------


def test_a_launch_is_given_half_an_hour() -> None:
    """A launch may take 1 800 seconds."""
    assert LAUNCH_TIMEOUT_SECONDS == 1_800


def test_a_launch_that_timed_out_is_stopped_without_a_gpu_charge() -> None:
    """LIFE-03, LIFE-11: giving up ends the assignment in that second and opens no interval."""
    one = given(*HISTORIES["loading"])
    facts = decide(one, TimeOutLaunch(), T + 1_810)
    assert facts == [
        InstanceStopped(
            instance_id=1001,
            reason="launch_failed",
            exit_code=None,
            stopped_at=T + 1_810,
            decided_at=T + 1_810,
        )
    ]
    now = after(one, facts)
    assert (now.wants_run, now.gpu_until, now.holds_gpus) == (False, None, False)


# --- a new boot -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("billed_until", "closed"),
    [(T + 100, T + 100), (0, T + 25), (T + 25, T + 25), (NOW + 50, NOW)],
    ids=["last-billed-second-plus-one", "nothing-billed", "at-the-start", "not-after-receipt"],
)
def test_a_new_boot_closes_the_gpu_interval_at_the_last_billed_second_plus_one(
    billed_until: int, closed: int
) -> None:
    """LIFE-07: nothing between the last attested second and the new boot is billed."""
    one = given(*HISTORIES["running"])
    facts = decide(one, ChangeBoot(boot_id="b2", billed_until=billed_until), NOW)
    assert facts == [
        InstanceBootChanged(instance_id=1001, boot_id="b2", gpu_until=closed, changed_at=NOW)
    ]
    now = after(one, facts)
    assert (now.status, now.gpu_from, now.gpu_until) == ("loading", None, closed)
    assert (now.slots, now.assignment_no, now.assignment_ended_at) == ((0, 1), 1, None)


@pytest.mark.parametrize(
    ("observed_at", "gpu_from"), [(T + 200, T + 200), (T + 30, T + 100), (T + 100, T + 100)]
)
def test_the_same_assignment_runs_again_after_a_boot_without_overlap(
    observed_at: int, gpu_from: int
) -> None:
    """LIFE-14, AUC-04: the second interval of an assignment starts after the first ended."""
    one = given(*HISTORIES["running"])
    one = after(one, decide(one, BOOT, T + 150))
    one = after(one, decide(one, seen("running", at=observed_at), T + 210))
    assert (one.status, one.gpu_from, one.first_run_at) == ("running", gpu_from, T + 25)


def test_a_late_confirmation_after_a_boot_opens_only_what_came_after_it() -> None:
    """A run confirmed after boot and stop is billed from the boot's close, not from before it."""
    one = given(*HISTORIES["running"])
    one = after(one, decide(one, BOOT, T + 150))
    one = after(one, decide(one, StopInstance(reason="renter"), T + 300))
    (fact,) = decide(one, seen("running", at=T + 60), T + 310)
    assert isinstance(fact, InstanceRan)
    assert (fact.gpu_from, fact.gpu_until) == (T + 100, T + 300)


def test_a_boot_while_loading_leaves_the_earlier_end_alone() -> None:
    """A second boot before the container came back does not move the close of the first."""
    one = given(*HISTORIES["running"])
    one = after(one, decide(one, BOOT, T + 150))
    again = after(one, decide(one, ChangeBoot(boot_id="b3", billed_until=T + 160), T + 170))
    assert again == one


# --- the disk is gone -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["stopped", "expired"])
def test_a_lost_disk_opens_the_interval_without_storage_in_any_resting_state(state: str) -> None:
    """LIFE-02: no storage is billed for a disk that is gone, and the state stays what it was."""
    one = given(*HISTORIES[state])
    facts = decide(one, seen("disk_gone"), NOW)
    assert facts == [InstanceDiskLost(instance_id=1001, lost_at=T + 700)]
    now = after(one, facts)
    assert now == msgspec.structs.replace(one, disk_lost_at=T + 700)


def test_a_lost_disk_while_waiting_opens_the_interval_too() -> None:
    """LIFE-02: an instance that waits for a GPU is not billed for a disk that is gone."""
    one = given(*HISTORIES["stopped"], REQUESTED)
    facts = decide(one, seen("disk_gone"), NOW)
    assert facts == [InstanceDiskLost(instance_id=1001, lost_at=T + 700)]
    assert after(one, facts).status == "scheduling"


@pytest.mark.parametrize("state", ["loading", "running"])
def test_a_lost_disk_stops_what_runs(state: str) -> None:
    """LIFE-02: the disk interval opens and the instance stops in the same second."""
    one = given(*HISTORIES[state])
    facts = decide(one, seen("disk_gone"), NOW)
    assert [type(fact) for fact in facts] == [InstanceDiskLost, InstanceStopped]
    now = after(one, facts)
    assert (now.status, now.reason) == ("stopped", "lost_by_host")
    assert now.disk_lost_at == now.assignment_ended_at == T + 700


def test_a_disk_is_lost_once() -> None:
    """The first word counts: a repeat does not move the start of the interval."""
    one = given(*HISTORIES["stopped"])
    one = after(one, decide(one, seen("disk_gone"), NOW))
    assert decide(one, seen("disk_gone", at=T + 900), NOW + 5) == []


def test_new_gpus_come_with_a_new_disk() -> None:
    """LIFE-02: the next grant ends the lost-disk interval."""
    one = given(*HISTORIES["stopped"])
    one = after(one, decide(one, seen("disk_gone"), NOW))
    one = after(one, decide(one, StartInstance(), NOW))
    assert one.disk_lost_at == T + 700
    assert after(one, decide(one, GRANT, NOW)).disk_lost_at is None


def test_a_lost_disk_of_a_destroyed_instance_is_an_anomaly() -> None:
    """LIFE-04: nothing happens to an instance after its destroy."""
    one = given(*HISTORIES["destroyed"])
    facts = decide(one, seen("disk_gone"), NOW)
    assert [type(fact) for fact in facts] == [ObservationIgnored]
    assert after(one, facts) == one


# --- history --------------------------------------------------------------------------------------


def test_destroy_names_who_and_why() -> None:
    """A destroy is on record with its author, its reason and its second."""
    one = given(*HISTORIES["running"])
    facts = decide(one, DestroyInstance(by="admin", reason="abuse"), NOW)
    assert facts == [
        InstanceDestroyed(instance_id=1001, by="admin", reason="abuse", destroyed_at=NOW)
    ]
    assert after(one, facts).ended_at == NOW


def test_a_destroyed_instance_is_not_found() -> None:
    """API-02: for its renter a destroyed instance does not exist."""
    with pytest.raises(NotFoundError):
        decide(given(*HISTORIES["destroyed"]), StartInstance(), NOW)


def test_the_first_run_and_the_creation_never_move() -> None:
    """LIFE-10, API-05: age and first run survive any number of stops and starts."""
    one = given(*HISTORIES["running"])
    for number in range(2, 5):
        begin = T + number * 1_000
        one = after(one, decide(one, StopInstance(reason="renter"), begin))
        one = after(one, decide(one, StartInstance(), begin + 1))
        one = after(one, decide(one, GRANT, begin + 2))
        one = after(one, decide(one, seen("running", at=begin + 9, assignment=number), begin + 9))
        assert (one.gpu_from, one.assignment_no) == (begin + 9, number)
    assert (one.created_at, one.first_run_at) == (T, T + 25)


@pytest.mark.parametrize(
    "fact",
    [
        InstanceRebooted(instance_id=1001, rebooted_at=NOW),
        UsageGapRecorded(
            instance_id=1001, machine_id=4001, gap_from=T, gap_until=T + 1, recorded_at=NOW
        ),
    ],
)
def test_a_reboot_or_a_gap_leaves_gpus_and_meters_alone(fact: InstanceFact) -> None:
    """A restart in place keeps the GPUs, and a recorded gap changes no state."""
    assert given(*HISTORIES["running"], fact) == given(*HISTORIES["running"])


def test_a_history_without_its_beginning_is_corrupt() -> None:
    """LEDG-05: facts of an instance that was never created stop the program and name it."""
    with pytest.raises(CorruptHistoryError, match=r"1001.*InstanceStopped"):
        evolve(None, STOPPED)


def test_the_label_follows_the_renter() -> None:
    """IDEM-02: the label is what the renter last said."""
    named = InstanceLabelled(instance_id=1001, label="train-7", labelled_at=NOW)
    assert given(CREATED, named).label == "train-7"
