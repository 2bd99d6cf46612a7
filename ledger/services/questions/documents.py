"""Every document of the four series as it was issued, ready to be shown.

`INV-` tax invoices of top-ups, `USE-` usage invoices, `CN-` credit notes, `SB-` self-billing of
hosts. Who stands on one is who stood there in the second of its issue.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from ledger.domain.money import BYTES_PER_GB, NANOS_PER_CENT, split
from ledger.errors import NotFoundError
from ledger.projections.contracts import CONTRACTS
from ledger.services.billing import Customer, Issuer, read_customer, read_issuer
from ledger.services.questions.credit_notes import CreditNoteView, credit_note
from ledger.services.questions.invoices import InvoiceView, invoice
from ledger.store.database import Connection
from ledger.store.vault import Vault

DocumentKind = Literal["tax_invoice", "usage_invoice", "credit_note", "self_billing"]
METER_NAMES: Final = {
    "gpu": "GPU",
    "storage": "Storage",
    "up": "Traffic out",
    "down": "Traffic in",
    "reserved_idle": "GPU reserved, idle",
}
_UNITS: Final = {
    "gpu": ("s", "h"),
    "storage": ("s", "GB-month"),
    "up": ("B", "GB"),
    "down": ("B", "GB"),
    "reserved_idle": ("s", "h"),
}
"""The unit of a quantity, and the unit that a rate is for."""
_KINDS: Final = {"on_demand": "on demand", "reserved": "reserved", "interruptible": "interruptible"}


class DocumentHead(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a list; nanos. Only top-ups and what is given back of them bear tax."""

    number: str
    kind: DocumentKind
    account_id: int
    net: int
    tax: int
    issued_at: int
    position: int


class DocumentLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line: quantity in `unit`, rate in nanos per `rate_unit`, amount exact and in cents.

    The cents of all lines add up to the cents of the total (largest remainder).
    """

    line: int
    description: str
    quantity: int
    unit: str
    rate: int | None
    rate_unit: str | None
    amount: int
    cents: int
    instance_id: int | None = None
    machine_id: int | None = None
    meter: str | None = None
    rental: str | None = None
    fee: int | None = None
    late: bool = False
    used_from: int | None = None
    used_until: int | None = None
    period_from: int | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One document, whole. Amounts are nanos; fields that its kind does not have are none.

    opening + movements - total = closing, of usage invoices; net + tax = total, of all others.
    """

    number: str
    kind: DocumentKind
    account_id: int
    issuer: Issuer | None
    customer: Customer
    issued_at: int
    position: int
    currency: str
    status: str
    zone: str
    lines: list[DocumentLine]
    net: int
    tax: int
    total: int
    total_cents: int
    country: str | None = None
    rate_bp: int | None = None
    treatment: str | None = None
    document: str | None = None
    """The document that a credit note is about."""
    document_issued_at: int | None = None
    reason: str | None = None
    reference: str | None = None
    period_from: int | None = None
    period_until: int | None = None
    opening: int | None = None
    movements: int | None = None
    closing: int | None = None
    promotional: int | None = None
    paid: int | None = None
    due: int | None = None
    adjustments: int | None = None


_HEADS: Final = """
SELECT number, 'tax_invoice' AS kind, account_id, net, tax, issued_at, position FROM tax_invoices
UNION ALL SELECT number, 'usage_invoice', account_id, total, 0, issued_at, position FROM invoices
UNION ALL SELECT number, 'credit_note', account_id, net, tax, issued_at, position FROM tax_credits
UNION ALL SELECT number, 'credit_note', account_id, total, 0, issued_at, position FROM credit_notes
UNION ALL SELECT number, 'self_billing', account_id, total, 0, issued_at, position
          FROM self_billings
"""


def documents(
    connection: Connection,
    *,
    account_id: int | None = None,
    kind: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[DocumentHead]:
    """All documents in the order of issue; *after* is a position."""
    rows = connection.execute(
        f"SELECT * FROM ({_HEADS}) AS one WHERE position > %(after)s"  # noqa: S608 - a constant
        " AND (%(account)s::bigint IS NULL OR account_id = %(account)s)"
        " AND (%(kind)s::text IS NULL OR kind = %(kind)s) ORDER BY position LIMIT %(limit)s",
        {"after": after, "account": account_id, "kind": kind, "limit": limit},
    )
    return [
        DocumentHead(
            number=row[0],
            kind=row[1],
            account_id=row[2],
            net=int(row[3]),
            tax=int(row[4]),
            issued_at=row[5],
            position=row[6],
        )
        for row in rows
    ]


def owner(connection: Connection, number: str) -> int:
    """The account that a document was issued to.

    Raises:
        NotFoundError: `no_such_invoice`.
    """
    row = connection.execute(
        f"SELECT account_id FROM ({_HEADS}) AS one WHERE number = %s",  # noqa: S608 - a constant
        [number],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_invoice", f"there is no document {number!r}")
    return int(row[0])


def document(connection: Connection, vault: Vault, number: str) -> Document:
    """One document of any series, with everything that stands on it.

    Raises:
        NotFoundError: `no_such_invoice`.
    """
    owner(connection, number)
    match number.partition("-")[0]:
        case "INV":
            fields = _tax_invoice(connection, number)
        case "USE":
            fields = _usage_invoice(connection, invoice(connection, number))
        case "SB":
            fields = _self_billing(connection, number)
        case _:
            fields = _credit_note(connection, number)
    account_id, position = fields["account_id"], fields["position"]
    row = connection.execute(
        "SELECT zone FROM billing_zones WHERE account_id = %s AND position < %s"
        " ORDER BY position DESC LIMIT 1",
        [account_id, position],
    ).fetchone()
    return Document(
        number=number,
        currency="USD",
        issuer=read_issuer(connection, position),
        customer=read_customer(connection, vault, account_id, position),
        zone="UTC" if row is None else row[0],
        **fields,
    )


def cents_of(nanos: int) -> int:
    """Whole cents, rounded half up; halves of what goes the other way mirror that."""
    whole = (2 * abs(nanos) + NANOS_PER_CENT) // (2 * NANOS_PER_CENT)
    return whole if nanos >= 0 else -whole


def _tax_invoice(connection: Connection, number: str) -> dict[str, Any]:
    row = connection.execute(
        "SELECT account_id, deposit_id, net, tax, credited_net + credited_tax, country, rate_bp,"
        " treatment, issued_at, position, EXISTS (SELECT 1 FROM tax_credits c"
        "  WHERE c.document = i.number AND c.voids) FROM tax_invoices i WHERE number = %s",
        [number],
    ).fetchone()
    assert row is not None
    net, tax, back = int(row[2]), int(row[3]), int(row[4])
    status = "paid" if not back else "credited" if back == net + tax else "partly_credited"
    if row[10]:
        status = "void"
    return {
        "kind": "tax_invoice",
        "account_id": row[0],
        "reference": row[1],
        "lines": [_one_line("Prepaid credit for GPU rental", net)],
        "net": net,
        "tax": tax,
        "total": net + tax,
        "total_cents": cents_of(net + tax),
        "country": row[5],
        "rate_bp": row[6],
        "treatment": row[7],
        "status": status,
        "paid": net + tax,
        "due": 0,
        "issued_at": row[8],
        "position": row[9],
    }


def _credit_note(connection: Connection, number: str) -> dict[str, Any]:
    row = connection.execute(
        "SELECT c.account_id, c.document, c.net, c.tax, c.reason, i.country, i.rate_bp,"
        " i.treatment, i.issued_at, c.issued_at, c.position FROM tax_credits c"
        " JOIN tax_invoices i ON i.number = c.document WHERE c.number = %s",
        [number],
    ).fetchone()
    if row is None:
        return _usage_credit(connection, credit_note(connection, number))
    net, tax = int(row[2]), int(row[3])
    return {
        "kind": "credit_note",
        "account_id": row[0],
        "document": row[1],
        "lines": [_one_line("Prepaid credit given back", net)],
        "net": net,
        "tax": tax,
        "total": net + tax,
        "total_cents": cents_of(net + tax),
        "reason": row[4],
        "country": row[5],
        "rate_bp": row[6],
        "treatment": row[7],
        "document_issued_at": row[8],
        "status": "issued",
        "issued_at": row[9],
        "position": row[10],
    }


def _usage_credit(connection: Connection, note: CreditNoteView) -> dict[str, Any]:
    about = invoice(connection, note.document)
    named = {line.line: line for line in about.lines}
    cents = split(cents_of(note.total), [one.amount for one in note.lines])
    lines = []
    for one, whole in zip(note.lines, cents, strict=True):
        was = named[one.document_line]
        lines.append(
            DocumentLine(
                line=one.line,
                description=f"{METER_NAMES[was.meter]}, {_contract(was.instance_id, was.kind)}",
                quantity=1,
                unit="",
                rate=None,
                rate_unit=None,
                amount=one.amount,
                cents=whole,
                instance_id=was.instance_id,
                meter=was.meter,
                used_from=was.used_from,
                used_until=was.used_until,
            )
        )
    return {
        "kind": "credit_note",
        "account_id": note.account_id,
        "document": note.document,
        "lines": lines,
        "net": note.total,
        "tax": 0,
        "total": note.total,
        "total_cents": cents_of(note.total),
        "reason": note.reason,
        "document_issued_at": about.issued_at,
        "status": "issued",
        "issued_at": note.issued_at,
        "position": note.position,
    }


def _contract(instance_id: int, kind: str) -> str:
    """What a line is about; a volume and an instance never have the same id."""
    if kind == "volume":
        return f"volume {instance_id}"
    return f"instance {instance_id}, {_KINDS[kind]}"


def _usage_invoice(connection: Connection, found: InvoiceView) -> dict[str, Any]:
    disks = {
        instance: int(size)
        for instance, size in connection.execute(
            f"SELECT instance_id, disk_bytes FROM {CONTRACTS} i WHERE instance_id = ANY(%s)",  # noqa: S608 - a constant
            [[line.instance_id for line in found.lines]],
        )
    }
    lines = []
    for one in found.lines:
        unit, rate_unit = _UNITS[one.meter]
        about = METER_NAMES[one.meter]
        if one.meter == "storage":
            about += f" {disks[one.instance_id] / BYTES_PER_GB:g} GB"
        lines.append(
            DocumentLine(
                line=one.line,
                description=f"{about}, {_contract(one.instance_id, one.kind)}",
                quantity=one.quantity,
                unit=unit,
                rate=one.rate,
                rate_unit=rate_unit,
                amount=one.amount,
                cents=one.cents,
                instance_id=one.instance_id,
                meter=one.meter,
                rental=one.kind,
                late=one.late,
                used_from=one.used_from,
                used_until=one.used_until,
                period_from=one.period_from,
            )
        )
    return {
        "kind": "usage_invoice",
        "account_id": found.account_id,
        "lines": lines,
        "net": found.total,
        "tax": 0,
        "total": found.total,
        "total_cents": found.total_cents,
        "period_from": found.period_from,
        "period_until": found.period_until,
        "opening": found.opening,
        "movements": found.movements,
        "closing": found.closing,
        "promotional": found.promotional,
        "paid": found.paid,
        "due": found.due,
        "status": found.status,
        "issued_at": found.issued_at,
        "position": found.position,
    }


def _self_billing(connection: Connection, number: str) -> dict[str, Any]:
    row = connection.execute(
        "SELECT account_id, period_from, period_until, adjustments, total, issued_at, position"
        " FROM self_billings WHERE number = %s",
        [number],
    ).fetchone()
    assert row is not None
    rows = connection.execute(
        "SELECT line, machine_id, meter, quantity, charged, fee, amount FROM self_billing_lines"
        " WHERE number = %s ORDER BY line",
        [number],
    ).fetchall()
    adjustments, total = int(row[3]), int(row[4])
    amounts = [int(one[6]) for one in rows]
    # The cents of the lines are those of what they add up to; the adjustments take the rest.
    cents = split(cents_of(total - adjustments), amounts) if rows else []
    lines = [
        DocumentLine(
            line=one[0],
            description=f"{METER_NAMES[one[2]]}, machine {one[1]}",
            quantity=int(one[3]),
            unit=_UNITS[one[2]][0],
            rate=None,
            rate_unit=None,
            amount=int(one[6]),
            cents=whole,
            machine_id=one[1],
            meter=one[2],
            fee=int(one[5]),
        )
        for one, whole in zip(rows, cents, strict=True)
    ]
    if adjustments:
        lines.append(
            DocumentLine(
                line=len(lines) + 1,
                description="Corrections and compensation of the month",
                quantity=1,
                unit="",
                rate=None,
                rate_unit=None,
                amount=adjustments,
                cents=cents_of(total) - sum(cents),
            )
        )
    return {
        "kind": "self_billing",
        "account_id": row[0],
        "lines": lines,
        "net": total,
        "tax": 0,
        "total": total,
        "total_cents": cents_of(total),
        "period_from": row[1],
        "period_until": row[2],
        "adjustments": adjustments,
        "status": "issued",
        "issued_at": row[5],
        "position": row[6],
    }


def _one_line(description: str, net: int) -> DocumentLine:
    return DocumentLine(
        line=1,
        description=description,
        quantity=1,
        unit="",
        rate=net,
        rate_unit="",
        amount=net,
        cents=cents_of(net),
    )
