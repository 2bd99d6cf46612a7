"""What stands on a document, as text in its places: one layout for paper and for the screen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from ledger.domain.money import NANOS_PER_CENT, NANOS_PER_DOLLAR, format_dollars
from ledger.services.billing import Customer, Issuer
from ledger.services.questions.documents import Document, DocumentLine
from ledger.services.zones import zone

Align = Literal["left", "right"]
TITLES: Final = {
    "tax_invoice": "Tax invoice",
    "usage_invoice": "Usage invoice",
    "credit_note": "Credit note",
    "self_billing": "Self-billing invoice",
}
_STATUS: Final = {
    "paid": "Paid",
    "issued": "Issued",
    "void": "Void",
    "credited": "Credited in full",
    "partly_credited": "Credited in part",
}


class ColumnHead(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the lines; `width` is its share of the page, 0 for what the text needs."""

    title: str
    align: Align = "left"
    width: int = 0


class RowText(msgspec.Struct, frozen=True, kw_only=True):
    """A line: a text per column, and a note below its description."""

    cells: list[str]
    note: str = ""


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the sums; the strong one is what the document is about, a group has a heading."""

    label: str
    value: str
    strong: bool = False
    heading: str = ""


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """A document as people read it."""

    title: str
    number: str
    status: str
    issuer: list[str]
    customer: list[str]
    facts: list[list[str]]
    """Pairs: what it is, and what it says."""
    columns: list[ColumnHead]
    rows: list[RowText]
    totals: list[Total]
    notes: list[str]
    footer: str
    language: str = "en"


def sheet(document: Document) -> Sheet:
    """Lay a document out."""
    return Sheet(
        title=TITLES[document.kind],
        number=document.number,
        status=_STATUS[document.status],
        issuer=_issuer(document.issuer),
        customer=_customer(document.customer),
        facts=_facts(document),
        columns=_columns(document),
        rows=[_row(document, line) for line in document.lines],
        totals=_totals(document),
        notes=_notes(document),
        footer=_footer(document),
    )


def cents(whole: int) -> str:
    """Whole cents as dollars: ``"1,234.50"``."""
    sign = "−" if whole < 0 else ""
    return f"{sign}{abs(whole) // 100:,}.{abs(whole) % 100:02d}"


def exact(nanos: int) -> str:
    """Nanos as dollars to the last digit that is not 0, with two decimals at least."""
    text = format_dollars(abs(nanos))
    whole, _, fraction = text.partition(".")
    sign = "−" if nanos < 0 else ""
    return f"{sign}{int(whole):,}.{fraction.ljust(2, '0')}"


def aligned(nanos: int) -> str:
    """Nanos as dollars with all nine decimals, for a column in which points stand below points."""
    sign = "−" if nanos < 0 else ""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return f"{sign}{whole:,}.{fraction:09d}"


def quantity(amount: int, unit: str) -> str:
    """A quantity as it was metered, and beside seconds what that is in hours."""
    if unit != "s":
        return f"{amount:,} {unit}".strip()
    hours, rest = divmod(amount, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{amount:,} s = {hours:,}:{minutes:02d}:{seconds:02d} h"


def local(second: int, zone_name: str) -> str:
    """An instant as the account's clock shows it."""
    moment = datetime.fromtimestamp(second, UTC).astimezone(zone(zone_name))
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def day(second: int, zone_name: str) -> str:
    """The local day of an instant."""
    return datetime.fromtimestamp(second, UTC).astimezone(zone(zone_name)).strftime("%Y-%m-%d")


def percent(rate_bp: int) -> str:
    """Basis points as a percentage without idle zeros."""
    return f"{rate_bp // 100}.{rate_bp % 100:02d}".rstrip("0").rstrip(".") + " %"


def _issuer(issuer: Issuer | None) -> list[str]:
    if issuer is None:
        return ["The issuer is not described yet"]
    lines = [issuer.name, issuer.street, f"{issuer.postcode} {issuer.city}, {issuer.country}"]
    if issuer.vat_id:
        lines.append(f"VAT id {issuer.vat_id}")
    if issuer.registration:
        lines.append(f"Registration {issuer.registration}")
    if issuer.email:
        lines.append(issuer.email)
    return lines


def _customer(customer: Customer) -> list[str]:
    place = f"{customer.postcode} {customer.city}".strip()
    where = ", ".join(one for one in (place, customer.country) if one)
    lines = [customer.name, customer.street, where]
    if customer.vat_id:
        lines.append(f"VAT id {customer.vat_id}")
    return [line for line in lines if line]


def _facts(document: Document) -> list[list[str]]:
    where = document.zone
    found = [
        ["Number", document.number],
        ["Issued", day(document.issued_at, where)],
        ["Account", str(document.account_id)],
    ]
    if document.period_from is not None and document.period_until is not None:
        found.append(["Period from", local(document.period_from, where)])
        found.append(["until", local(document.period_until, where)])
    if document.document is not None and document.document_issued_at is not None:
        about = f"{document.document} of {day(document.document_issued_at, where)}"
        found.append(["Corrects", about])
    if document.reference is not None:
        found.append(["Payment", document.reference])
    if document.reason is not None:
        found.append(["Reason", document.reason])
    return found


def _columns(document: Document) -> list[ColumnHead]:
    if document.kind == "usage_invoice":
        return [
            ColumnHead(title="No", align="right"),
            ColumnHead(title="What", width=1),
            ColumnHead(title="Quantity", align="right"),
            ColumnHead(title="Rate USD", align="right"),
            ColumnHead(title="Exact USD", align="right"),
            ColumnHead(title="USD", align="right"),
        ]
    if document.kind == "self_billing":
        return [
            ColumnHead(title="No", align="right"),
            ColumnHead(title="What", width=1),
            ColumnHead(title="Quantity", align="right"),
            ColumnHead(title="Fee kept USD", align="right"),
            ColumnHead(title="Exact USD", align="right"),
            ColumnHead(title="USD", align="right"),
        ]
    columns = [ColumnHead(title="No", align="right"), ColumnHead(title="What", width=1)]
    if document.rate_bp is None:
        columns.append(ColumnHead(title="Exact USD", align="right"))
    return [*columns, ColumnHead(title="Net USD", align="right")]


def _row(document: Document, line: DocumentLine) -> RowText:
    note = ""
    if line.used_from is not None and line.used_until is not None:
        where = document.zone
        note = f"{local(line.used_from, where)} to {local(line.used_until, where)}"
        if line.late and line.period_from is not None:
            note = f"Late usage of the period from {local(line.period_from, where)}: {note}"
    first = [str(line.line), line.description]
    amounts = [aligned(line.amount), cents(line.cents)]
    match document.kind:
        case "usage_invoice":
            assert line.rate is not None
            rate = f"{exact(line.rate)} / {line.rate_unit}"
            used = quantity(line.quantity, line.unit)
            return RowText(cells=[*first, used, rate, *amounts], note=note)
        case "self_billing":
            fee = "" if line.fee is None else exact(line.fee)
            amount = "" if line.meter is None else quantity(line.quantity, line.unit)
            return RowText(cells=[*first, amount, fee, *amounts], note=note)
        case _:
            shown = amounts if document.rate_bp is None else amounts[1:]
            return RowText(cells=[*first, *shown], note=note)


def _totals(document: Document) -> list[Total]:
    whole = cents(document.total_cents)
    match document.kind:
        case "usage_invoice":
            return _usage_totals(document, whole)
        case "self_billing":
            return [
                Total(label="Owed to the host, exact", value=exact(document.total)),
                Total(label="Owed to the host", value=whole, strong=True),
            ]
        case _:
            net, tax = document.net // NANOS_PER_CENT, document.tax // NANOS_PER_CENT
            if document.tax == 0 and document.rate_bp is None:
                return [Total(label="Given back as credit", value=whole, strong=True)]
            rate = percent(document.rate_bp or 0) if document.treatment == "standard" else "0 %"
            final = "Paid" if document.kind == "tax_invoice" else "Paid back"
            return [
                Total(label="Net", value=cents(net)),
                Total(label=f"Tax {rate}", value=cents(tax)),
                Total(label=final, value=whole, strong=True),
            ]


def _usage_totals(document: Document, whole: str) -> list[Total]:
    assert document.opening is not None
    assert document.movements is not None
    assert document.closing is not None
    found = [
        Total(label="Exact", value=aligned(document.total)),
        Total(label="Total", value=whole, strong=True),
    ]
    if document.promotional:
        found.append(Total(label="of it promotional credit", value=aligned(document.promotional)))
    if document.due:
        found.append(Total(label="Not covered by credit yet", value=aligned(document.due)))
    return [
        *found,
        Total(
            label="At the beginning",
            value=aligned(document.opening),
            heading="Credit of the account in this period",
        ),
        Total(label="Paid in, granted, moved", value=aligned(document.movements)),
        Total(label="This invoice", value=aligned(-document.total)),
        Total(label="At the end", value=aligned(document.closing)),
    ]


def _notes(document: Document) -> list[str]:
    match (document.kind, document.treatment):
        case ("usage_invoice", _):
            return [
                "Paid from prepaid credit. Tax was charged when the credit was bought; see the tax"
                " invoices of the top-ups.",
                "Amounts are exact to a billionth of a dollar. The last column is in whole cents,"
                " divided so that it adds up to the total.",
            ]
        case ("self_billing", _):
            return [
                "Self-billing: issued by the recipient of the service in the name of the supplier.",
                "The period is a UTC calendar month. Fees of the platform are already deducted.",
            ]
        case (_, "reverse_charge"):
            return ["Reverse charge: the customer is liable for the tax."]
        case (_, "exempt"):
            return ["Exempt from tax."]
        case ("credit_note", None):
            return [
                "The credit went back to the account's balance. The usage invoice stays as it was."
            ]
        case (_, "standard") if not document.rate_bp:
            return ["Not subject to tax."]
        case _:
            return []


def _footer(document: Document) -> str:
    name = "" if document.issuer is None else document.issuer.name
    return " · ".join(one for one in (name, document.number) if one)
