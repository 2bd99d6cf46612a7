"""What was charged under each label; a volume's name is its label.

A charge counts under the label that its instance carries now: labels are for their owner's eyes,
and who labels late wants the past labelled too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.domain.money import SECONDS_PER_HOUR
from ledger.errors import RejectedError
from ledger.store.database import Connection

LABELLED: Final = """(
    SELECT instance_id, account_id, label FROM instances
    UNION ALL SELECT volume_id, account_id, name FROM volumes)"""
"""Every contract with its label, for a FROM clause."""
USAGE_CHARGE: Final = (
    "h.gpu_charge + h.storage_charge + h.up_charge + h.down_charge + h.reserved_idle_charge"
)
"""Nanos of a row of `usage_hours` named h."""


class LabelledCharges(msgspec.Struct, frozen=True, kw_only=True):
    """What carries *label* was charged; none: what carries no label."""

    label: str | None
    instances: int
    gpu: int
    storage: int
    up: int
    down: int
    total: int


def charges_by_label(
    connection: Connection,
    account_id: int,
    *,
    start: int = 0,
    until: int | None = None,
    after: str | None = None,
    limit: int = 100,
) -> list[LabelledCharges]:
    """An account's charges of whole hours in `[start, until)`, summed by label.

    By label, what has none last. `gpu` includes the idle seconds of reservations.

    Args:
        connection: One view of the read models.
        account_id: Whose charges.
        start: Start of a UTC hour.
        until: Start of a UTC hour; by default everything after *start*.
        after: Label of the last row of the page before.
        limit: Rows of this page.

    Raises:
        RejectedError: `invalid_args` for a time inside an hour.
    """
    if start % SECONDS_PER_HOUR or (until is not None and until % SECONDS_PER_HOUR):
        raise RejectedError("invalid_args", "charges by label are of whole UTC hours")
    rows = connection.execute(
        "SELECT c.label, count(DISTINCT h.instance_id),"  # noqa: S608 - constants
        " sum(h.gpu_charge + h.reserved_idle_charge), sum(h.storage_charge), sum(h.up_charge),"
        f" sum(h.down_charge), sum({USAGE_CHARGE}) FROM usage_hours h"
        f" JOIN {LABELLED} c USING (instance_id)"
        " WHERE h.account_id = %(account)s AND h.hour >= %(start)s"
        " AND (%(until)s::bigint IS NULL OR h.hour < %(until)s)"
        " AND (%(after)s::text IS NULL OR c.label > %(after)s OR c.label IS NULL)"
        f" GROUP BY c.label HAVING sum({USAGE_CHARGE}) > 0"
        " ORDER BY c.label NULLS LAST LIMIT %(limit)s",
        {
            "account": account_id,
            "start": start // SECONDS_PER_HOUR,
            "until": None if until is None else until // SECONDS_PER_HOUR,
            "after": after,
            "limit": limit,
        },
    )
    return [
        LabelledCharges(
            label=row[0],
            instances=row[1],
            gpu=int(row[2]),
            storage=int(row[3]),
            up=int(row[4]),
            down=int(row[5]),
            total=int(row[6]),
        )
        for row in rows
    ]
