"""Payouts on Fridays: one at a time, never more than is owed, and back when they fail (PAY-01)."""

from __future__ import annotations

import pytest

from ledger.domain.events import EarningsHeld, PayoutBegun, PayoutScheduled
from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.services import policies
from ledger.services.payments.gateway import Declined
from ledger.services.payouts import onboarding, weekly
from ledger.services.policies import payouts as policy
from tests.support.market import DOLLAR, START
from tests.support.payments import CENT, Shop, owe, refused
from tests.support.processors import MemoryProcessor

FRIDAY = friday_of(START) + SECONDS_PER_WEEK
"""The first Friday after the beginning of a market."""


def fund(shop: Shop, cents: int = 1_000_000) -> None:
    """Let the platform have money at the processor."""
    shop.buy(shop.market.account("rich"), cents)


def friday(shop: Shop, number: int) -> None:
    """Go to the *number*-th Friday and do what is due; the processor is asked and heard."""
    shop.market.clock.move_to(FRIDAY + (number - 1) * SECONDS_PER_WEEK)
    policy.pay_hosts(shop.market.ledger)
    shop.run()


def bank(shop: Shop, host: int, status: str) -> None:
    """The host's bank says what it did with the last payout."""
    row = shop.market.connection.execute(
        "SELECT bank_payout FROM payouts WHERE host_id = %s AND bank_payout IS NOT NULL"
        " ORDER BY payout_id DESC LIMIT 1",
        [host],
    ).fetchone()
    shop.market.connection.commit()
    assert row is not None
    shop.processor.settle_bank(row[0], status)  # type: ignore[arg-type]  # one of two words
    shop.hear(times=2)
    shop.run()


def test_a_payout_is_set_on_one_friday_and_paid_on_the_next(shop: Shop) -> None:
    """Whole cents of what is owed; the rest of a cent stays; the bank's word ends it."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 25 * DOLLAR + 1_234_567)
    friday(shop, 1)
    assert shop.payouts(host) == [(2_500, "pending")]
    assert shop.payable(host) == 25 * DOLLAR + 1_234_567
    friday(shop, 2)
    assert shop.payouts(host) == [(2_500, "sent")]
    assert shop.payable(host) == 1_234_567
    bank(shop, host, "settled")
    assert shop.payouts(host) == [(2_500, "paid")]
    friday(shop, 3)
    assert shop.payouts(host) == [(2_500, "paid")]
    shop.assert_settled()


@pytest.mark.parametrize(("nanos", "count"), [(20 * DOLLAR - 1, 0), (20 * DOLLAR, 1), (0, 0)])
def test_below_the_minimum_it_rolls_over(shop: Shop, nanos: int, count: int) -> None:
    """At $20 exactly a payout is set; a nano below, the balance waits for more."""
    fund(shop)
    host = shop.payable_host()
    if nanos:
        owe(shop, host, nanos)
    friday(shop, 1)
    assert len(shop.payouts(host)) == count
    owe(shop, host, 20 * DOLLAR)
    friday(shop, 2)
    assert len(shop.payouts(host)) >= 1


def test_a_host_without_a_payout_method_keeps_its_balance(shop: Shop) -> None:
    """Nobody is paid whom the processor does not know, or does not know well enough."""
    fund(shop)
    bob, eve = shop.market.account("bob"), shop.market.account("eve")
    with shop.market.ledger.unit() as unit:
        onboarding.order_payout_account(unit, eve, "US")
    shop.run()
    for host in (bob, eve):
        owe(shop, host, 50 * DOLLAR)
    shop.payable_host("someone")
    friday(shop, 1)
    friday(shop, 2)
    assert shop.payouts(bob) == shop.payouts(eve) == []
    with shop.market.ledger.reading() as connection:
        assert (
            refused(lambda: onboarding.require_payout_account(connection, bob))
            == "payout_method_missing"
        )


def test_who_can_be_paid_since_today_waits_for_the_next_friday(shop: Shop) -> None:
    """Onboarding on a Saturday sets nothing at once, whatever is owed."""
    fund(shop)
    shop.market.clock.move_to(FRIDAY + 86_400)
    host = shop.payable_host()
    owe(shop, host, 50 * DOLLAR)
    policy.pay_hosts(shop.market.ledger)
    assert shop.payouts(host) == []
    friday(shop, 2)
    assert shop.payouts(host) == [(5_000, "pending")]


def test_what_shrank_meanwhile_is_paid_at_what_is_left(shop: Shop) -> None:
    """Paid is the smaller of what was set and what is owed then; nothing owed cancels it."""
    fund(shop)
    bob, eve = shop.payable_host("bob"), shop.payable_host("eve")
    for host in (bob, eve):
        owe(shop, host, 50 * DOLLAR)
    friday(shop, 1)
    owe(shop, bob, -30 * DOLLAR)
    owe(shop, eve, -60 * DOLLAR)
    friday(shop, 2)
    assert shop.payouts(bob) == [(2_000, "sent")]
    assert shop.payouts(eve) == [(5_000, "cancelled")]
    assert (shop.payable(bob), shop.payable(eve)) == (0, -10 * DOLLAR)
    shop.assert_settled()


def test_a_negative_balance_is_carried(shop: Shop) -> None:
    """What a host owes is taken from what it earns later, before anything is paid."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, -10 * DOLLAR)
    friday(shop, 1)
    owe(shop, host, 29 * DOLLAR)
    friday(shop, 2)
    assert shop.payouts(host) == []
    owe(shop, host, 2 * DOLLAR)
    friday(shop, 3)
    assert shop.payouts(host) == [(2_100, "pending")]


def test_what_grew_meanwhile_is_paid_a_week_later(shop: Shop) -> None:
    """A payout is never more than was set; the rest is set in the same run for the next Friday."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 50 * DOLLAR)
    friday(shop, 1)
    owe(shop, host, 30 * DOLLAR)
    friday(shop, 2)
    assert shop.payouts(host) == [(5_000, "sent"), (3_000, "pending")]
    friday(shop, 3)
    assert shop.payouts(host) == [(5_000, "sent"), (3_000, "sent")]
    assert shop.payable(host) == 0
    shop.assert_settled()


def test_pay_01_the_older_payout_takes_the_money_first(shop: Shop) -> None:
    """PAY-01: a second payout waits until the first is through, and gets what is left then."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 200 * DOLLAR)
    friday(shop, 1)
    owe(shop, host, 100 * DOLLAR)
    shop.market.clock.move_to(FRIDAY + SECONDS_PER_WEEK)
    policy.pay_hosts(shop.market.ledger)  # The first is under way, and nobody asks the processor.
    assert shop.payouts(host) == [(20_000, "begun"), (10_000, "pending")]
    shop.market.clock.move_to(FRIDAY + 2 * SECONDS_PER_WEEK)
    for _ in range(3):
        policy.pay_hosts(shop.market.ledger)
    assert shop.payouts(host) == [(20_000, "begun"), (10_000, "pending")]
    owe(shop, host, -50 * DOLLAR)
    shop.run()
    policy.pay_hosts(shop.market.ledger)
    shop.run()
    assert shop.payouts(host) == [(20_000, "sent"), (5_000, "sent")]
    assert shop.payable(host) == 0
    shop.assert_settled()


def test_pay_01_check_and_booking_are_one_step(shop: Shop) -> None:
    """PAY-01: however often a Friday is run, what begins is what left the balance, once."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 300 * DOLLAR)
    for number in (1, 2):
        for _ in range(3):
            friday(shop, number)
    begun = [one.amount for one in shop.market.facts() if isinstance(one, PayoutBegun)]
    scheduled = [one for one in shop.market.facts() if isinstance(one, PayoutScheduled)]
    assert (begun, len(scheduled)) == ([300 * DOLLAR], 1)
    assert shop.payable(host) == 0


def test_a_payout_that_the_bank_refuses_leaves_the_balance_whole(shop: Shop) -> None:
    """PAY-01: the transfer is taken back and the host is owed all of it, also after it was paid."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 50 * DOLLAR)
    friday(shop, 1)
    friday(shop, 2)
    bank(shop, host, "settled")
    bank(shop, host, "failed")
    assert shop.payouts(host) == [(5_000, "failed")]
    assert shop.payable(host) == 50 * DOLLAR
    shop.assert_settled()
    friday(shop, 3)
    friday(shop, 4)
    assert shop.payouts(host) == [(5_000, "failed"), (5_000, "sent")]
    shop.assert_settled()


def test_a_host_that_can_no_longer_be_paid_is_owed_again(shop: Shop) -> None:
    """The processor closed the account before the transfer: nothing left, and none is set anew."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 50 * DOLLAR)
    friday(shop, 1)
    row = shop.market.connection.execute("SELECT payout_account FROM payout_accounts").fetchone()
    assert row is not None
    shop.processor.enable(host, row[0], is_enabled=False)
    if isinstance(shop.processor, MemoryProcessor):
        shop.processor.memory.transfer_answer = Declined("account_closed")
    shop.hear()
    shop.run()
    friday(shop, 2)
    assert shop.payouts(host) == [(5_000, "failed")]
    assert shop.payable(host) == 50 * DOLLAR
    friday(shop, 3)
    assert shop.payouts(host) == [(5_000, "failed")]
    shop.assert_settled()


def test_a_friday_that_was_missed_is_made_up_once(shop: Shop) -> None:
    """The server was down on Friday: the run is held when it is back, with what is owed then."""
    fund(shop)
    host = shop.payable_host()
    owe(shop, host, 50 * DOLLAR)
    shop.market.clock.move_to(FRIDAY + 3 * 86_400)
    for _ in range(3):
        policy.pay_hosts(shop.market.ledger)
    assert shop.payouts(host) == [(5_000, "pending")]
    row = shop.market.connection.execute("SELECT due_at FROM payouts").fetchone()
    assert row == (FRIDAY + SECONDS_PER_WEEK,)


def test_the_next_friday_is_where_a_simulated_clock_stops(shop: Shop) -> None:
    """Without anybody to pay there is no stop; with one it is Friday 00:00 UTC, to the second."""
    with shop.market.ledger.reading() as connection:
        assert policy.next_due(connection, START) is None
    shop.payable_host()
    with shop.market.ledger.reading() as connection:
        assert policy.next_due(connection, shop.market.clock()) == FRIDAY
        assert not weekly.is_run_due(connection, FRIDAY - 1)
        assert weekly.is_run_due(connection, FRIDAY)


def test_a_debt_to_renters_is_recovered_before_a_payout_is_set(shop: Shop) -> None:
    """A clawback line comes first: $50 owed to the host and $35 by it leave less than $20."""
    fund(shop)
    host = shop.payable_host()
    policies.run_due(shop.market.ledger)
    owe(shop, host, 50 * DOLLAR)
    with shop.market.ledger.unit() as unit:
        unit.append(
            f"account-{host}",
            EarningsHeld(
                dispute_id=1,
                host_id=host,
                from_payable=0,
                from_receivable=35 * DOLLAR,
                cause=None,
                policy_version=1,
                actor="platform",
                effective_at=unit.now,
                held_at=unit.now,
            ),
        )
    shop.market.clock.move_to(FRIDAY)
    policies.run_due(shop.market.ledger)
    assert shop.payable(host) == 15 * DOLLAR
    assert shop.payouts(host) == []


def test_amounts_leave_in_whole_cents_for_any_balance(shop: Shop) -> None:
    """What is paid is a number of cents, and what stays is less than one of them."""
    fund(shop)
    for number, nanos in enumerate((20 * DOLLAR + CENT - 1, 33_333_333_333, 99_999_999_999)):
        host = shop.payable_host(f"host-{number}")
        owe(shop, host, nanos)
    friday(shop, 1)
    friday(shop, 2)
    for number in range(3):
        host = shop.market.account(f"host-{number}")
        assert 0 <= shop.payable(host) < CENT
    shop.assert_settled()
