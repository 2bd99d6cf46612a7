from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.reserved import (
    MAX_DISCOUNT_BP,
    buy_for_amount,
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

MONTH = 2_592_000
rates = st.integers(1, 10**13) | st.integers(1, 5_000) | st.sampled_from([1_000_000_000])
discounts = st.integers(0, MAX_DISCOUNT_BP) | st.sampled_from([0, 1, 4_000, MAX_DISCOUNT_BP])
terms = st.integers(0, 20 * MONTH) | st.integers(0, 10)
amounts = st.integers(0, 10**13) | st.integers(0, 10**30) | st.integers(0, 100)


def closed_form(rate: int, amount: int, max_bp: int, seconds: int) -> bool:
    """Whether rate · T · (1 − D(T)) < (amount + 1) · 3600, multiplied out to a polynomial in T."""
    cost = rate * seconds * (10_000 * (seconds + MONTH) - max_bp * seconds)
    return cost < (amount + 1) * 3_600 * 10_000 * (seconds + MONTH)


@given(rate=rates, amount=amounts, max_bp=discounts)
def test_an_amount_buys_the_longest_term_that_it_pays(rate: int, amount: int, max_bp: int) -> None:
    """The term costs at most the amount and one second more costs more, in exact arithmetic."""
    seconds = term_for_amount(rate, amount, max_bp)
    assert closed_form(rate, amount, max_bp, seconds)
    assert not closed_form(rate, amount, max_bp, seconds + 1)


@given(rate=rates, seconds=terms, more=terms, max_bp=discounts)
def test_a_longer_term_saves_a_larger_part_and_never_costs_less(
    rate: int, seconds: int, more: int, max_bp: int
) -> None:
    """Discount and price grow with the term, and the discount stays below Dmax."""
    assert discount(seconds, max_bp) <= discount(seconds + more, max_bp) <= Fraction(max_bp, 10_000)
    assert term_price(rate, seconds, max_bp) <= term_price(rate, seconds + more, max_bp)
    assert reserved_rate(rate, seconds, max_bp) >= reserved_rate(rate, seconds + more, max_bp)


@given(rate=rates, seconds=terms, max_bp=discounts)
def test_the_reserved_rate_is_the_exact_rate_less_under_a_nano(
    rate: int, seconds: int, max_bp: int
) -> None:
    """One rounding, down: no more than the exact rate and more than it less one."""
    exact = rate * (1 - Fraction(max_bp, 10_000) * seconds / (seconds + MONTH))
    assert 0 <= exact - reserved_rate(rate, seconds, max_bp) < 1


@given(rate=rates, seconds=terms, max_bp=discounts)
def test_the_price_of_a_term_buys_at_least_that_term(rate: int, seconds: int, max_bp: int) -> None:
    """Buying by amount inverts the price; the deposit is lower by at most a nano per hour begun."""
    price = term_price(rate, seconds, max_bp)
    assert term_for_amount(rate, price, max_bp) >= seconds
    assert price == 0 or term_for_amount(rate, price - 1, max_bp) < seconds
    assert 0 <= price - deposit_for_term(rate, seconds, max_bp) <= -(-seconds // 3_600)


@given(rate=rates, amount=amounts, max_bp=discounts, part=st.fractions(0, 1))
def test_a_term_never_uses_more_than_was_locked(
    rate: int, amount: int, max_bp: int, part: Fraction
) -> None:
    """At every second of the term the deposit covers what was consumed, and no rest is negative."""
    term = buy_for_amount(rate, amount, max_bp)
    assert unspent(amount, term.reserved_rate, term.seconds) >= 0
    assert consumed(term.reserved_rate, int(term.seconds * part)) <= amount


@given(rate=rates, seconds=terms, max_bp=discounts, part=st.fractions(0, 1))
def test_refund_and_charge_make_up_what_remains(
    rate: int, seconds: int, max_bp: int, part: Fraction
) -> None:
    """Cancelling splits the remainder exactly, and neither side gets less than nothing."""
    discounted = reserved_rate(rate, seconds, max_bp)
    spent = int(seconds * part)
    remaining = deposit_for_term(rate, seconds, max_bp) - consumed(discounted, spent)
    received = discount_received(rate, discounted, spent)
    given_back = refund(remaining, received)
    kept = early_cancellation_charge(remaining, received)
    assert given_back + kept == remaining
    assert given_back >= 0
    assert kept >= 0
    assert given_back == max(0, (remaining - Fraction(105, 100) * received).__floor__())


@given(rate=rates, seconds=terms, max_bp=discounts, earlier=st.fractions(0, 1))
def test_waiting_to_cancel_never_pays(
    rate: int, seconds: int, max_bp: int, earlier: Fraction
) -> None:
    """Cancelling at the end gives back no more than earlier, but for the two nanos of floors."""
    discounted = reserved_rate(rate, seconds, max_bp)
    deposit = deposit_for_term(rate, seconds, max_bp)

    def returned(spent: int) -> int:
        received = discount_received(rate, discounted, spent)
        return refund(deposit - consumed(discounted, spent), received)

    assert returned(seconds) <= returned(int(seconds * earlier)) + 2


@given(rate=rates, remaining=amounts, added=amounts, max_bp=discounts)
def test_adding_credit_is_buying_for_all_that_is_there(
    rate: int, remaining: int, added: int, max_bp: int
) -> None:
    """However the total is divided into old and new, it gives one term, never a shorter one."""
    term = top_up(rate, remaining, added, max_bp)
    assert term == top_up(rate, added, remaining, max_bp)
    assert term == buy_for_amount(rate, remaining + added, max_bp)
    assert term.seconds >= term_for_amount(rate, remaining, max_bp)
