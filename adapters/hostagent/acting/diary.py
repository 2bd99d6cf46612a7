"""What the agent did with each instance, in words for its renter: the "daemon's log" of a launch.

The server learns codes; why a launch was refused, and what to do about it, is said here. In memory
only, and bounded: it begins anew with the agent.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final

LINES_MAX: Final = 100
"""Kept of one instance."""
_LINE_CHARACTERS: Final = 1_000


class Diary:
    """Lines by instance; written by the loop, read by whoever uploads them."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lines: dict[int, deque[str]] = {}
        self._lock = threading.Lock()

    def note(self, instance: int, second: int, text: str) -> None:
        """Something happened at Unix *second*; *text* holds nothing of the launch's secrets."""
        at = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = " ".join(text.split())[:_LINE_CHARACTERS]
        with self._lock:
            self._lines.setdefault(instance, deque(maxlen=LINES_MAX)).append(f"{at} {line}\n")

    def forget(self, instance: int) -> None:
        """The instance is gone."""
        with self._lock:
            self._lines.pop(instance, None)

    def text(self, instance: int) -> str:
        """All lines of an instance, the oldest first."""
        with self._lock:
            return "".join(self._lines.get(instance, ()))
