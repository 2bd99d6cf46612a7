"""Asking a registry for a digest, against one on this machine that behaves in every way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from adapters.registry.client import RegistryClient
from ledger.domain.launch import ImageLogin, LaunchConfig
from ledger.services.images import NoResolver, Resolved

DIGEST = "sha256:" + "5e" * 32
ROUTES = dict[str, Callable[["Handler"], None]]


class Handler(BaseHTTPRequestHandler):
    """Answers by the server's routes, and keeps what was asked."""

    server: Registry

    def do_HEAD(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        self.server.routes[path](self)

    do_GET = do_HEAD  # noqa: N815 - the library's name

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send one answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Registry(ThreadingHTTPServer):
    """A registry on the loopback interface."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.routes: ROUTES = {}

    @property
    def name(self) -> str:
        """How images name it."""
        return f"127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry that tests give routes."""
    one = Registry()
    thread = threading.Thread(target=one.serve_forever, args=[0.01])
    thread.start()
    yield one
    one.shutdown()
    thread.join()
    one.server_close()


def ask(image: str, login: ImageLogin | None = None, **options: Any) -> str | None:
    """What a client that may reach this machine says of an image."""
    client = RegistryClient(**{"reach": {"loopback"}, "timeout_seconds": 3.0, **options})
    try:
        return client.digest_of(image, login)
    finally:
        client.close()


def test_an_open_registry_is_asked_once(registry: Registry) -> None:
    """One HEAD for the manifest of the tag gives the digest."""
    registry.routes = {
        "/v2/a/b/manifests/1.0": lambda one: one.answer(200, Docker_Content_Digest=DIGEST)
    }
    assert ask(f"{registry.name}/a/b:1.0") == DIGEST
    ((method, _, headers),) = registry.asked
    assert method == "HEAD"
    assert "application/vnd.oci.image.index.v1+json" in headers["Accept"]
    assert "Authorization" not in headers


@pytest.mark.parametrize("login", [None, ImageLogin(username="ada", password="pw")])
def test_a_token_is_fetched_where_it_is_wanted(
    registry: Registry, login: ImageLogin | None
) -> None:
    """The realm is asked for the scope it named, with the login if there is one, and then again."""

    def manifest(one: Handler) -> None:
        if one.headers.get("Authorization") == "Bearer t0k":
            one.answer(200, Docker_Content_Digest=DIGEST)
        else:
            realm = f"http://{registry.name}/token"
            challenge = f'Bearer realm="{realm}",service="reg",scope="repository:a/b:pull"'
            one.answer(401, WWW_Authenticate=challenge)

    registry.routes = {
        "/v2/a/b/manifests/latest": manifest,
        "/token": lambda one: one.answer(200, json.dumps({"access_token": "t0k"}).encode()),
    }
    assert ask(f"{registry.name}/a/b", login) == DIGEST
    assert [path for _, path, _ in registry.asked] == [
        "/v2/a/b/manifests/latest",
        "/token?service=reg&scope=repository%3Aa%2Fb%3Apull",
        "/v2/a/b/manifests/latest",
    ]
    sent = registry.asked[1][2].get("Authorization")
    assert sent == (None if login is None else "Basic YWRhOnB3")


def _slow(one: Handler) -> None:
    time.sleep(1.5)
    one.answer(200, Docker_Content_Digest=DIGEST)


@pytest.mark.parametrize(
    "route",
    [
        lambda one: one.answer(404),
        lambda one: one.answer(500),
        lambda one: one.answer(200),
        lambda one: one.answer(200, Docker_Content_Digest="sha256:short"),
        lambda one: one.answer(401),
        lambda one: one.answer(401, WWW_Authenticate="Negotiate"),
        lambda one: one.answer(401, WWW_Authenticate='Bearer realm="http://192.0.2.1/token"'),
        lambda one: one.answer(401, WWW_Authenticate='Bearer realm="file:///etc/passwd"'),
        lambda one: one.answer(401, WWW_Authenticate='Bearer realm="http://169.254.169.254/"'),
        lambda one: one.answer(302, Location="http://127.0.0.1:1/"),
        lambda one: one.connection.close(),
        _slow,
    ],
)
def test_what_a_registry_does_wrong_is_no_error(
    registry: Registry, route: Callable[[Handler], None]
) -> None:
    """Missing, broken, slow, redirecting or malicious: no digest, in bounded time, no exception."""
    registry.routes = {"/v2/x/manifests/latest": route}
    began = time.monotonic()
    assert ask(f"{registry.name}/x", timeout_seconds=0.8) is None
    assert time.monotonic() - began < 30
    assert len(registry.asked) == 1


def _gives(body: bytes, one: Handler) -> None:
    one.answer(200, body)


def test_a_token_that_is_none(registry: Registry) -> None:
    """A realm that answers with no JSON, no token, or a token with a line break gives none."""
    for body in (b"", b"x", b"[]", b"{}", b'{"token": 1}', b'{"token": "a\\nb"}', b"x" * 100_000):
        registry.routes = {
            "/v2/x/manifests/latest": lambda one: one.answer(
                401, WWW_Authenticate=f'Bearer realm="http://{registry.name}/t"'
            ),
            "/t": partial(_gives, body),
        }
        assert ask(f"{registry.name}/x") is None


def test_private_addresses_are_not_asked(registry: Registry) -> None:
    """Without a setting no registry on this machine or in a private network is reached."""
    assert ask(f"{registry.name}/x", reach=()) is None
    assert registry.asked == []
    for address in ("10.0.0.1", "169.254.169.254", "::1"):
        found = ask("evil.example/x", reach=(), resolve=lambda *_, a=address: [a])
        assert found is None


def test_a_name_that_does_not_resolve(registry: Registry) -> None:
    """A host without an address, or a name server that hangs, costs the time limit at most."""

    def unknown(*_: Any) -> list[str]:
        message = "no such name"
        raise OSError(message)

    let_go = threading.Event()

    def hangs(*_: Any) -> list[str]:
        let_go.wait(60)
        return ["127.0.0.1"]

    assert ask("nowhere.example/x", resolve=unknown) is None
    began = time.monotonic()
    assert ask("nowhere.example/x", resolve=hangs, timeout_seconds=0.2) is None
    assert time.monotonic() - began < 30
    let_go.set()
    assert registry.asked == []


def test_a_digest_is_never_asked_for() -> None:
    """A reference with a digest, no image and no launch ask nobody."""

    class Fails(NoResolver):
        def digest_of(self, image: str, login: ImageLogin | None = None) -> str | None:
            raise AssertionError(image, login)

    pinned = LaunchConfig(image=f"a/b@{DIGEST}")
    assert Resolved.asked(Fails(), pinned).digest_of(pinned.image) == DIGEST
    assert Resolved.asked(Fails(), LaunchConfig()).digest_of(None) is None
    assert Resolved.asked(Fails(), None).digest_of("a/b") is None
    assert Resolved({"a/b": DIGEST}).digest_of("a/c") is None
