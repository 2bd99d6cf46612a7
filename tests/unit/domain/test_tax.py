"""Tax: rounded once per document, and given back so that exactly nothing is left."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.money import NANOS_PER_CENT
from ledger.domain.tax import Split, TaxProfile, credited, taxed
from ledger.errors import RejectedError

CENT = NANOS_PER_CENT
CENTS = st.integers(1, 10**8)
RATES = st.integers(0, 10_000)


def test_three_lines_of_1_03_at_20_percent_bear_62_cents() -> None:
    """PRICE-11: 3.09 at 20 % is 0.62; per line it would be 0.63."""
    assert taxed(309 * CENT, TaxProfile("FR", 2_000)).tax == 62 * CENT
    assert 3 * taxed(103 * CENT, TaxProfile("FR", 2_000)).tax == 63 * CENT


@given(CENTS, RATES)
def test_tax_is_the_nearest_cent_and_halves_go_up(cents: int, rate_bp: int) -> None:
    """The rounded tax is within half a cent of the exact one, whatever amount and rate."""
    tax = taxed(cents * CENT, TaxProfile(None, rate_bp)).tax
    exact = Fraction(cents * rate_bp, 10_000)
    assert tax % CENT == 0
    assert Fraction(-1, 2) < tax // CENT - exact <= Fraction(1, 2)


@pytest.mark.parametrize("treatment", ["reverse_charge", "exempt"])
def test_who_owes_no_tax_pays_none(treatment: str) -> None:
    """A rate on file is not charged where the customer owes the tax, or nobody does."""
    profile = TaxProfile("FR", 2_000, treatment)  # type: ignore[arg-type]  # one of the literals
    assert taxed(100 * CENT, profile) == Split(100 * CENT, 0)


@given(CENTS, RATES, st.lists(st.integers(1, 10**7), max_size=30))
def test_what_goes_back_in_any_parts_ends_exactly_at_net_and_tax(
    cents: int, rate_bp: int, parts: list[int]
) -> None:
    """Neither part ever exceeds its original, no part is below zero, and the last leaves zero."""
    original = taxed(cents * CENT, TaxProfile(None, rate_bp))
    before = Split(0, 0)
    for part in [*parts, None]:
        left = (original.gross - before.gross) // CENT
        amount = left if part is None else min(part, left)
        if amount:
            back = credited(original, before, amount * CENT)
            assert back.gross == amount * CENT
            assert back.net >= 0
            assert back.tax >= 0
            before = Split(before.net + back.net, before.tax + back.tax)
        assert before.net <= original.net
        assert before.tax <= original.tax
    assert before == original


def test_more_than_is_left_is_refused_and_parts_of_a_cent_too() -> None:
    """A document gives back its own gross at most, in whole cents where there is tax."""
    original = taxed(100 * CENT, TaxProfile(None, 1_900))
    with pytest.raises(RejectedError, match="left to credit") as refused:
        credited(original, Split(0, 0), 119 * CENT + 1)
    assert refused.value.code == "over_credit"
    with pytest.raises(RejectedError) as refused:
        credited(original, Split(0, 0), CENT + 1)
    assert refused.value.code == "invalid_amount"
