"""The wait for news: a request that the server answers as soon as something else is wanted."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

import httpx
import msgspec
import structlog

from adapters.hostagent.acting.calls import SignedCalls
from adapters.hostagent.client import backoff_seconds
from ledger.domain.acknowledgement import Desired

WAIT_SECONDS: Final = 25
_MARGIN_SECONDS: Final = 10.0

log = structlog.get_logger("gpuledger.agent")


class Link:
    """Asks again and again, on a thread, with requests that this machine's key signs."""

    def __init__(self, calls: SignedCalls, on_desired: Callable[[Desired, int, int], None]) -> None:
        """Ask by *calls*.

        Args:
            calls: Carries the requests.
            on_desired: Told each answer, and when its request left and it came; monotonic
                nanoseconds.
        """
        self._calls = calls
        self._on_desired = on_desired
        self._ending = threading.Event()
        self._decoder = msgspec.json.Decoder(Desired)
        self._version: int | None = None
        self._log_request: int | None = None
        self.failures = 0
        """Requests in a row that came to nothing."""
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop to ask; the request under way is left to itself."""
        self._ending.set()

    def ask(self) -> Desired:
        """What is wanted now; waits for news once it was asked before.

        Raises:
            httpx.HTTPError: No answer, or not this one.
            msgspec.DecodeError: What answered is not the ledger.
        """
        target = f"/v1/machines/{self._calls.machine}/desired"
        if self._version is not None:
            target += f"?after={self._version}&wait={WAIT_SECONDS}"
            if self._log_request is not None:
                target += f"&after_log={self._log_request}"
        answer = self._calls.get(target, WAIT_SECONDS + _MARGIN_SECONDS)
        desired = self._decoder.decode(answer)
        self._version, self._log_request = desired.version, desired.log_request
        return desired

    def _run(self) -> None:
        while not self._ending.is_set():
            sent_ns = time.monotonic_ns()
            try:
                desired = self.ask()
            except (httpx.HTTPError, msgspec.DecodeError) as error:
                # Whatever was wanted may have changed in between: the next answer is taken whole.
                self._version = None
                wait = backoff_seconds(self.failures, 0.0, random.uniform)
                if self.failures == 0:
                    log.warning("no news from the server", reason=str(error) or repr(error))
                self.failures += 1
                self._ending.wait(wait)
                continue
            self.failures = 0
            self._on_desired(desired, sent_ns, time.monotonic_ns())
