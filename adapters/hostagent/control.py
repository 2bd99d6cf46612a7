"""The agent's local doors: a Unix socket for its owner, and a port of the loopback for metrics."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ledger.errors import RejectedError, UnavailableError

_MAX_REQUEST: Final = 4_096
_SECONDS: Final = 10.0

Command = Callable[[Mapping[str, Any]], Any]


class ControlSocket:
    """Answers one JSON request per connection; only the agent's own user can open it."""

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        """Serve *commands* on *path*; what an agent that was killed left there is replaced."""
        self._path = path
        self._commands = commands
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listening.bind(str(path))
        finally:
            os.umask(before)
        self._listening.listen(8)
        threading.Thread(target=self._run, name="control", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_SECONDS)
                connection.sendall(self._answer(connection.recv(_MAX_REQUEST)))

    def _answer(self, raw: bytes) -> bytes:
        try:
            request = json.loads(raw)
            command = self._commands[request["command"]]
        except (ValueError, KeyError, TypeError):
            return json.dumps({"error": "there is no such command"}).encode()
        try:
            return json.dumps({"answer": command(request)}).encode()
        except Exception as error:  # whoever asked is told; the agent goes on
            return json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()


def call(path: Path, command: str, **arguments: Any) -> Any:
    """The answer of a running agent.

    Raises:
        UnavailableError: `agent_not_running`.
        RejectedError: `agent_refused`, with what it said.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps({"command": command, **arguments}).encode())
            parts = []
            while chunk := connection.recv(65_536):
                parts.append(chunk)
        except OSError as error:
            message = f"no agent answers on {path}: start it with `gpuledger agent run`"
            raise UnavailableError("agent_not_running", message) from error
    answer = json.loads(b"".join(parts) or b"{}")
    if "answer" not in answer:
        raise RejectedError("agent_refused", str(answer.get("error", "the agent said nothing")))
    return answer["answer"]


class MetricsServer:
    """`GET /metrics` on the loopback interface; anything else is not found."""

    def __init__(self, port: int, render: Callable[[], bytes]) -> None:
        """Serve what *render* gives on *port*; 0 chooses one.

        Raises:
            UnavailableError: `port_in_use`.
        """

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                text = render()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            message = f"port {port} of 127.0.0.1 is taken; choose another with --metrics-port"
            raise UnavailableError("port_in_use", message) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to serve."""
        self._ending.set()
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_SECONDS)
        self._server.server_close()

    def _run(self) -> None:
        # Not `serve_forever`, which looks twice a second whether it should end.
        while not self._ending.is_set():
            self._server.handle_request()
