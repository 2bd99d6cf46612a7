"""Extension: a later end of the listing extends contracts, or asks for a higher price."""

from __future__ import annotations

import pytest

from ledger.domain import events as e
from ledger.errors import LedgerError
from ledger.services import contracts, policies, rentals
from ledger.services.ledger import Policy
from tests.support.market import DOLLAR, START, Market

CENT = DOLLAR // 100
END = START + 7_200
LATER = END + 7_200


def contract(market: Market, **options: int) -> tuple[int, int]:
    """A running contract that ends in two hours, at $0.36/h; its machine."""
    market.ledger.adopt_policy(Policy(2, 1500, 259_200, True, None))
    alice = market.account("alice", 100 * DOLLAR)
    machine = market.machine(until=END, floor=10 * CENT)
    one = market.rent(alice, machine, **options)
    market.confirm(machine, one)
    return one, machine


def answer(market: Market, instance: int, *, accept: bool) -> None:
    """The renter's answer."""
    with market.ledger.unit() as unit:
        contracts.answer_price_increase(unit, instance, accept=accept)


def until(market: Market, instance: int) -> int | None:
    """When the contract ends."""
    row = market.connection.execute(
        "SELECT until FROM instances WHERE instance_id = %s", [instance]
    ).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]  # a column of whole numbers or nothing


def test_equal_or_lower_rates_extend_by_themselves_from_the_old_end(market: Market) -> None:
    """The old rates hold up to the old end date, the lower ones from there."""
    one, machine = contract(market)
    market.list_again(machine, gpu_hour=18 * CENT, storage=0, until=LATER, floor=10 * CENT)
    assert until(market, one) == LATER
    market.run(machine, [one], 7_199)
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_601)
    policies.run_due(market.ledger)
    market.project()
    rows = market.connection.execute(
        "SELECT gpu_rate, storage_rate, gpu_quantity FROM rate_segments ORDER BY terms_no"
    ).fetchall()
    assert rows == [(36 * CENT, 150_000_000, 7_200), (18 * CENT, 0, 3_600)]
    assert market.charges(one)["gpu"] == 72 * CENT + 18 * CENT
    assert market.rebuild().equal


@pytest.mark.parametrize("rate", ["gpu_hour", "storage", "up", "down"])
def test_any_higher_rate_is_proposed_and_changes_nothing(market: Market, rate: str) -> None:
    """One pending proposal: the end and all rates stay as they are until the renter answers."""
    one, machine = contract(market)
    market.list_again(machine, until=LATER, floor=10 * CENT, **{rate: DOLLAR})
    assert until(market, one) == END
    rows = market.connection.execute("SELECT status, until FROM price_increases").fetchall()
    assert rows == [("pending", LATER)]


def test_accepting_moves_the_end_and_applies_from_the_old_one(market: Market) -> None:
    """PRICE-09, C31: the old rate holds to the old end date; the second accept is refused."""
    one, machine = contract(market)
    market.list_again(machine, gpu_hour=72 * CENT, until=LATER, floor=10 * CENT)
    answer(market, one, accept=True)
    for accept in (True, False):
        with pytest.raises(LedgerError) as again:
            answer(market, one, accept=accept)
        assert again.value.code == "no_pending_price_increase"
    market.run(machine, [one], 7_200)
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_600)
    assert market.charges(one)["gpu"] == 72 * CENT + 72 * CENT
    assert market.rebuild().equal


def test_rejecting_closes_for_good_and_the_contract_ends(market: Market) -> None:
    """A rejected proposal cannot be accepted, and the contract expires at its old end."""
    one, machine = contract(market)
    market.list_again(machine, gpu_hour=72 * CENT, until=LATER, floor=10 * CENT)
    answer(market, one, accept=False)
    with pytest.raises(LedgerError) as late:
        answer(market, one, accept=True)
    assert late.value.code == "no_pending_price_increase"
    market.run(machine, [one], 7_200)
    policies.run_due(market.ledger)
    assert market.status(one) == "expired"


def test_a_new_proposal_replaces_the_pending_one(market: Market) -> None:
    """PRICE-09: one pending row per contract; what is accepted is the newest."""
    one, machine = contract(market)
    for price in (50, 60, 72):
        market.list_again(machine, gpu_hour=price * CENT, until=LATER, floor=10 * CENT)
    rows = market.connection.execute(
        "SELECT proposal_no, status FROM price_increases ORDER BY proposal_no"
    ).fetchall()
    assert rows == [(1, "replaced"), (2, "replaced"), (3, "pending")]
    answer(market, one, accept=True)
    extended = [fact for fact in market.facts() if isinstance(fact, e.ContractExtended)]
    assert extended[-1].coming[0].terms.gpu_rate == 72 * CENT


def test_an_answer_after_the_end_finds_nothing(market: Market) -> None:
    """A proposal dies with its contract's end date."""
    one, machine = contract(market)
    market.list_again(machine, gpu_hour=72 * CENT, until=LATER, floor=10 * CENT)
    market.run(machine, [one], 7_200)
    with pytest.raises(LedgerError) as late:
        answer(market, one, accept=True)
    assert late.value.code == "no_pending_price_increase"


def test_an_interruptible_contract_keeps_its_bid(market: Market) -> None:
    """A higher GPU rate is no increase for a bid, and a bid changed later goes on after the end."""
    one, machine = contract(market, bid=20 * CENT)
    market.list_again(machine, gpu_hour=DOLLAR, until=LATER, floor=10 * CENT)
    assert until(market, one) == LATER
    market.run(machine, [one], 3_599)
    with market.ledger.unit() as unit:
        rentals.change_bid(unit, one, 40 * CENT)
    market.run(machine, [one], 1)
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_600)
    policies.run_due(market.ledger)
    market.run(machine, [one], 3_600)
    assert market.charges(one)["gpu"] == 20 * CENT + 40 * CENT + 40 * CENT
    assert market.rebuild().equal


def test_an_earlier_or_missing_end_extends_nothing(market: Market) -> None:
    """Relisting to an earlier end touches no contract; a contract without an end has none."""
    one, machine = contract(market)
    market.list_again(machine, until=END - 60, floor=10 * CENT)
    assert until(market, one) == END
    market.list_again(machine, floor=10 * CENT)
    assert until(market, one) is None
    market.list_again(machine, gpu_hour=DOLLAR, until=LATER, floor=10 * CENT)
    assert until(market, one) is None
    assert market.connection.execute("SELECT count(*) FROM price_increases").fetchone() == (0,)
