"""The forms in which a document can be had: PDF, HTML, CSV, JSON, and the e-invoice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars
from ledger.services.questions.documents import Document

_MONEY: Final = frozenset(
    {
        "net", "tax", "total", "opening", "movements", "closing", "promotional", "paid", "due",
        "adjustments", "amount", "rate", "fee",
    }
)  # fmt: skip


class Form(NamedTuple):
    """One form: its media type, and what makes it."""

    media_type: str
    make: Callable[[Document], bytes]


def _pdf(document: Document) -> bytes:
    from adapters.documents.pdf import pdf  # noqa: PLC0415 - a typesetter is loaded when one prints

    return pdf(document)


def _html(document: Document) -> bytes:
    from adapters.documents.page import html  # noqa: PLC0415 - as above

    return html(document)


def _csv(document: Document) -> bytes:
    from adapters.documents.table import table  # noqa: PLC0415 - as above

    return table(document)


def _xml(document: Document) -> bytes:
    from adapters.documents.einvoice import e_invoice  # noqa: PLC0415 - as above

    return e_invoice(document)


def as_json(document: Document) -> bytes:
    """The document as JSON: amounts as decimal strings, instants as RFC 3339."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2) + b"\n"


def plain(value: Any) -> Any:
    """A document, or a part of it, as JSON holds it."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(name, getattr(value, name)) for name in type(value).__struct_fields__}
    return value


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        if name in _MONEY:
            return format_dollars(value)
        if name.endswith(("_at", "_from", "_until")):
            return rfc3339(value)
    return plain(value)


FORMS: Final[dict[str, Form]] = {
    "pdf": Form("application/pdf", _pdf),
    "html": Form("text/html", _html),
    "csv": Form("text/csv", _csv),
    "json": Form("application/json", as_json),
    "xml": Form("application/xml", _xml),
}


def form_of(accept: str) -> str:
    """The form that an Accept header asks for first; JSON when it has no wish that can be met."""
    wishes = []
    for place, part in enumerate(accept.split(",")):
        media, *parameters = [one.strip() for one in part.split(";")]
        weight = 1.0
        for one in parameters:
            if one.startswith("q="):
                try:
                    weight = float(one[2:])
                except ValueError:
                    weight = 0.0
        wishes.append((-weight, place, media.lower()))
    for weight, _, media in sorted(wishes):
        for name, form in FORMS.items():
            if weight < 0 and media == form.media_type:
                return name
    return "json"
