"""The API on a fresh market, with a key for every role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from adapters.hostagent.reports import SealedReport
from adapters.http.app import attach
from ledger.domain.events import Role
from ledger.services import accounts, api_keys, deposits
from tests.support.databases import Server
from tests.support.market import DOLLAR, Market
from tests.support.routes import application


class Api:
    """Requests in somebody's name."""

    def __init__(self, market: Market, client: TestClient[Any]) -> None:
        """Make an account and a key per role, and a second renter."""
        self.market = market
        self.client = client
        self.accounts: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        people: list[tuple[str, Role]] = [
            ("alice", "renter"),
            ("carol", "renter"),
            ("bob", "host"),
            ("eve", "host"),
            ("audrey", "auditor"),
            ("root", "admin"),
        ]
        with market.ledger.unit() as unit:
            for name, role in people:
                account = self.accounts[name] = accounts.ensure_account(unit, name)
                deposits.deposit(unit, account, 100 * DOLLAR, f"opening-{account}")
                self.keys[name] = api_keys.create_key(unit, account, role)

    def __call__(
        self, who: str | None, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        """One request; *body* is sent as JSON, bytes as they are."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who is not None:
            sent["Authorization"] = f"Bearer {self.keys.get(who, who)}"
        content = body if isinstance(body, bytes) else None
        json = None if isinstance(body, bytes) else body
        if isinstance(body, bytes):
            sent.setdefault("Content-Type", "application/json")
        return self.client.request(method, path, content=content, json=json, headers=sent)

    def usage(self, *reports: SealedReport) -> httpx.Response:
        """Post reports as a host does."""
        raw = msgspec.msgpack.encode([[one.key_id, one.signature, one.body] for one in reports])
        return self.client.post(
            "/v1/usage", content=raw, headers={"Content-Type": "application/msgpack"}
        )


@pytest.fixture(scope="session")
def app() -> Litestar:
    """The routes, built once: that takes longer than most tests."""
    return application()


@pytest.fixture(scope="package")
def _standing(app: Litestar, server: Server) -> Iterator[Api]:
    """One market with a listed machine and everybody's keys, made once."""
    dsn = server.copy()
    market = Market(dsn)
    market.machine()
    yield Api(market, TestClient(app))
    market.close()
    server.drop(dsn)


@pytest.fixture
def still(app: Litestar, _standing: Api) -> Iterator[Api]:
    """The API on a market that stands from test to test, for what must change nothing at all."""
    before = _standing.market.head()
    attach(app, _standing.market.ledger, _standing.market.usage)
    with TestClient(app) as client:
        _standing.client = client
        yield _standing
    assert _standing.market.head() == before


@pytest.fixture
def api(app: Litestar, market: Market) -> Iterator[Api]:
    """The API without a network in between."""
    attach(app, market.ledger, market.usage)
    with TestClient(app) as client:
        yield Api(market, client)
