"""Usage invoices as they were issued."""

from __future__ import annotations

import msgspec

from ledger.domain.money import NANOS_PER_CENT, split
from ledger.errors import NotFoundError
from ledger.store.database import Connection


class InvoiceLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A line: quantity in seconds or bytes, rate in nanos, amount exact and in whole cents."""

    line: int
    instance_id: int
    meter: str
    kind: str
    rate: int
    quantity: int
    amount: int
    cents: int
    """Largest remainder over the document, so that the column adds up to the total's cents."""
    late: bool
    segment_from: int
    period_from: int
    used_from: int
    used_until: int


class InvoiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A usage invoice. opening + movements - total = closing.

    Of the total `promotional` was paid by grants; `due` is what no credit has paid yet.
    """

    number: str
    account_id: int
    period_from: int
    period_until: int
    opening: int
    movements: int
    total: int
    total_cents: int
    closing: int
    paid: int
    due: int
    promotional: int
    status: str
    issued_at: int
    position: int
    lines: list[InvoiceLineView] = []


_COLUMNS = (
    "number, account_id, period_from, period_until, opening, movements, total, closing, due,"
    " promotional, voided, issued_at, position"
)


def invoices(
    connection: Connection, *, account_id: int | None = None, after: int = 0, limit: int = 100
) -> list[InvoiceView]:
    """Invoices in the order of issue, without their lines; *after* is a position."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM invoices WHERE position > %s"  # noqa: S608 - a constant
        " AND (%s::bigint IS NULL OR account_id = %s) ORDER BY position LIMIT %s",
        [after, account_id, account_id, limit],
    )
    return [_view(row) for row in rows]


def invoice(connection: Connection, number: str) -> InvoiceView:
    """One invoice with its lines.

    Raises:
        NotFoundError: `no_such_invoice`.
    """
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM invoices WHERE number = %s",  # noqa: S608 - a constant
        [number],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_invoice", f"there is no invoice {number!r}")
    head = _view(row)
    lines = connection.execute(
        "SELECT line, instance_id, meter, kind, rate, quantity, amount, late, segment_from,"
        " period_from, used_from, used_until FROM invoice_lines WHERE number = %s ORDER BY line",
        [number],
    ).fetchall()
    cents = split(head.total_cents, [int(line[6]) for line in lines]) if lines else []
    return msgspec.structs.replace(
        head,
        lines=[
            InvoiceLineView(
                line=line[0],
                instance_id=line[1],
                meter=line[2],
                kind=line[3],
                rate=int(line[4]),
                quantity=int(line[5]),
                amount=int(line[6]),
                cents=whole,
                late=line[7],
                segment_from=line[8],
                period_from=line[9],
                used_from=line[10],
                used_until=line[11],
            )
            for line, whole in zip(lines, cents, strict=True)
        ],
    )


def _view(row: tuple[object, ...]) -> InvoiceView:
    number, account_id, start, until, *amounts, voided, issued_at, position = row
    opening, movements, total, closing, due, promotional = (int(str(one)) for one in amounts)
    return InvoiceView(
        number=str(number),
        account_id=int(str(account_id)),
        period_from=int(str(start)),
        period_until=int(str(until)),
        opening=opening,
        movements=movements,
        total=total,
        total_cents=(total + NANOS_PER_CENT // 2) // NANOS_PER_CENT,
        closing=closing,
        paid=total - due,
        due=due,
        promotional=promotional,
        status="void" if voided else "issued" if due else "paid",
        issued_at=int(str(issued_at)),
        position=int(str(position)),
    )
