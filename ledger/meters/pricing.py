"""What a quantity costs: the one place that rounds.

Every charge is the floor of an exact product over the *whole* rate segment. What is posted when
more usage arrives is the difference between two such floors, so neither the size of ticks and
reports nor their order changes a total (`marketplace.md` §5.1). The sentences that explain a charge
are made here too, so they cannot drift from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

from ledger.domain.money import (
    BASIS_POINTS,
    BYTES_PER_GB,
    SECONDS_PER_HOUR,
    SECONDS_PER_RATE_MONTH,
    format_dollars,
)

Meter = Literal["gpu", "storage", "up", "down", "reserved_idle"]
METERS: Final[tuple[Meter, ...]] = get_args(Meter)
SECONDS_METERS: Final = frozenset({"gpu", "storage", "reserved_idle"})
"""Meters that count seconds; the others count bytes."""
STORAGE_DIVISOR: Final = BYTES_PER_GB * SECONDS_PER_RATE_MONTH


def gpu_charge(rate: int, seconds: int) -> int:
    """Nanos for *seconds* of a slice at *rate* nanos per hour."""
    return rate * seconds // SECONDS_PER_HOUR


def storage_charge(rate: int, allocated_bytes: int, seconds: int) -> int:
    """Nanos for a disk of *allocated_bytes* over *seconds* at *rate* nanos per GB-month of 720 h.

    The size is what the renter asked for, not what is used; the image does not count.
    """
    return rate * allocated_bytes * seconds // STORAGE_DIVISOR


def bandwidth_charge(rate: int, count: int) -> int:
    """Nanos for *count* bytes at *rate* nanos per GB (10^9 bytes)."""
    return rate * count // BYTES_PER_GB


def platform_fee(fee_bp: int, charge: int) -> int:
    """The platform's part of a segment's cumulative *charge*; the host gets the rest."""
    return fee_bp * charge // BASIS_POINTS


def charge_of(meter: Meter, rate: int, quantity: int, allocated_bytes: int) -> int:
    """Nanos for the cumulative *quantity* (seconds or bytes) of one segment of *meter*."""
    if meter in {"gpu", "reserved_idle"}:
        return gpu_charge(rate, quantity)
    if meter == "storage":
        return storage_charge(rate, allocated_bytes, quantity)
    return bandwidth_charge(rate, quantity)


class Formula(NamedTuple):
    """A charge, spelled out: the formula, the same with its numbers, and what it gives."""

    formula: str
    numbers: str
    nanos: int
    dollars: str


_WRITTEN: Final[dict[Meter, tuple[str, Callable[[int, int, int], str]]]] = {
    "gpu": (
        "rate [nanos/h] · seconds // 3600",
        lambda rate, quantity, _disk: f"{rate} · {quantity} // {SECONDS_PER_HOUR}",
    ),
    "storage": (
        "rate [nanos/GB-month] · allocated bytes · seconds // (10^9 · 2592000)",
        lambda rate, quantity, disk: f"{rate} · {disk} · {quantity} // {STORAGE_DIVISOR}",
    ),
    "up": (
        "rate [nanos/GB] · bytes leaving the instance // 10^9",
        lambda rate, quantity, _disk: f"{rate} · {quantity} // {BYTES_PER_GB}",
    ),
    "down": (
        "rate [nanos/GB] · bytes entering the instance // 10^9",
        lambda rate, quantity, _disk: f"{rate} · {quantity} // {BYTES_PER_GB}",
    ),
    "reserved_idle": (
        "rate [nanos/h] · seconds of the term without GPUs // 3600",
        lambda rate, quantity, _disk: f"{rate} · {quantity} // {SECONDS_PER_HOUR}",
    ),
}


def explain_charge(meter: Meter, rate: int, quantity: int, allocated_bytes: int) -> Formula:
    """How the charge of one segment comes about."""
    formula, numbers = _WRITTEN[meter]
    nanos = charge_of(meter, rate, quantity, allocated_bytes)
    return Formula(formula, numbers(rate, quantity, allocated_bytes), nanos, format_dollars(nanos))


def explain_fee(fee_bp: int, charge: int) -> Formula:
    """How the platform's fee of one segment comes about."""
    nanos = platform_fee(fee_bp, charge)
    return Formula(
        "fee [basis points] · charge // 10000",
        f"{fee_bp} · {charge} // {BASIS_POINTS}",
        nanos,
        format_dollars(nanos),
    )


def increments(charge: Callable[[int], int], quantities: list[int]) -> list[int]:
    """What is posted as *quantities* arrive one after the other; they add up to ``charge(sum)``."""
    posted, total, before = [], 0, 0
    for quantity in quantities:
        total += quantity
        after = charge(total)
        posted.append(after - before)
        before = after
    return posted
