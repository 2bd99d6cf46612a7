"""One fact of every kind, by parts of the business."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.books import BOOKS
from tests.golden.examples.core import CORE
from tests.golden.examples.disputes import DISPUTES
from tests.golden.examples.launches import LAUNCHES
from tests.golden.examples.market import MARKET
from tests.golden.examples.operations import OPERATIONS
from tests.golden.examples.payments import PAYMENTS
from tests.golden.examples.safety import SAFETY
from tests.golden.examples.trust import TRUST
from tests.golden.examples.volumes import VOLUMES
from tests.golden.examples.webhooks import WEBHOOKS

EXAMPLES: Final[tuple[e.AnyFact, ...]] = (
    *CORE,
    *MARKET,
    *OPERATIONS,
    *WEBHOOKS,
    *SAFETY,
    *TRUST,
    *DISPUTES,
    *VOLUMES,
    *LAUNCHES,
    *PAYMENTS,
    *BOOKS,
)
