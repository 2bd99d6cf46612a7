"""Turns at the database: a crowd waits here, in the order in which it came, and not for ever.

A request takes a turn to check its key and one or two for what it does (bulk commands one for each
id). Three waits together are less than the 120 s after which these clients give up: what they read
is a refusal that says when to repeat, never silence. They repeat it by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from ledger.errors import UnavailableError

T = TypeVar("T")
READERS: Final = 5
WRITERS: Final = 3
"""How many requests use the database at once; the pool of connections has room for all of them."""
WAIT_SECONDS: Final = 35.0


async def turn(limiter: CapacityLimiter, run: Callable[[], T], wait: float = WAIT_SECONDS) -> T:
    """What *run* gives, in a thread, once its turn has come.

    Raises:
        UnavailableError: `busy` when it has not come after *wait* seconds; nothing was done.
    """
    waiter = object()
    with anyio.move_on_after(wait) as waiting:
        await limiter.acquire_on_behalf_of(waiter)
    if waiting.cancelled_caught:
        message = f"more is asked than can be answered: nothing was done in {wait:.0f} s, repeat it"
        raise UnavailableError("busy", message)
    try:
        return await anyio.to_thread.run_sync(run)
    finally:
        limiter.release_on_behalf_of(waiter)
