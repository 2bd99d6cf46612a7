"""Promotional grants that ended: what is unspent of them goes back (`marketplace.md` §13.7)."""

from __future__ import annotations

from ledger.services import grants
from ledger.services.ledger import Ledger, read_policy
from ledger.services.policies.periods import folded_through
from ledger.store.database import Connection


def close_grants(ledger: Ledger) -> None:
    """Close every grant whose seconds no timely usage can be about any more, once all is folded."""
    with ledger.reading() as connection:
        late = read_policy(connection).late_usage_seconds
        values = {"now": ledger.clock(), "late": late}
        if not connection.execute(f"{grants.DUE} LIMIT 1", values).fetchone():
            return
    with ledger.unit() as unit:
        if folded_through(unit.connection, unit.now - 1):
            grants.close_due(unit)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which a grant ends, or one that ended can be closed."""
    late = read_policy(connection).late_usage_seconds
    row = connection.execute(
        f"SELECT min({grants.ENDS}) FILTER (WHERE {grants.ENDS} > %(now)s),"  # noqa: S608 - constants
        f" min({grants.ENDS} + %(late)s) FILTER (WHERE {grants.ENDS} + %(late)s > %(now)s)"
        " FROM grants WHERE closed_at IS NULL",
        {"now": now, "late": late},
    ).fetchone()
    assert row is not None
    return min((second for second in row if second is not None), default=None)
