"""Documents as PDF/A-3, made from a template that gets its text as data; e-invoices embedded.

The same document gives the same pages for ever: own fonts, and the second of issue as its date.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
import typst
from facturx import generate_from_binary

from adapters.documents.einvoice import e_invoice, has_e_invoice
from adapters.documents.sheet import TITLES, sheet
from ledger.services.questions.documents import Document

_END_OF_CYRILLIC: Final = 0x530
_SIGNS: Final = "\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u20ac\u2212"
_MARKED: Final = (
    "Signs of other scripts cannot be printed here and are marked with a question mark; the"
    " electronic forms of this document have them."
)


def pdf(document: Document) -> bytes:
    """The document on A4 pages; with its e-invoice inside where it has one."""
    pages = _pages(document)
    if not has_e_invoice(document):
        return pages
    title = f"{TITLES[document.kind]} {document.number}"
    issuer = "" if document.issuer is None else document.issuer.name
    embedded: bytes = generate_from_binary(
        pages,
        e_invoice(document),
        flavor="factur-x",
        level="en16931",
        check_xsd=True,
        pdf_metadata={
            "author": issuer,
            "keywords": "Factur-X, invoice",
            "title": title,
            "subject": title,
        },
        lang="en",
    )
    return embedded


def png(document: Document, *, ppi: float = 144.0) -> list[bytes]:
    """The pages as pictures."""
    found: bytes | list[bytes] = typst.compile(
        _template(),
        format="png",
        sys_inputs=_data(document),
        ignore_system_fonts=True,
        ppi=ppi,
    )
    return found if isinstance(found, list) else [found]


def _pages(document: Document) -> bytes:
    """PDF/A-3; what the fonts do not have is marked, for PDF/A takes no text without its shape."""
    data = _data(document)
    try:
        return _printed(document, data)
    except typst.TypstError as error:
        if "could not be displayed" not in str(error):
            raise
    shown = sheet(document)
    marked = msgspec.json.encode({**msgspec.to_builtins(shown), "notes": [*shown.notes, _MARKED]})
    return _printed(document, {"sheet": "".join(map(_printable, marked.decode()))})


def _printable(sign: str) -> str:
    is_known = ord(sign) < _END_OF_CYRILLIC or sign in _SIGNS
    return sign if is_known and sign.isprintable() else "?"


def _printed(document: Document, data: dict[str, str]) -> bytes:
    return typst.compile(
        _template(),
        format="pdf",
        sys_inputs=data,
        ignore_system_fonts=True,
        timestamp=document.issued_at,
        pdf_standards="a-3b",
    )


def _data(document: Document) -> dict[str, str]:
    return {"sheet": msgspec.json.encode(sheet(document)).decode()}


@cache
def _template() -> bytes:
    return files("adapters.documents").joinpath("document.typ").read_bytes()
