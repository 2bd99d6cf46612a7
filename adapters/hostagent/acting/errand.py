"""Work beside the agent's loop: done when called for, and again after a pause if it failed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import structlog

from adapters.hostagent.client import backoff_seconds

log = structlog.get_logger("gpuledger.agent")


class Errand:
    """One piece of work on a thread of its own, so that it holds up nothing else."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        trouble: str,
        failures: type[Exception] | tuple[type[Exception], ...],
        every_seconds: float | None = None,
    ) -> None:
        """Do *work* when it is called for.

        Args:
            name: Of the thread.
            work: Looks for itself what there is to do.
            trouble: What the journal says when it failed.
            failures: What it raises when another try may help.
            every_seconds: Done that often without a call, too.
        """
        self._work = work
        self._trouble = trouble
        self._failures = failures
        self._every_seconds = every_seconds
        self._called = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to wait for calls."""
        self._thread.start()

    def call(self) -> None:
        """There is something to do; returns at once."""
        self._called.set()

    def close(self) -> None:
        """Do nothing more; what is under way is left to itself."""
        self._ending.set()
        self._called.set()

    def _run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            self._called.wait(self._every_seconds)
            self._called.clear()
            if self._ending.is_set():
                return
            try:
                self._work()
                failures = 0
            except self._failures as error:
                log.warning(self._trouble, reason=str(error) or repr(error))
                self._ending.wait(backoff_seconds(failures, 0.0, random.uniform))
                failures += 1
                self._called.set()
