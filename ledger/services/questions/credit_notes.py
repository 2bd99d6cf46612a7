"""Credit notes as they were issued."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.errors import NotFoundError
from ledger.store.database import Connection


class CreditNoteLineView(msgspec.Struct, frozen=True, kw_only=True):
    """What a note gives back on a line of its document, and the reversal that moved it."""

    line: int
    document_line: int
    correction_id: int
    amount: int


class CreditNoteView(msgspec.Struct, frozen=True, kw_only=True):
    """A credit note, over one document."""

    number: str
    account_id: int
    document: str
    total: int
    reason: str
    voids: bool
    actor: str
    approved_by: str | None
    effective_at: int
    issued_at: int
    position: int
    lines: list[CreditNoteLineView] = []


_NOTE = (
    "number, account_id, document, total, reason, voids, actor, approved_by, effective_at,"
    " issued_at, position"
)
_NOTES = (
    f"(SELECT {_NOTE} FROM credit_notes UNION ALL SELECT number, account_id, document, net + tax,"  # noqa: S608 - a constant
    " reason, voids, actor, approved_by, issued_at, issued_at, position FROM tax_credits) AS notes"
)
"""Of usage invoices, and of tax invoices: of these the total is gross."""


def credit_notes(
    connection: Connection, *, account_id: int | None = None, after: int = 0, limit: int = 100
) -> list[CreditNoteView]:
    """Credit notes in the order of issue, without their lines; *after* is a position."""
    rows = connection.execute(
        f"SELECT {_NOTE} FROM {_NOTES} WHERE position > %s"  # noqa: S608 - a constant
        " AND (%s::bigint IS NULL OR account_id = %s) ORDER BY position LIMIT %s",
        [after, account_id, account_id, limit],
    )
    return [_note(row) for row in rows]


def credit_note(connection: Connection, number: str) -> CreditNoteView:
    """One credit note with its lines.

    Raises:
        NotFoundError: `no_such_credit_note`.
    """
    row = connection.execute(
        f"SELECT {_NOTE} FROM {_NOTES} WHERE number = %s",  # noqa: S608 - a constant
        [number],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_credit_note", f"there is no credit note {number!r}")
    lines = connection.execute(
        "SELECT line, document_line, correction_id, amount FROM credit_note_lines"
        " WHERE number = %s ORDER BY line",
        [number],
    )
    return msgspec.structs.replace(
        _note(row),
        lines=[
            CreditNoteLineView(
                line=one[0], document_line=one[1], correction_id=one[2], amount=int(one[3])
            )
            for one in lines
        ],
    )


def _note(row: tuple[Any, ...]) -> CreditNoteView:
    fields: dict[str, Any] = dict(zip(CreditNoteView.__struct_fields__[:-1], row, strict=True))
    fields["total"] = int(fields["total"])
    return CreditNoteView(**fields)
