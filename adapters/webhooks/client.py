"""One attempt: a name resolved and checked, a request to exactly that address, its answer judged.

A name is resolved once per attempt and the request goes to what was checked, so that a name cannot
mean another address in between. TLS still asks for a certificate of the name. Nothing is shared
between attempts: no connection, no cookie, no proxy, no redirect.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import httpx

from ledger.domain.webhook_targets import Reach, Target, parse_target, require_reach
from ledger.errors import RejectedError
from ledger.services.webhooks import EXCERPT_BYTES_MAX, Delivery, Outcome

TIMEOUT_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 4.0
"""Per address, so that a name with a dead one among them still has time for another."""
_EXCERPT_SECONDS: Final = 1.0
_ADDRESSES_MAX: Final = 3
_RESOLVERS: Final = 16
_OK = range(200, 300)

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) → its addresses as texts; raises `OSError` when there are none."""


class Client:
    """Makes attempts; used within one event loop and closed at its end."""

    def __init__(
        self,
        reach: Collection[Reach] = (),
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: Resolve | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Send to public addresses and to those that *reach* allows."""
        self._reach = frozenset(reach)
        self._timeout = timeout_seconds
        # A name server that does not answer keeps its thread; those of others are not the loop's.
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="webhook-names")
        self._resolve = resolve or self._ask
        self._transport = httpx.AsyncHTTPTransport(
            verify=context or httpx.create_ssl_context(),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.aclose()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def attempt(self, delivery: Delivery) -> Outcome:
        """Send *delivery* once; a failure is an outcome, never an exception."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._attempt(delivery)
        except TimeoutError:
            return Outcome(delivery, taken=False, reason="timeout")

    async def _attempt(self, delivery: Delivery) -> Outcome:
        try:
            target = parse_target(delivery.url, self._reach)
            addresses = await self._resolve(target.host, target.port)
            for address in addresses:
                require_reach(address, self._reach, target.scheme)
        except RejectedError:
            return Outcome(delivery, taken=False, reason="address_refused")
        except OSError:
            return Outcome(delivery, taken=False, reason="name_not_resolved")
        reason = "name_not_resolved"
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                return await self._post(delivery, target, address)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                reason = _why(error)
            except httpx.HTTPError as error:
                # It may have arrived: another address would be another attempt.
                return Outcome(delivery, taken=False, reason=_why(error))
        return Outcome(delivery, taken=False, reason=reason)

    async def _post(self, delivery: Delivery, target: Target, address: str) -> Outcome:
        extensions = {
            "timeout": {
                "connect": min(_CONNECT_SECONDS, self._timeout),
                "read": self._timeout,
                "write": self._timeout,
                "pool": self._timeout,
            },
            "sni_hostname": target.host,
        }
        request = httpx.Request(
            "POST",
            httpx.URL(
                scheme=target.scheme,
                host=address,
                port=target.port,
                raw_path=target.path.encode(),
            ),
            headers={
                "Host": target.host_header,
                "User-Agent": "gpuledger-webhooks",
                "Accept-Encoding": "identity",
                "Connection": "close",
                **delivery.headers,
            },
            content=delivery.body,
            extensions=extensions,
        )
        response = await self._transport.handle_async_request(request)
        try:
            status = response.status_code
            if status in _OK:
                return Outcome(delivery, taken=True, status=status)
            excerpt = await _excerpt(response)
            return Outcome(delivery, False, status, f"http_{status}", excerpt)
        finally:
            with suppress(httpx.HTTPError):
                await response.aclose()

    async def _ask(self, host: str, port: int) -> list[str]:
        """The addresses of a host, as the system resolves names."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._resolvers, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


async def _excerpt(response: httpx.Response) -> str | None:
    """The beginning of what a receiver said, as text that can be stored and shown."""
    raw = b""
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_EXCERPT_SECONDS):
            async for chunk in response.aiter_raw(EXCERPT_BYTES_MAX):
                raw += chunk
                if len(raw) >= EXCERPT_BYTES_MAX:
                    break
    text = raw[:EXCERPT_BYTES_MAX].decode(errors="replace")
    shown = "".join(one if one.isprintable() or one in "\n\t" else "?" for one in text)
    return shown.encode()[:EXCERPT_BYTES_MAX].decode(errors="ignore") or None


def _why(error: httpx.HTTPError) -> str:
    """A stable word for what went wrong on the way."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "tls_failed"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    if isinstance(error, httpx.ConnectError):
        return "not_reached"
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return "closed"
    return "not_sent"
