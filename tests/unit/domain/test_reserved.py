"""Every number of `marketplace.md` §9."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.domain.money import format_dollars
from ledger.domain.reserved import (
    MAX_DISCOUNT_BP,
    Term,
    buy_for_amount,
    buy_term,
    consumed,
    deposit_for_term,
    discount,
    discount_received,
    early_cancellation_charge,
    refund,
    reserved_rate,
    term_for_amount,
    term_price,
    top_up,
    unspent,
)

DOLLAR = 10**9
DAY = 86_400
MONTH = 2_592_000
DMAX = 4_000


@pytest.mark.parametrize(
    ("seconds", "max_bp", "shown"),
    [
        pytest.param(0, DMAX, "0.000000", id="no-time"),
        pytest.param(MONTH // 2, DMAX, "0.133333", id="half-a-month"),
        pytest.param(MONTH, DMAX, "0.200000", id="1-month"),
        pytest.param(2 * MONTH, DMAX, "0.266667", id="2-months"),
        pytest.param(3 * MONTH, DMAX, "0.300000", id="3-months"),
        pytest.param(6 * MONTH, DMAX, "0.342857", id="6-months"),
        pytest.param(12 * MONTH, DMAX, "0.369231", id="12-months"),
        pytest.param(1_415_232, 1_000, "0.035317", id="0.546-months-at-dmax-0.1"),
        pytest.param(12 * MONTH, 0, "0.000000", id="a-host-without-discount"),
    ],
)
def test_a_term_earns_the_printed_discount(seconds: int, max_bp: int, shown: str) -> None:
    """INV-02: D(m) = Dmax · m / (m + 1), to the six decimals of the rule book."""
    assert f"{float(discount(seconds, max_bp)):.6f}" == shown


def test_a_discount_is_an_exact_fraction() -> None:
    """Six months at Dmax 0.4 save 12/35, not a decimal near it."""
    assert discount(6 * MONTH, DMAX) == Fraction(12, 35)


@pytest.mark.parametrize(
    ("months", "rate", "deposit"),
    [
        pytest.param(1, 800_000_000, "576", id="1-month"),
        pytest.param(3, 700_000_000, "1512", id="3-months"),
        pytest.param(6, 657_142_857, "2838.85714224", id="6-months"),
    ],
)
def test_buying_by_term_locks_the_printed_deposit(months: int, rate: int, deposit: str) -> None:
    """At $1/h the rate is floored to a nano first and the deposit follows from it."""
    seconds = months * MONTH
    assert reserved_rate(DOLLAR, seconds, DMAX) == rate
    assert format_dollars(deposit_for_term(DOLLAR, seconds, DMAX)) == deposit
    assert buy_term(DOLLAR, seconds, DMAX) == Term(seconds, rate, discount(seconds, DMAX))


@pytest.mark.parametrize(
    ("dollars", "seconds", "rate"),
    [
        pytest.param(576, MONTH, 800_000_000, id="576-dollars-are-exactly-a-month"),
        pytest.param(50, 184_925, 973_362_622, id="50-dollars-are-51.37-hours"),
        pytest.param(1_056, 2 * MONTH, 733_333_333, id="1056-dollars-are-exactly-two-months"),
        pytest.param(0, 0, DOLLAR, id="nothing-buys-nothing"),
    ],
)
def test_buying_by_amount_gives_the_longest_term(dollars: int, seconds: int, rate: int) -> None:
    """The amount buys exactly these seconds, and one more would cost more than the amount."""
    bought = buy_for_amount(DOLLAR, dollars * DOLLAR, DMAX)
    assert (bought.seconds, bought.reserved_rate) == (seconds, rate)
    assert term_price(DOLLAR, seconds, DMAX) <= dollars * DOLLAR
    assert term_price(DOLLAR, seconds + 1, DMAX) > dollars * DOLLAR


def test_what_a_term_leaves_unspent_is_the_rest_of_what_was_locked() -> None:
    """Of $50 at $1/h the 184,925 s cost $49.999745242; $0.000254758 returns to credit."""
    assert consumed(973_362_622, 184_925) == 49_999_745_242
    assert unspent(50 * DOLLAR, 973_362_622, 184_925) == 254_758


@pytest.mark.parametrize(
    ("rate", "amount", "max_bp", "seconds"),
    [
        pytest.param(1, 0, 0, 3_599, id="a-rate-of-one-nano-is-free-until-the-first-nano"),
        pytest.param(3_600, 0, 0, 0, id="a-nano-a-second-and-no-money"),
        pytest.param(3_600, 7, 0, 7, id="a-nano-a-second"),
        pytest.param(DOLLAR, 10**30, 0, 3_600 * 10**21, id="no-discount-no-end"),
    ],
)
def test_without_discount_an_amount_buys_what_simple_division_says(
    rate: int, amount: int, max_bp: int, seconds: int
) -> None:
    """With Dmax 0 the term is the largest T with rate · T // 3600 ≤ amount."""
    assert term_for_amount(rate, amount, max_bp) == seconds


@pytest.mark.parametrize("max_bp", [0, 1, DMAX, MAX_DISCOUNT_BP])
@pytest.mark.parametrize("rate", [1, 7, DOLLAR, 10**15])
@pytest.mark.parametrize("amount", [0, 1, 10**18, 10**60])
def test_no_amount_is_too_large_and_no_rate_too_small(rate: int, amount: int, max_bp: int) -> None:
    """The term is affordable and the next second is not, also at the far ends of the scale."""
    seconds = term_for_amount(rate, amount, max_bp)
    assert term_price(rate, seconds, max_bp) <= amount < term_price(rate, seconds + 1, max_bp)


@pytest.mark.parametrize(
    ("day", "given_back"),
    [
        pytest.param(0, "576", id="at-once"),
        pytest.param(1, "551.76", id="day-1"),
        pytest.param(7, "406.32", id="day-7"),
        pytest.param(15, "212.4", id="day-15"),
        pytest.param(23, "18.48", id="day-23"),
        pytest.param(24, "0", id="day-24"),
        pytest.param(25, "0", id="day-25"),
        pytest.param(30, "0", id="at-the-end"),
    ],
)
def test_cancelling_gives_back_the_printed_refund(day: int, given_back: str) -> None:
    """INV-02, C33: of a $576 month at $1/h; what is not given back is the cancellation charge."""
    remaining = 576 * DOLLAR - consumed(800_000_000, day * DAY)
    received = discount_received(DOLLAR, 800_000_000, day * DAY)
    returned = refund(remaining, received)
    assert format_dollars(returned) == given_back
    assert early_cancellation_charge(remaining, received) == remaining - returned


def test_the_refund_of_day_fifteen_comes_about_as_the_rule_book_says() -> None:
    """INV-02: $288 remain, $72 were received, and 288 − 1.05 · 72 = 212.40."""
    assert consumed(800_000_000, 15 * DAY) == 288 * DOLLAR
    assert discount_received(DOLLAR, 800_000_000, 15 * DAY) == 72 * DOLLAR
    assert refund(288 * DOLLAR, 72 * DOLLAR) == 212_400_000_000
    assert early_cancellation_charge(288 * DOLLAR, 72 * DOLLAR) == 75_600_000_000


def test_a_fraction_of_a_nano_is_not_given_back() -> None:
    """A refund is rounded down: 10 nanos less 1.05 of one are 8, not 8.95."""
    assert refund(10, 1) == 8


def test_the_discount_received_floors_each_rate_over_the_segment() -> None:
    """5 s at 1,000 and at 800 nanos per hour: 1 − 1 = 0, although the exact saving is 0.27."""
    assert discount_received(1_000, 800, 5) == 0
    assert discount_received(1_000, 700, 5) == 1


def test_adding_credit_can_lower_the_discount() -> None:
    """After 2 of 3 months $504 remain; $552 more make exactly 2 months at 0.266667, dearer."""
    before = buy_term(DOLLAR, 3 * MONTH, DMAX)
    locked = deposit_for_term(DOLLAR, 3 * MONTH, DMAX)
    remaining = locked - consumed(before.reserved_rate, 2 * MONTH)
    assert (locked, remaining) == (1_512 * DOLLAR, 504 * DOLLAR)
    after = top_up(DOLLAR, remaining, 552 * DOLLAR, DMAX)
    assert after == Term(2 * MONTH, 733_333_333, Fraction(4, 15))
    assert f"{float(after.discount):.6f}" == "0.266667"
    assert before.discount == Fraction(3, 10)
    assert after.discount < before.discount
    assert after.reserved_rate > before.reserved_rate


def test_a_full_discount_still_has_a_rate() -> None:
    """A listing with Dmax 1 halves the rate for a month; it is only not sold by amount."""
    assert reserved_rate(DOLLAR, MONTH, 10_000) == DOLLAR // 2
    with pytest.raises(AssertionError):
        term_for_amount(DOLLAR, DOLLAR, 10_000)
