"""A receiver of webhooks on the loopback interface, and a sender that tests drive turn by turn."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from adapters.webhooks.client import Client
from adapters.webhooks.sender import Sender
from adapters.webhooks.verify import verify
from ledger.domain.events import NoticeCode
from ledger.domain.webhook_targets import Reach
from ledger.services import webhooks
from ledger.services.ledger import Ledger
from ledger.services.notices import notify
from ledger.services.questions import webhooks as ask

LOOPBACK: Final[frozenset[Reach]] = frozenset({"loopback"})
HANG_SECONDS: Final = 20.0
"""How long a hanging receiver waits for its test to end."""


class Received(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The body, parsed."""
        event: dict[str, Any] = json.loads(self.body)
        return event

    def verified(self, secret: str, now: int) -> dict[str, Any]:
        """The event, if it was signed with *secret* about *now*."""
        return verify(secret, self.headers, self.body, now)


class Receiver:
    """An HTTP server that keeps what arrives; `script` says what it answers, in turn.

    A word is `ok` (204), a status such as `500`, `close` (takes the request and hangs up), `hang`
    (takes it and says nothing until `let_go`), `drip` (a 500 whose body never ends), `redirect`,
    or a callable that is called with the request and returns such a word. When the script has ended
    everything is answered with `otherwise`.
    """

    def __init__(
        self,
        *script: str | Callable[[Received], str],
        otherwise: str = "ok",
        tls: Path | None = None,
    ) -> None:
        """Listen on a free port; with *tls*, a file of key and certificate, over TLS."""
        self.names: list[str | None] = []
        """Whom TLS clients asked for."""
        self.script = list(script)
        self.otherwise = otherwise
        self.received: list[Received] = []
        self._released = threading.Event()
        self._arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", "0"))
                request = Received(
                    self.path,
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(size),
                )
                receiver._take(self, request)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A sender that hangs up is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(tls)
            context.sni_callback = lambda _socket, name, _context: self.names.append(name)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], name="receiver", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let every request go and stop listening."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def let_go(self) -> None:
        """Let hanging requests hang up."""
        self._released.set()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What arrived, in order of arrival."""
        with self._arrived:
            return [one.event for one in self.received]

    def wait_for(self, count: int, seconds: float = 20) -> list[Received]:
        """Return once *count* requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received) >= count, seconds), (
                f"{len(self.received)} of {count} requests arrived in {seconds} s"
            )
            return list(self.received)

    def _take(self, handler: BaseHTTPRequestHandler, request: Received) -> None:
        with self._arrived:
            self.received.append(request)
            word = self.script.pop(0) if self.script else self.otherwise
            self._arrived.notify_all()
        answer = word(request) if callable(word) else word
        if answer == "hang":
            self._released.wait(HANG_SECONDS)
        if answer in {"hang", "close"}:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        status = {"ok": 204, "redirect": 302, "drip": 500}.get(answer) or int(answer)
        handler.send_response(status)
        handler.send_header("Set-Cookie", "who=you")
        if answer == "redirect":
            handler.send_header("Location", "/elsewhere")
        if answer == "drip":
            handler.end_headers()
            while not self._released.wait(0.01):
                handler.wfile.write(b"no ")
            return
        body = b"" if status == 204 else f"answer {status}\n".encode() * 200
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class Driven:
    """A sender without a loop of its own: a test lets it send what is due at the present second."""

    def __init__(self, ledger: Ledger, *, timeout_seconds: float = 5.0) -> None:
        """Send from *ledger* to this machine alone."""
        self._ledger = ledger
        self._timeout = timeout_seconds

    def send(self) -> int:
        """Send everything due now, also what becomes due by that; returns how many attempts."""
        return asyncio.run(self._send())

    async def _send(self) -> int:
        client = Client(LOOPBACK, timeout_seconds=self._timeout)
        sender = Sender(self._ledger, client)
        attempts = 0
        try:
            await sender.take_over()
            while True:
                begun = await sender.turn()
                attempts += begun
                if not begun and sender.is_idle:
                    return attempts
                await sender.wait(5)
        finally:
            await client.close()


def register(
    ledger: Ledger, account_id: int, url: str, codes: Sequence[str] | None = None
) -> webhooks.Registered:
    """A webhook that may lead to this machine."""
    with ledger.unit() as unit:
        return webhooks.register(unit, account_id, url, codes, reach=LOOPBACK)


def queue(ledger: Ledger) -> int:
    """Queue what was noticed; returns how many rows."""
    with ledger.database.pool.connection() as connection:
        return webhooks.enqueue(connection, ledger.clock())


def claim(ledger: Ledger, limit: int = 1_000) -> list[webhooks.Delivery]:
    """Queue what was noticed and claim what is due, as a sender does."""
    queue(ledger)
    with ledger.database.pool.connection() as connection:
        return webhooks.claim(connection, ledger.vault, ledger.clock(), limit)


def fail(
    ledger: Ledger, deliveries: Sequence[webhooks.Delivery], reason: str = "http_500"
) -> list[webhooks.Outcome]:
    """Record that these attempts failed; returns those that were given up."""
    status = 500 if reason == "http_500" else None
    return webhooks.record(
        ledger, [webhooks.Outcome(one, False, status, reason, "sorry") for one in deliveries]
    )


def take(ledger: Ledger, deliveries: Sequence[webhooks.Delivery]) -> None:
    """Record that these attempts were taken."""
    assert webhooks.record(ledger, [webhooks.Outcome(one, True, 204) for one in deliveries]) == []


def event_of(delivery: webhooks.Delivery) -> dict[str, Any]:
    """What a delivery says."""
    event: dict[str, Any] = json.loads(delivery.body)
    return event


def tell(ledger: Ledger, account: int, *codes: NoticeCode, about: str = "account-1") -> None:
    """Notices, each in a command of its own."""
    for code in codes:
        with ledger.unit() as unit:
            notify(unit, account, code, about)


def stored(ledger: Ledger, webhook: int, state: ask.DeliveryState) -> list[ask.Delivery]:
    """The deliveries to a webhook in one state."""
    with ledger.reading() as connection:
        return ask.deliveries(connection, webhook, state)


def shown(ledger: Ledger, webhook: int) -> ask.Webhook:
    """A webhook as its owner sees it."""
    with ledger.reading() as connection:
        return ask.webhook(connection, ledger.vault, webhook, None)
