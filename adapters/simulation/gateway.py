"""A payment processor in memory: it charges at once, and once for ever under one key."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from ledger.errors import UnavailableError
from ledger.services.top_up import Declined, Order, Outcome, Pending, Settled, TopUpGateway

_ANSWERS: Final[dict[str | None, Outcome]] = {
    "declined": Declined("card_declined"),
    "pending": Pending(),
}


class MemoryGateway(TopUpGateway):
    """Settles every order unless told otherwise, and keeps what it was asked.

    `answers` maps accounts to ``declined``, ``pending`` or ``lost``: the card is charged, and
    nobody hears of it. `charged` holds the orders that moved money, by key.
    """

    def __init__(self) -> None:
        """Begin without orders."""
        self.answers: dict[int, str] = {}
        self.charged: dict[str, Order] = {}
        self.asked: list[Order] = []
        self._declined: set[str] = set()

    @override
    def charge(self, order: Order) -> Outcome:
        """Charge an order that was not charged or declined before."""
        self.asked.append(order)
        known = self.outcome(order.key)
        if known is not None:
            return known
        answer = self.answers.get(order.account_id)
        if answer == "declined":
            self._declined.add(order.key)
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        self.charged[order.key] = order
        if answer == "lost":
            raise UnavailableError("gateway_unavailable", "the payment processor did not answer")
        return Settled(f"payment-{len(self.charged)}")

    @override
    def outcome(self, key: str) -> Outcome | None:
        """What became of an order."""
        if key in self.charged:
            return Settled(f"payment-{list(self.charged).index(key) + 1}")
        return _ANSWERS["declined"] if key in self._declined else None
