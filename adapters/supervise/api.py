"""The server as the supervisor sees it: every request is repeated until it has an answer."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

import httpx
import msgspec

from adapters.supervise.records import Charge, Instance, Offer
from ledger.errors import (
    AuthError,
    DeclinedError,
    ForbiddenError,
    IdempotencyError,
    LedgerError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)

TIMEOUT_SECONDS: Final = 15.0
_MAX_WAIT_SECONDS: Final = 30.0
_PAGE: Final = 1_000
_LATER: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_IN_FLIGHT: Final = "idempotency_in_flight"
_KINDS: Final[Mapping[int, type[LedgerError]]] = {
    401: AuthError,
    402: DeclinedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: DeclinedError,
}

T = TypeVar("T")


class StopAskedError(Exception):
    """Somebody asked the program to end while a request had no answer yet."""


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""


class _Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next_cursor: str | None


class Answer(NamedTuple, Generic[T]):
    """What the server said, and whether it is what it said before to the same key."""

    value: T
    replayed: bool


class Api:
    """Requests in a renter's name.

    While the server does not answer, a request is repeated with growing pauses: under the same
    Idempotency-Key, so that a lost answer costs nothing. `stop` ends that, or *patience* does.
    """

    def __init__(
        self,
        url: str,
        key: str,
        stop: threading.Event,
        *,
        patience: float | None = None,
        on_trouble: Callable[[UnavailableError | None], None] = lambda _: None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Talk to the server at *url*.

        Args:
            url: Where it is.
            key: API key.
            stop: Set when the program is to end.
            patience: Seconds after which no answer is an error; for ever without.
            on_trouble: Told once when the server does not answer, and (None) when it does again.
            transport: In place of the network.
        """
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            timeout=TIMEOUT_SECONDS,
            headers={"Authorization": f"Bearer {key}"},
            transport=transport,
        )
        self._stop = stop
        self._patience = patience
        self._on_trouble = on_trouble
        self._is_troubled = False
        self._ahead = 0.0
        """Seconds by which the server's clock is ahead of this computer's."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def last_words(self, seconds: float) -> None:
        """From now on requests are repeated for *seconds* at most, asked to stop or not."""
        self._stop = threading.Event()
        self._patience = seconds

    @property
    def now(self) -> float:
        """The server's time, where it tells it."""
        return time.time() + self._ahead

    # --- what is asked ---------------------------------------------------------------------------

    def instances(self, label: str) -> list[Instance]:
        """Everything that was ever rented under a label, oldest first."""
        return self._all(_Page[Instance], "/v1/instances", {"label": label})

    def charges(self, instance_id: int) -> list[Charge]:
        """What an instance consumed and cost, as metered so far."""
        return self._all(_Page[Charge], "/v1/charges", {"instance_id": instance_id})

    def search(self, body: Mapping[str, Any]) -> list[Offer]:
        """The first page of a search."""
        return self._ask(_Page[Offer], "POST", "/v1/offers/search", body=body).value.items

    # --- what is done ----------------------------------------------------------------------------

    def create(self, body: Mapping[str, Any], key: str) -> tuple[Instance, bool]:
        """Rent; returns the instance as it was made, and whether that was said before."""
        answer = self._ask(Instance, "POST", "/v1/instances", body=body, key=key)
        return answer.value, answer.replayed

    def stop(self, instance_id: int) -> Instance:
        """Stop an instance; its disk is kept and billed."""
        key = str(uuid.uuid4())
        return self._ask(Instance, "POST", f"/v1/instances/{instance_id}/stop", key=key).value

    def destroy(self, instance_id: int) -> Instance:
        """Destroy an instance."""
        key = str(uuid.uuid4())
        return self._ask(Instance, "DELETE", f"/v1/instances/{instance_id}", key=key).value

    # --- how -------------------------------------------------------------------------------------

    def _all(self, kind: type[_Page[T]], path: str, filters: Mapping[str, Any]) -> list[T]:
        found: list[T] = []
        query = {**filters, "limit": _PAGE}
        while True:
            shown = self._ask(kind, "GET", path, query=query).value
            found += shown.items
            if shown.next_cursor is None:
                return found
            query["cursor"] = shown.next_cursor

    def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Answer[T]:
        """One request, repeated until it has an answer.

        Raises:
            LedgerError: What the server answered; `detail` holds `replayed`.
            UnavailableError: No answer within the patience.
            StopAskedError: The program is to end, and there is no answer yet.
        """
        began = time.monotonic()
        attempt = 0
        while True:
            try:
                answer = self._once(kind, method, path, body, query, key)
            except UnavailableError as error:
                if not self._is_troubled:
                    self._is_troubled = True
                    self._on_trouble(error)
                if self._patience is not None and time.monotonic() - began > self._patience:
                    raise
                if self._stop.wait(_pause(attempt, float(error.detail["retry_after"]))):
                    raise StopAskedError from error
                attempt += 1
            else:
                if self._is_troubled:
                    self._is_troubled = False
                    self._on_trouble(None)
                return answer

    def _once(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, Any] | None,
        key: str | None,
    ) -> Answer[T]:
        headers = {} if key is None else {"Idempotency-Key": key}
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._http.request(
                method, path, content=content, params=query, headers=headers
            )
        except httpx.RequestError as error:
            message = f"{self._http.base_url} did not answer: {error or type(error).__name__}"
            raise UnavailableError("no_answer", message, retry_after=0) from error
        self._note_time(response)
        replayed = response.headers.get("Idempotency-Replayed") == "true"
        if response.is_success:
            return Answer(_decoded(response.content, kind), replayed)
        raise _failure(response, replayed=replayed)

    def _note_time(self, response: httpx.Response) -> None:
        try:
            told = parsedate_to_datetime(response.headers["date"])
        except (KeyError, ValueError):
            return
        self._ahead = told.timestamp() - time.time()


def _pause(attempt: int, retry_after: float) -> float:
    """Seconds until the next attempt: up to 2^attempt, at random, so that not all come at once."""
    longest = min(_MAX_WAIT_SECONDS, 2.0 ** min(attempt, 6))
    return max(retry_after, random.uniform(longest / 2, longest))  # noqa: S311 - no secret


def _failure(response: httpx.Response, *, replayed: bool) -> LedgerError:
    status = response.status_code
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    code = problem.code or f"http_{status}"
    message = problem.detail or f"{response.url} answered {status}"
    if status >= _SERVER_ERROR or status in _LATER or code == _IN_FLIGHT:
        shown = response.headers.get("retry-after", "").strip()
        wait = int(shown) if shown.isascii() and shown.isdigit() else 0
        return UnavailableError(code, message, retry_after=min(wait, _MAX_WAIT_SECONDS))
    if code == "idempotency_conflict":
        return IdempotencyError(code, message, replayed=replayed)
    return _KINDS.get(status, RejectedError)(code, message, replayed=replayed)


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # What answered is not the ledger, or not this version of it: as good as no answer.
        message = f"the server gave no answer of the ledger: {error}"
        raise UnavailableError("bad_answer", message, retry_after=0) from error
