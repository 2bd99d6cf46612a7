"""Amounts and days as journals write them."""

from __future__ import annotations

from ledger.domain.ids import rfc3339
from ledger.domain.money import NANOS_PER_DOLLAR


def amount(nanos: int) -> str:
    """Dollars with all nine decimals, so that no program guesses how exact they are."""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return f"{'-' if nanos < 0 else ''}{whole}.{fraction:09d} USD"


def day(second: int) -> str:
    """The UTC day that holds a second."""
    return rfc3339(second)[:10]


def one_line(text: str, forbidden: str) -> str:
    """A text without line ends, and without what means something else to the program."""
    return "".join(" " if one in forbidden or not one.isprintable() else one for one in text)


def positions(first: int, last: int) -> str:
    """Where in the log a transaction comes from."""
    return str(first) if first == last else f"{first}-{last}"
