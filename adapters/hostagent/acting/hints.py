"""The runtime's events as hints to look: the list is truth, and is read anew when one comes.

Between two lists, which are 10 s apart, a process that ends is seen by its number; a container that
somebody paused, removed or started by hand is seen by this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from adapters.hostagent.runtime.port import Runtime, RuntimeEvent, RuntimeUnavailableError

POLL_SECONDS: Final = 2.0


class Hints:
    """Asks for events on a thread: an engine that hangs costs hints, and no second of anybody."""

    def __init__(
        self,
        runtime: Runtime,
        on_hint: Callable[[], None],
        *,
        now: Callable[[], float] = time.time,
        seconds: float = POLL_SECONDS,
    ) -> None:
        """Ask *runtime* every so many *seconds*; *on_hint* is called on that thread.

        *now* gives the Unix second from which on events count.
        """
        self._runtime = runtime
        self._on_hint = on_hint
        self._seconds = seconds
        self._since = now()
        self._known: set[RuntimeEvent] = set()
        """Events of the second from which on is asked: they come again."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ask no more; a question under way is left to itself."""
        self._ending.set()

    def ask(self) -> bool:
        """Whether something happened that was not known; resumes from the last event seen."""
        try:
            told = set(self._runtime.events(self._since))
        except RuntimeUnavailableError:
            return False  # The list that is due finds out what it missed.
        news = told - self._known
        if not news:
            return False
        self._since = max(self._since, *(one.at for one in news))
        self._known = {one for one in told | self._known if one.at >= int(self._since)}
        return True

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            if self.ask():
                self._on_hint()
