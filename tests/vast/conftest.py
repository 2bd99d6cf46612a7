"""The frontend on a fresh market, without a network in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from litestar.testing import TestClient

from adapters.http.app import create_app
from tests.http.conftest import Api
from tests.support.market import Market


@pytest.fixture
def api(market: Market) -> Iterator[Api]:
    """The API with keys for every role."""
    with TestClient(create_app(market.ledger, market.usage)) as client:
        yield Api(market, client)
