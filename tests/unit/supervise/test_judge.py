"""What the supervisor decides by what the server says, reason by reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.supervise.judge import (
    DONE,
    ENDED_BY_OTHERS,
    OUT_OF_MONEY,
    Verdict,
    judge,
)
from adapters.supervise.records import Instance
from ledger.domain.ids import rfc3339

NOW = 1_772_359_200
STUCK = 600


def one(
    number: int,
    status: str = "running",
    reason: str = "",
    *,
    idle: int | None = None,
    machine: int | None = None,
) -> Instance:
    """An instance; *idle* seconds ago it began to wait, or its machine fell silent."""
    since = None if idle is None else rfc3339(NOW - idle)
    waits = status == "scheduling"
    return Instance(
        instance_id=number,
        machine_id=machine or 100 + number,
        kind="interruptible",
        status=status,
        reason=reason,
        bid="0.3",
        dph_total="0.32",
        storage_rate_per_hour="0.02",
        created_at=rfc3339(NOW - 10_000),
        waiting_since=since if waits else None,
        offline_since=None if waits else since,
        destroyed_at=rfc3339(NOW - 5) if status == "destroyed" else None,
        gpu_charge="0.1",
        storage_charge="0.02",
        up_charge="0",
        down_charge="0",
    )


def verdict(*mine: Instance, known: int | None = None) -> Verdict:
    """The verdict on these."""
    return judge(mine, NOW, STUCK, known)


def kept(found: Verdict) -> int | None:
    """The id of what is kept."""
    return None if found.keep is None else found.keep.instance_id


def released(found: Verdict) -> list[int]:
    """The ids of what goes."""
    return [instance.instance_id for instance in found.release]


def test_nothing_was_ever_rented() -> None:
    """The first look rents."""
    assert verdict() == Verdict(None, rent="nothing is rented under this label")


@pytest.mark.parametrize("status", ["running", "loading"])
def test_what_runs_is_kept(status: str) -> None:
    """A running or loading instance needs nothing."""
    assert verdict(one(1, status)) == Verdict(one(1, status))


@pytest.mark.parametrize(("idle", "is_stuck"), [(0, False), (599, False), (600, True)])
@pytest.mark.parametrize("status", ["scheduling", "running"])
def test_waiting_too_long_asks_for_another(status: str, idle: int, is_stuck: bool) -> None:
    """From the second on that was given, a wait for GPUs or a silent machine is too long."""
    found = verdict(one(1, status, "outbid", idle=idle))
    assert kept(found) == 1
    assert (found.rent is not None) == is_stuck
    assert released(found) == []
    if is_stuck:
        assert found.avoid == {101}
        assert "for 600 s" in str(found.rent)


def test_the_replaced_one_goes_as_soon_as_the_next_has_gpus() -> None:
    """The stuck instance is let go beside a loading one, and not before."""
    stuck = one(1, "scheduling", "outbid", idle=700)
    assert released(verdict(stuck, one(2, "loading"))) == [1]
    assert released(verdict(one(1, idle=700), one(2, "loading"))) == [1]
    assert kept(verdict(stuck, one(2, "loading"))) == 2


def test_of_two_that_run_the_older_disk_stays() -> None:
    """When the old one resumed meanwhile, the new one goes: never two running at once."""
    found = verdict(one(1), one(2))
    assert (kept(found), released(found)) == (1, [2])
    found = verdict(one(1, "loading"), one(2))
    assert (kept(found), released(found)) == (2, [1])


@pytest.mark.parametrize("reason", ["launch_failed", "host_fault", "lost_by_host"])
def test_what_the_host_broke_is_replaced(reason: str) -> None:
    """A failed host asks for another machine; the remains go when the next one runs."""
    broken = one(1, "stopped", reason)
    found = verdict(broken)
    assert (kept(found), found.end) == (None, None)
    assert found.avoid == {101}
    assert reason in str(found.rent)
    assert released(verdict(broken, one(2, "loading"))) == [1]
    assert released(verdict(broken, one(2, "scheduling", idle=1))) == []


def test_an_expired_contract_is_replaced() -> None:
    """At the end date of a contract the job moves on."""
    found = verdict(one(1, "expired"))
    assert found.rent == "instance 1 cannot go on: expired"
    assert released(verdict(one(1, "expired"), one(2))) == [1]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("container_exit", DONE),
        ("idle_policy", DONE),
        ("lease", DONE),
        ("zero_balance", OUT_OF_MONEY),
        ("spend_cap", OUT_OF_MONEY),
        ("renter", ENDED_BY_OTHERS),
        ("admin", ENDED_BY_OTHERS),
    ],
)
def test_what_stopped_for_another_reason_ends_the_job(reason: str, code: int) -> None:
    """A finished job, no money and somebody's stop are ends, each with its exit code."""
    found = verdict(one(1, "stopped", reason))
    assert found.end is not None
    assert (found.end.code, found.rent, found.keep) == (code, None, None)


def test_who_destroys_the_kept_instance_ends_the_job() -> None:
    """Destroyed while this program kept it: somebody's wish. Before it began: a new start."""
    gone = one(3, "destroyed")
    found = verdict(one(1, "destroyed"), gone, known=3)
    assert found.end is not None
    assert found.end.code == ENDED_BY_OTHERS
    assert verdict(one(1, "destroyed"), gone).rent is not None
    assert verdict(one(1, "destroyed"), gone, known=1).rent is not None


def test_a_kept_disk_is_no_job() -> None:
    """An older stopped instance neither ends the job nor is touched."""
    disk = one(1, "stopped", "renter")
    assert verdict(disk, one(2)) == Verdict(one(2))
    assert verdict(disk, one(2, "destroyed")).rent is not None


_STATES = st.sampled_from(
    [
        *(("running", ""), ("loading", ""), ("scheduling", "outbid"), ("expired", "")),
        *(("stopped", reason) for reason in ("renter", "host_fault", "container_exit")),
        *(("destroyed", ""),),
    ]
)


@given(
    states=st.lists(st.tuples(_STATES, st.none() | st.integers(0, 1_200)), max_size=5),
    known=st.none() | st.integers(1, 5),
)
def test_laws_of_every_verdict(
    states: list[tuple[tuple[str, str], int | None]], known: int | None
) -> None:
    """One thing is kept at most; it and what somebody stopped never go; a verdict is stable.

    Once everything is let go, and what was rented runs, nothing more is to be done.
    """
    mine = [
        one(number, *state, idle=(idle or 0) if state[0] == "scheduling" else idle)
        for number, (state, idle) in enumerate(states, start=1)
    ]
    found = judge(mine, NOW, STUCK, known)
    assert found == judge(mine[::-1], NOW, STUCK, known)
    assert found.keep not in found.release
    for gone in found.release:
        assert gone.is_alive
        assert (gone.status, gone.reason) not in {
            ("stopped", "renter"),
            ("stopped", "container_exit"),
        }
    if found.end is not None:
        assert (found.rent, found.keep, found.release) == (None, None, ())
        return
    left = [instance for instance in mine if instance not in found.release]
    if found.rent is not None:
        left.append(one(9, "loading"))
        after = judge(left, NOW, STUCK, known)
        left = [instance for instance in left if instance not in after.release]
    settled = judge(left, NOW, STUCK, 9)
    assert settled.release == ()
    running = [instance for instance in left if instance.has_gpus and not instance.offline_since]
    assert len(running) <= 1


def test_the_order_in_which_states_serve_the_job() -> None:
    """Running before loading before a silent machine before waiting, whatever the ids."""
    ranked = [one(4), one(3, "loading"), one(2, idle=1), one(1, "scheduling", idle=1)]
    for better, worse in itertools.combinations(ranked, 2):
        for mine in ((better, worse), (worse, better)):
            assert kept(verdict(*mine)) == better.instance_id


def test_states_in_words() -> None:
    """A reason and a silent machine are said."""
    shown: list[Any] = [one(1).shown, one(1, "scheduling", "outbid", idle=1).shown]
    assert shown == ["running", "scheduling (outbid)"]
    assert one(1, idle=5).shown == "running, but its machine is offline"
    assert one(1).cost == 120_000_000
