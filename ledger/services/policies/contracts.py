"""Ends that come by themselves: contracts, launches, holds."""

from __future__ import annotations

from typing import Final

from ledger.domain.instance import LAUNCH_TIMEOUT_SECONDS, ExpireInstance, TimeOutLaunch
from ledger.services import holds
from ledger.services.incidents import judge_timeouts
from ledger.services.ledger import Ledger
from ledger.services.notices import notify
from ledger.services.policies.common import is_due
from ledger.services.rentals import command_all
from ledger.store.database import Connection

CONTRACTS_DUE: Final = (
    "SELECT instance_id FROM instances WHERE destroyed_at IS NULL AND status <> 'expired'"
    " AND until <= %(now)s ORDER BY instance_id"
)
LAUNCHES_DUE: Final = (
    "SELECT instance_id FROM instances WHERE status = 'loading'"  # noqa: S608 - a constant
    f" AND greatest(assigned_at, gpu_until) + {LAUNCH_TIMEOUT_SECONDS} <= %(now)s"
    " ORDER BY instance_id"
)
HOLDS_DUE: Final = "SELECT 1 FROM holds WHERE status = 'pending' AND expires_at <= %(now)s"


def expire_contracts(ledger: Ledger) -> None:
    """End every contract whose end date has come: stopped for good, storage goes on."""
    if not is_due(ledger, CONTRACTS_DUE):
        return
    with ledger.unit() as unit:
        due = [row[0] for row in unit.connection.execute(CONTRACTS_DUE, {"now": unit.now})]
        command_all(unit, [(one, ExpireInstance()) for one in due])
        for instance_id in due:
            account_id = unit.instance(instance_id).account_id
            notify(unit, account_id, "expired", f"instance-{instance_id}")


def time_out_launches(ledger: Ledger) -> None:
    """Stop instances whose container nobody confirmed for half an hour."""
    if not is_due(ledger, LAUNCHES_DUE):
        return
    with ledger.unit() as unit:
        due = [row[0] for row in unit.connection.execute(LAUNCHES_DUE, {"now": unit.now})]
        failed = command_all(unit, [(one, TimeOutLaunch()) for one in due])
        judge_timeouts(unit, failed)


def expire_holds(ledger: Ledger) -> None:
    """Record the end of holds whose instant has come."""
    if is_due(ledger, HOLDS_DUE):
        with ledger.unit() as unit:
            holds.expire_holds(unit)


def next_due(connection: Connection, now: int) -> int | None:
    """The next end of a contract, a launch or a hold."""
    row = connection.execute(
        "SELECT (SELECT min(expires_at) FROM holds WHERE status = 'pending'),"
        " (SELECT min(until) FROM instances WHERE destroyed_at IS NULL AND status <> 'expired'),"
        " (SELECT min(greatest(assigned_at, gpu_until)) FROM instances WHERE status = 'loading')"
    ).fetchone()
    assert row is not None
    launch = None if row[2] is None else row[2] + LAUNCH_TIMEOUT_SECONDS
    due = [second for second in (row[0], row[1], launch) if second is not None]
    return min((second for second in due if second > now), default=None)
