"""Maintenance windows whose second has come: rentals stop, renters hear again, it starts, it ends.

A renter who comes after a window was scheduled is told by the next run, in the same second under a
simulated clock.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.downtime import ANNOUNCED_AHEAD_SECONDS, RENTALS_STOP_SECONDS
from ledger.domain.events import (
    Fact,
    MaintenanceAnnounced,
    MaintenanceEnded,
    MaintenanceRentalsStopped,
    MaintenanceStarted,
)
from ledger.domain.ids import machine_stream
from ledger.projections.contracts import CONTRACTS
from ledger.services.allocation import settle
from ledger.services.ledger import Ledger, Unit
from ledger.services.maintenance import tell_renters, told
from ledger.services.policies.glance import any_of
from ledger.store.database import Connection

_STEPS: Final = f"""
SELECT w.machine_id, w.maintenance_id, step.name, step.due_at
FROM maintenance_windows w CROSS JOIN LATERAL (VALUES
    (1, 'stop', CASE WHEN w.approved AND w.rentals_stopped_at IS NULL
                     THEN w.start - {RENTALS_STOP_SECONDS} END, w.until),
    -- Who was told less than a day before it starts needs no second notice.
    (2, 'announce', CASE WHEN w.announced_at IS NULL
                          AND w.scheduled_at < w.start - {ANNOUNCED_AHEAD_SECONDS}
                         THEN w.start - {ANNOUNCED_AHEAD_SECONDS} END, w.start),
    (3, 'start', CASE WHEN w.status = 'scheduled' THEN w.start END, NULL),
    (4, 'end', w.until, NULL)
) AS step (number, name, due_at, only_before)
WHERE w.status IN ('scheduled', 'started') AND step.due_at IS NOT NULL
"""  # noqa: S608 - constants
_DUE: Final = f"""
SELECT machine_id, maintenance_id, name FROM (
    {_STEPS} AND (step.only_before IS NULL OR step.only_before > %(now)s) AND step.due_at <= %(now)s
    ORDER BY w.start, w.maintenance_id, step.number) AS due
"""  # noqa: S608 - constants
_NEWCOMERS: Final = f"""
SELECT DISTINCT i.account_id, w.maintenance_id FROM maintenance_windows w
JOIN {CONTRACTS} i ON i.machine_id = w.machine_id AND i.destroyed_at IS NULL
    AND i.created_at >= w.scheduled_at
WHERE w.status IN ('scheduled', 'started') AND NOT EXISTS (
    SELECT 1 FROM notices n WHERE n.account_id = i.account_id AND n.position > w.position
    AND n.code = 'maintenance' AND n.about = 'maintenance-' || w.maintenance_id)
ORDER BY i.account_id, w.maintenance_id
"""  # noqa: S608 - a constant

WINDOWS_DUE: Final = any_of(_DUE, _NEWCOMERS)


def keep_windows(ledger: Ledger) -> None:
    """Do what is due for every maintenance window, and tell renters who came since."""
    with ledger.reading() as connection:
        now = ledger.clock()
        due = connection.execute(f"{_DUE} LIMIT 1", {"now": now}).fetchone()
        newcomer = connection.execute(f"{_NEWCOMERS} LIMIT 1").fetchone()
    if due is None and newcomer is None:
        return
    with ledger.unit() as unit:
        steps = unit.connection.execute(_DUE, {"now": unit.now}).fetchall()
        for machine_id, maintenance_id, name in steps:
            _take(unit, machine_id, maintenance_id, name)
        newcomers = unit.connection.execute(_NEWCOMERS).fetchall()
        unit.append_all([told(unit, account, window) for account, window in newcomers])


def _take(unit: Unit, machine_id: int, maintenance_id: int, step: str) -> None:
    fact: Fact
    if step == "stop":
        fact = MaintenanceRentalsStopped(
            machine_id=machine_id, maintenance_id=maintenance_id, stopped_at=unit.now
        )
    elif step == "announce":
        fact = MaintenanceAnnounced(
            machine_id=machine_id, maintenance_id=maintenance_id, announced_at=unit.now
        )
    elif step == "start":
        fact = MaintenanceStarted(
            machine_id=machine_id, maintenance_id=maintenance_id, started_at=unit.now
        )
    else:
        fact = MaintenanceEnded(
            machine_id=machine_id, maintenance_id=maintenance_id, ended_at=unit.now
        )
    unit.append(machine_stream(machine_id), fact)
    if step == "announce":
        tell_renters(unit, machine_id, maintenance_id)
    elif step == "end":
        settle(unit, machine_id)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which a window asks for something."""
    row = connection.execute(
        f"SELECT min(due_at) FROM ({_STEPS}) AS steps WHERE due_at > %s",  # noqa: S608 - constants
        [now],
    ).fetchone()
    return None if row is None else row[0]
