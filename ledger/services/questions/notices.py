"""What accounts had to know, in the order of the log."""

from __future__ import annotations

import msgspec

from ledger.domain.webhooks import event_id
from ledger.store.database import Connection


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice; `event_id` is that of the webhook event which it is."""

    position: int
    event_id: str
    account_id: int
    code: str
    about: str
    issued_at: int


def notices(
    connection: Connection,
    *,
    account_id: int | None = None,
    code: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[Notice]:
    """Notices above a position: of one account or all (none), of one code or all (none)."""
    rows = connection.execute(
        "SELECT position, account_id, code, about, issued_at FROM notices WHERE position > %s"
        " AND (%s::bigint IS NULL OR account_id = %s) AND (%s::text IS NULL OR code = %s)"
        " ORDER BY position LIMIT %s",
        [after, account_id, account_id, code, code, limit],
    )
    return [
        Notice(
            position=row[0],
            event_id=event_id(row[0]),
            account_id=row[1],
            code=row[2],
            about=row[3],
            issued_at=row[4],
        )
        for row in rows
    ]
