"""The payment processor against the ledger, through a port: the ledger knows no processor."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ledger.services.ledger import Ledger
from ledger.services.reconciliation.difference import Compared, Difference

NOT_CONFIGURED = "no processor configured"


class Comparison(NamedTuple):
    """One disagreement: what the ledger has and what the processor has, in nanos."""

    kind: str
    about: str
    ledger: int
    processor: int


class ProcessorComparison(Protocol):
    """Lays what the processor says beside what is booked."""

    def __call__(self, ledger: Ledger, since: int) -> list[Comparison]:
        """Every disagreement about what happened from second *since* on.

        Raises:
            UnavailableError: The processor does not answer.
        """


def compare_processor(
    ledger: Ledger, start: int, until: int, processor: ProcessorComparison | None
) -> Compared:
    """Lines of the processor since *start*, and the sums of everything; *until* is not a bound."""
    del until
    if processor is None:
        return Compared([], NOT_CONFIGURED, is_done=False)
    return Compared(
        [
            Difference(one.kind, one.about, one.ledger, one.processor, "nanos")
            for one in processor(ledger, start)
        ]
    )
