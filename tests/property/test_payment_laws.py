"""Laws of what goes back of a payment: exact parts, in any order, with any failures in between."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.money import NANOS_PER_CENT
from ledger.domain.payment import (
    NOTHING,
    SECONDS_PER_WEEK,
    Parts,
    friday_of,
    returned,
    whole_cents,
)
from ledger.domain.tax import Split, TaxProfile, credited, of_gross, spread, taxed

CENT = NANOS_PER_CENT
cents = st.integers(1, 10**9)
rates = st.integers(0, 10_000)


@given(cents, rates)
def test_tax_is_the_nearest_cent_and_halves_go_up(net: int, rate: int) -> None:
    """Against exact fractions: never more than half a cent off, and a half is a cent more."""
    exact = Fraction(net * rate, 10_000)
    assert (
        taxed(net * CENT, TaxProfile(rate_bp=rate)).tax
        == (exact + Fraction(1, 2)).__floor__() * CENT
    )


@given(cents, rates)
def test_what_was_paid_is_divided_as_it_was_ordered(net: int, rate: int) -> None:
    """While the profile stays, the gross of an order settles as exactly its net and its tax."""
    profile = TaxProfile(rate_bp=rate)
    ordered = taxed(net * CENT, profile)
    assert of_gross(ordered.gross, profile) == ordered


@given(cents, rates, st.lists(cents, min_size=1, max_size=8))
def test_parts_add_up_and_neither_exceeds_what_was_paid(
    net: int, rate: int, wanted: list[int]
) -> None:
    """Whatever goes back: gross is the sum of its parts, own parts stay within the payment."""
    credit, tax = taxed(net * CENT, TaxProfile(rate_bp=rate))
    before = NOTHING
    for gross in wanted:
        parts = returned(credit, tax, before, gross * CENT)
        assert parts.gross == gross * CENT
        assert min(parts) >= 0
        assert all(part % CENT == 0 for part in parts)
        before = before.plus(parts)
        assert before.credit <= credit
        assert before.tax <= tax
    own = min(sum(wanted) * CENT, credit + tax)
    assert before.credit + before.tax == own


@given(cents, rates, st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_the_tax_of_a_running_total_is_that_of_one_refund(
    net: int, rate: int, weights: list[int]
) -> None:
    """However a refund is cut up, the tax that went back is that of the whole, to the cent."""
    credit, tax = taxed(net * CENT, TaxProfile(rate_bp=rate))
    before = NOTHING
    for weight in weights:
        left = credit + tax - before.gross
        part = left * weight // 101 // CENT * CENT
        if part:
            before = before.plus(returned(credit, tax, before, part))
        exact = Fraction(tax * before.gross, (credit + tax) * CENT)
        assert before.tax == (exact + Fraction(1, 2)).__floor__() * CENT
    rest = credit + tax - before.gross
    before = before.plus(returned(credit, tax, before, rest))
    assert before == Parts(credit, tax, 0)


@given(
    cents,
    rates,
    st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=10),
)
def test_failures_in_between_change_no_end(
    net: int, rate: int, tries: list[tuple[int, bool]]
) -> None:
    """Refunds that came back leave no cent behind: the last one ends exactly at the payment."""
    credit, tax = taxed(net * CENT, TaxProfile(rate_bp=rate))
    kept: list[Parts] = []
    before = NOTHING
    for weight, fails in tries:
        left = credit + tax - before.gross
        part = left * weight // 200 // CENT * CENT
        if not part:
            continue
        parts = returned(credit, tax, before, part)
        before = before.plus(parts)
        kept.append(parts)
        if fails:
            before = before.minus(kept.pop(0))
        assert 0 <= before.credit <= credit
        assert 0 <= before.tax <= tax
    before = before.plus(returned(credit, tax, before, credit + tax - before.gross))
    assert before == Parts(credit, tax, 0)


@given(
    cents,
    rates,
    st.lists(
        st.tuples(st.sampled_from(["refund", "comes back", "note"]), st.integers(1, 200)),
        min_size=1,
        max_size=12,
    ),
)
def test_the_documents_of_a_payment_have_left_what_it_has(
    net: int, rate: int, acts: list[tuple[str, int]]
) -> None:
    """INV-06, PRICE-11: refunds, failures and notes of single invoices keep both equal, per part.

    Whatever happened, a note over the rest of each invoice ends the payment at exactly nothing.
    """
    whole = taxed(net * CENT, TaxProfile(rate_bp=rate))
    before, kept = NOTHING, list[Parts]()
    documents = [(whole, Split(0, 0))]

    def left(at: int) -> Split:
        original, gone = documents[at]
        return original.minus(gone)

    def credit(at: int, part: Split) -> None:
        original, gone = documents[at]
        documents[at] = original, Split(gone.net + part.net, gone.tax + part.tax)

    def go_back(parts: Parts) -> None:
        nonlocal before
        before = before.plus(parts)
        kept.append(parts)

    def note(at: int, gross: int) -> None:
        part = credited(*documents[at], gross)
        credit(at, part)
        go_back(Parts(*part, 0))

    for what, weight in acts:
        if what == "refund" and (gross := (whole.gross - before.gross) * weight // 200 // CENT):
            parts = returned(*whole, before, gross * CENT)
            given_ = spread([left(at) for at in range(len(documents))], Split(*parts[:2]))
            for at, part in enumerate(given_):
                credit(at, part)
            go_back(parts)
        elif what == "comes back" and kept:
            parts = kept.pop(weight % len(kept))
            before = before.minus(parts)
            documents.append((Split(*parts[:2]), Split(0, 0)))
        elif what == "note":
            at = weight % len(documents)
            gross = left(at).gross * weight // 200 // CENT
            if gross:
                note(at, gross * CENT)
        have = [left(at) for at in range(len(documents))]
        assert all(min(one) >= 0 for one in have)
        assert sum(one.net for one in have) == whole.net - before.credit
        assert sum(one.tax for one in have) == whole.tax - before.tax
    for at in range(len(documents)):
        if left(at).gross:
            note(at, left(at).gross)
    assert before == Parts(*whole, 0)


@given(st.integers(-(10**18), 10**18))
def test_only_whole_cents_leave_and_less_than_one_stays(nanos: int) -> None:
    """What is paid out is cents, at most what is there, and never below zero."""
    paid = whole_cents(nanos)
    assert paid % CENT == 0
    assert paid >= 0
    assert nanos < 0 or 0 <= nanos - paid < CENT


@given(st.integers(0, 2**40))
def test_a_friday_is_the_last_one_and_seven_days_from_the_next(second: int) -> None:
    """Fridays begin at 00:00 UTC, every 604,800 s, the first on 1970-01-02."""
    friday = friday_of(second)
    assert friday <= second < friday + SECONDS_PER_WEEK
    assert (friday - 86_400) % SECONDS_PER_WEEK == 0
