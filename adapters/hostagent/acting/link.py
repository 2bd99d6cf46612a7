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

from adapters.hostagent.client import backoff_seconds
from adapters.hostagent.identity import HostIdentity
from ledger.domain.acknowledgement import Desired
from ledger.domain.machine_call import Credential, signed_bytes, write_credential

WAIT_SECONDS: Final = 25
_MARGIN_SECONDS: Final = 10.0
_OK: Final = 200

log = structlog.get_logger("gpuledger.agent")


class Link:
    """Asks again and again, on a thread, with requests that this machine's key signs."""

    def __init__(
        self,
        base_url: str,
        machine: int,
        identity: HostIdentity,
        *,
        second: Callable[[], int],
        on_desired: Callable[[Desired, int, int], None],
        http: httpx.Client | None = None,
    ) -> None:
        """Ask the server at *base_url*.

        Args:
            base_url: Where the server is.
            machine: This machine.
            identity: Its key.
            second: The Unix second as the server would say it.
            on_desired: Told each answer, and when its request left and it came; monotonic
                nanoseconds.
            http: Carries the requests.
        """
        self._base = base_url.rstrip("/")
        self._machine = machine
        self._identity = identity
        self._second = second
        self._on_desired = on_desired
        self._http = http or httpx.Client(timeout=WAIT_SECONDS + _MARGIN_SECONDS)
        self._ending = threading.Event()
        self._decoder = msgspec.json.Decoder(Desired)
        self._version: int | None = None
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
        target = f"/v1/machines/{self._machine}/desired"
        if self._version is not None:
            target += f"?after={self._version}&wait={WAIT_SECONDS}"
        response = self._http.get(
            self._base + target,
            headers={"authorization": self._signed("GET", target), "accept": "application/json"},
        )
        response.raise_for_status()
        desired = self._decoder.decode(response.content)
        self._version = desired.version
        return desired

    def _signed(self, method: str, target: str) -> str:
        second = self._second()
        signature = self._identity.sign_call(signed_bytes(self._machine, second, method, target))
        return write_credential(Credential(self._machine, self._identity.key_id, second, signature))

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
