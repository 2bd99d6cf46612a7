"""Signed webhooks: sent in order, or late, twice, shuffled, never; as networks do."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.support.stripe.account import StripeAccount
from tests.support.stripe.objects import Object

SECRET: Final = "whsec_standin"


class Message(NamedTuple):
    """One delivery: the bytes, and the header that signs them."""

    body: bytes
    signature: str


def sign(body: bytes, at: int, secret: str = SECRET) -> str:
    """The header `Stripe-Signature` of a body that is sent at second *at*."""
    signed = f"{at}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class Messages:
    """What an endpoint is sent; events wait here until somebody delivers them."""

    def __init__(self, account: StripeAccount) -> None:
        """Listen to *account*."""
        self.waiting: list[Object] = []
        self._account = account
        account.on_event.append(self.waiting.append)

    def message(self, event: Object, *, at: int | None = None) -> Message:
        """An event as it is sent now, or at another second."""
        body = json.dumps(event).encode()
        second = self._account.clock() if at is None else at
        return Message(body, sign(body, second))

    def deliver(
        self,
        send: Callable[[Message], object],
        *,
        times: int = 1,
        shuffle: random.Random | None = None,
        lose: Callable[[Object], bool] = lambda _: False,
    ) -> int:
        """Send what waits; returns how many deliveries were made.

        Args:
            send: Takes a message.
            times: How often each is sent.
            shuffle: Chance, for another order.
            lose: Which events never arrive.
        """
        events = [one for one in self.waiting for _ in range(times) if not lose(one)]
        self.waiting.clear()
        if shuffle is not None:
            shuffle.shuffle(events)
        for one in events:
            send(self.message(one))
        return len(events)
