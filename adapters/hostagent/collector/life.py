"""One lock around the life of a generation: nothing shuts NVML down while somebody is inside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

WAIT_SECONDS: Final = 1.0
"""One wait for events; nobody can end it early."""
CLOSE_SECONDS: Final = 3.0
"""Longer than a wait; who does not let go by then hangs in the driver."""


class Waits(NamedTuple):
    """How long the child waits inside the driver, and for the driver; seconds."""

    events: float = WAIT_SECONDS
    close: float = CLOSE_SECONDS


class LifeCycle:
    """Who is inside NVML in this generation. Sweeps and event waits do not wait for each other."""

    def __init__(self, close_seconds: float = CLOSE_SECONDS) -> None:
        """Begin open; closing waits for *close_seconds*."""
        self._close_seconds = close_seconds
        self._calls = threading.Lock()
        self._events = threading.Lock()
        self._closing = threading.Event()

    @property
    def is_closing(self) -> bool:
        """True once somebody wants to shut down: the event thread then waits no more."""
        return self._closing.is_set()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Sweep inside of this."""
        with self._calls:
            yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for events inside of this, at most a second."""
        with self._events:
            yield

    def close(self, *, is_caller_inside: bool = False) -> bool:
        """Wait until nobody is inside; for good.

        Args:
            is_caller_inside: The caller sweeps, and knows that it is inside itself.

        Returns:
            False when somebody was still inside after that time: leave NVML alone then.
        """
        self._closing.set()
        until = time.monotonic() + self._close_seconds
        locks = [self._events] if is_caller_inside else [self._events, self._calls]
        return all(one.acquire(timeout=max(0.0, until - time.monotonic())) for one in locks)
