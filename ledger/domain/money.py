"""Nano-dollars, rates and the decimals that people type.

The one place that reads a decimal from outside, writes one for people, or splits a total.
Everything between is an `int` of nanos (10^-9 US dollars). No float enters or leaves here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import NewType

from ledger.errors import RejectedError

Nanos = NewType("Nanos", int)
"""Money: integer billionths of a US dollar."""

NANOS_PER_DOLLAR = 1_000_000_000
NANOS_PER_CENT = 10_000_000
MAX_POSTING_NANOS = 10**18
"""The largest single posting; sums are unbounded (`marketplace.md` §1)."""

SECONDS_PER_HOUR = 3_600
SECONDS_PER_DAY = 86_400
SECONDS_PER_RATE_MONTH = 2_592_000
"""A month in a rate is always 720 h."""

BYTES_PER_GB = 1_000_000_000
BASIS_POINTS = 10_000

_LONGEST_DECIMAL = 64
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
"""A number as JSON writes it: no spaces, no underscores, no digits of other scripts."""


def parse_dollars(
    text: str | int | Decimal, *, code: str = "invalid_price", exact: bool = False
) -> Nanos:
    """Read a non-negative decimal number of dollars as whole nanos.

    Args:
        text: A plain decimal such as ``"0.4"`` (also what the text of a JSON number says). Never a
            float.
        code: The error code of a refusal.
        exact: Refuse more than nine decimals instead of rounding half to even.

    Raises:
        RejectedError: *code*, when the text is not a finite number ≥ 0 within the bound of one
            posting.
    """
    shown = str(text)
    message = (
        f"{shown[:_LONGEST_DECIMAL]!r} is not an amount of dollars: "
        "write a plain decimal such as 0.40"
    )
    if isinstance(text, bool | float) or len(shown) > _LONGEST_DECIMAL:
        raise RejectedError(code, message)
    if not _DECIMAL.fullmatch(shown):
        raise RejectedError(code, message)
    value = Decimal(shown)
    if not value.is_finite() or value < 0 or value > MAX_POSTING_NANOS // NANOS_PER_DOLLAR:
        message = f"{shown!r} is not an amount between 0 and 10^9 dollars"
        raise RejectedError(code, message)
    with localcontext() as context:
        context.prec = 2 * _LONGEST_DECIMAL
        scaled = value * NANOS_PER_DOLLAR
        nanos = scaled.to_integral_value(rounding=ROUND_HALF_EVEN)
        if exact and nanos != scaled:
            message = (
                f"{shown!r} has more than 9 decimals, and an amount is a whole number of nanos"
            )
            raise RejectedError(code, message)
    return Nanos(int(nanos))


def parse_amount(text: str | int | Decimal, *, minimum: int = 1) -> Nanos:
    """Read an amount of money that moves: exact to nine decimals and at least *minimum* nanos.

    Raises:
        RejectedError: ``invalid_amount`` or ``amount_too_small``.
    """
    nanos = parse_dollars(text, code="invalid_amount", exact=True)
    if nanos < minimum:
        message = f"the amount must be at least {format_dollars(minimum)}"
        raise RejectedError("amount_too_small", message, minimum=format_dollars(minimum))
    return nanos


def format_dollars(nanos: int) -> str:
    """Write nanos as the shortest exact decimal: ``"0.4"``, ``"-16.66655"``, ``"0"``."""
    sign = "-" if nanos < 0 else ""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{fraction:09d}".rstrip("0")


def parse_fee(text: str) -> int:
    """Read a fraction such as ``"0.15"`` as whole basis points.

    Raises:
        RejectedError: ``invalid_args`` unless it is between 0 and 1 in steps of 0.0001.
    """
    nanos = parse_dollars(text, code="invalid_args", exact=True)
    points, rest = divmod(nanos * BASIS_POINTS, NANOS_PER_DOLLAR)
    if rest or points > BASIS_POINTS:
        message = f"a fee of {text!r} is not between 0 and 1 in whole basis points"
        raise RejectedError("invalid_args", message)
    return points


def split(total: int, weights: Sequence[int]) -> list[int]:
    """Divide *total* by *weights* with the largest remainder, so that the parts add up to *total*.

    Ties go to the earlier part. Negative totals mirror positive ones. All weights 0 count as equal.
    """
    assert weights, "nothing to split over"
    assert all(weight >= 0 for weight in weights), weights
    if total < 0:
        return [-part for part in split(-total, weights)]
    scale = sum(weights)
    if scale == 0:
        weights, scale = [1] * len(weights), len(weights)
    parts = [total * weight // scale for weight in weights]
    remainders = [total * weight % scale for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
    for i in order[: total - sum(parts)]:
        parts[i] += 1
    return parts


def ceil_cents(nanos: int) -> int:
    """The smallest number of whole cents that is worth at least *nanos*."""
    return -(-nanos // NANOS_PER_CENT)
