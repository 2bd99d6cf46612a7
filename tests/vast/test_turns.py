"""Turns at the database: in order, one after the other, and never waited for in silence."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from anyio import CapacityLimiter

from adapters.http.vast.errors import translated
from adapters.http.vast.turns import READERS, WAIT_SECONDS, WRITERS, turn
from ledger.errors import UnavailableError
from tests.support.market import Market

CLIENT_GIVES_UP_SECONDS = 120


def test_a_crowd_gets_its_turns_in_order() -> None:
    """Whoever came first is served first, and one that fails gives its turn back."""
    served: list[int] = []

    async def one(limiter: CapacityLimiter, number: int) -> None:
        def run() -> None:
            served.append(number)
            if number % 2:
                raise ValueError

        with suppress(ValueError):
            await turn(limiter, run)

    async def crowd() -> None:
        limiter = CapacityLimiter(1)
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, limiter, number)

    anyio.run(crowd)
    assert served == list(range(20))


def test_who_waits_too_long_is_told() -> None:
    """The refusal is a 503 that is repeated; nothing was run, and the turn is free afterwards."""
    ran: list[int] = []

    async def crowd() -> None:
        limiter = CapacityLimiter(1)
        await limiter.acquire()
        with pytest.raises(UnavailableError) as refused:
            await turn(limiter, lambda: ran.append(1), wait=0.01)
        assert translated(refused.value)[:2] == (503, "busy")
        limiter.release()
        await turn(limiter, lambda: ran.append(2), wait=0.01)

    anyio.run(crowd)
    assert ran == [2]


def test_three_waits_are_shorter_than_a_clients_patience(market: Market) -> None:
    """A request waits three times at most, and every turn has a connection of the pool."""
    assert 3 * WAIT_SECONDS < CLIENT_GIVES_UP_SECONDS
    assert market.ledger.database.pool.max_size >= READERS + WRITERS
