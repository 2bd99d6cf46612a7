"""Low-balance alerts: to the second, once, and not again within a day (CRED-04)."""

from __future__ import annotations

import pytest

from ledger.domain.money import SECONDS_PER_DAY
from ledger.services import deposits, holds, rentals
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import (
    UNWATCHED,
    act,
    act_until,
    next_due,
    notices,
    started,
    topics,
)

CENT = 10_000_000


def unwatched(market: Market, credit: int, gpu_hour: int = 400_000_000) -> tuple[int, int, int]:
    """An account, its machine and its instance, on a market where time passes without reports."""
    market.ledger.adopt_policy(UNWATCHED)
    alice = market.account("alice", credit)
    machine = market.machine(gpu_hour=gpu_hour, storage=0)
    return alice, machine, started(market, alice, machine)


def pay(market: Market, account: int, nanos: int) -> None:
    """A deposit, in this second."""
    with market.ledger.unit() as unit:
        deposits.deposit(unit, account, nanos, f"d-{market.head()}")


def test_9_dollars_60_at_40_cents_is_exactly_a_day(market: Market) -> None:
    """$9.60 at $0.40/h: no alert; one second later: alert (§13.2)."""
    alice, _, _ = unwatched(market, 9_600_000_000)
    act(market)
    assert notices(market, alice) == []
    assert next_due(market) == START + 1
    act(market, START + 1)
    assert notices(market, alice) == [("low_balance_24h", START + 1)]


def test_each_threshold_is_told_in_its_own_second(market: Market) -> None:
    """At $0.40/h, $9.60 falls below 24 h, 4 h and 1 h one second after $9.60, $1.60 and $0.40."""
    alice, _, _ = unwatched(market, 9_600_000_000)
    act_until(market, START + SECONDS_PER_DAY)
    assert notices(market, alice) == [
        ("low_balance_24h", START + 1),
        ("low_balance_4h", START + 20 * 3_600 + 1),
        ("low_balance_1h", START + 23 * 3_600 + 1),
        ("exhausted", START + SECONDS_PER_DAY),
    ]
    assert market.rebuild().equal


def test_a_first_runway_of_half_an_hour_crosses_all_three(market: Market) -> None:
    """Who begins with 30 minutes of runway is below every threshold in that second."""
    alice, _, _ = unwatched(market, 20 * CENT)
    act(market)
    codes = ["low_balance_24h", "low_balance_4h", "low_balance_1h"]
    assert notices(market, alice) == [(code, START) for code in codes]


def test_what_burns_nothing_has_no_runway(market: Market) -> None:
    """An empty account that rents nothing is not told that its credit is low."""
    alice = market.account("alice", CENT)
    act(market)
    assert notices(market, alice) == []
    assert next_due(market) is None


def test_the_runway_counts_what_is_held_as_gone(market: Market) -> None:
    """A hold shortens the runway in its own second, and its end lengthens it (CRED-04)."""
    alice, _, _ = unwatched(market, 20 * DOLLAR)
    act(market)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 11 * DOLLAR, "h", seconds=600)
    act(market)
    assert notices(market, alice) == [("low_balance_24h", START)]
    act_until(market, START + 600)
    assert topics(market, "balance_alert.cleared.v1") == 1


def test_an_alert_waits_for_a_day_since_its_last_notice(market: Market) -> None:
    """Above the threshold again after 1 h and below after 2 h: told again at 24 h, not before."""
    alice, _, _ = unwatched(market, 9 * DOLLAR)
    act(market)
    assert notices(market, alice) == [("low_balance_24h", START)]
    act(market, START + 3_600)
    pay(market, alice, 10 * DOLLAR)
    act(market)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 10 * DOLLAR, "away", seconds=40 * SECONDS_PER_DAY)
    act_until(market, START + 20 * 3_600)
    pay(market, alice, DOLLAR)
    assert [code for code, _ in notices(market, alice)].count("low_balance_24h") == 1
    act_until(market, START + SECONDS_PER_DAY)
    assert notices(market, alice, "low_balance_24h")[1:] == [
        ("low_balance_24h", START + SECONDS_PER_DAY)
    ]
    assert market.rebuild().equal


def test_an_alert_is_never_repeated_while_credit_stays_below(market: Market) -> None:
    """Ten days below 24 h of runway, and never above: one notice."""
    alice, _, _ = unwatched(market, 110 * CENT, gpu_hour=50_000_000)
    for half_day in range(1, 21):
        act_until(market, START + half_day * SECONDS_PER_DAY // 2)
        pay(market, alice, 60 * CENT)
        act(market)
    assert notices(market, alice) == [("low_balance_24h", START)]


def test_stopping_everything_counts_as_above(market: Market) -> None:
    """Without burn there is no runway to be short: the next rental a day later may be told."""
    alice, machine, one = unwatched(market, 9 * DOLLAR)
    act(market)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    act(market)
    assert topics(market, "balance_alert.cleared.v1") == 1
    act(market, START + SECONDS_PER_DAY)
    started(market, alice, machine)
    act(market)
    assert notices(market, alice) == [
        ("low_balance_24h", START),
        ("low_balance_24h", START + SECONDS_PER_DAY),
    ]


@pytest.mark.parametrize("gpu_hour", [333_333_333, 1, 7_000_000_001])
def test_the_predicted_second_is_the_first_below(market: Market, gpu_hour: int) -> None:
    """For odd rates the alert comes in the second that the clock was told of, and not before."""
    needed = 24 * gpu_hour
    alice, _, _ = unwatched(market, needed + 5 * gpu_hour // 3_600 + 1, gpu_hour=gpu_hour)
    act(market)
    due = next_due(market)
    assert due is not None
    act(market, due - 1)
    assert notices(market, alice) == []
    act(market, due)
    assert notices(market, alice) == [("low_balance_24h", due)]
