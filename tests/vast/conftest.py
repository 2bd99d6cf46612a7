"""The frontend on a fresh market: without a network in between, and for the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.domain.events import Role
from ledger.services import accounts
from tests.http.conftest import Api, api, app
from tests.support.market import DOLLAR, Market
from tests.support.offers import describe
from tests.vast.client import Client
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
def programs() -> Path:
    """Where the real client lies."""
    return environment("vastai-1.9.1", VASTAI)


@pytest.fixture
def loopback(market: Market) -> Iterator[Loopback]:
    """The application on a port."""
    with Loopback(market) as serving:
        yield serving


@pytest.fixture
def person(market: Market, loopback: Loopback, programs: Path, tmp_path: Path) -> Person:
    """People with $100, a key and the client."""

    def make(name: str, role: Role) -> Client:
        account = market.account(name, 100 * DOLLAR)
        with market.ledger.unit() as unit:
            key = accounts.create_key(unit, account, role)
        return Client(programs, tmp_path / f"{name}-{role}", loopback.url, key)

    return make


def good_machine(market: Market, **options: object) -> int:
    """A machine that the guide's first search finds: verified, reliable, with open ports."""
    machine = market.machine(**{"floor": 100_000_000, **options})  # type: ignore[arg-type]
    describe(market, machine, **GOOD)
    return machine
