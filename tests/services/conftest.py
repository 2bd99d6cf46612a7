"""Services with a payment processor: the twin in memory, and Stripe's library on its stand-in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.market import Market
from tests.support.payments import Shop
from tests.support.processors import MemoryProcessor, StripeProcessor


@pytest.fixture(params=["memory", "stripe"])
def shop(request: pytest.FixtureRequest, market: Market) -> Iterator[Shop]:
    """A marketplace with each of the processors."""
    if request.param == "memory":
        yield Shop(market, MemoryProcessor(market.clock))
        return
    processor = StripeProcessor(market.clock)
    yield Shop(market, processor)
    processor.close()
