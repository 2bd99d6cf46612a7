"""The container engine of this machine, for tests of the runtime port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.engine import Engine, reachable_engine


@pytest.fixture(scope="module")
def real_engine() -> Iterator[Engine]:
    """An engine that can be reached; the test is skipped, with the reason, where there is none."""
    with reachable_engine() as engine:
        yield engine
