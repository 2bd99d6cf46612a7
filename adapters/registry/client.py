"""Asking an image registry which digest a tag means, as the distribution specification says it.

A HEAD request for the manifest; where the registry wants a token, an anonymous one (or one for the
login that was given) from the realm that it names. What it names is a stranger's word: only https
to public addresses, unless the operator allows more, each name resolved once and the request sent
to exactly what was checked. No redirect is followed, and no failure is an error.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec
import structlog

from ledger.domain.image import ImageReference, is_digest, parse_image
from ledger.domain.launch import ImageLogin
from ledger.domain.webhook_targets import Reach, parse_target, require_reach
from ledger.errors import RejectedError
from ledger.services.images import ImageResolver

TIMEOUT_SECONDS: Final = 4.0
"""For everything that one image takes."""
_TOKEN_BYTES_MAX: Final = 65_536
_ACCEPT: Final = ", ".join((
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
))  # fmt: skip
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_RESOLVERS: Final = 8
_OK: Final = 200
_UNAUTHORIZED: Final = 401

Resolve = Callable[[str, int], list[str]]
"""(host, port) → its addresses as texts; raises `OSError` when there are none."""

log = structlog.get_logger("gpuledger.registry")


class RegistryClient(ImageResolver):
    """Resolves references; safe to use from many threads, and closed at its end."""

    def __init__(
        self,
        reach: Collection[Reach] = (),
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: Resolve | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Ask public registries, and those that *reach* allows."""
        self._reach = frozenset(reach)
        self._timeout = timeout_seconds
        self._resolve = resolve or _ask_system
        # A name server that does not answer keeps its thread, and not the request's.
        self._names = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="registry-names")
        self._transport = httpx.HTTPTransport(
            verify=context or httpx.create_ssl_context(),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()
        self._names.shutdown(wait=False, cancel_futures=True)

    def digest_of(self, image: str, login: ImageLogin | None = None) -> str | None:
        """The digest of a reference, or None when it cannot be had in time."""
        reference = parse_image(image)
        if reference.digest is not None:
            return reference.digest
        try:
            return self._ask(reference, login, time.monotonic() + self._timeout)
        except (httpx.HTTPError, OSError, RejectedError, ValueError) as error:
            # Not the image's name: it is the renter's own.
            log.info("registry not asked", reason=type(error).__name__)
            return None

    def _ask(
        self, reference: ImageReference, login: ImageLogin | None, deadline: float
    ) -> str | None:
        scheme = "http" if _is_loopback(reference.registry) else "https"
        path = f"/v2/{reference.repository}/manifests/{reference.tag}"
        url = f"{scheme}://{reference.registry}{path}"
        answer = self._send("HEAD", url, {"Accept": _ACCEPT}, deadline)
        if answer.status_code == _UNAUTHORIZED:
            headers = self._authorized(answer, reference, login, deadline)
            if headers is None:
                return None
            answer = self._send("HEAD", url, {"Accept": _ACCEPT, **headers}, deadline)
        digest = answer.headers.get("docker-content-digest", "")
        return digest if answer.status_code == _OK and is_digest(digest) else None

    def _authorized(
        self,
        answer: httpx.Response,
        reference: ImageReference,
        login: ImageLogin | None,
        deadline: float,
    ) -> dict[str, str] | None:
        """The header with which the registry wants to be asked again; None for what it cannot be.

        A login goes to the registry that it was given for, and to the realm which that one names.
        """
        scheme, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
        basic = _basic(login)
        if scheme.lower() == "basic":
            return basic or None
        if scheme.lower() != "bearer":
            return None
        challenge = dict(_CHALLENGE.findall(rest))
        query = {
            "service": challenge.get("service", ""),
            "scope": challenge.get("scope") or f"repository:{reference.repository}:pull",
        }
        realm = urlsplit(challenge.get("realm", ""))
        url = realm._replace(query="&".join(filter(None, (realm.query, urlencode(query))))).geturl()
        given = self._send("GET", url, basic, deadline)
        token = _token(given.content) if given.status_code == _OK else None
        return None if token is None else {"Authorization": f"Bearer {token}"}

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], deadline: float
    ) -> httpx.Response:
        """One request to an address that was checked; its body, if any, is read up to a bound."""
        target = parse_target(url, self._reach)
        left = deadline - time.monotonic()
        addresses = self._names.submit(self._resolve, target.host, target.port).result(max(left, 0))
        for address in addresses:
            require_reach(address, self._reach, target.scheme)
        left = deadline - time.monotonic()
        if not addresses or left <= 0:
            raise TimeoutError
        request = httpx.Request(
            method,
            httpx.URL(
                scheme=target.scheme,
                host=addresses[0],
                port=target.port,
                raw_path=target.path.encode(),
            ),
            headers={
                "Host": target.host_header,
                "User-Agent": "gpuledger",
                "Accept-Encoding": "identity",
                "Connection": "close",
                **headers,
            },
            extensions={
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), left),
                "sni_hostname": target.host,
            },
        )
        response = self._transport.handle_request(request)
        try:
            body = b""
            if method == "GET":
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > _TOKEN_BYTES_MAX or time.monotonic() > deadline:
                        raise TimeoutError
            return httpx.Response(response.status_code, headers=response.headers, content=body)
        finally:
            response.close()


def _token(body: bytes) -> str | None:
    """The token in an answer of a realm."""
    found: Any = msgspec.json.decode(body)
    if not isinstance(found, dict):
        return None
    token = found.get("token") or found.get("access_token")
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else None


def _basic(login: ImageLogin | None) -> dict[str, str]:
    if login is None:
        return {}
    pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def _is_loopback(registry: str) -> bool:
    return registry.rpartition(":")[0] in {"localhost", "127.0.0.1"} or registry == "localhost"


def _ask_system(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system resolves names."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
