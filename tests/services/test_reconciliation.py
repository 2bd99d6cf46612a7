"""Reconciliation: sides that agree, sides that do not, and the life of what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from adapters.hostagent.reports import constant_block
from ledger.domain.events import JobName, ReconciliationCompleted
from ledger.errors import LedgerError
from ledger.services import reconciliation
from ledger.services.ledger import Ledger
from ledger.services.questions import findings as ask
from ledger.services.reconciliation import JOBS, Comparison, Outcome
from tests.support.books import APRIL, DAY, business
from tests.support.databases import Server
from tests.support.market import DOLLAR, START, Market

FIRST_DAY = START // DAY * DAY


class Planted(NamedTuple):
    """What somebody did to a table behind the log's back, and what has to be found of it."""

    sql: str
    job: JobName
    kind: str


PLANTED = [
    Planted(
        "UPDATE account_credit SET posted = posted + 1 WHERE account_id = 1", "money", "credit"
    ),
    Planted("UPDATE account_credit SET payable = 1 WHERE account_id = 1", "money", "payable"),
    Planted("INSERT INTO host_receivables VALUES (1, 5)", "money", "receivable"),
    Planted("UPDATE account_usage SET charged = charged - 1", "money", "charged"),
    Planted("UPDATE account_usage SET earned = earned + 1", "money", "earned"),
    Planted("UPDATE account_usage SET fees = fees + 1", "money", "fees"),
    Planted("UPDATE usage_hours SET gpu_charge = gpu_charge + 1", "money", "hours"),
    Planted("UPDATE rate_segments SET gpu_charge = gpu_charge + 1", "money", "formula"),
    Planted("UPDATE rate_segments SET storage_fee = storage_fee + 1", "money", "fee"),
    Planted("UPDATE movements SET amount = -amount WHERE kind = 'capture'", "money", "movement"),
    Planted("DELETE FROM movements WHERE kind = 'deposit'", "projections", "table"),
    Planted(
        "INSERT INTO gpu_intervals SELECT 99, start, until, 1, position FROM gpu_intervals;"
        " ALTER TABLE gpu_assignments DROP CONSTRAINT gpu_held_once;"
        " INSERT INTO gpu_assignments SELECT 99, 1, slot, machine_id, gpu, during"
        " FROM gpu_assignments",
        "exclusivity",
        "billed_twice",
    ),
]


@pytest.fixture(scope="module")
def trade(server: Server) -> Iterator[Market]:
    """One month end of business; a test that changes it puts it back."""
    dsn = server.copy()
    one = Market(dsn)
    business(one)
    yield one
    one.close()
    server.drop(dsn)


def run(market: Market, name: JobName, day: int = FIRST_DAY) -> Outcome:
    """One comparison."""
    return reconciliation.run(market.ledger, name, day)


@pytest.mark.parametrize("name", JOBS)
def test_right_books_have_no_findings(trade: Market, name: JobName) -> None:
    """LEDG-03: where nothing is wrong no comparison finds anything, whatever it compares."""
    if name in {"reports", "instances"}:
        return  # Whole days are compared in tests of their own.
    outcome = run(trade, name)
    assert outcome.differences == []
    assert outcome.is_clean
    assert outcome.note == ("no processor configured" if name == "processor" else outcome.note)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.kind)
def test_what_was_changed_behind_the_log_is_found(market: Market, planted: Planted) -> None:
    """LEDG-03: one nano, or one row, that no fact accounts for is a finding of the right kind."""
    business(market)
    assert run(market, planted.job).is_clean
    with market.ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute(planted.sql)
    outcome = run(market, planted.job)
    assert planted.kind in {one.kind for one in outcome.differences}
    assert outcome.opened == len(outcome.differences) == outcome.open


# --- the life of a finding -----------------------------------------------------------------------


def odd(market: Market, nanos: int) -> None:
    """Put alice's credit wrong by so many nanos, or right again."""
    with market.ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute(
            "UPDATE account_credit SET posted = %s WHERE account_id = 1", [DOLLAR + nanos]
        )


@pytest.fixture
def alice(market: Market) -> Market:
    """Alice has a dollar, and the books one nano more."""
    market.account("alice", DOLLAR)
    odd(market, 1)
    return market


def states(market: Market) -> list[str]:
    """The state of each finding, by number."""
    with market.ledger.reading() as connection:
        return [one.state for one in ask.findings(connection)]


def test_the_same_thing_is_never_opened_twice(alice: Market) -> None:
    """However often a comparison is repeated, and for whatever day, there is one finding."""
    assert run(alice, "money").opened == 1
    head = alice.head()
    assert run(alice, "money").opened == 0
    assert run(alice, "money").open == 1
    alice.clock.move_to(START + DAY)
    run(alice, "money", FIRST_DAY + DAY)
    assert states(alice) == ["open"]
    facts = alice.facts("reconciliation")
    assert sum(isinstance(fact, ReconciliationCompleted) for fact in facts) == 2
    assert alice.head() == head + 1


def test_what_is_no_longer_found_is_corrected_and_may_come_back(alice: Market) -> None:
    """A later comparison closes what it no longer finds, and opens the same finding again."""
    run(alice, "money")
    odd(alice, 0)
    assert run(alice, "money").is_clean
    assert states(alice) == ["corrected"]
    odd(alice, 1)
    assert run(alice, "money").opened == 1
    assert states(alice) == ["open"]


def test_an_explained_finding_is_clean_while_its_numbers_stand(alice: Market) -> None:
    """What a person explained does not alarm again; one nano more does."""
    run(alice, "money")
    with alice.ledger.unit() as unit:
        reconciliation.explain(unit, 1, "known since the migration", "account-9")
    head = alice.head()
    assert run(alice, "money").is_clean
    assert states(alice) == ["explained"]
    assert alice.head() <= head + 1
    odd(alice, 2)
    assert not run(alice, "money").is_clean
    assert states(alice) == ["open"]


def test_a_person_corrects_and_names_the_movement(alice: Market) -> None:
    """Who said that it was corrected, why, and by what is in the finding."""
    run(alice, "money")
    with alice.ledger.unit() as unit:
        reconciliation.correct(unit, 1, "booked twice", "adjustment-7", "account-9")
        reconciliation.correct(unit, 1, "booked twice", "adjustment-7", "account-9")
    with alice.ledger.reading() as connection:
        one = ask.finding(connection, 1)
    assert (one.state, one.reason, one.correction, one.actor) == (
        "corrected", "booked twice", "adjustment-7", "account-9",
    )  # fmt: skip
    with alice.ledger.unit() as unit, pytest.raises(LedgerError) as error:
        reconciliation.explain(unit, 1, "no", "account-9")
    assert error.value.code == "finding_closed"


@pytest.mark.parametrize(
    ("do", "code"),
    [
        (lambda unit: reconciliation.explain(unit, 7, "x", "account-9"), "no_such_finding"),
        (lambda unit: reconciliation.correct(unit, 7, "x", None, "account-9"), "no_such_finding"),
        (lambda unit: reconciliation.explain(unit, 7, " ", "account-9"), "invalid_args"),
    ],
)
def test_findings_that_are_not_there_cannot_be_closed(
    market: Market, do: Callable[[object], None], code: str
) -> None:
    """A finding that there is not, and a reason that says nothing, are refused."""
    with market.ledger.unit() as unit, pytest.raises(LedgerError) as error:
        do(unit)
    assert error.value.code == code


# --- hosts ---------------------------------------------------------------------------------------


def whole_day(market: Market) -> tuple[int, int]:
    """A machine with one instance that ran from the start of a day; (machine, instance)."""
    alice = market.account("alice", 100 * DOLLAR)
    market.clock.move_to(FIRST_DAY + DAY)
    machine = market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.long_run(machine, [one], DAY)
    return machine, one


def test_a_day_that_was_reported_whole_is_clean(market: Market) -> None:
    """C20: nothing is found of a day whose every second was attested for what we bill."""
    whole_day(market)
    market.project()
    assert run(market, "reports", FIRST_DAY + DAY).differences == []
    assert run(market, "instances", FIRST_DAY + DAY).differences == []
    assert run(market, "exclusivity", FIRST_DAY + DAY).differences == []


def test_reports_that_are_missing_are_found_until_they_come(market: Market) -> None:
    """A machine's missing seconds of a day are one finding, closed when they were reported late."""
    machine, one = whole_day(market)
    day = FIRST_DAY + 2 * DAY
    market.long_run(machine, [one], DAY - 3_600)
    spooled = [
        market.seal(
            machine,
            day + first,
            300,
            [constant_block(one, day + first, 300, "running", up=0, down=0, util=90)],
        )
        for first in range(DAY - 3_600, DAY, 300)
    ]
    market.clock.move_to(day + DAY)
    market.project()
    (found,) = run(market, "reports", day).differences
    assert (found.kind, found.about) == ("reports_missing", f"machine-{machine}")
    assert (found.expected, found.actual) == (DAY, DAY - 3_600)
    assert {answer.status for answer in market.deliver(*spooled)} == {"accepted"}
    market.project()
    assert run(market, "reports", day).is_clean
    assert states(market) == ["corrected"]


def test_instances_that_a_host_should_not_show_are_found(market: Market) -> None:
    """C20: an instance that a host shows and does not have is a finding with its seconds."""
    alice = market.account("alice", 100 * DOLLAR)
    machine = market.machine(gpus=2)
    one = market.rent(alice, machine, gpus=1)
    market.confirm(machine, one)
    market.run(machine, [one, 77], 120)
    market.project()
    shown = run(market, "instances").differences
    assert [(found.kind, found.about, found.actual) for found in shown] == [
        ("unknown_instance", f"machine-{machine}/instance-77", 120)
    ]


def test_instances_that_a_host_does_not_show_are_found(market: Market) -> None:
    """An instance that runs by our books, of which its machine's reports say nothing, is found."""
    alice = market.account("alice", 100 * DOLLAR)
    machine = market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.run(machine, [], 120)
    market.project()
    (found,) = run(market, "instances").differences
    assert (found.kind, found.about) == ("not_shown", f"machine-{machine}/instance-{one}")
    assert (found.expected, found.actual) == (180, 60)


# --- the processor and the days ------------------------------------------------------------------


def test_the_processor_is_compared_through_its_port(market: Market) -> None:
    """What a processor disagrees about is found, with both amounts; without one, that is said."""

    def processor(ledger: Ledger, since: int) -> list[Comparison]:
        assert since == FIRST_DAY
        return [Comparison("entry_missing", "txn_1", 0, 5 * DOLLAR)]

    assert run(market, "processor").note == "no processor configured"
    outcome = reconciliation.run(market.ledger, "processor", FIRST_DAY, processor)
    unasked = run(market, "processor")
    assert (unasked.note, unasked.open) == ("no processor configured", 1)
    assert (outcome.opened, outcome.note) == (1, "")
    with market.ledger.reading() as connection:
        (one,) = ask.findings(connection, job="processor", state="open")
    assert (one.kind, one.about, one.expected, one.actual) == (
        "entry_missing", "txn_1", 0, 5 * DOLLAR,
    )  # fmt: skip


def test_every_job_runs_once_for_each_day_that_is_ready(market: Market) -> None:
    """The first time yesterday is compared; then no day is left out, and none is done twice."""
    market.clock.move_to(APRIL + 7_200)
    first = reconciliation.run_due(market.ledger)
    assert {one.job for one in first} == set(JOBS)
    days = {one.job: one.period_from for one in first}
    assert days["money"] == APRIL - DAY
    assert days["reports"] == APRIL - 4 * DAY
    head = market.head()
    assert reconciliation.run_due(market.ledger) == []
    assert market.head() == head
    market.clock.move_to(APRIL + 2 * DAY + 7_200)
    again = reconciliation.run_due(market.ledger)
    assert sum(one.job == "exclusivity" for one in again) == 2
    assert sum(one.job == "money" for one in again) == 1


@pytest.mark.parametrize("day", [FIRST_DAY + 1, FIRST_DAY + DAY])
def test_a_comparison_is_for_a_day_that_has_begun(market: Market, day: int) -> None:
    """A second that begins no day, or a day to come, is refused."""
    with pytest.raises(LedgerError) as error:
        run(market, "money", day)
    assert error.value.code == "invalid_args"


def test_findings_are_rebuilt_from_the_log(alice: Market) -> None:
    """Findings are facts: a rebuild makes the same ones."""
    run(alice, "money")
    with alice.ledger.unit() as unit:
        reconciliation.explain(unit, 1, "known", "account-9")
    odd(alice, 0)
    assert alice.rebuild().equal
