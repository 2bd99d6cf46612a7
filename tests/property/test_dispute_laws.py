from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.reversal import Charged, reverse
from ledger.meters.pricing import gpu_charge, platform_fee

CHARGES = st.builds(
    lambda amount, fee_bp: Charged(amount, platform_fee(fee_bp, amount)),
    st.integers(1, 10**18),
    st.integers(0, 10_000),
)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Charged, list[int]]:
    """A charge and a way to cut all of it into parts of at least a nano, in any order."""
    charge = draw(CHARGES)
    cuts = draw(st.lists(st.integers(1, charge.amount), max_size=12, unique=True))
    ends = sorted({*cuts, charge.amount})
    parts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return charge, draw(st.permutations(parts))


def take(charge: Charged, amount: int) -> Charged:
    """The charge after *amount* of it went back."""
    back = reverse(charge, amount)
    assert back.fee + back.host == amount
    assert back.fee >= 0
    assert back.host >= 0
    return charge._replace(
        reversed=charge.reversed + amount, fee_reversed=charge.fee_reversed + back.fee
    )


@given(partitions())
def test_any_order_and_split_returns_exactly_the_charge(case: tuple[Charged, list[int]]) -> None:
    """LEDG-01: in whatever parts a charge goes back, platform and host return what they took."""
    charge, parts = case
    for part in parts:
        charge = take(charge, part)
    assert charge.remaining == 0
    assert charge.fee_reversed == charge.fee
    assert charge.reversed - charge.fee_reversed == charge.amount - charge.fee


@given(partitions())
def test_the_fee_is_cumulative_after_every_part(case: tuple[Charged, list[int]]) -> None:
    """After each part the fee returned is f · X // c of the running total, no sum of floors."""
    charge, parts = case
    for part in parts:
        charge = take(charge, part)
        assert charge.fee_reversed == int(
            Fraction(charge.fee * charge.reversed, charge.amount).__floor__()
        )


@given(
    st.integers(1, 10**10),
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 1_000)), min_size=1, max_size=12),
)
def test_a_charge_that_grows_between_reversals_stays_within_what_was_taken(
    rate: int, fee_bp: int, rounds: list[tuple[int, int]]
) -> None:
    """A segment that runs on: neither party ever returns more than it took by then."""
    seconds = back = fee_back = 0
    for ran, permille in rounds:
        seconds += ran
        amount = gpu_charge(rate, seconds)
        if amount == 0:
            continue
        charge = Charged(amount, platform_fee(fee_bp, amount), back, fee_back)
        wanted = max(1, charge.remaining * permille // 1_000)
        if wanted > charge.remaining:
            continue
        after = take(charge, wanted)
        back, fee_back = after.reversed, after.fee_reversed
        assert 0 <= fee_back <= charge.fee
        assert 0 <= back - fee_back <= charge.amount - charge.fee


@given(st.integers(1, 10**10), st.integers(1, 86_400), st.lists(st.integers(1, 86_400), max_size=8))
def test_claims_by_seconds_add_up_to_the_whole(rate: int, total: int, cuts: list[int]) -> None:
    """A charge disputed in pieces, each priced on top of the last, costs what it was charged."""
    ends = sorted({min(cut, total) for cut in cuts} | {total})
    gone = claimed = 0
    for end in ends:
        claimed += gpu_charge(rate, end) - gpu_charge(rate, gone)
        gone = end
    assert claimed == gpu_charge(rate, total)
