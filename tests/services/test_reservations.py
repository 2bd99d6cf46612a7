"""Reservations: what a term costs, what consumes it, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from fractions import Fraction

import pytest

from adapters.hostagent.reports import constant_block
from ledger.domain.usage import InstanceBlock, Observation
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services import contracts, policies, rentals
from ledger.services.explain import explain
from ledger.services.ledger import Policy, Unit
from ledger.services.questions.balances import balance, trial_balance
from ledger.services.questions.transfers import transfers
from ledger.services.questions.usage import charges
from tests.support.market import DOLLAR, START, Market
from tests.support.trust import inventory_of, report, verify

DAY = 86_400
MONTH = 30 * DAY


def market_of_days(market: Market) -> tuple[int, int]:
    """A renter with $5,000 and a machine at $1/h without storage; silence is not watched."""
    market.ledger.adopt_policy(Policy(2, 1500, 259_200, True, None))
    return market.account("alice", 5_000 * DOLLAR), market.machine(gpu_hour=DOLLAR, storage=0)


def unix(day: str) -> int:
    """The first second of a UTC day."""
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())


def reserve(market: Market, instance: int, **how: int) -> contracts.Bought:
    """Prepay."""
    market.project()
    with market.ledger.unit() as unit:
        return contracts.reserve(unit, instance, **how)


def unreserve(market: Market, instance: int) -> int:
    """Cancel; returns the refund."""
    market.project()
    with market.ledger.unit() as unit:
        return contracts.unreserve(unit, instance)


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
        pytest.raises((DeclinedError, RejectedError, NotFoundError)) as error,
    ):
        do(unit)
    assert error.value.code == code
    assert market.head() == head


def in_balance(market: Market) -> None:
    """Debits are credits, no deposit holds what nobody reserved, and a rebuild is equal."""
    market.project()
    with market.ledger.reading() as connection:
        rows = {row.ledger_account: row for row in trial_balance(connection)}
    assert sum(row.debit - row.credit for row in rows.values()) == 0
    open_ = market.connection.execute(
        "SELECT count(*) FROM reservations WHERE ended_at IS NULL"
    ).fetchone()
    if open_ == (0,) and "reserved_deposit" in rows:
        assert rows["reserved_deposit"].debit == rows["reserved_deposit"].credit
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("months", "rate", "deposit"),
    [
        (1, 800_000_000, 576_000_000_000),
        (3, 700_000_000, 1_512_000_000_000),
        (6, 657_142_857, 2_838_857_142_240),
    ],
)
def test_a_term_has_its_price(market: Market, months: int, rate: int, deposit: int) -> None:
    """§9: at $1/h one, three and six months cost $576, $1,512 and $2,838.857142240."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    bought = reserve(market, one, seconds=months * MONTH)
    assert (bought.rate, bought.deposit) == (rate, deposit)
    assert available(market, alice) == 5_000 * DOLLAR - deposit
    in_balance(market)


@pytest.mark.parametrize("days", [42, 87, 91])
def test_a_discount_knows_no_calendar(market: Market, days: int) -> None:
    """PRICE-10: one length has one price, begun in any month or in the middle of one."""
    alice, machine = market_of_days(market)
    deposits = set()
    for begun in ("2026-03-02", "2026-04-15", "2026-05-20", "2028-02-29"):
        market.clock.move_to(unix(begun))
        one = market.rent(alice, machine)
        deposits.add(reserve(market, one, seconds=days * DAY).deposit)
        with market.ledger.unit() as unit:
            rentals.destroy(unit, one)
    # $1/h for T s at the discount 40 % · m / (m + 1) with m = T / 30 days: the whole month always.
    months = Fraction(days * DAY, MONTH)
    rate = int(DOLLAR * (1 - Fraction(4, 10) * months / (months + 1)))
    assert deposits == {rate * days * DAY // 3_600}
    in_balance(market)


@pytest.mark.parametrize(
    ("amount", "seconds", "rate"),
    [(576, MONTH, 800_000_000), (50, 184_925, 973_362_622)],
)
def test_an_amount_buys_the_longest_term(
    market: Market, amount: int, seconds: int, rate: int
) -> None:
    """§9: $576 buys exactly a month, $50 buys 184,925 seconds."""
    alice, machine = market_of_days(market)
    bought = reserve(market, market.rent(alice, machine), amount=amount * DOLLAR)
    assert (bought.term_until - START, bought.rate) == (seconds, rate)
    assert bought.deposit == amount * DOLLAR


@pytest.mark.parametrize(
    ("day", "refund"),
    [
        (0, 576_000_000_000),
        (1, 551_760_000_000),
        (7, 406_320_000_000),
        (15, 212_400_000_000),
        (23, 18_480_000_000),
        (24, 0),
        (29, 0),
    ],
)
def test_cancelling_early_gives_the_discount_back(market: Market, day: int, refund: int) -> None:
    """INV-02, C33: what remains less 1.05 times the discount received, never below zero."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=MONTH)
    market.long_run(machine, [one], day * DAY)
    assert unreserve(market, one) == refund
    used = day * 24 * 800_000_000
    kept = 576_000_000_000 - used - refund
    assert available(market, alice) == 5_000 * DOLLAR - used - kept
    with market.ledger.reading() as connection:
        host = balance(connection, market.account("bob"), market.clock())
    assert host.host_payable == (used + kept) * 85 // 100
    in_balance(market)


def test_the_term_runs_by_time_and_pauses_with_the_machine(market: Market) -> None:
    """Stopped seconds are consumed as `reserved_idle`, offline and loading ones are not."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    reserve(market, one, seconds=MONTH)
    market.run(machine, [one], 100, state="loading")
    market.confirm(machine, one)
    market.run(machine, [one], 1_000)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 500, state="stopped")
    market.clock.move_to(market.clock() + 700)  # the machine attests nothing
    market.run(machine, [one], 300, state="stopped")
    market.project()
    row = market.connection.execute(
        "SELECT gpu_quantity, reserved_idle_quantity, gpu_charge, reserved_idle_charge"
        " FROM rate_segments WHERE kind = 'reserved'"
    ).fetchone()
    assert row == (1_000, 800, 222_222_222, 177_777_777)
    with market.ledger.reading() as connection:
        locked = balance(connection, alice, market.clock()).locked
    assert locked == 576_000_000_000 - 222_222_222 - 177_777_777
    with market.ledger.reading() as connection:
        items = {line.item: (line.quantity, line.amount) for line in charges(connection)}
        (idle,) = explain(connection, one, "reserved_idle", 2)
    assert items == {"gpu": (1_000, 222_222_222), "reserved_idle": (800, 177_777_777)}
    assert (idle.quantity, idle.attested_seconds, idle.unattested_seconds) == (800, 800, 700)
    in_balance(market)


def test_at_the_end_of_its_term_it_goes_on_on_demand(market: Market) -> None:
    """The rate changes in the very second, and what the term left is credit again."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=3_600)
    rate = int(DOLLAR * 1)
    market.run(machine, [one], 3_599)
    market.clock.move_to(market.clock() + 1)  # this second is attested by nobody
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_600)
    market.project()
    rows = market.connection.execute(
        "SELECT kind, since - %s, gpu_quantity FROM rate_segments"
        " WHERE gpu_quantity > 0 ORDER BY terms_no",
        [START],
    ).fetchall()
    assert rows == [("reserved", 0, 3_599), ("on_demand", 3_600, 3_600)]
    (charged,) = market.connection.execute(
        "SELECT gpu_charge FROM rate_segments WHERE kind = 'reserved'"
    ).fetchall()
    assert available(market, alice) == 5_000 * DOLLAR - int(charged[0]) - rate
    in_balance(market)


def test_adding_credit_buys_a_new_term_and_may_lower_the_discount(market: Market) -> None:
    """§9: $504 left and $552 added are exactly two months at 733,333,333, and it is said."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=3 * MONTH)
    market.long_run(machine, [one], 2 * MONTH)
    bought = reserve(market, one, amount=552 * DOLLAR)
    assert bought.deposit == 1_056 * DOLLAR
    assert (bought.term_until - market.clock(), bought.rate) == (2 * MONTH, 733_333_333)
    assert bought.discount_fell
    in_balance(market)


def test_topping_up_forgets_no_discount(market: Market) -> None:
    """A renter who adds a nano just before cancelling gets no more back than one who does not."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=MONTH)
    market.long_run(machine, [one], 15 * DAY)
    reserve(market, one, amount=1)
    assert unreserve(market, one) == 212_400_000_001
    in_balance(market)


def test_a_renter_loses_nothing_when_the_host_breaks_the_contract(market: Market) -> None:
    """After the host lost the disk the whole rest comes back."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=MONTH)
    market.long_run(machine, [one], 15 * DAY)
    seen = Observation(instance=one, assignment=1, state="disk_gone", at=market.clock())
    chain = market.chains[machine]
    market.deliver(chain.seal(chain.sealed_until, 0, [], [seen]))
    assert unreserve(market, one) == 288 * DOLLAR
    in_balance(market)


def leave_by_cancelling(unit: Unit, instance: int) -> None:
    """Give the reservation up and go on renting."""
    contracts.unreserve(unit, instance)


@pytest.mark.parametrize(
    "leave",
    [pytest.param(leave_by_cancelling, id="cancelled"), pytest.param(rentals.destroy, id="gone")],
)
@pytest.mark.parametrize(("is_deverified", "kept"), [(True, 0), (False, 75_600_000_000)])
def test_a_machine_that_lost_its_verification_keeps_nothing_of_what_remains(
    market: Market, leave: Callable[[Unit, int], None], is_deverified: bool, kept: int
) -> None:
    """INV-02: after 15 days of a $576 month all $288 come back, where others keep 1.05 · 72."""
    alice, machine = market_of_days(market)
    report(market, machine, inventory=inventory_of(machine))
    verify(market, machine)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=MONTH)
    market.long_run(machine, [one], 15 * DAY)
    if is_deverified:
        report(market, machine, inventory=inventory_of(machine, ram_mib=8_000))
    before = available(market, alice)
    with market.ledger.unit() as unit:
        leave(unit, one)
    assert available(market, alice) - before == 288 * DOLLAR - kept
    row = market.connection.execute("SELECT reason = 'no_penalty', kept FROM reservations")
    assert row.fetchone() == (is_deverified, kept)
    in_balance(market)


def test_destroying_ends_the_reservation_as_cancelling_does(market: Market) -> None:
    """Destroy refunds by the same formula, in the same transaction."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=MONTH)
    market.long_run(machine, [one], 15 * DAY)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    assert available(market, alice) == 5_000 * DOLLAR - 288 * DOLLAR - 75_600_000_000
    in_balance(market)


def test_late_ticks_of_a_term_are_paid_and_the_deposit_is_empty(market: Market) -> None:
    """What arrives after the end is charged to credit, to which the rest had gone back."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    reserve(market, one, seconds=3_600)
    market.clock.move_to(START + 3_600)
    policies.run_due(market.ledger)
    before = available(market, alice)
    blocks = [
        market.seal(machine, START + at, 300, [_running(one, START + at, 300)])
        for at in range(0, 3_600, 300)
    ]
    market.deliver(*blocks, at=START + 4_000)
    market.project()
    (charge,) = market.connection.execute(
        "SELECT gpu_charge FROM rate_segments WHERE kind = 'reserved'"
    ).fetchall()
    assert before <= 5_000 * DOLLAR
    assert available(market, alice) <= 5_000 * DOLLAR - int(charge[0])
    with market.ledger.reading() as connection:
        moved = [
            (one_.debit, one_.credit, one_.amount) for one_ in transfers(connection) if one_.amount
        ]
    deposit = sum(a for _, credit, a in moved if credit == "reserved_deposit")
    spent = sum(a for debit, _, a in moved if debit == "reserved_deposit")
    assert deposit == spent
    in_balance(market)


def _running(instance: int, start: int, count: int) -> InstanceBlock:
    return constant_block(instance, start, count, "running", up=0, down=0, util=90)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"amount": 6_000 * DOLLAR}, "insufficient_credit"),
        ({"amount": 1}, "amount_too_small"),
        ({"amount": 0}, "invalid_args"),
        ({"seconds": -5}, "invalid_args"),
        ({}, "invalid_args"),
        ({"seconds": 1, "amount": 1}, "invalid_args"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(
    market: Market, how: dict[str, int], code: str
) -> None:
    """Nothing is locked by an amount or a term that cannot be meant."""
    alice, machine = market_of_days(market)
    one = market.rent(alice, machine)
    refused(market, lambda unit: contracts.reserve(unit, one, **how), code)


def test_a_term_ends_with_the_contract_at_the_latest(market: Market) -> None:
    """A term beyond the end of the contract is `beyond_end_date`."""
    alice = market.account("alice", 5_000 * DOLLAR)
    machine = market.machine(gpu_hour=DOLLAR, until=START + DAY)
    one = market.rent(alice, machine)
    refused(market, lambda unit: contracts.reserve(unit, one, seconds=DAY + 1), "beyond_end_date")
    assert reserve(market, one, seconds=DAY).term_until == START + DAY


def test_bids_cannot_be_prepaid_and_nothing_reserved_can_be_cancelled_twice(
    market: Market,
) -> None:
    """Prepaying an interruptible instance is `not_on_demand`; a second cancel finds nothing."""
    alice = market.account("alice", 5_000 * DOLLAR)
    machine = market.machine(gpus=2, floor=1)
    bidding = market.rent(alice, machine, gpus=1, bid=DOLLAR)
    refused(market, lambda unit: contracts.reserve(unit, bidding, amount=DOLLAR), "not_on_demand")
    steady = market.rent(alice, machine, gpus=1)
    reserve(market, steady, seconds=MONTH)
    unreserve(market, steady)
    refused(market, lambda unit: contracts.unreserve(unit, steady), "not_reserved")
