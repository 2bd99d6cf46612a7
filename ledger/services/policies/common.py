"""What policies share: a look whether anything is due."""

from __future__ import annotations

from ledger.services.ledger import Ledger


def is_due(ledger: Ledger, query: str) -> bool:
    """True when *query*, given the present second as `now`, finds anything."""
    with ledger.reading() as connection:
        row = connection.execute(f"{query} LIMIT 1", {"now": ledger.clock()}).fetchone()
    return row is not None
