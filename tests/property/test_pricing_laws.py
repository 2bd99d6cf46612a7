from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.money import (
    MAX_POSTING_NANOS,
    ceil_cents,
    format_dollars,
    parse_amount,
    parse_dollars,
    split,
)
from ledger.meters.bandwidth import capped, within_ceiling
from ledger.meters.pricing import (
    METERS,
    bandwidth_charge,
    charge_of,
    gpu_charge,
    increments,
    platform_fee,
    storage_charge,
)

rates = st.integers(0, 10**13) | st.sampled_from([400_000_000, 333_333_333, 150_000_000])
fees = st.integers(0, 10_000)
nanos = st.integers(0, MAX_POSTING_NANOS)
disks = st.integers(1, 10**16)
quantities = st.lists(st.integers(0, 10**12), max_size=30)
meters = st.sampled_from(METERS)


@st.composite
def charges(draw: st.DrawFn) -> Callable[[int], int]:
    """The charge of some meter at some rate, as a function of the quantity."""
    meter, rate, disk = draw(meters), draw(rates), draw(disks)
    return partial(charge_of, meter, rate, allocated_bytes=disk)


@given(charge=charges(), arrived=quantities, data=st.data())
def test_neither_the_size_nor_the_order_of_deliveries_changes_a_total(
    charge: Callable[[int], int], arrived: list[int], data: st.DataObject
) -> None:
    """LEDG-03, ING-04: any division and any order of one usage posts the same total."""
    shuffled = data.draw(st.permutations(arrived))
    halves = [part for count in shuffled for part in (count // 3, count - count // 3)]
    total = charge(sum(arrived))
    assert sum(increments(charge, arrived)) == total
    assert sum(increments(charge, shuffled)) == total
    assert sum(increments(charge, halves)) == total


@given(charge=charges(), arrived=quantities)
def test_no_posting_is_ever_negative(charge: Callable[[int], int], arrived: list[int]) -> None:
    """LIFE-12: more usage never gives money back."""
    assert all(posted >= 0 for posted in increments(charge, arrived))


@given(charge=charges(), fee_bp=fees, arrived=quantities)
def test_fee_and_host_share_make_up_the_charge(
    charge: Callable[[int], int], fee_bp: int, arrived: list[int]
) -> None:
    """LEDG-03: at each posting fee and host share add up to the charge, and neither is negative."""
    total = paid_fee = paid_host = 0
    for quantity in arrived:
        before, total = total, total + quantity
        posted = charge(total) - charge(before)
        fee = platform_fee(fee_bp, charge(total)) - platform_fee(fee_bp, charge(before))
        assert 0 <= fee <= posted
        paid_fee += fee
        paid_host += posted - fee
    assert paid_fee == platform_fee(fee_bp, charge(total))
    assert paid_fee + paid_host == charge(total)


@given(rate=rates, disk=disks, quantity=st.integers(0, 10**12), fee_bp=fees)
def test_a_charge_is_the_exact_product_less_under_a_nano(
    rate: int, disk: int, quantity: int, fee_bp: int
) -> None:
    """A segment costs the exact rational, rounded down once, in the renter's favour."""
    stored = Fraction(rate, 10**9) * disk * quantity / 2_592_000
    assert 0 <= Fraction(rate * quantity, 3_600) - gpu_charge(rate, quantity) < 1
    assert 0 <= stored - storage_charge(rate, disk, quantity) < 1
    assert 0 <= Fraction(rate * quantity, 10**9) - bandwidth_charge(rate, quantity) < 1
    assert 0 <= Fraction(fee_bp, 10_000) * rate - platform_fee(fee_bp, rate) < 1


@given(rate=rates, seconds=st.lists(st.integers(0, 10**7), min_size=1, max_size=8))
def test_segments_lose_under_a_nano_each(rate: int, seconds: list[int]) -> None:
    """PRICE-08: cutting usage into n segments costs the renter nothing and saves under n nanos."""
    whole = gpu_charge(rate, sum(seconds))
    parts = sum(gpu_charge(rate, part) for part in seconds)
    assert whole - len(seconds) < parts <= whole


@given(st.integers(-(10**20), 10**20), st.lists(st.integers(0, 10**12), min_size=1, max_size=12))
def test_a_split_adds_up_and_is_fair(total: int, weights: list[int]) -> None:
    """PRICE-15: for any weights the parts sum to the total and each is within 1 of its share."""
    parts = split(total, weights)
    assert sum(parts) == total
    even = not any(weights)
    for part, weight in zip(parts, weights, strict=True):
        share = Fraction(total, len(weights)) if even else Fraction(total * weight, sum(weights))
        assert abs(part - share) < 1


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=8),
    st.integers(1, 10**6),
)
def test_a_split_depends_on_the_proportions_only(
    total: int, weights: list[int], scale: int
) -> None:
    """PRICE-15: weights in other units, and a total with the other sign, divide alike."""
    parts = split(total, weights)
    assert split(total, [weight * scale for weight in weights]) == parts
    assert split(-total, weights) == [-part for part in parts]


@given(nanos)
def test_writing_and_reading_an_amount_are_inverse(amount: int) -> None:
    """PRICE-14: what is shown to people is read back as the same nanos, as price and as amount."""
    text = format_dollars(amount)
    assert parse_dollars(text) == amount
    assert parse_dollars(text, exact=True) == amount
    assert parse_dollars(Decimal(text)) == amount
    if amount:
        assert parse_amount(text) == amount


@given(st.integers(-(10**30), 10**30))
def test_an_amount_is_written_exactly_and_without_waste(amount: int) -> None:
    """LEDG-08: the decimal is worth the nanos, has no exponent and no zeros at its end."""
    text = format_dollars(amount)
    assert Fraction(text) == Fraction(amount, 10**9)
    assert "e" not in text.lower()
    assert "." not in text or text[-1] not in "0."


@given(st.decimals(0, 10**9, allow_nan=False, allow_infinity=False, places=20))
def test_a_price_is_rounded_by_at_most_half_a_nano(price: Decimal) -> None:
    """PRICE-14: one rounding, half to even, whatever the number of decimals."""
    exact = Fraction(price) * 10**9
    got = parse_dollars(format(price, "f"))
    assert got == round(exact)


@given(st.integers(0, 10**18))
def test_cents_cover_the_nanos_and_not_a_cent_more(amount: int) -> None:
    """The whole cents are worth at least the amount, and one cent fewer would not be."""
    cents = ceil_cents(amount)
    assert 0 <= cents * 10**7 - amount < 10**7


@given(
    st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 10**9), max_size=12),
    st.integers(0, 10**11),
)
def test_a_ceiling_is_kept_and_nobody_gains(attested: list[int], link: int) -> None:
    """PRICE-06: the counted bytes fit the link, nobody counts more than was attested."""
    counted = capped(attested, link)
    assert sum(counted) <= link
    assert all(0 <= one <= all_ for one, all_ in zip(counted, attested, strict=True))
    if within_ceiling(attested, link):
        assert counted == attested
    assert sum(counted) >= min(sum(attested), link) - len(attested)
