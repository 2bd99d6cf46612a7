"""The application on a port of the loopback interface, under the market's own clock.

Each request of a client goes through the same application as in the tests without a network; what
came in is kept, and an answer can be lost on its way back.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from litestar import Litestar
from litestar.testing import TestClient

from adapters.http.app import attach
from tests.support.market import Market

_STARTUP = ("/api/v0/gpu_names/unique/", "/api/v0/users/current")


class Seen(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    body: Any


class Loopback:
    """A server for the time of a test."""

    def __init__(self, app: Litestar, market: Market) -> None:
        """Serve *market* on a free port."""
        attach(app, market.ledger, market.usage)
        self._client = TestClient(app)
        self.seen: list[Seen] = []
        self.lose = 0
        """How many answers of the next requests are lost after they were carried out."""
        self.after: Callable[[], None] | None = None
        """What else happens in the market after each request."""
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: the second would wait for the first one's receipt.
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                loopback.serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of the library

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)

    def __enter__(self) -> Self:
        self._client.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.__exit__(kind, error, trace)

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Carry one request out, and answer it unless the answer is to be lost."""
        size = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(size)
        is_startup = request.path.startswith(_STARTUP)
        if not is_startup:
            self.seen.append(
                Seen(request.command, request.path, json.loads(body) if body else None)
            )
        answer = self._client.request(
            request.command,
            f"http://testserver.local{request.path}",
            content=body,
            headers=dict(request.headers.items()),
        )
        if self.after is not None:
            self.after()
        if self.lose and not is_startup:
            self.lose -= 1
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        request.send_response_only(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in {"content-length", "connection"}:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(answer.content)))
        request.end_headers()
        request.wfile.write(answer.content)

    def requests(self) -> list[Seen]:
        """What came in since the last look, without what every start of the client asks for."""
        found, self.seen = self.seen, []
        return found
