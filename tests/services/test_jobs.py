"""Scheduled jobs: due by UTC, at most once a due second, missed ones told and not caught up."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.events import JobPlan, JobRan
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import jobs, policies, rentals
from ledger.services.ledger import Ledger
from ledger.services.policies.jobs import run_jobs
from ledger.services.policies.terms import apply_terms
from tests.support.market import DOLLAR, START, Market

HOUR = 3_600
NEXT = START + HOUR
"""11:00 UTC: the first full hour after the start."""


def plan(**changes: Any) -> JobPlan:
    """Stop every full hour."""
    usual: dict[str, Any] = {
        "action": "stop",
        "bid": None,
        "frequency": "HOURLY",
        "day": None,
        "hour": None,
        "minute": 0,
        "start": 0,
        "until": None,
    }
    return JobPlan(**{**usual, **changes})


@pytest.fixture
def running(market: Market) -> tuple[int, int]:
    """A machine and an instance that runs on it."""
    machine = market.machine(floor=100_000_000)
    instance = market.rent(market.account("alice", 100 * DOLLAR), machine)
    market.confirm(machine, instance)
    return machine, instance


def schedule(market: Market, instance: int, **changes: Any) -> int:
    """A job of an instance."""
    with market.ledger.unit() as unit:
        return jobs.schedule(unit, instance, plan(**changes))


def ran(market: Market) -> list[tuple[str, str | None, int, int, int | None]]:
    """Outcome, code, count, due second and the next one, relative to the first full hour."""
    return [
        (
            one.outcome,
            one.code,
            one.count,
            one.due_at - NEXT,
            None if one.next_due_at is None else one.next_due_at - NEXT,
        )
        for one in market.facts()
        if isinstance(one, JobRan)
    ]


def run_at(market: Market, second: int) -> None:
    """Let the policy look at a second."""
    market.clock.move_to(second)
    run_jobs(market.ledger)


def test_a_job_runs_in_its_due_second_and_once(market: Market, running: tuple[int, int]) -> None:
    """Before it nothing happens, in it the instance stops, and looking again changes nothing."""
    _, instance = running
    schedule(market, instance)
    run_at(market, NEXT - 1)
    assert (ran(market), market.status(instance)) == ([], "running")
    for second in (NEXT, NEXT, NEXT + 1):
        run_at(market, second)
    assert ran(market) == [("done", None, 1, 0, HOUR)]
    assert market.status(instance) == "stopped"
    assert market.rebuild().equal


def test_another_process_does_not_run_it_again(market: Market, running: tuple[int, int]) -> None:
    """A server that starts in the same second finds the run in the log, and no second one."""
    _, instance = running
    schedule(market, instance, action="reboot")
    run_at(market, NEXT)
    again = Ledger(market.ledger.database, market.ledger.vault, market.clock)
    run_jobs(again)
    assert ran(market) == [("done", None, 1, 0, HOUR)]


def test_runs_that_were_missed_are_told_and_not_caught_up(
    market: Market, running: tuple[int, int]
) -> None:
    """After 3.5 h without a server four runs are one `missed` fact, and none is carried out."""
    _, instance = running
    schedule(market, instance)
    run_at(market, NEXT + 3 * HOUR + 1_800)
    assert ran(market) == [("missed", None, 4, 0, 4 * HOUR)]
    assert market.status(instance) == "running"
    run_at(market, NEXT + 4 * HOUR)
    assert ran(market)[1:] == [("done", None, 1, 4 * HOUR, 5 * HOUR)]
    assert market.rebuild().equal


def test_a_run_that_is_a_minute_late_is_still_that_run(
    market: Market, running: tuple[int, int]
) -> None:
    """60 s late it is carried out, and what fell due before it is missed; 61 s late it is not."""
    _, instance = running
    schedule(market, instance)
    run_at(market, NEXT + HOUR + 60)
    assert ran(market) == [
        ("missed", None, 1, 0, HOUR),
        ("done", None, 1, HOUR, 2 * HOUR),
    ]
    run_at(market, NEXT + 2 * HOUR + 61)
    assert ran(market)[2:] == [("missed", None, 1, 2 * HOUR, 3 * HOUR)]


def test_a_refused_run_is_told_with_its_code(market: Market, running: tuple[int, int]) -> None:
    """A reboot of a stopped instance is `not_running`; the job goes on with the next due second."""
    _, instance = running
    schedule(market, instance, action="reboot")
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    run_at(market, NEXT)
    assert ran(market) == [("refused", "not_running", 1, 0, HOUR)]
    with market.ledger.unit() as unit:
        rentals.start(unit, instance)
    run_at(market, NEXT + HOUR)
    assert ran(market)[1] == ("refused", "not_running", 1, HOUR, 2 * HOUR)


def test_stop_start_and_another_bid_by_the_clock(market: Market) -> None:
    """An interruptible instance bids, stops and starts as its three jobs say."""
    machine = market.machine(floor=100_000_000)
    instance = market.rent(market.account("alice", 100 * DOLLAR), machine, bid=200_000_000)
    market.confirm(machine, instance)
    schedule(market, instance, action="change_bid", bid=250_000_000)
    schedule(market, instance, action="stop", minute=10)
    schedule(market, instance, action="start", minute=20)
    run_at(market, NEXT)
    market.clock.move_to(NEXT + 1)
    apply_terms(market.ledger)
    with market.ledger.unit() as unit:
        assert unit.instance(instance).bid == 250_000_000
    run_at(market, NEXT + 600)
    assert market.status(instance) == "stopped"
    run_at(market, NEXT + 1_200)
    # It wants to run again, and waits: its machine has been silent for long.
    assert market.status(instance) == "scheduling"
    assert market.rebuild().equal


def test_a_window_ends_it(market: Market, running: tuple[int, int]) -> None:
    """The last due second before the window's end runs, and then none is due."""
    _, instance = running
    job = schedule(market, instance, until=NEXT + HOUR)
    run_at(market, NEXT)
    run_at(market, NEXT + HOUR)
    assert ran(market) == [("done", None, 1, 0, None)]
    with market.ledger.reading() as connection:
        assert jobs.require_job(connection, None, job).due_at is None


def test_next_due_tells_when_to_look(market: Market, running: tuple[int, int]) -> None:
    """A simulated clock is told the due second, and none of a removed job."""
    _, instance = running
    job = schedule(market, instance)
    with market.ledger.reading() as connection:
        assert policies.jobs.next_due(connection, START) == NEXT
    with market.ledger.unit() as unit:
        jobs.remove(unit, _owner(unit, instance), job)
    with market.ledger.reading() as connection:
        assert policies.jobs.next_due(connection, START) is None
    run_at(market, NEXT)
    assert market.status(instance) == "running"


def _owner(unit: Any, instance: int) -> int:
    account: int = unit.instance(instance).account_id
    return account


def test_one_job_of_each_kind_an_instance(market: Market, running: tuple[int, int]) -> None:
    """The same plan again is the same job; another one is `job_exists` with the id to change."""
    _, instance = running
    job = schedule(market, instance)
    head = market.head()
    assert schedule(market, instance) == job
    assert market.head() == head
    with pytest.raises(RejectedError) as error:
        schedule(market, instance, minute=5)
    assert (error.value.code, error.value.detail["job_id"]) == ("job_exists", job)
    with market.ledger.unit() as unit:
        owner = _owner(unit, instance)
        jobs.change(unit, owner, job, plan(minute=5))
        assert jobs.require_job(unit.connection, owner, job).due_at == START + 300
        with pytest.raises(RejectedError):
            jobs.change(unit, owner, job, plan(action="reboot"))
        jobs.remove(unit, owner, job)
        with pytest.raises(NotFoundError) as missing:
            jobs.remove(unit, owner, job)
        assert missing.value.code == "no_such_job"
    assert schedule(market, instance, minute=5) == job + 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hour": 3}, "invalid_schedule"),
        ({"action": "change_bid"}, "not_interruptible"),
        ({"action": "change_bid", "bid": 0}, "not_interruptible"),
    ],
)
def test_what_cannot_be_scheduled(
    market: Market, running: tuple[int, int], changes: dict[str, Any], code: str
) -> None:
    """Fields that do not go together, and a bid of an instance on demand, are refused at once."""
    with pytest.raises(LedgerError) as error:
        schedule(market, running[1], **changes)
    assert error.value.code == code


def test_an_instance_takes_its_jobs_with_it(market: Market, running: tuple[int, int]) -> None:
    """After a destroy its job is not listed, not due, and not run; one cannot be made."""
    _, instance = running
    schedule(market, instance)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    run_at(market, NEXT)
    assert ran(market) == []
    with market.ledger.reading() as connection:
        assert jobs.jobs(connection, None) == []
    with pytest.raises(NotFoundError):
        schedule(market, instance)
    assert market.rebuild().equal
