"""Credit: when it runs dry, what reserves it, who may move it, and what a debt may reach."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from ledger.errors import DeclinedError, IdempotencyError, NotFoundError, RejectedError
from ledger.services import deposits, holds, policies, rentals, transfers
from ledger.services.allocation import claims_of
from ledger.services.ledger import Policy, Unit
from ledger.services.questions.balances import balance, trial_balance
from tests.support.market import DOLLAR, START, Market


def available(market: Market, account: int) -> int:
    """Nanos available now."""
    market.project()
    with market.ledger.reading() as connection:
        return balance(connection, account, market.clock()).available


def refused(market: Market, do: Callable[[Unit], object], code: str) -> None:
    """The command is refused with this code and leaves the log as it was."""
    head = market.head()
    with (
        market.ledger.unit() as unit,
        pytest.raises((DeclinedError, RejectedError, NotFoundError, IdempotencyError)) as error,
    ):
        do(unit)
    assert error.value.code == code
    assert market.head() == head


def without_admission(market: Market) -> None:
    """Starting asks only for something that is available."""
    market.ledger.adopt_policy(Policy(2, 1500, 259_200, admission=False, offline_after_seconds=60))


# --- when credit runs dry ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_predicted_dry_second_is_that_of_a_model_with_fractions(
    market: Market, seed: int
) -> None:
    """With any rates, disks and holds, the next second at which something is due is exact."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    without_admission(market)
    alice = market.account("alice", chance.randrange(2_000_000, 40_000_000))
    burns: list[tuple[Fraction, Fraction]] = []
    for number in range(chance.randint(1, 5)):
        hour, month = chance.randrange(1, 5 * 10**9), chance.randrange(0, 10**9)
        disk = chance.randint(1, 2_000)
        machine = market.machine(host=f"h{number}", gpu_hour=hour, storage=month)
        one = market.rent(alice, machine, disk_gb=disk)
        confirmed = chance.random() < 0.8
        if confirmed:
            market.confirm(machine, one)
        gpu = Fraction(hour, 3_600) if confirmed else Fraction(0)
        burns.append((gpu, Fraction(month * disk, 2_592_000)))
    held, seconds = chance.randrange(1, 1_000_000), chance.randint(1, 60)
    posted = available(market, alice)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, held, "h", seconds=seconds)

    def left(at: int) -> int:
        spent = sum((gpu * at) // 1 + (disk * at) // 1 for gpu, disk in burns)
        return posted - (held if at < seconds else 0) - spent

    dry = next(at for at in range(200_000) if left(at) <= 0)
    launches = [1_800] if any(not gpu for gpu, _ in burns) else []
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START) == START + min(dry, seconds, *launches)


def test_seconds_that_are_not_folded_yet_count_as_spent(market: Market) -> None:
    """Available falls with the clock, not with the reports, and reports change it by 0."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    for second in (1, 9, 50):
        market.clock.move_to(START + second)
        assert available(market, alice) == DOLLAR - second * 100_000
    market.deliver(market.seal(machine, START, 50, []))
    # It has no tick of the instance: nothing is billed, and the seconds may still come.
    assert market.seconds(one)[0] == 0
    assert available(market, alice) == DOLLAR - 50 * 100_000


def test_a_silent_machine_adds_one_minute_and_no_more(market: Market) -> None:
    """Up to its last contact + 60 s seconds count; once it is silent longer, none after them."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 120)
    for later in (180, 181, 10_000):
        market.clock.move_to(START + later)
        assert available(market, alice) == DOLLAR - 180 * 100_000
        policies.run_due(market.ledger)
    market.run(machine, [one], 10)
    assert market.seconds(one)[0] == 130
    assert market.connection.execute("SELECT status FROM instances").fetchone() == ("running",)


def test_every_state_that_wants_to_run_stops_at_zero_once(market: Market) -> None:
    """Loading, running and scheduling instances stop with one stamp; a stopped one is left."""
    without_admission(market)
    alice, machine = market.account("alice", DOLLAR), market.machine(gpus=4, storage=0)
    running, loading, stopped = (market.rent(alice, machine, gpus=1) for _ in range(3))
    waiting = market.rent(alice, machine, gpus=4, wait=True)
    market.confirm(machine, running)
    with market.ledger.unit() as unit:
        rentals.stop(unit, stopped)
        holds.place_hold(unit, alice, DOLLAR - 100_000, "rest")
    market.clock.move_to(START + 1)
    policies.exhaust(market.ledger)
    policies.exhaust(market.ledger)
    rows = market.connection.execute("SELECT instance_id, reason FROM instances").fetchall()
    assert dict(rows) == {
        running: "zero_balance",
        loading: "zero_balance",
        stopped: "renter",
        waiting: "zero_balance",
    }
    stamps = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = 'instance.stopped.v1' AND recorded_at = %s",
        [START + 1],
    ).fetchone()
    assert stamps == (3,)
    with market.ledger.unit() as unit:
        held = [claim.slots for claim in claims_of(unit, machine) if claim.slots]
    assert held == []


def test_one_account_at_zero_stops_nobody_else(market: Market) -> None:
    """Two renters of one machine: the one with credit goes on."""
    machine = market.machine(gpus=2, storage=0)
    alice, carol = market.account("alice", DOLLAR), market.account("carol", DOLLAR)
    hers, other = market.rent(alice, machine, gpus=1), market.rent(carol, machine, gpus=1)
    for one in (hers, other):
        market.confirm(machine, one)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "all")
    policies.exhaust(market.ledger)
    rows = market.connection.execute(
        "SELECT instance_id, status FROM instances ORDER BY instance_id"
    ).fetchall()
    assert rows == [(hers, "stopped"), (other, "running")]


def test_a_start_needs_as_much_as_a_rental(market: Market) -> None:
    """One nano short of an hour and a day it is refused and changes nothing; with it, it starts."""
    alice, machine = market.account("alice", DOLLAR), market.machine()
    one = market.rent(alice, machine)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
        holds.place_hold(unit, alice, DOLLAR - 859_999_999, "most")
    refused(market, lambda unit: rentals.start(unit, one), "insufficient_credit")
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 1, "a-nano")
        rentals.start(unit, one)


def test_admission_judges_each_start_and_sets_nothing_aside(market: Market) -> None:
    """Two starts pass on the same 36 cents; a second of burn later the third does not (§13.1)."""
    alice, machine = market.account("alice", 360_000_000), market.machine(gpus=4, storage=0)
    both = [market.rent(alice, machine, gpus=1) for _ in range(2)]
    for one in both:
        market.confirm(machine, one)
    market.clock.move_to(START + 1)
    refused(
        market,
        lambda unit: rentals.rent(unit, alice, machine, gpus=1, disk_gb=1),
        "insufficient_credit",
    )
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 200_000, "a-second-of-burn")
        rentals.rent(unit, alice, machine, gpus=1, disk_gb=1)


def test_of_starts_at_once_only_as_many_pass_as_there_are_gpus(market: Market) -> None:
    """Six renters race for four GPUs: four get one each, two are told `no_capacity`."""
    machine = market.machine(gpus=4)
    renters = [market.account(f"r{number}", DOLLAR) for number in range(6)]

    def rent(account: int) -> str:
        try:
            market.rent(account, machine, gpus=1)
        except DeclinedError as error:
            return error.code
        return "rented"

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(rent, renters))
    assert answers == ["no_capacity"] * 2 + ["rented"] * 4
    row = market.connection.execute(
        "SELECT count(*), count(DISTINCT slot) FROM gpu_assignments"
    ).fetchone()
    assert row == (4, 4)


# --- the debt limit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charges", "limit"),
    [(90, 3_000_000_000), (6, 1_000_000_000), (3_000, 50_000_000_000), (33, 1_100_000_000)],
)
def test_the_debt_limit_is_a_thirtieth_between_1_and_50(
    market: Market, charges: int, limit: int
) -> None:
    """$90 of charges in 30 days allow $3 of debt, $6 allow $1, $3,000 allow $50 (§13.4)."""
    alice = market.account("alice", charges * DOLLAR)
    machine = market.machine(gpu_hour=charges * DOLLAR, storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 3_600, report_seconds=300)
    market.project()
    policies.exhaust(market.ledger)
    with market.ledger.reading() as connection:
        told = balance(connection, alice, market.clock())
    assert (told.available, told.exhausted_at, told.debt_limit) == (0, START + 3_600, limit)
    assert market.rebuild().equal


# --- holds, transfers, refunds -------------------------------------------------------------------


def test_a_hold_sees_seconds_that_were_not_reported_yet(market: Market) -> None:
    """Available less accrued bounds a hold to the nano."""
    alice, machine = market.account("alice", DOLLAR), market.machine(storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.clock.move_to(START + 60)
    most = DOLLAR - 6_000_000
    refused(
        market, lambda unit: holds.place_hold(unit, alice, most + 1, "h"), "insufficient_credit"
    )
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, most, "h")
    assert available(market, alice) == 0


def test_the_same_capture_again_is_the_first_and_another_is_refused(market: Market) -> None:
    """Captured for 3 of 4 gives 1 back; again 3 changes nothing; all else is `hold_closed`."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 4 * DOLLAR, "h")
        holds.capture_hold(unit, alice, "h", 3 * DOLLAR)
        holds.capture_hold(unit, alice, "h", 3 * DOLLAR)
    assert available(market, alice) == 7 * DOLLAR
    refused(market, lambda unit: holds.capture_hold(unit, alice, "h"), "hold_closed")
    refused(market, lambda unit: holds.release_hold(unit, alice, "h"), "hold_closed")
    refused(market, lambda unit: holds.capture_hold(unit, alice, "none"), "no_such_hold")
    refused(market, lambda unit: holds.release_hold(unit, alice, "none"), "no_such_hold")


def test_the_same_hold_again_reserves_nothing_even_when_it_is_over(market: Market) -> None:
    """Placing a closed hold's id and amount again is the first hold, not a second one."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "h")
        holds.capture_hold(unit, alice, "h")
    head = market.head()
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "h")
    assert market.head() == head
    assert available(market, alice) == 9 * DOLLAR


def test_a_hold_ends_in_its_second_without_anybody_s_help(market: Market) -> None:
    """One second before its expiry it reserves and can be captured, at it neither (LEDG-07)."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, DOLLAR, "a", seconds=100)
        holds.place_hold(unit, alice, DOLLAR, "b", seconds=100)
    market.clock.move_to(START + 99)
    assert available(market, alice) == 8 * DOLLAR
    with market.ledger.unit() as unit:
        holds.capture_hold(unit, alice, "a")
    market.clock.move_to(START + 100)
    refused(market, lambda unit: holds.capture_hold(unit, alice, "b"), "hold_closed")
    refused(market, lambda unit: holds.release_hold(unit, alice, "b"), "hold_closed")
    assert available(market, alice) == 9 * DOLLAR


def test_of_many_at_once_only_so_many_holds_pass_as_there_is_credit(market: Market) -> None:
    """Eight holds of $3 race for $10: three are placed, five are refused (CRED-05)."""
    alice = market.account("alice", 10 * DOLLAR)

    def place(number: int) -> bool:
        try:
            with market.ledger.unit() as unit:
                holds.place_hold(unit, alice, 3 * DOLLAR, f"h{number}")
        except DeclinedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(place, range(8))) == 3
    assert available(market, alice) == DOLLAR


def test_transfers_move_exactly_and_only_what_is_there(market: Market) -> None:
    """A transfer leaves the sum alone, a repeat is one transfer, another content is a conflict."""
    alice = market.account("alice", 10 * DOLLAR)
    bob, carol = market.account("bob"), market.account("carol")
    for _ in range(2):
        with market.ledger.unit() as unit:
            transfers.transfer(unit, alice, bob, 4 * DOLLAR, "t")
    assert (available(market, alice), available(market, bob)) == (6 * DOLLAR, 4 * DOLLAR)

    def move(sender: int, to: int, amount: int, name: str) -> Callable[[Unit], object]:
        return lambda unit: transfers.transfer(unit, sender, to, amount, name)

    refused(market, move(alice, bob, 5 * DOLLAR, "t"), "idempotency_conflict")
    refused(market, move(alice, carol, 4 * DOLLAR, "t"), "idempotency_conflict")
    refused(market, move(alice, alice, DOLLAR, "u"), "invalid_recipient")
    refused(market, move(alice, 99, DOLLAR, "u"), "invalid_recipient")
    refused(market, move(alice, bob, 9_999_999, "u"), "amount_too_small")
    refused(market, move(alice, bob, 6 * DOLLAR + 1, "u"), "insufficient_balance")
    with market.ledger.unit() as unit:
        transfers.transfer(unit, alice, bob, 6 * DOLLAR, "u")
        transfers.transfer(unit, bob, carol, 10_000_000, "t")
    assert (available(market, alice), available(market, carol)) == (0, 10_000_000)
    with market.ledger.reading() as connection:
        assert sum(row.debit - row.credit for row in trial_balance(connection)) == 0
    assert market.rebuild().equal


def test_a_refund_takes_unspent_credit_of_its_own_deposit(market: Market) -> None:
    """Bounded by the deposit, by what is available, and booked once per id (LEDG-01)."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 5 * DOLLAR, "second")
        holds.place_hold(unit, alice, 12 * DOLLAR, "h")

    def back(of: str, amount: int, name: str) -> Callable[[Unit], object]:
        return lambda unit: deposits.refund(unit, alice, of, amount, name)

    refused(market, back("third", DOLLAR, "r"), "no_such_deposit")
    refused(market, back("second", 5 * DOLLAR + 1, "r"), "over_credit")
    refused(market, back("second", 3 * DOLLAR + 1, "r"), "insufficient_balance")
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, "second", 3 * DOLLAR, "r")
        holds.release_hold(unit, alice, "h")
    refused(market, back("second", 2 * DOLLAR + 1, "s"), "over_credit")
    refused(market, back("second", 2 * DOLLAR, "r"), "idempotency_conflict")
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, "second", 2 * DOLLAR, "s")
        deposits.refund(unit, alice, f"opening-{alice}", 10 * DOLLAR, "t")
    assert available(market, alice) == 0
    assert market.rebuild().equal


@pytest.mark.parametrize("other", ["of", "to"])
def test_a_repeat_with_another_deposit_or_recipient_is_a_conflict(
    market: Market, other: str
) -> None:
    """The same id and amount, but of another deposit or to somebody else, is not the same."""
    alice, bob, carol = (market.account(name, 10 * DOLLAR) for name in ("alice", "bob", "carol"))
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 5 * DOLLAR, "p")
        deposits.refund(unit, alice, "p", DOLLAR, "r")
        transfers.transfer(unit, alice, bob, DOLLAR, "t")
    if other == "of":
        again = f"opening-{alice}"
        refused(
            market,
            lambda unit: deposits.refund(unit, alice, again, DOLLAR, "r"),
            "idempotency_conflict",
        )
    else:
        refused(
            market,
            lambda unit: transfers.transfer(unit, alice, carol, DOLLAR, "t"),
            "idempotency_conflict",
        )


def test_a_deposit_s_id_belongs_to_its_account(market: Market) -> None:
    """Another account may use the same id; another amount under it is a conflict."""
    alice, bob = market.account("alice"), market.account("bob")
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "p")
        deposits.deposit(unit, bob, 2 * DOLLAR, "p")
    refused(
        market, lambda unit: deposits.deposit(unit, alice, 2 * DOLLAR, "p"), "idempotency_conflict"
    )
    refused(market, lambda unit: deposits.deposit(unit, 99, DOLLAR, "p"), "no_such_account")
    assert (available(market, alice), available(market, bob)) == (DOLLAR, 2 * DOLLAR)
