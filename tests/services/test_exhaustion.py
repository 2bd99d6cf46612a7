"""Credit to the second: admission, exhaustion of many instances at once, holds, debt, return."""

from __future__ import annotations

import pytest

from adapters.hostagent.reports import constant_block
from ledger.errors import DeclinedError, IdempotencyError, RejectedError
from ledger.services import contracts, deposits, holds, policies, rentals
from ledger.services.questions.balances import balance, trial_balance
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import UNWATCHED, started, status


def available(market: Market, account: int) -> int:
    """Nanos available now."""
    market.project()
    with market.ledger.reading() as connection:
        return balance(connection, account, market.clock()).available


@pytest.mark.parametrize(("credit", "admitted"), [(900_000_000, True), (899_999_999, False)])
def test_admission_needs_an_hour_and_a_day(market: Market, credit: int, admitted: bool) -> None:
    """An hour at $0.40 and a day of 100 GB need exactly $0.90, not a nano less (CRED-05)."""
    alice = market.account("alice", credit)
    machine = market.machine(gpu_hour=400_000_000)
    head = market.head()
    if admitted:
        market.rent(alice, machine)
    else:
        with pytest.raises(DeclinedError, match="is available") as error:
            market.rent(alice, machine)
        assert error.value.code == "insufficient_credit"
        assert market.head() == head


def test_150_instances_stop_in_one_evaluation_at_second_601(market: Market) -> None:
    """$10 and 150 instances at $0.40 run for 600 s and all stop at 601 (CRED-02, C22)."""
    alice = market.account("alice", 10 * DOLLAR)
    fleet = [
        market.machine(host=f"h{number}", gpus=15, gpu_hour=400_000_000, storage=0)
        for number in range(10)
    ]
    rented: dict[int, list[int]] = {}
    for machine in fleet:
        rented[machine] = [market.rent(alice, machine, gpus=1, disk_gb=1) for _ in range(15)]
        for one in rented[machine]:
            market.confirm(machine, one)
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START) is not None
    for second in range(START, START + 600, 60):
        policies.exhaust(market.ledger)
        market.clock.move_to(second + 60)
        for machine, tenants in rented.items():
            blocks = [
                constant_block(one, second, 60, "running", up=0, down=0, util=1) for one in tenants
            ]
            market.deliver(market.seal(machine, second, 60, blocks))
    policies.exhaust(market.ledger)
    assert available(market, alice) == 100
    market.clock.move_to(START + 601)
    before = market.head()
    policies.exhaust(market.ledger)
    assert available(market, alice) == -16_666_550
    rows = market.connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE status = 'stopped' AND reason = 'zero_balance'"
        " AND stopped_at = %s) FROM instances",
        [START + 601],
    ).fetchone()
    assert rows == (150, 150)
    assert market.head() >= before + 151
    policies.exhaust(market.ledger)
    row = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = 'account.exhausted.v1'"
    ).fetchone()
    assert row == (1,)


def test_the_predicted_second_is_the_second_it_happens(market: Market) -> None:
    """A simulated clock is told to stop exactly at the first second with nothing left."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    market.rent(alice, machine)
    market.confirm(machine, 1)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR - 1_000_000, "rest")
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START) == START + 10
    market.clock.move_to(START + 9)
    assert available(market, alice) == 100_000
    market.clock.move_to(START + 10)
    assert available(market, alice) == 0


def test_a_late_evaluation_stamps_its_own_second_and_says_so(market: Market) -> None:
    """An evaluation that ran 5 s late stops at its own second and records late_exhaustion."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR - 1_000_000, "rest")
    policies.exhaust(market.ledger)
    market.run(machine, [one], 15, report_seconds=15)
    policies.exhaust(market.ledger)
    assert market.anomalies(one) == {"late_exhaustion": 5}
    assert market.rebuild().equal


def test_a_large_deposit_of_a_reservation_keeps_nobody_from_running_dry(market: Market) -> None:
    """With $576 locked and $1 of credit, a disk of $1 an hour exhausts it after an hour."""
    market.ledger.adopt_policy(UNWATCHED)
    alice = market.account("alice", 577 * DOLLAR)
    machine = market.machine(gpu_hour=DOLLAR, storage=7_200_000_000)
    one = started(market, alice, machine)
    with market.ledger.unit() as unit:
        contracts.reserve(unit, one, seconds=contracts.SECONDS_PER_MONTH)
    market.clock.move_to(START + 3_599)
    policies.exhaust(market.ledger)
    assert status(market, one) == ("running", "")
    market.clock.move_to(START + 3_600)
    policies.exhaust(market.ledger)
    assert status(market, one) == ("stopped", "zero_balance")


def test_a_top_up_allows_a_start_and_never_starts_anything(market: Market) -> None:
    """After exhaustion a deposit changes no state; a start then works (CRED-03, C28)."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "all")
    policies.exhaust(market.ledger)
    assert market.connection.execute("SELECT status FROM instances").fetchone() == ("stopped",)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "again")
    policies.run_due(market.ledger)
    assert market.connection.execute("SELECT status FROM instances").fetchone() == ("stopped",)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    assert market.connection.execute("SELECT status FROM instances").fetchone() == ("loading",)


def test_holds_are_final_and_expire_for_every_reader(market: Market) -> None:
    """A released, captured or expired hold can never be committed again (LEDG-02, LEDG-07)."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 4 * DOLLAR, "a")
        holds.place_hold(unit, alice, 4 * DOLLAR, "a")
        holds.place_hold(unit, alice, 2 * DOLLAR, "b", seconds=100)
    assert available(market, alice) == 4 * DOLLAR
    with market.ledger.unit() as unit, pytest.raises(IdempotencyError):
        holds.place_hold(unit, alice, 5 * DOLLAR, "a")
    with market.ledger.unit() as unit:
        holds.release_hold(unit, alice, "a")
        holds.release_hold(unit, alice, "a")
        with pytest.raises(RejectedError, match="released"):
            holds.capture_hold(unit, alice, "a")
    market.clock.move_to(START + 100)
    assert available(market, alice) == 10 * DOLLAR
    with market.ledger.unit() as unit, pytest.raises(RejectedError) as error:
        holds.capture_hold(unit, alice, "b")
    assert error.value.code == "hold_closed"
    policies.run_due(market.ledger)
    assert market.rebuild().equal


def test_a_capture_may_exceed_its_hold(market: Market) -> None:
    """A larger capture is booked in full, even below zero; a smaller one releases the rest."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 10 * DOLLAR, "a")
        holds.capture_hold(unit, alice, "a", 12 * DOLLAR)
        holds.capture_hold(unit, alice, "a", 12 * DOLLAR)
    assert available(market, alice) == -2 * DOLLAR
    with market.ledger.reading() as connection:
        assert sum(row.debit - row.credit for row in trial_balance(connection)) == 0


def test_refunds_end_at_what_was_paid(market: Market) -> None:
    """All refunds together return at most the payment; a repeat changes nothing (LEDG-01)."""
    alice = market.account("alice", 10 * DOLLAR)
    name = f"opening-{alice}"
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, name, 6 * DOLLAR, "r1")
        deposits.refund(unit, alice, name, 6 * DOLLAR, "r1")
    assert available(market, alice) == 4 * DOLLAR
    with market.ledger.unit() as unit, pytest.raises(RejectedError) as error:
        deposits.refund(unit, alice, name, 5 * DOLLAR, "r2")
    assert error.value.code == "over_credit"


def test_the_same_deposit_twice_is_one_payment(market: Market) -> None:
    """10 + 100 + the same 100 again is 110 (IDEM-03)."""
    alice = market.account("alice", 10 * DOLLAR)
    for _ in range(2):
        with market.ledger.unit() as unit:
            deposits.deposit(unit, alice, 100 * DOLLAR, "card-1")
    assert available(market, alice) == 110 * DOLLAR
