"""A load generator that costs little: prepared requests, kept-alive connections, one epoll loop.

Each connection sends the requests of its own machines in order and waits for every answer.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ledger.domain.acknowledgement import UsageAnswer

_decoder = msgspec.msgpack.Decoder(UsageAnswer)
_STATUS = msgspec.msgpack.encode("status")
_ACCEPTED = _STATUS + msgspec.msgpack.encode("accepted")


class Load(NamedTuple):
    """What was measured."""

    seconds: float
    requests: int
    reports: int
    ticks: int
    latencies: list[float]
    """Seconds from the first byte sent to the last byte received, per request."""


class _Line:
    """One connection and the requests that it has to send."""

    def __init__(self, port: int, requests: deque[bytes]) -> None:
        self.requests = requests
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""
        self.sent_at = 0.0

    def send(self) -> bool:
        if not self.requests:
            return False
        self.sent_at = time.perf_counter()
        self.socket.sendall(self.requests.popleft())
        return True

    def receive(self) -> bytes | None:
        """The body of a finished answer."""
        self.answer += self.socket.recv(262_144)
        head, separator, body = self.answer.partition(b"\r\n\r\n")
        if not separator:
            return None
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        assert head.startswith(b"HTTP/1.1 200"), self.answer[:500]
        self.answer = b""
        return body


def drive(
    port: int,
    lines: list[deque[bytes]],
    *,
    ticks_per_report: int,
    seconds: float,
    ticks_per_second: float | None = None,
    on_answer: Callable[[UsageAnswer], None] | None = None,
) -> Load:
    """Send until every request is answered or *seconds* are over.

    Args:
        port: Of the server on loopback.
        lines: Requests per connection.
        ticks_per_report: For the count.
        seconds: At most.
        ticks_per_second: Not faster than this, if given.
        on_answer: Called with every answer.
    """
    poll = select.epoll()
    open_lines = {}
    for requests in lines:
        line = _Line(port, requests)
        open_lines[line.socket.fileno()] = line
        poll.register(line.socket.fileno(), select.EPOLLIN)
    began = time.perf_counter()
    reports = answered = 0
    latencies = []
    waiting: deque[_Line] = deque()
    busy = sum(line.send() for line in open_lines.values())
    while busy or waiting:
        elapsed = time.perf_counter() - began
        if elapsed > seconds and not busy:
            break
        while (
            waiting
            and elapsed <= seconds
            and (
                ticks_per_second is None or reports * ticks_per_report < ticks_per_second * elapsed
            )
        ):
            busy += waiting.popleft().send()
        if elapsed > seconds:
            waiting.clear()
        for number, _ in poll.poll(0.002):
            line = open_lines[number]
            body = line.receive()
            if body is None:
                continue
            latencies.append(time.perf_counter() - line.sent_at)
            busy -= 1
            answered += 1
            # Counting a word is all that the generator may spend: what is measured is the server.
            accepted = body.count(_ACCEPTED)
            assert accepted == body.count(_STATUS), _decoder.decode(body).reports
            reports += accepted
            if on_answer is not None:
                on_answer(_decoder.decode(body))
            waiting.append(line)
    spent = time.perf_counter() - began
    for line in open_lines.values():
        line.socket.close()
    return Load(spent, answered, reports, reports * ticks_per_report, latencies)
