"""The frontend on a fresh market: without a network in between, and for the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from litestar import Litestar

from ledger.domain.events import Role
from ledger.services import api_keys
from tests.http.conftest import Api, api, app
from tests.support.market import DOLLAR, Market
from tests.support.offers import describe
from tests.vast.client import Client, Runner
from tests.vast.drives import require_driven
from tests.vast.environments import VASTAI, environment
from tests.vast.loopback import Loopback

__all__ = ["Api", "api", "app"]

GOOD: Final[dict[str, Any]] = {
    "verification": "verified",
    "reliability": 0.995,
    "checks": 5_000,
    "lower_bound": 0.99,
    "score": 50.0,
    "country": "SE",
    "cuda": 12.8,
    "ports": 16,
    "driver": "570.86.10",
    "driver_number": 570_086_010,
    "compute_capability": 890,
}
"""What the guide's first search asks of a machine, and more than that."""
Person = Callable[[str, Role], Client]


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """The real client, ready to be run again and again."""
    with Runner(environment("vastai-1.9.1", VASTAI)) as ready:
        yield ready


@pytest.fixture
def loopback(app: Litestar, market: Market) -> Iterator[Loopback]:
    """The application on a port."""
    with Loopback(app, market) as serving:
        yield serving


@pytest.fixture
def person(
    request: pytest.FixtureRequest,
    market: Market,
    loopback: Loopback,
    runner: Runner,
    tmp_path: Path,
) -> Iterator[Person]:
    """People with $100, a key and the client; what the test is to drive has run when it ends."""
    clients: list[Client] = []

    def make(name: str, role: Role) -> Client:
        account = market.account(name, 100 * DOLLAR)
        with market.ledger.unit() as unit:
            key = api_keys.create_key(unit, account, role)
        clients.append(Client(runner, tmp_path / f"{name}-{role}", loopback.url, key))
        return clients[-1]

    yield make
    require_driven(request.function, clients)


def good_machine(market: Market, **options: object) -> int:
    """A machine that the guide's first search finds: verified, reliable, with open ports."""
    machine = market.machine(**{"floor": 100_000_000, **options})  # type: ignore[arg-type]
    describe(market, machine, **GOOD)
    return machine
