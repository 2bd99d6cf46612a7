"""What all tests share: the depth of the property tests, one database server, fresh markets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.databases import Server
from tests.support.examples import EVERYDAY, SOAK
from tests.support.market import Market

settings.register_profile("gpuledger", max_examples=EVERYDAY, deadline=None, print_blob=True)
settings.register_profile("soak", settings.get_profile("gpuledger"), max_examples=SOAK)
settings.load_profile("gpuledger")

# The tests start the product some hundred times: where Python is told to keep no bytecode, as on
# many build machines, each start would compile all of it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One embedded PostgreSQL for this test process."""
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def dsn(server: Server) -> Iterator[str]:
    """A fresh migrated database."""
    name = server.copy()
    yield name
    server.drop(name)


@pytest.fixture
def market(dsn: str) -> Iterator[Market]:
    """A marketplace under a clock that stands still."""
    one = Market(dsn)
    yield one
    one.close()
