"""Requests that this machine's key signs: how the agent asks and says what is in no report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from adapters.hostagent.client import TIMEOUT_SECONDS
from adapters.hostagent.identity import HostIdentity
from ledger.domain.machine_call import Credential, signed_bytes, write_credential


class SignedCalls:
    """One machine's requests to one server; may be used by several threads."""

    def __init__(
        self,
        base_url: str,
        machine: int,
        identity: HostIdentity,
        *,
        second: Callable[[], int],
        http: httpx.Client | None = None,
    ) -> None:
        """Talk to the server at *base_url*.

        Args:
            base_url: Where the server is.
            machine: This machine.
            identity: Its key.
            second: The Unix second as the server would say it.
            http: Carries the requests; its owner closes it.
        """
        self.base = base_url.rstrip("/")
        self.machine = machine
        self._identity = identity
        self._second = second
        self._http = http or httpx.Client(timeout=TIMEOUT_SECONDS)

    def get(self, target: str, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
        """The body of the answer to a GET of *target*, a path with its query.

        Raises:
            httpx.HTTPError: No answer, or one that is no success.
        """
        return self._sent("GET", target, b"", timeout_seconds)

    def put(self, target: str, body: Any) -> bytes:
        """The body of the answer to a PUT of *body*, as JSON.

        Raises:
            httpx.HTTPError: No answer, or one that is no success.
        """
        return self._sent("PUT", target, msgspec.json.encode(body), TIMEOUT_SECONDS)

    def _sent(self, method: str, target: str, body: bytes, timeout_seconds: float) -> bytes:
        second = self._second()
        signature = self._identity.sign_call(
            signed_bytes(self.machine, second, method, target, body)
        )
        credential = Credential(self.machine, self._identity.key_id, second, signature)
        headers = {"authorization": write_credential(credential), "accept": "application/json"}
        if body:
            headers["content-type"] = "application/json"
        response = self._http.request(
            method, self.base + target, content=body, headers=headers, timeout=timeout_seconds
        )
        response.raise_for_status()
        return response.content


def is_final(error: httpx.HTTPError) -> bool:
    """True when the same request would be refused again."""
    if not isinstance(error, httpx.HTTPStatusError):
        return False
    status = error.response.status_code
    return 400 <= status < 500 and status not in {401, 408, 425, 429}  # noqa: PLR2004 - HTTP's own
