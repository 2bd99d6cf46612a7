"""A process that dies at a chosen moment: before or after a call, before or after a commit.

`Crashing` counts the moments of one run. With `at` it dies at that one: everything the process had
in its hands is gone, and only what was committed, and what the processor did, is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ledger.services.ledger import Ledger, Unit
from ledger.services.payments.gateway import PaymentGateway

_CALLS = frozenset({
    "register", "charge", "outcome", "open_payment", "open_setup", "forget_card", "refund",
    "open_payout_account", "transfer", "pay_bank", "reverse", "look", "entries",
})  # fmt: skip


class Killed(BaseException):
    """The process is gone; nothing catches this."""


class Crashing:
    """Moments at which a run can die."""

    def __init__(self, at: int | None = None) -> None:
        """Die at moment number *at*, counted from 1; none: only count."""
        self.at = at
        self.moments = 0

    def moment(self, *, holds: bool = False) -> None:
        """One more moment goes by; with *holds* inside a transaction, where nobody else can act."""
        del holds
        self.moments += 1
        if self.moments == self.at:
            raise Killed

    def ledger(self, ledger: Ledger) -> Ledger:
        """The same ledger, with a moment before and after every commit."""
        crashing = self
        one = Ledger(ledger.database, ledger.vault, ledger.clock)
        original = one.unit

        @contextmanager
        def unit() -> Iterator[Unit]:
            with original() as inner:
                yield inner
                crashing.moment(holds=True)
            crashing.moment()

        one.unit = unit  # type: ignore[method-assign]  # the point of this class
        return one

    def gateway(self, gateway: PaymentGateway) -> PaymentGateway:
        """The same processor, with a moment before and after every call."""
        return _Gateway(self, gateway)


class _Gateway:
    def __init__(self, crashing: Crashing, gateway: PaymentGateway) -> None:
        self._crashing = crashing
        self._gateway = gateway

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._gateway, name)
        if name not in _CALLS:
            return method

        def call(*args: Any) -> Any:
            self._crashing.moment()
            result = method(*args)
            if name == "entries":
                result = list(result)
            self._crashing.moment()
            return result

        return call
