"""What a payment is made of, and how what goes back of it is divided (`marketplace.md` §14).

Amounts are nanos; whatever crosses the payment processor's door is whole cents.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.money import MAX_POSTING_NANOS, NANOS_PER_CENT
from ledger.errors import RejectedError

PAYMENT_PREFIX: Final = "pay-"
TOP_UP_PREFIX: Final = "top-up-"
SECONDS_PER_WEEK: Final = 7 * 86_400
_FIRST_FRIDAY: Final = 86_400
"""1970-01-02 was a Friday."""


def is_processed(deposit_id: str) -> bool:
    """True when the payment processor took this deposit: its own facts book all that moves."""
    return deposit_id.startswith((PAYMENT_PREFIX, TOP_UP_PREFIX))


class Parts(NamedTuple):
    """An amount that goes back, by where it comes from; each may be 0.

    `difference` is what a payer's bank took beyond the payment: nobody's credit, and for review.
    """

    credit: int
    tax: int
    difference: int

    @property
    def gross(self) -> int:
        """All of it."""
        return self.credit + self.tax + self.difference

    def plus(self, other: Parts) -> Parts:
        """Both together."""
        return Parts(*(one + two for one, two in zip(self, other, strict=True)))

    def minus(self, other: Parts) -> Parts:
        """What is left of this without *other*."""
        return Parts(*(one - two for one, two in zip(self, other, strict=True)))


NOTHING: Final = Parts(0, 0, 0)


def returned(credit: int, tax: int, before: Parts, gross: int) -> Parts:
    """Divide *gross* that goes back of a payment, after *before* went back already.

    The tax follows the running total, rounded half up to a cent, so that the end is exactly the
    payment's credit and tax, and neither part is ever more than what was paid of it. What is more
    than the rest of the payment is `difference`.

    Args:
        credit: Net of the payment, nanos.
        tax: Its tax, whole cents.
        before: What refunds and chargebacks took back already and keep.
        gross: Nanos that go back now.
    """
    left_credit, left_tax = credit - before.credit, tax - before.tax
    own = min(gross, left_credit + left_tax)
    total = credit + tax
    gone = before.credit + before.tax + own
    unit = total * NANOS_PER_CENT
    wanted = (2 * tax * gone + unit) // (2 * unit) * NANOS_PER_CENT if total else 0
    # What failed and came back may have left the running total a cent off: never beyond either.
    tax_part = min(max(wanted - before.tax, own - left_credit, 0), own, left_tax)
    return Parts(own - tax_part, tax_part, gross - own)


def whole_cents(nanos: int) -> int:
    """Nanos of the whole cents in an amount; what is left stays where it is."""
    return max(nanos, 0) // NANOS_PER_CENT * NANOS_PER_CENT


def require_cents(nanos: int) -> None:
    """Refuse what no card can be charged or paid.

    Raises:
        RejectedError: `invalid_amount`.
    """
    if nanos % NANOS_PER_CENT or not 0 < nanos <= MAX_POSTING_NANOS:
        raise RejectedError("invalid_amount", "a payment is a number of whole cents above 0")


def friday_of(second: int) -> int:
    """The last Friday 00:00 UTC at or before *second*."""
    return second - (second - _FIRST_FRIDAY) % SECONDS_PER_WEEK


def top_up_id(account_id: int, trigger: int) -> str:
    """The payment, and the deposit, of an automatic charge: the fact at *trigger* caused it."""
    return f"{TOP_UP_PREFIX}{account_id}-{trigger}"
