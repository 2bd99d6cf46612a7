from __future__ import annotations

from decimal import Decimal, localcontext

import pytest

from ledger.domain.money import (
    MAX_POSTING_NANOS,
    NANOS_PER_DOLLAR,
    ceil_cents,
    format_dollars,
    parse_amount,
    parse_dollars,
    parse_fee,
    split,
)
from ledger.errors import RejectedError


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("0.4", 400_000_000),
        ("0.40", 400_000_000),
        ("1", 1_000_000_000),
        ("0.000000001", 1),
        ("0.01", 10_000_000),
        ("16.66655", 16_666_550_000),
        ("4e-1", 400_000_000),
        ("1000000000", MAX_POSTING_NANOS),
        (3, 3_000_000_000),
        (Decimal("0.15"), 150_000_000),
    ],
)
def test_a_decimal_becomes_exactly_the_nanos_that_it_says(
    text: str | int | Decimal, nanos: int
) -> None:
    """PRICE-14: a decimal is read through its text, to the last nano."""
    assert parse_dollars(text) == nanos


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0.0000000004", 0),
        ("0.0000000005", 0),
        ("0.0000000006", 1),
        ("0.0000000015", 2),
        ("0.0000000025", 2),
        ("0.00000000250000000000000000000000000000001", 3),
        ("0.3333333333333333", 333_333_333),
    ],
)
def test_finer_decimals_round_once_half_to_even(text: str, nanos: int) -> None:
    """A price finer than a nano is rounded half to even, judged on all of its digits."""
    assert parse_dollars(text) == nanos


def test_no_digit_is_lost_on_the_way() -> None:
    """PRICE-14: a price that no binary float can hold keeps every one of its digits."""
    assert parse_dollars("999999999.999999999") == 999_999_999_999_999_999


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0x1",
        "1.2.3",
        "1,5",
        "$1",
        "-0.01",
        "-1e-30",
        "NaN",
        "sNaN",
        "-NaN",
        "Infinity",
        "-inf",
        "1000000000.000000001",
        "1e10",
        "1e99999999999999999999",
        "9" * 65,
        True,
        False,
    ],
)
def test_what_is_not_an_amount_is_refused(text: str | int) -> None:
    """Negative, NaN, infinite, endless or unreadable text is `invalid_price` and nothing else."""
    with pytest.raises(RejectedError) as refused:
        parse_dollars(text)
    assert refused.value.code == "invalid_price"


def test_a_refusal_shows_little_of_what_it_was_sent() -> None:
    """A megabyte sent as a price does not come back in the message."""
    with pytest.raises(RejectedError) as refused:
        parse_dollars("7" * 1_000_000)
    assert len(refused.value.message) < 200


def test_the_callers_code_names_the_refusal() -> None:
    """A refusal carries the code that its caller chose."""
    with pytest.raises(RejectedError) as refused:
        parse_dollars("-1", code="invalid_args")
    assert refused.value.code == "invalid_args"


def test_reading_ignores_the_callers_decimal_context() -> None:
    """A coarse decimal context around the call changes no digit of the result."""
    with localcontext() as context:
        context.prec = 2
        assert parse_dollars("123456.123456789") == 123_456_123_456_789


@pytest.mark.parametrize("text", ["0.0000000001", "0.0000000015", "1.0000000001"])
def test_an_amount_that_moves_is_never_rounded(text: str) -> None:
    """Moving money finer than a nano is `invalid_amount`, not a rounded amount."""
    with pytest.raises(RejectedError) as refused:
        parse_amount(text)
    assert refused.value.code == "invalid_amount"


def test_an_amount_keeps_its_nine_decimals() -> None:
    """An amount with nine decimals is read exactly."""
    assert parse_amount("0.123456789") == 123_456_789


@pytest.mark.parametrize(("text", "minimum"), [("0", 1), ("-0", 1), ("0.009999999", 10_000_000)])
def test_an_amount_below_its_minimum_is_too_small(text: str, minimum: int) -> None:
    """An amount below the minimum is `amount_too_small`, which tells the minimum."""
    with pytest.raises(RejectedError) as refused:
        parse_amount(text, minimum=minimum)
    assert refused.value.code == "amount_too_small"
    assert refused.value.detail == {"minimum": format_dollars(minimum)}


def test_an_amount_of_exactly_the_minimum_is_accepted() -> None:
    """The minimum itself is enough."""
    assert parse_amount("0.01", minimum=10_000_000) == 10_000_000


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (-1, "-0.000000001"),
        (400_000_000, "0.4"),
        (-16_666_550_000, "-16.66655"),
        (NANOS_PER_DOLLAR, "1"),
        (100 * NANOS_PER_DOLLAR, "100"),
        (-20 * NANOS_PER_DOLLAR, "-20"),
        (10**27 + 5, "1000000000000000000.000000005"),
    ],
)
def test_nanos_are_written_as_the_shortest_exact_decimal(nanos: int, text: str) -> None:
    """No zeros at the end, no exponent, no rounding, whatever the size."""
    assert format_dollars(nanos) == text


@pytest.mark.parametrize(
    ("text", "points"), [("0", 0), ("0.15", 1_500), ("0.0001", 1), ("1", 10_000), ("1.0", 10_000)]
)
def test_a_fee_is_whole_basis_points(text: str, points: int) -> None:
    """A fraction of the charge becomes basis points."""
    assert parse_fee(text) == points


@pytest.mark.parametrize("text", ["1.0001", "0.00005", "0.00000000001", "15", "-0.1", "x"])
def test_a_fee_off_the_grid_is_refused(text: str) -> None:
    """A fee above 1, below 0 or between two basis points is `invalid_args`."""
    with pytest.raises(RejectedError) as refused:
        parse_fee(text)
    assert refused.value.code == "invalid_args"


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        pytest.param(1003, [49, 51], [491, 512], id="PRICE-15"),
        pytest.param(1003, [51, 49], [512, 491], id="PRICE-15-swapped"),
        pytest.param(-1003, [49, 51], [-491, -512], id="PRICE-15-negative"),
        pytest.param(100, [1, 1, 1], [34, 33, 33], id="tie-goes-to-the-first"),
        pytest.param(101, [1, 1, 1], [34, 34, 33], id="two-ties"),
        pytest.param(0, [3, 4], [0, 0], id="nothing"),
        pytest.param(7, [0, 5], [0, 7], id="a-weight-of-zero-gets-nothing"),
        pytest.param(5, [0, 0], [3, 2], id="no-weights-count-as-equal"),
        pytest.param(1, [1], [1], id="one-part"),
        pytest.param(2, [10**30, 1, 1], [2, 0, 0], id="huge-weights"),
        pytest.param(10**30 + 1, [1, 1], [(10**30) // 2 + 1, 10**30 // 2], id="huge-total"),
    ],
)
def test_a_split_gives_the_remainder_to_the_largest_fractions(
    total: int, weights: list[int], parts: list[int]
) -> None:
    """PRICE-15: the largest remainder decides, a tie goes to the earlier part."""
    assert split(total, weights) == parts


@pytest.mark.parametrize(
    ("nanos", "cents"),
    [(0, 0), (1, 1), (10_000_000, 1), (10_000_001, 2), (999_999_999, 100), (10**18, 10**11)],
)
def test_cents_are_rounded_up_so_that_they_cover_the_nanos(nanos: int, cents: int) -> None:
    """The cents are worth at least the nanos, and one cent less would not be."""
    assert ceil_cents(nanos) == cents
