"""Ends that come to volumes by themselves: their contracts, and the offers they are made from."""

from __future__ import annotations

from typing import Final

from ledger.domain.volume import ExpireVolume
from ledger.services import volumes
from ledger.services.ledger import Ledger
from ledger.services.notices import notice
from ledger.services.policies.common import is_due
from ledger.services.policies.expiring import NOTICE_SECONDS
from ledger.services.policies.glance import any_of
from ledger.services.volume_offers import withdraw
from ledger.store.database import Connection

_EXPIRED: Final = (
    "SELECT volume_id FROM volumes WHERE status = 'active' AND until <= %(now)s ORDER BY volume_id"
)
_OVER: Final = (
    "SELECT machine_id FROM volume_offers WHERE closed_at IS NULL AND until <= %(now)s"
    " ORDER BY machine_id"
)
# As for instances, the notice itself is what is remembered.
_WARNED: Final = (
    "SELECT v.account_id, v.volume_id FROM volumes v WHERE v.status = 'active'"  # noqa: S608 - constants
    f" AND v.until <= %(now)s + {NOTICE_SECONDS}"
    " AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.code = 'expiring'"
    " AND n.about = 'volume-' || v.volume_id"
    f" AND n.issued_at >= v.until - {NOTICE_SECONDS}) ORDER BY v.volume_id"
)

VOLUMES_DUE: Final = any_of(_EXPIRED, _OVER, _WARNED)


def end_volumes(ledger: Ledger) -> None:
    """End the contracts and offers whose end date has come; warn of those that end in a day."""
    if is_due(ledger, _EXPIRED):
        with ledger.unit() as unit:
            due = unit.connection.execute(_EXPIRED, {"now": unit.now}).fetchall()
            volumes.command_all(unit, [(row[0], ExpireVolume()) for row in due])
    if is_due(ledger, _OVER):
        with ledger.unit() as unit:
            for (machine_id,) in unit.connection.execute(_OVER, {"now": unit.now}).fetchall():
                withdraw(unit, machine_id, "ended")
    if is_due(ledger, _WARNED):
        with ledger.unit() as unit:
            soon = unit.connection.execute(_WARNED, {"now": unit.now}).fetchall()
            unit.append_all(
                [notice(unit, account, "expiring", f"volume-{volume}") for account, volume in soon]
            )


def next_due(connection: Connection, now: int) -> int | None:
    """The next end of a volume or of a volume offer, and the next that is a day away."""
    row = connection.execute(
        "SELECT (SELECT min(until) FROM volumes WHERE status = 'active' AND until > %(now)s),"
        " (SELECT min(until) - %(ahead)s FROM volumes WHERE status = 'active'"
        "  AND until > %(now)s + %(ahead)s),"
        " (SELECT min(until) FROM volume_offers WHERE closed_at IS NULL AND until > %(now)s)",
        {"now": now, "ahead": NOTICE_SECONDS},
    ).fetchone()
    assert row is not None
    return min((second for second in row if second is not None), default=None)
