"""A TCP proxy that misbehaves on purpose: it cuts, delays, repeats and loses answers.

It stands between an agent and a server, on a thread with an event loop of its own. A request is
read whole before anything is done with it, so that "after the commit, before the answer" is a
moment that can be hit exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

Fault = Literal["cut", "delay", "duplicate", "reset"]
FAULTS: Final[tuple[Fault, ...]] = ("cut", "delay", "duplicate", "reset")
_MOST_SECONDS: Final = 0.5


class Exchange(NamedTuple):
    """One request with reports, by its body; when it came and was answered, monotonic seconds."""

    body: bytes
    came_at: float
    answered_at: float


class FaultProxy:
    """Listens on a free port of the loopback and forwards to *target*; `share` is of faults.

    `done` counts what was done to requests, by fault.
    """

    def __init__(
        self,
        target: int,
        chance: random.Random,
        share: float = 0.0,
        on_usage: Callable[[Exchange], None] = lambda _: None,
    ) -> None:
        """Begin to listen; *on_usage* is told of every request with reports, on the proxy's thread.

        Only of those that were answered without a fault.
        """
        self.share = share
        self._on_usage = on_usage
        self.done: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._target = target
        self._chance = chance
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        """Where to reach the server through this."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Cut every connection and stop."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while (request := await _message(reader)) is not None:
                    answer = await self._answered(request)
                    if answer is None:
                        break
                    writer.write(answer)
                    await writer.drain()
        finally:
            self._tasks.discard(task)
            if self._stopping.is_set():
                writer.transport.abort()
            else:
                writer.close()

    async def _answered(self, request: bytes) -> bytes | None:
        """What the client gets; none when its connection is to be cut."""
        is_usage = request.startswith(b"POST /v1/usage")
        fault = self._draw() if is_usage else None
        came_at = time.monotonic()
        if fault is not None:
            self.done[fault] += 1
        match fault:
            case "cut":
                return None
            case "delay":
                await asyncio.sleep(self._chance.random() * _MOST_SECONDS)
            case "duplicate":
                await self._forwarded(request)
            case "reset" | None:
                pass
        answer = await self._forwarded(request)
        if is_usage and fault is None and answer is not None:
            body = request.partition(b"\r\n\r\n")[2]
            self._on_usage(Exchange(body, came_at, time.monotonic()))
        return None if fault == "reset" else answer

    def _draw(self) -> Fault | None:
        return self._chance.choice(FAULTS) if self._chance.random() < self.share else None

    async def _forwarded(self, request: bytes) -> bytes | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes | None:
    """One HTTP/1.1 message with its body; none when the other side has closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length, is_chunked = 0, False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        if name.lower() == b"transfer-encoding":
            is_chunked = value.strip().lower() == b"chunked"
    if not is_chunked:
        return head + await reader.readexactly(length)
    parts = [head]
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size, 16) + 2)
        parts += [size, chunk]
        if int(size, 16) == 0:
            return b"".join(parts)
