"""What a host earned: per machine and UTC day."""

from __future__ import annotations

import msgspec

from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.store.database import Connection

_HOURS_PER_DAY = SECONDS_PER_DAY // SECONDS_PER_HOUR


class Earning(msgspec.Struct, frozen=True, kw_only=True):
    """One machine on one UTC day; earned = charged − fee, all of it usage of that day.

    `gpu_seconds` are billed seconds over all instances. What disputes took back later is no part
    of it: corrections have a list of their own.
    """

    host_id: int
    machine_id: int
    day: int
    gpu_seconds: int
    charged: int
    fee: int
    earned: int


def earnings(
    connection: Connection,
    *,
    host_id: int | None = None,
    machine_id: int | None = None,
    start: int = 0,
    until: int | None = None,
    after: tuple[int, int] = (0, 0),
    limit: int = 100,
) -> list[Earning]:
    """Earnings by day, then machine, of the UTC days that begin in `[start, until)`.

    Args:
        connection: A view of the read models.
        host_id: Whose machines; none: everybody's.
        machine_id: Only this machine.
        start: First second.
        until: End; none: now.
        after: The (first second of a day, machine) of the last row of the page before.
        limit: Rows at most.
    """
    rows = connection.execute(
        "SELECT * FROM (SELECT h.host_id, i.machine_id, h.hour / %(hours)s * %(day)s AS day,"
        " sum(h.gpu_quantity) AS seconds,"
        " sum(h.gpu_charge + h.storage_charge + h.up_charge + h.down_charge"
        "     + h.reserved_idle_charge) AS charged,"
        " sum(h.gpu_fee + h.storage_fee + h.up_fee + h.down_fee + h.reserved_idle_fee) AS fee"
        " FROM usage_hours h JOIN instances i USING (instance_id)"
        # By instance and hour there is an index; by host there is none.
        " WHERE (%(host)s::bigint IS NULL OR i.host_id = %(host)s)"
        " AND h.hour >= %(start)s / 3600 AND (%(until)s::bigint IS NULL"
        "  OR h.hour < (%(until)s + %(day)s) / 3600)"
        " AND (%(machine)s::bigint IS NULL OR i.machine_id = %(machine)s)"
        " AND h.account_id <> h.host_id"
        " GROUP BY h.host_id, i.machine_id, h.hour / %(hours)s) AS days"
        " WHERE day >= %(start)s AND (%(until)s::bigint IS NULL OR day < %(until)s)"
        " AND (day, machine_id) > (%(after_day)s, %(after_machine)s)"
        " ORDER BY day, machine_id LIMIT %(limit)s",
        {
            "hours": _HOURS_PER_DAY,
            "day": SECONDS_PER_DAY,
            "host": host_id,
            "machine": machine_id,
            "start": start,
            "until": until,
            "after_day": after[0],
            "after_machine": after[1],
            "limit": limit,
        },
    )
    return [
        Earning(
            host_id=row[0],
            machine_id=row[1],
            day=row[2],
            gpu_seconds=int(row[3]),
            charged=int(row[4]),
            fee=int(row[5]),
            earned=int(row[4]) - int(row[5]),
        )
        for row in rows
    ]
