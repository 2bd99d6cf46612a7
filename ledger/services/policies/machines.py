"""Machines that fall silent, and those that report again."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import Fact, MachineCameOnline, MachineWentOffline
from ledger.domain.ids import machine_stream
from ledger.services.allocation import settle
from ledger.services.ledger import Ledger, read_policy
from ledger.services.notices import notify
from ledger.store.database import Connection

_CONTACT = (
    "SELECT m.machine_id, coalesce(max(h.recorded_at), m.enrolled_at) AS contact"
    " FROM machines m LEFT JOIN stream_heads h USING (machine_id)"
    " WHERE m.enrolled_at IS NOT NULL"
)

CHANGED: Final = (
    f"SELECT machine_id, host_id, contact, offline_since FROM ({_CONTACT}"  # noqa: S608 - constant
    " GROUP BY m.machine_id) AS seen JOIN machines USING (machine_id)"
    " WHERE (offline_since IS NULL AND contact + %(silence)s < %(now)s)"
    " OR (offline_since IS NOT NULL AND contact + %(silence)s >= %(now)s) ORDER BY machine_id"
)
"""Machines whose overlay is not what their last contact says."""


def watch_machines(ledger: Ledger) -> None:
    """Write down which machines fell silent, and which report again."""
    with ledger.reading() as connection:
        policy = read_policy(connection)
        if policy.offline_after_seconds is None:
            return
        changed = _machines_that_changed(connection, ledger.clock(), policy.offline_after_seconds)
    if not changed:
        return
    with ledger.unit() as unit:
        silence = unit.policy.offline_after_seconds
        assert silence is not None
        back = []
        for machine_id, host_id, contact, offline in _machines_that_changed(
            unit.connection, unit.now, silence
        ):
            fact: Fact
            if offline:
                fact = MachineWentOffline(
                    machine_id=machine_id, last_report_at=contact, offline_at=contact + silence
                )
            else:
                fact = MachineCameOnline(machine_id=machine_id, online_at=contact)
                back.append(machine_id)
            unit.append(machine_stream(machine_id), fact)
            notify(unit, host_id, "offline" if offline else "online", f"machine-{machine_id}")
        for machine_id in back:
            settle(unit, machine_id)


def _machines_that_changed(
    connection: Connection, now: int, silence: int
) -> list[tuple[int, int, int, bool]]:
    """Machines whose overlay is not what their last contact says: machine, host, contact, gone."""
    rows = connection.execute(CHANGED, {"silence": silence, "now": now})
    return [(row[0], row[1], row[2], row[3] is None) for row in rows]
