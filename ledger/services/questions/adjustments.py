"""What admins moved by hand."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.store.database import Connection


class AdjustmentView(msgspec.Struct, frozen=True, kw_only=True):
    """A movement by hand: `kind` adjustment or write_off, `amount` to the account."""

    adjustment_id: str
    kind: str
    account_id: int
    book: str
    against: str
    amount: int
    reason: str
    period_from: int
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    adjusted_at: int
    position: int


_FIELDS: Final = ", ".join(AdjustmentView.__struct_fields__)


def adjustments(
    connection: Connection,
    *,
    account_id: int | None = None,
    kind: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[AdjustmentView]:
    """Movements by hand in the order of the log: of one account or all (none), of a kind or all."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM adjustments WHERE position > %s"  # noqa: S608 - constants
        " AND (%s::bigint IS NULL OR account_id = %s) AND (%s::text IS NULL OR kind = %s)"
        " ORDER BY position LIMIT %s",
        [after, account_id, account_id, kind, kind, limit],
    )
    found = []
    for row in rows:
        values = dict(zip(AdjustmentView.__struct_fields__, row, strict=True))
        values["amount"] = int(values["amount"])
        found.append(AdjustmentView(**values))
    return found
