"""Decisions about one balance or one GPU are taken one after the other (CRED-05, PAY-01)."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from psycopg import errors

from adapters.jobs import JOBS_LOCK
from ledger.errors import CorruptHistoryError, LedgerError
from ledger.projections.runner import UsageRunner
from ledger.services import deposits, holds, transfers
from ledger.services.credit import read_credit
from ledger.services.leadership import Leadership
from ledger.services.ledger import Unit
from tests.e2e.serving import ROOT, wait_for
from tests.support.market import DOLLAR, START, Market

RENTER_PROCESS = f"""
import sys
from ledger.errors import LedgerError
from ledger.services import rentals
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.store.database import Database
from ledger.store.vault import Vault

database = Database.open(None, sys.argv[1], migrate=False)
ledger = Ledger(database, Vault(bytes(32)), SimulatedClock({START}))
print("ready", flush=True)
for line in sys.stdin:
    account, machine = map(int, line.split())
    try:
        with ledger.unit() as unit:
            print("rented", rentals.rent(unit, account, machine, disk_gb=10))
    except LedgerError as error:
        print(error.code)
    sys.stdout.flush()
ledger.close()
"""


@contextmanager
def log_held(market: Market) -> Iterator[Callable[[int], None]]:
    """Hold the log, and give a function that waits until so many transactions wait for it."""
    with (
        market.ledger.database.connect("owner") as holding,
        market.ledger.database.connect("owner", autocommit=True) as watching,
    ):
        holding.execute("SELECT 1 FROM log_position FOR UPDATE")

        def wait_for_waiters(count: int) -> None:
            wait_for(
                lambda: (
                    watching.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                        " AND wait_event_type = 'Lock'"
                    ).fetchone()
                    == (count,)
                ),
                20,
                f"{count} transactions to wait for the log",
            )

        yield wait_for_waiters
        holding.rollback()


def race(market: Market, *commands: Callable[[Unit], object]) -> list[str]:
    """Run *commands* at the same moment, each in a unit of its own; returns "done" or the code."""

    def run(command: Callable[[Unit], object]) -> str:
        try:
            with market.ledger.unit() as unit:
                command(unit)
        except LedgerError as error:
            return error.code
        return "done"

    with ThreadPoolExecutor(len(commands)) as pool:
        with log_held(market) as wait_for_waiters:
            running = [pool.submit(run, command) for command in commands]
            wait_for_waiters(len(commands))
        return [one.result(30) for one in running]


def credit(market: Market, account: int) -> tuple[int, int]:
    """What was paid in and not moved on, and what of it is held."""
    with market.ledger.reading() as connection:
        found = read_credit(connection, [account])[account]
    return found.posted, found.held(market.clock())


def test_two_processes_that_rent_the_last_gpu_have_one_winner(market: Market, dsn: str) -> None:
    """Of two processes renting one free GPU at the same moment, one gets it, one `no_capacity`."""
    renters = [market.account(name, 100 * DOLLAR) for name in ("rita", "rob")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RENTER_PROCESS, dsn],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in renters
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for number in range(5):
            machine = market.machine(f"host-{number}", gpus=1)
            with log_held(market) as wait_for_waiters:
                for process, account in zip(processes, renters, strict=True):
                    assert process.stdin is not None
                    process.stdin.write(f"{account} {machine}\n")
                    process.stdin.flush()
                wait_for_waiters(len(processes))
            answers = sorted(
                process.stdout.readline().split()[0] for process in processes if process.stdout
            )
            assert answers == ["no_capacity", "rented"]
            row = market.connection.execute(
                "SELECT count(*), count(*) FILTER (WHERE upper_inf(during)) FROM gpu_assignments"
                " WHERE machine_id = %s",
                [machine],
            ).fetchone()
            market.connection.commit()
            assert row == (1, 1)
    finally:
        for process in processes:
            process.communicate(timeout=20)
    assert [process.returncode for process in processes] == [0, 0]
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("gpu", "during", "is_refused"),
    [
        ("[7,8)", "[150,160)", True),
        ("[7,8)", "[50,101)", True),
        ("[7,8)", "[199,)", True),
        ("[5,9)", "[100,200)", True),
        ("[7,8)", "[50,100)", False),
        ("[7,8)", "[200,)", False),
        ("[8,9)", "[100,200)", False),
    ],
)
def test_database_refuses_a_gpu_held_twice(
    market: Market, gpu: str, during: str, is_refused: bool
) -> None:
    """The database takes assignments that touch and none that overlap in GPU and time."""
    insert = "INSERT INTO gpu_assignments VALUES (%s, 1, 0, 1, %s::int8range, %s::int8range)"
    market.connection.execute(insert, [1, "[7,8)", "[100,200)"])
    if is_refused:
        with pytest.raises(errors.ExclusionViolation, match="gpu_held_once"):
            market.connection.execute(insert, [2, gpu, during])
    else:
        market.connection.execute(insert, [2, gpu, during])
    market.connection.rollback()


def test_simultaneous_transfers_and_holds_never_overdraw(market: Market) -> None:
    """CRED-05: of many spenders of one balance just as many succeed as it can pay for."""
    payer = market.account("payer", 5 * DOLLAR)
    payee = market.account("payee")

    def transfer(number: int) -> Callable[[Unit], object]:
        return lambda unit: transfers.transfer(unit, payer, payee, DOLLAR, f"t{number}")

    def hold(number: int) -> Callable[[Unit], object]:
        return lambda unit: holds.place_hold(unit, payer, DOLLAR, f"h{number}")

    commands = [make(number) for number in range(4) for make in (transfer, hold)]
    answers = race(market, *commands)
    assert answers.count("done") == 5
    assert set(answers) == {"done", "insufficient_balance", "insufficient_credit"} & set(answers)
    moved = sum(answer == "done" for answer in answers[::2])
    held = sum(answer == "done" for answer in answers[1::2])
    assert credit(market, payer) == ((5 - moved) * DOLLAR, held * DOLLAR)
    assert credit(market, payee) == (moved * DOLLAR, 0)
    assert market.rebuild().equal


def test_simultaneous_deposits_all_count_and_a_repeated_one_once(market: Market) -> None:
    """Deposits booked at the same moment add up; four of them with one id are one deposit."""
    account = market.account("rita")

    def deposit(name: str) -> Callable[[Unit], object]:
        return lambda unit: deposits.deposit(unit, account, 3 * DOLLAR, name)

    answers = race(market, *map(deposit, ["a", "b", "same", "same", "same", "same"]))
    assert answers == ["done"] * 6
    assert credit(market, account) == (9 * DOLLAR, 0)


def test_simultaneous_refunds_give_no_more_than_was_paid(market: Market) -> None:
    """PAY-01: of two refunds that together exceed a deposit, one is paid and the balance whole."""
    account = market.account("rita", 100 * DOLLAR)
    deposit = f"opening-{account}"

    def refund(name: str) -> Callable[[Unit], object]:
        return lambda unit: deposits.refund(unit, account, deposit, 70 * DOLLAR, name)

    assert sorted(race(market, refund("r1"), refund("r2"))) == ["done", "over_credit"]
    assert credit(market, account) == (30 * DOLLAR, 0)


def test_hold_is_spent_or_released_never_both(market: Market) -> None:
    """A capture and a release of one hold at the same moment: the first is final."""
    account = market.account("rita", 10 * DOLLAR)
    for number in range(3):
        name = f"h{number}"
        with market.ledger.unit() as unit:
            holds.place_hold(unit, account, DOLLAR, name)
        before, _ = credit(market, account)
        capture, release = race(
            market,
            partial(holds.capture_hold, account_id=account, hold_id=name),
            partial(holds.release_hold, account_id=account, hold_id=name),
        )
        assert sorted([capture, release]) == ["done", "hold_closed"]
        status = market.connection.execute(
            "SELECT status FROM holds WHERE account_id = %s AND hold_id = %s", [account, name]
        ).fetchone()
        assert status == ("captured" if capture == "done" else "released",)
        spent = DOLLAR if capture == "done" else 0
        assert credit(market, account) == (before - spent, 0)
    assert market.rebuild().equal


def test_second_projection_runner_folds_nothing_twice(market: Market) -> None:
    """A runner that fell behind another one stops with `two_runners`, and no charge is doubled."""
    renter = market.account("rita", 100 * DOLLAR)
    machine = market.machine()
    instance = market.rent(renter, machine)
    market.confirm(machine, instance)
    first, second = UsageRunner(), UsageRunner()
    with market.ledger.database.connect() as one, market.ledger.database.connect() as other:
        market.run(machine, [instance], 60)
        first.catch_up(one)
        market.run(machine, [instance], 60)
        second.catch_up(other)
        with pytest.raises(CorruptHistoryError) as caught:
            first.catch_up(one)
        assert caught.value.code == "two_runners"
        market.run(machine, [instance], 60)
        first.catch_up(one)  # it begins anew from the position in the database
    assert market.charges(instance)["gpu"] == 180 * 100_000
    assert market.rebuild().equal


def test_projection_runners_side_by_side_fold_everything_once(market: Market) -> None:
    """Two runners at work at once disturb each other with `two_runners` only, and lose nothing."""
    renter = market.account("rita", 100 * DOLLAR)
    machine = market.machine()
    instance = market.rent(renter, machine)
    market.confirm(machine, instance)
    market.run(machine, [instance], 600, report_seconds=5)
    together = threading.Barrier(2)

    def fold() -> set[str]:
        codes: set[str] = set()
        runner = UsageRunner(page_events=3)
        with market.ledger.database.connect() as connection:
            together.wait()
            while True:
                try:
                    if not runner.step(connection):
                        return codes
                except LedgerError as error:
                    codes.add(error.code)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(fold) for _ in range(2)]
        codes = set().union(*(one.result(60) for one in running))
    assert codes <= {"two_runners"}
    assert market.charges(instance)["gpu"] == 600 * 100_000
    assert market.rebuild().equal


def test_leadership_passes_on_when_its_connection_dies(market: Market) -> None:
    """Of two processes one leads; the other leads once the first one's connection is gone."""
    first = Leadership(market.ledger, JOBS_LOCK)
    second = Leadership(market.ledger, JOBS_LOCK)
    try:
        assert first.held()
        assert not second.held()
        with market.ledger.database.connect("owner", autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                " AND objid = %s",
                [JOBS_LOCK],
            )
        wait_for(second.held, 5, "the second to lead")
        assert not first.held()
        second.release()
        wait_for(first.held, 5, "the first to lead again")
    finally:
        first.release()
        second.release()
