"""What goes back of a charge, and from whom (`marketplace.md` §15).

Of x reversed of a charge c with fee f the platform returns ``f · x // c``, cumulative over all
reversals of that charge, and the host the rest: in whatever parts a charge goes back, the whole
comes back exactly, and nobody returns more than they took.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.money import format_dollars
from ledger.errors import RejectedError

DEPTH_ALONE_MAX: Final = 3
"""Corrections of corrections beyond this depth need two people."""


class Charged(NamedTuple):
    """A charge and what of it went back so far; nanos."""

    amount: int
    fee: int
    reversed: int = 0
    fee_reversed: int = 0

    @property
    def remaining(self) -> int:
        """What can still go back."""
        return self.amount - self.reversed


class Reversal(NamedTuple):
    """What goes back to the renter, and from whom; nanos."""

    amount: int
    fee: int

    @property
    def host(self) -> int:
        """The host's part."""
        return self.amount - self.fee


def reverse(charge: Charged, amount: int) -> Reversal:
    """Split *amount*, which goes back, over platform and host.

    The charge may have grown between two reversals (its rate segment runs on): the running total of
    the fee then moves by at most one nano against the new ratio, and neither part ever goes back
    twice or beyond what was taken.

    Raises:
        RejectedError: `invalid_amount` below one nano, `over_reversal` beyond the charge.
    """
    if amount < 1:
        raise RejectedError("invalid_amount", "what goes back is at least one nano")
    if amount > charge.remaining:
        left = format_dollars(charge.remaining)
        message = f"only {left} of this charge is left to reverse"
        raise RejectedError("over_reversal", message, left=left)
    total = charge.fee * (charge.reversed + amount) // charge.amount
    return Reversal(amount, min(max(total - charge.fee_reversed, 0), amount))


def require_second_person(depth: int, actor: str, approved_by: str | None) -> None:
    """Let one person correct up to a depth, and two beyond it.

    Raises:
        RejectedError: `second_approval_required`.
    """
    if depth > DEPTH_ALONE_MAX and approved_by in {None, actor}:
        message = f"a correction of depth {depth} needs the approval of a second person"
        raise RejectedError("second_approval_required", message, depth=depth)
