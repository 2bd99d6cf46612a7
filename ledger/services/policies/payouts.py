"""Payouts that are due (`marketplace.md` §14): judged on Fridays, 00:00 UTC."""

from __future__ import annotations

from typing import Final

from ledger.domain.payment import SECONDS_PER_WEEK, friday_of
from ledger.services.ledger import Ledger
from ledger.services.payouts import weekly
from ledger.services.policies.glance import any_of
from ledger.store.database import Connection

PAYOUTS_DUE: Final = any_of(
    weekly.RUN_DUE, "SELECT 1 FROM payouts WHERE status = 'pending' AND due_at <= %(now)s"
)


def pay_hosts(ledger: Ledger) -> None:
    """Begin what is due, and set what will be; what hosts owe was recovered before."""
    with ledger.reading() as connection:
        now = ledger.clock()
        if not weekly.is_run_due(connection, now) and not _is_any_due(connection, now):
            return
    with ledger.unit() as unit:
        weekly.hold_run(unit)


def _is_any_due(connection: Connection, now: int) -> bool:
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM payouts p WHERE p.status = 'pending' AND p.due_at <= %s"
        " AND NOT EXISTS (SELECT 1 FROM payouts o WHERE o.host_id = p.host_id"
        "  AND o.status = ANY(%s)))",
        [now, list(weekly.UNDER_WAY)],
    ).fetchone()
    assert row is not None
    return bool(row[0])


def next_due(connection: Connection, now: int) -> int | None:
    """The next Friday, as long as somebody can be paid."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM payout_accounts WHERE is_enabled)"
        " OR EXISTS (SELECT 1 FROM payouts WHERE status = 'pending')"
    ).fetchone()
    assert row is not None
    return friday_of(now) + SECONDS_PER_WEEK if row[0] else None
