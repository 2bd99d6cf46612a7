"""A court for tests: an instance with a bill, disputes about it, and the books that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from adapters.hostagent.reports import constant_block
from ledger.domain.dispute import Authority
from ledger.domain.events import AnyFact, CompensationCredited
from ledger.domain.ids import account_stream
from ledger.services import corrections, credit_notes, disputes, filing, policies
from ledger.services.disputes import Words
from ledger.services.questions.balances import balance, trial_balance
from tests.support.market import DOLLAR, Market

HOUR = 3_600
DAY = 86_400
RATE = 400_000_000
ADMIN = "account-900"
"""How facts name the admin who acts in these tests."""


class Rental(NamedTuple):
    """Who rents what from whom."""

    renter: int
    host: int
    machine: int
    instance: int


class Books(NamedTuple):
    """Nanos: credit of the renter, owed to the host, fees kept, in hold, owed by hosts."""

    credit: int
    payable: int
    fees: int
    hold: int
    receivable: int


def rented(market: Market, name: str = "alice", **prices: Any) -> Rental:
    """A renter with $100 and an instance at $0.40 an hour, confirmed running; storage is free."""
    renter = market.account(name, 100 * DOLLAR)
    machine = market.machine(
        host=f"host-{name}", **{"gpu_hour": RATE, "storage": 0, "up": 0, "down": 0, **prices}
    )
    instance = market.rent(renter, machine)
    market.confirm(machine, instance)
    return Rental(renter, market.account(f"host-{name}"), machine, instance)


def run_due(market: Market, at: int | None = None) -> None:
    """Move to a second, fold, and let the platform do what is due."""
    if at is not None:
        market.clock.move_to(at)
    for _ in range(2):
        market.project()
        policies.run_due(market.ledger)


def ran(
    market: Market,
    rental: Rental,
    seconds: int,
    *,
    state: Any = "running",
    up: int = 0,
    down: int = 0,
) -> None:
    """Let time pass with constant ticks, all of them reported at its end in one go."""
    start = market.clock()
    market.clock.move_to(start + seconds)
    _attest(market, rental, start, seconds, state, up, down)


def late(market: Market, rental: Rental, start: int, count: int) -> None:
    """The host attests finished seconds long after them, under the same epoch."""
    _attest(market, rental, start, count, "running", 0, 0)


def _attest(
    market: Market, rental: Rental, start: int, count: int, state: Any, up: int, down: int
) -> None:
    reports = []
    while count:
        part = min(count, 300)
        block = constant_block(rental.instance, start, part, state, up=up, down=down, util=90)
        reports.append(market.seal(rental.machine, start, part, [block]))
        start, count = start + part, count - part
    assert {one.status for one in market.deliver(*reports)} == {"accepted"}


def dispute(
    market: Market,
    rental: Rental,
    start: int,
    until: int,
    reason: str = "not_running",
    **options: Any,
) -> int:
    """The renter disputes some seconds; returns the id."""
    market.project()
    with market.ledger.unit() as unit:
        return filing.open_dispute(
            unit,
            rental.instance,
            start,
            until,
            reason,
            **{"actor": rental.renter, **options},
        )


def resolve(market: Market, dispute_id: int, outcome: str, amount: int | None = None) -> int:
    """An admin decides; returns what goes back."""
    with market.ledger.unit() as unit:
        return disputes.resolve(unit, dispute_id, outcome, actor=ADMIN, amount=amount)


def answer(market: Market, dispute_id: int, who: Any, actor: int, text: str | None = None) -> None:
    """The host explains itself, or the renter answers."""
    with market.ledger.unit() as unit:
        disputes.answer(unit, dispute_id, who, actor, Words(("ab" * 32,), text))


def reverse(market: Market, charge: str, amount: int, actor: str = ADMIN) -> int:
    """An admin gives back part of a charge; invoices get their credit note. The id."""
    with market.ledger.unit() as unit:
        found = corrections.load_charge(unit.connection, charge)
        order = order_of(unit.policy.version, found.segment_from, actor)
        done = corrections.reverse(unit, found, amount, order)
        credit_notes.note_reversals(unit, [done], order)
        return done.correction_id


def replace(market: Market, charge: str, amount: int, actor: str = ADMIN) -> int:
    """An admin puts another amount in the place of a charge; the id of the replacement."""
    with market.ledger.unit() as unit:
        found = corrections.load_charge(unit.connection, charge)
        order = order_of(unit.policy.version, found.segment_from, actor)
        return corrections.replace(unit, found, amount, order)[1]


def order_of(policy_version: int, effective_at: int, actor: str) -> corrections.Order:
    """An order of an admin."""
    by = Authority(actor, policy_version)
    return corrections.Order(reason="tested", by=by, effective_at=effective_at)


def pay_out(market: Market, rental: Rental, amount: int) -> None:
    """Take *amount* from what the host is owed, as a payout would; somebody else gets it."""
    other = market.account("elsewhere")
    with market.ledger.unit() as unit:
        unit.append(
            account_stream(rental.host),
            CompensationCredited(
                account_id=other,
                instance_id=rental.instance,
                machine_id=rental.machine,
                host_id=rental.host,
                outage_id=None,
                lost_at=unit.now,
                policy="sla-1",
                policy_version=unit.policy.version,
                multiplier=5,
                seconds=0,
                claim=amount,
                spent=amount,
                cap_applied=False,
                amount=amount,
                credited_at=unit.now,
            ),
        )


def books(market: Market, rental: Rental) -> Books:
    """What the ledger says; the trial balance must be 0, and holds and debts must agree with it."""
    market.project()
    connection = market.connection
    now = market.clock()
    rows = trial_balance(connection)
    assert sum(row.debit - row.credit for row in rows) == 0
    names = {row.ledger_account: row.credit - row.debit for row in rows}
    held = _sum(connection, "SELECT sum(held_payable + held_receivable) FROM disputes")
    owing = _sum(connection, "SELECT sum(amount) FROM host_receivables")
    assert names.get("disputed_hold", 0) == held
    assert -names.get("host_receivable", 0) == owing
    renter = balance(connection, rental.renter, now)
    host = balance(connection, rental.host, now)
    connection.commit()
    return Books(
        renter.posted - renter.charged, host.host_payable, names["platform_fee"], held, owing
    )


def _sum(connection: Any, query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0] or 0)


def of_kind(facts: Sequence[AnyFact], kind: type) -> list[Any]:
    """The facts of one kind, in order."""
    return [fact for fact in facts if isinstance(fact, kind)]
