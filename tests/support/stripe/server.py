"""HTTP on loopback: keys that are remembered for a day, and the ways in which a network fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.support.stripe.account import StripeAccount, StripeError
from tests.support.stripe.api import Api, Request, parse
from tests.support.stripe.messages import Messages

API_KEY: Final = "sk_test_standin"
KEY_SECONDS: Final = 86_400

FaultKind = Literal["before", "after", "error", "busy"]


class Fault(NamedTuple):
    """What goes wrong with the next request to *path*.

    `before`: it never arrives. `after`: it is carried out, and the answer is lost. `error`: 500,
    not carried out. `busy`: 429, not carried out.
    """

    method: str
    path: str
    kind: FaultKind


class _Kept(NamedTuple):
    fingerprint: str
    status: int
    body: bytes
    at: int


class _Lost(Exception):  # noqa: N818 - not an error: the network's silence
    """The connection goes away without an answer."""


class StripeServer:
    """A stand-in for Stripe at `url`; use it as a context."""

    def __init__(self, clock: Callable[[], int], seed: str = "stripe") -> None:
        """Listen on a free port of the loopback."""
        self.account = StripeAccount(clock, seed)
        self.messages = Messages(self.account)
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """Every request that arrived: method and path."""
        self.on_request: Callable[[str, str, str], None] = lambda _method, _path, _when: None
        """Called `before` and `after` each request is carried out, before its answer leaves."""
        self._api = Api(self.account)
        self._kept: dict[tuple[str | None, str], _Kept] = {}
        self._running: set[tuple[str | None, str]] = set()
        self._lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=[0.01], daemon=True)
        self._thread.start()

    def __enter__(self) -> StripeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def fail(self, kind: FaultKind, method: str, path: str) -> None:
        """Let the next request to a path go wrong."""
        self.faults.append(Fault(method, path, kind))

    def forget_keys(self) -> None:
        """A day goes by: no key is remembered."""
        self._kept.clear()

    def count(self, method: str, path: str) -> int:
        """How many requests to a path arrived."""
        return self.requests.count((method, path))

    # --- one request -----------------------------------------------------------------------------

    def handle(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of an answer.

        Raises:
            _Lost: There is none.
        """
        split = urlsplit(target)
        fault = self._fault(method, split.path)
        if fault == "before":
            raise _Lost
        with self._lock:
            self.requests.append((method, split.path))
        if fault == "busy":
            return 429, _error("rate_limit", "Too many requests"), {}
        if fault == "error":
            return 500, _error(None, "An unknown error occurred", kind="api_error"), {}
        text = split.query if method == "GET" else body.decode()
        self.on_request(method, split.path, "before")
        answer = self._once(method, split.path, text, headers)
        self.on_request(method, split.path, "after")
        if fault == "after":
            raise _Lost
        return answer

    def _fault(self, method: str, path: str) -> FaultKind | None:
        with self._lock:
            for one in self.faults:
                if (one.method, one.path) == (method, path):
                    self.faults.remove(one)
                    return one.kind
        return None

    def _once(
        self, method: str, path: str, text: str, headers: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        owner, key = headers.get("stripe-account"), headers.get("idempotency-key")
        if headers.get("authorization") != f"Bearer {API_KEY}":
            return 401, _error(None, "Invalid API Key provided"), {}
        if method != "POST" or key is None:
            with self._lock:
                return (*self._answer(method, path, text, owner), {})
        slot, fingerprint = (owner, key), f"{path}?{text}"
        with self._lock:
            kept = self._kept.get(slot)
            if kept is not None and kept.at + KEY_SECONDS > self.account.clock():
                if kept.fingerprint != fingerprint:
                    message = "Keys for idempotent requests can only be used with the same request."
                    return 400, _error(None, message, kind="idempotency_error"), {}
                return kept.status, kept.body, {"Idempotent-Replayed": "true"}
            if slot in self._running:
                message = "There is currently another in-progress request using this key."
                return 409, _error("idempotency_key_in_use", message), {}
            self._running.add(slot)
            try:
                status, body = self._answer(method, path, text, owner)
                self._kept[slot] = _Kept(fingerprint, status, body, self.account.clock())
            finally:
                self._running.discard(slot)
        return status, body, {}

    def _answer(self, method: str, path: str, text: str, owner: str | None) -> tuple[int, bytes]:
        try:
            params = parse(parse_qsl(text, keep_blank_values=True))
            body = self._api.answer(Request(method, path, params, owner))
        except StripeError as error:
            return error.status, json.dumps(error.body).encode()
        except (KeyError, ValueError, TypeError) as error:
            return 400, _error("parameter_missing", f"{type(error).__name__}: {error}")
        return 200, json.dumps(body).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: the second would wait for the first one's receipt.
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def do_DELETE(self) -> None:
                self._serve("DELETE")

            def _serve(self, method: str) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    status, answer, more = server.handle(method, self.path, headers, body)
                except _Lost:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Request-Id", f"req_{len(server.requests)}")
                for name, value in more.items():
                    self.send_header(name, value)
                try:
                    self.end_headers()
                    self.wfile.write(answer)
                except ConnectionError:
                    self.close_connection = True  # Whoever asked is gone.

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


def _error(code: str | None, message: str, kind: str = "invalid_request_error") -> bytes:
    found = {"type": kind, "message": message, **({"code": code} if code else {})}
    return json.dumps({"error": found}).encode()
