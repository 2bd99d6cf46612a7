"""Maintenance: what a host schedules and cancels, and who is told (`marketplace.md` §16).

Contracts go on and offline seconds are unbilled as always; a window only says in advance when they
may come. What its second brings is a policy's (`ledger.services.policies.maintenance`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.downtime import APPROVED_AHEAD_SECONDS
from ledger.domain.events import (
    Fact,
    MaintenanceCancelled,
    MaintenanceCategory,
    MaintenanceEnded,
    MaintenanceScheduled,
)
from ledger.domain.ids import machine_stream, rfc3339
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import NotFoundError, RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services.allocation import settle
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.notices import notice

DURATION_SECONDS_MAX: Final = 30 * SECONDS_PER_DAY
AHEAD_SECONDS_MAX: Final = 366 * SECONDS_PER_DAY


class Window(NamedTuple):
    """A maintenance window: `[start, until)`."""

    machine_id: int
    maintenance_id: int
    start: int
    until: int
    status: str


def schedule(
    unit: Unit,
    machine_id: int,
    starts_at: int,
    duration_seconds: int,
    category: MaintenanceCategory,
) -> int:
    """Say that a machine will be worked on, tell its renters, and return the window's id.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args` for a start in the past or more than a year ahead, or a
            duration that is not between a second and 30 days; `maintenance_overlap` with another
            window of the machine.
    """
    require_machine(unit.connection, machine_id)
    if not unit.now <= starts_at <= unit.now + AHEAD_SECONDS_MAX:
        message = "maintenance starts now or later, and at most 366 days ahead"
        raise RejectedError("invalid_args", message)
    if not 1 <= duration_seconds <= DURATION_SECONDS_MAX:
        raise RejectedError("invalid_args", "maintenance takes between a second and 30 days")
    _refuse_overlap(unit, machine_id, starts_at, starts_at + duration_seconds)
    maintenance_id = unit.next_id("maintenance")
    unit.append(
        machine_stream(machine_id),
        MaintenanceScheduled(
            machine_id=machine_id,
            maintenance_id=maintenance_id,
            starts_at=starts_at,
            duration_seconds=duration_seconds,
            category=category,
            approved=starts_at - unit.now >= APPROVED_AHEAD_SECONDS,
            scheduled_at=unit.now,
        ),
    )
    tell_renters(unit, machine_id, maintenance_id)
    return maintenance_id


def cancel(unit: Unit, machine_id: int, maintenance_id: int) -> None:
    """Call a window off, or end it now if it has started; again changes nothing.

    The renters are told once more, and new rentals are possible again.

    Raises:
        NotFoundError: `no_such_maintenance`.
        RejectedError: `maintenance_over` when it came to its end.
    """
    window = require_window(unit, machine_id, maintenance_id)
    if window.status == "cancelled":
        return
    if window.status == "ended":
        raise RejectedError("maintenance_over", f"maintenance {maintenance_id} is over")
    call_off(unit, window)
    tell_renters(unit, machine_id, maintenance_id)
    settle(unit, machine_id)


def call_off(unit: Unit, window: Window) -> None:
    """Append that an open window does not happen, or ends now."""
    fact: Fact
    if window.status == "started":
        fact = MaintenanceEnded(
            machine_id=window.machine_id, maintenance_id=window.maintenance_id, ended_at=unit.now
        )
    else:
        fact = MaintenanceCancelled(
            machine_id=window.machine_id,
            maintenance_id=window.maintenance_id,
            cancelled_at=unit.now,
        )
    unit.append(machine_stream(window.machine_id), fact)


def require_window(unit: Unit, machine_id: int, maintenance_id: int) -> Window:
    """The window, if it is one of this machine.

    Raises:
        NotFoundError: `no_such_maintenance`.
    """
    row = unit.connection.execute(
        "SELECT machine_id, maintenance_id, start, until, status FROM maintenance_windows"
        " WHERE maintenance_id = %s AND machine_id = %s",
        [maintenance_id, machine_id],
    ).fetchone()
    if row is None:
        message = f"machine {machine_id} has no maintenance {maintenance_id}"
        raise NotFoundError("no_such_maintenance", message)
    return Window(*row)


def open_windows(unit: Unit, machine_id: int) -> list[Window]:
    """The windows of a machine that are not over."""
    rows = unit.connection.execute(
        "SELECT machine_id, maintenance_id, start, until, status FROM maintenance_windows"
        " WHERE machine_id = %s AND status IN ('scheduled', 'started') ORDER BY start",
        [machine_id],
    )
    return [Window(*row) for row in rows]


def tell_renters(unit: Unit, machine_id: int, maintenance_id: int) -> None:
    """A notice to everybody who has an instance or a volume there, whatever its state."""
    accounts = unit.connection.execute(
        f"SELECT DISTINCT account_id FROM {CONTRACTS} c WHERE machine_id = %s"  # noqa: S608 - a constant
        " AND destroyed_at IS NULL ORDER BY account_id",
        [machine_id],
    ).fetchall()
    unit.append_all([told(unit, account_id, maintenance_id) for (account_id,) in accounts])


def told(unit: Unit, account_id: int, maintenance_id: int) -> tuple[str, Fact]:
    """The notice to one renter, and its stream."""
    return notice(unit, account_id, "maintenance", f"maintenance-{maintenance_id}")


def _refuse_overlap(unit: Unit, machine_id: int, start: int, until: int) -> None:
    for other in open_windows(unit, machine_id):
        if other.start < until and start < other.until:
            message = (
                f"maintenance {other.maintenance_id} of this machine already takes"
                f" {rfc3339(other.start)} to {rfc3339(other.until)}"
            )
            raise RejectedError("maintenance_overlap", message, maintenance_id=other.maintenance_id)
