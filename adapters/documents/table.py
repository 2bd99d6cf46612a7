"""Documents as CSV: one row per line of the document, for spreadsheets and for programs."""

from __future__ import annotations

import csv
import io
from typing import Final

from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars
from ledger.services.questions.documents import Document, DocumentLine

COLUMNS: Final = (
    "number", "kind", "account_id", "issued_at", "document", "period_from", "period_until",
    "line", "description", "instance_id", "machine_id", "meter", "rental", "quantity", "unit",
    "rate", "rate_unit", "amount", "cents", "late", "used_from", "used_until", "net", "tax",
    "total",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def table(document: Document) -> bytes:
    """The lines with the document's own columns beside them; UTF-8, RFC 4180."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for line in document.lines:
        writer.writerow([_safe(one) for one in _cells(document, line)])
    return out.getvalue().encode()


def _cells(document: Document, line: DocumentLine) -> list[object]:
    return [
        document.number,
        document.kind,
        document.account_id,
        rfc3339(document.issued_at),
        document.document,
        _instant(document.period_from),
        _instant(document.period_until),
        line.line,
        line.description,
        line.instance_id,
        line.machine_id,
        line.meter,
        line.rental,
        line.quantity,
        line.unit,
        _dollars(line.rate),
        line.rate_unit,
        _dollars(line.amount),
        line.cents,
        "true" if line.late else "false",
        _instant(line.used_from),
        _instant(line.used_until),
        _dollars(document.net),
        _dollars(document.tax),
        _dollars(document.total),
    ]


def _safe(value: object) -> object:
    """A text that a spreadsheet would take for a formula is quoted; a number stays one."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        body = value.lstrip("-").replace(".", "", 1)
        return value if body.isdecimal() else f"'{value}"
    return value


def _instant(second: int | None) -> str | None:
    return None if second is None else rfc3339(second)


def _dollars(nanos: int | None) -> str | None:
    return None if nanos is None else format_dollars(nanos)
