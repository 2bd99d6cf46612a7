"""Outages that nobody confirms any more end, and what they cost is settled once."""

from __future__ import annotations

from typing import Final

from ledger.projections.runner import position_of
from ledger.services import compensation
from ledger.services.ledger import Ledger
from ledger.services.outages import judge, upheld_until, verdicts
from ledger.services.policies.glance import any_of
from ledger.store.database import Connection

OUTAGES_MAY_END: Final = "SELECT 1 FROM outages WHERE ended_at IS NULL"
UNSETTLED: Final = any_of(
    "SELECT 1 FROM outages WHERE settled_at IS NULL AND ended_position <= %(folded)s",
    compensation.LOST_DISKS,
)


def end_outages(ledger: Ledger) -> None:
    """End every outage that too few locations still confirm."""
    with ledger.reading() as connection:
        due = verdicts(connection, ledger.clock())
    if due:
        with ledger.unit() as unit:
            judge(unit)


def compensate(ledger: Ledger) -> None:
    """Settle outages and lost disks whose usage is folded."""
    with ledger.reading() as connection:
        outages = compensation.unsettled(connection, position_of(connection))
        disks = compensation.lost_disks(connection)
    if not outages and not disks:
        return
    with ledger.unit() as unit:
        for outage_id in compensation.unsettled(unit.connection, position_of(unit.connection)):
            compensation.settle_outage(unit, outage_id)
        for lost in compensation.lost_disks(unit.connection):
            compensation.settle_lost_disk(unit, lost)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which an outage ends if no location says anything more."""
    return min((second for second in upheld_until(connection) if second > now), default=None)
