"""Contracts that end within a day: their renters are told once per end."""

from __future__ import annotations

from typing import Final

from ledger.domain.money import SECONDS_PER_DAY
from ledger.services.ledger import Ledger
from ledger.services.notices import notice
from ledger.services.policies.common import is_due
from ledger.store.database import Connection

NOTICE_SECONDS: Final = SECONDS_PER_DAY
"""How long before the end of its contract a renter is told."""
# The notice itself is what is remembered: an end that moved later is told again when it is near.
ENDS_NEAR: Final = (
    "SELECT i.account_id, i.instance_id FROM instances i WHERE i.destroyed_at IS NULL"  # noqa: S608 - constants
    f" AND i.status <> 'expired' AND i.until <= %(now)s + {NOTICE_SECONDS}"
    " AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.code = 'expiring'"
    " AND n.about = 'instance-' || i.instance_id"
    f" AND n.issued_at >= i.until - {NOTICE_SECONDS}) ORDER BY i.instance_id"
)


def warn_of_ends(ledger: Ledger) -> None:
    """Notify the renters of contracts that end within a day and have not been told of that end."""
    if not is_due(ledger, ENDS_NEAR):
        return
    with ledger.unit() as unit:
        due = unit.connection.execute(ENDS_NEAR, {"now": unit.now}).fetchall()
        unit.append_all(
            [notice(unit, account, "expiring", f"instance-{instance}") for account, instance in due]
        )


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which a contract's end is a day away."""
    row = connection.execute(
        "SELECT min(until) FROM instances WHERE destroyed_at IS NULL AND status <> 'expired'"
        " AND until > %s",
        [now + NOTICE_SECONDS],
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0]) - NOTICE_SECONDS
