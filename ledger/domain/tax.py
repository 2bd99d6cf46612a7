"""Tax on credit that is bought: rounded once per document, given back cumulatively (`§14`).

Amounts are nanos that are whole cents; rates are basis points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ledger.domain.money import BASIS_POINTS, NANOS_PER_CENT, format_dollars
from ledger.domain.payment import Parts, returned
from ledger.errors import RejectedError

Treatment = Literal["standard", "reverse_charge", "exempt"]


class Split(NamedTuple):
    """A gross amount in its two parts."""

    net: int
    tax: int

    @property
    def gross(self) -> int:
        """What is paid."""
        return self.net + self.tax

    def minus(self, other: Split) -> Split:
        """What is left of this without *other*."""
        return Split(self.net - other.net, self.tax - other.tax)


class TaxProfile(NamedTuple):
    """How credit of an account is taxed; `country` is an ISO 3166 code, or nothing is known."""

    country: str | None = None
    rate_bp: int = 0
    treatment: Treatment = "standard"

    @property
    def effective_bp(self) -> int:
        """The rate that is charged: none where the customer owes the tax, or nobody does."""
        return self.rate_bp if self.treatment == "standard" else 0


def taxed(net: int, profile: TaxProfile) -> Split:
    """A top-up of *net* with its tax, rounded half up to a cent once."""
    return Split(net, _cents(net * profile.effective_bp, BASIS_POINTS))


def of_gross(gross: int, profile: TaxProfile) -> Split:
    """What was paid, divided: of ``taxed(net).gross`` it is exactly that net and that tax."""
    tax = _cents(gross * profile.effective_bp, BASIS_POINTS + profile.effective_bp)
    return Split(gross - tax, tax)


def credited(original: Split, before: Split, amount: int) -> Split:
    """Divide a gross *amount* that goes back, after *before* went back of *original*.

    The last credit leaves exactly nothing of either part (`payment.returned`).

    Raises:
        RejectedError: `over_credit` beyond what is left; `invalid_amount` unless whole cents where
            there is tax.
    """
    left = original.gross - before.gross
    if amount > left:
        message = f"only {format_dollars(left)} of this document is left to credit"
        raise RejectedError("over_credit", message, left=format_dollars(left))
    if original.tax and amount % NANOS_PER_CENT:
        raise RejectedError("invalid_amount", "what goes back of a taxed amount is whole cents")
    parts = returned(original.net, original.tax, Parts(before.net, before.tax, 0), amount)
    return Split(parts.credit, parts.tax)


def spread(left: Sequence[Split], parts: Split) -> list[Split]:
    """What each of several documents gives of *parts* that go back, the first one first.

    *left* is what each of them has; all of them together have at least *parts*.
    """
    given = []
    for one in left:
        part = Split(min(parts.net, one.net), min(parts.tax, one.tax))
        parts = parts.minus(part)
        given.append(part)
    return given


def _cents(nanos: int, divisor: int) -> int:
    """``nanos / divisor`` rounded half up to whole cents, in nanos."""
    unit = divisor * NANOS_PER_CENT
    return (2 * nanos + unit) // (2 * unit) * NANOS_PER_CENT
