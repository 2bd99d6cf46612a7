"""Agreed terms whose second has come: bids that take effect, extensions, ends of reservations."""

from __future__ import annotations

from typing import Final

from ledger.services.allocation import settle
from ledger.services.contracts import end_reservation
from ledger.services.ledger import Ledger
from ledger.services.policies.common import is_due
from ledger.store.database import Connection

TERMS_DUE: Final = (
    "SELECT DISTINCT machine_id FROM instances WHERE terms_due_at <= %(now)s"
    " AND destroyed_at IS NULL ORDER BY machine_id"
)
RESERVATIONS_DUE: Final = (
    "SELECT instance_id FROM reservations WHERE ended_at IS NULL AND term_until <= %(now)s"
    " ORDER BY instance_id"
)


def apply_terms(ledger: Ledger) -> None:
    """Let agreed terms take effect, and decide the auctions that they change."""
    if not is_due(ledger, TERMS_DUE):
        return
    with ledger.unit() as unit:
        for (machine_id,) in unit.connection.execute(TERMS_DUE, {"now": unit.now}).fetchall():
            settle(unit, machine_id)


def end_reservations(ledger: Ledger) -> None:
    """End every reservation whose term is over: the contract goes on, on demand."""
    if not is_due(ledger, RESERVATIONS_DUE):
        return
    with ledger.unit() as unit:
        due = unit.connection.execute(RESERVATIONS_DUE, {"now": unit.now}).fetchall()
        for (instance_id,) in due:
            end_reservation(unit, unit.instance(instance_id), "term")


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which agreed terms change anything."""
    row = connection.execute(
        "SELECT least((SELECT min(terms_due_at) FROM instances WHERE terms_due_at > %s),"
        " (SELECT min(term_until) FROM reservations WHERE ended_at IS NULL AND term_until > %s))",
        [now, now],
    ).fetchone()
    return None if row is None else row[0]
