"""Reserved terms: what prepaying saves, how long an amount lasts, what a cancellation gives back.

A term of T seconds earns the discount D = Dmax · m / (m + 1) with m = T / 2 592 000, always kept as
an exact fraction (`marketplace.md` §9). Money is floored once per result; no float is used.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from ledger.domain.money import BASIS_POINTS, SECONDS_PER_HOUR, SECONDS_PER_RATE_MONTH

MAX_DISCOUNT_BP: Final = BASIS_POINTS - 1
"""The largest Dmax with which every amount buys a finite term."""

_PENALTY_PERCENT: Final = 105
"""Of the discount received, kept from what remains when the renter cancels."""


class Term(NamedTuple):
    """A stretch of prepaid time, the rate that it costs and the discount that made the rate."""

    seconds: int
    reserved_rate: int
    discount: Fraction


def discount(term_seconds: int, max_bp: int) -> Fraction:
    """The part of the base rate that a term of this length saves; below Dmax, however long."""
    assert term_seconds >= 0, term_seconds
    assert 0 <= max_bp <= BASIS_POINTS, max_bp
    return Fraction(max_bp * term_seconds, BASIS_POINTS * (term_seconds + SECONDS_PER_RATE_MONTH))


def reserved_rate(rate: int, term_seconds: int, max_bp: int) -> int:
    """Nanos per hour under a term of this length, rounded down."""
    return int(rate * (1 - discount(term_seconds, max_bp)) // 1)


def term_price(rate: int, term_seconds: int, max_bp: int) -> int:
    """Nanos that a term costs when it is bought by amount: the discount exact, floored once.

    Above `deposit_for_term`, which floors the rate first, by at most a nano per hour begun.
    """
    exact = rate * term_seconds * (1 - discount(term_seconds, max_bp))
    return int(exact // SECONDS_PER_HOUR)


def deposit_for_term(rate: int, term_seconds: int, max_bp: int) -> int:
    """Nanos to lock when a term is bought by its length: all of it at the reserved rate."""
    return consumed(reserved_rate(rate, term_seconds, max_bp), term_seconds)


def term_for_amount(rate: int, amount: int, max_bp: int) -> int:
    """The largest whole number of seconds whose `term_price` is at most *amount*; 0 if not one.

    A longer term never costs less, whatever Dmax, so halving finds it: about as many steps as the
    longest conceivable term has binary digits.

    Args:
        rate: Base rate of the slice, at least 1 nano per hour.
        amount: Nanos to spend, without an upper bound.
        max_bp: The host's Dmax; at 10 000 some amounts would buy eternity.
    """
    assert rate >= 1, rate
    assert amount >= 0, amount
    assert 0 <= max_bp <= MAX_DISCOUNT_BP, max_bp
    affordable = 0
    # At the full Dmax a second costs the least it ever can, so this many are too dear.
    too_long = 1 + (amount + 1) * SECONDS_PER_HOUR * BASIS_POINTS // (
        rate * (BASIS_POINTS - max_bp)
    )
    while too_long - affordable > 1:
        middle = (affordable + too_long) // 2
        if term_price(rate, middle, max_bp) <= amount:
            affordable = middle
        else:
            too_long = middle
    return affordable


def buy_term(rate: int, term_seconds: int, max_bp: int) -> Term:
    """The term of this length."""
    return Term(
        term_seconds, reserved_rate(rate, term_seconds, max_bp), discount(term_seconds, max_bp)
    )


def buy_for_amount(rate: int, amount: int, max_bp: int) -> Term:
    """The longest term that *amount* pays; see `unspent` for what it leaves."""
    return buy_term(rate, term_for_amount(rate, amount, max_bp), max_bp)


def top_up(rate: int, remaining: int, added: int, max_bp: int) -> Term:
    """The term from now on after adding credit: all that is left buys anew at the base *rate*.

    Its discount depends on the new remaining term alone, so it may be lower than before; whoever
    answers the renter compares and says so.
    """
    return buy_for_amount(rate, remaining + added, max_bp)


def consumed(rate: int, seconds: int) -> int:
    """Nanos that *seconds* of a term use up at its reserved *rate*, floored over the segment."""
    return rate * seconds // SECONDS_PER_HOUR


def unspent(locked: int, rate: int, term_seconds: int) -> int:
    """Nanos of the locked amount that the whole term at its reserved *rate* does not need."""
    return locked - consumed(rate, term_seconds)


def discount_received(rate: int, discounted_rate: int, seconds: int) -> int:
    """Nanos saved over the *seconds* consumed in one segment: two floors, then the difference."""
    return consumed(rate, seconds) - consumed(discounted_rate, seconds)


def refund(remaining: int, received: int) -> int:
    """Nanos given back when the renter cancels: what remains less 1.05 times the discount received.

    Without penalty (the host's fault) the refund is *remaining* itself, not this.
    """
    assert remaining >= 0, remaining
    assert received >= 0, received
    return max(0, (100 * remaining - _PENALTY_PERCENT * received) // 100)


def early_cancellation_charge(remaining: int, received: int) -> int:
    """Nanos of the deposit that a cancelling renter leaves behind: all that is not refunded."""
    return remaining - refund(remaining, received)
