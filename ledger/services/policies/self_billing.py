"""Months that are over for hosts too: their self-billing documents are issued (`§14`)."""

from __future__ import annotations

from typing import Final

from ledger.domain.ids import month_start, next_month_start
from ledger.projections.contracts import CONTRACTS
from ledger.services import self_billing
from ledger.services.ledger import Ledger, read_policy
from ledger.services.policies.glance import ISSUE_AFTER_SECONDS
from ledger.services.policies.periods import folded_through
from ledger.store.database import Connection

_NEXT: Final = (
    "SELECT (SELECT position FROM projection_positions WHERE name = 'self_billing') AS month,"  # noqa: S608 - a constant
    f" (SELECT min(registered_at) FROM machines WHERE EXISTS (SELECT 1 FROM {CONTRACTS} i))"
    " AS first"
)
MONTHS_DUE: Final = f"SELECT 1 FROM ({_NEXT}) AS next WHERE coalesce(month, first) < %(billable)s"  # noqa: S608 - a constant


def bill_hosts(ledger: Ledger) -> None:
    """Issue self-billing for every month of which nothing can arrive any more."""
    while True:
        with ledger.reading() as connection:
            month = _next_month(connection)
            wait = read_policy(connection).late_usage_seconds + ISSUE_AFTER_SECONDS
            if month is None:
                return
            until = next_month_start(month)
            if ledger.clock() < until + wait or not folded_through(connection, until + wait - 1):
                return
            lines = self_billing.delivered(connection, month, until)
            moved = self_billing.adjusted(connection, month, until)
        with ledger.unit() as unit:
            self_billing.issue(unit, month, until, lines, moved)
            unit.connection.execute(
                "INSERT INTO projection_positions VALUES ('self_billing', 0, %s)"
                " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
                [until],
            )


def _next_month(connection: Connection) -> int | None:
    """The first month not billed yet; none while nobody ever rented."""
    row = connection.execute(_NEXT).fetchone()
    assert row is not None
    if row[0] is not None:
        return int(row[0])
    return None if row[1] is None else month_start(row[1])


def next_due(connection: Connection, now: int) -> int | None:
    """The second at which the next month can be billed."""
    month = _next_month(connection)
    if month is None:
        return None
    wait = read_policy(connection).late_usage_seconds + ISSUE_AFTER_SECONDS
    due = next_month_start(month) + wait
    return due if due > now else None
