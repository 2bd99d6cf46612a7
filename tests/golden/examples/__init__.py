"""One fact of every kind, by parts of the business."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import CORE
from tests.golden.examples.market import MARKET

EXAMPLES: Final[tuple[e.AnyFact, ...]] = (*CORE, *MARKET)
