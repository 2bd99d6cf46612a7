"""Documents as an HTML page that prints well, and needs nothing from elsewhere."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from adapters.documents.sheet import Sheet, sheet
from ledger.services.questions.documents import Document

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.45 Georgia, "Libertinus Serif", serif; color: #1a1a1a; background: #f4f4f2;
  margin: 0; font-variant-numeric: lining-nums tabular-nums; }
main { max-width: 52rem; margin: 2rem auto; padding: 3rem; background: #fff; }
header, section { display: flex; justify-content: space-between; gap: 2rem; flex-wrap: wrap; }
h1 { font-size: 1.9rem; margin: 0; }
address { font-style: normal; white-space: pre-line; }
.muted, dt, small { color: #5c5c5c; }
section { margin: 2.2rem 0; }
dl { display: grid; grid-template-columns: auto auto; gap: .2rem 1.4rem; margin: 0; }
dd { margin: 0; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .86rem; }
th { border-bottom: 1.5px solid #1a1a1a; text-align: left; }
th, td { padding: .4rem .5rem; vertical-align: top; }
td { border-bottom: 1px solid #dcdcdc; }
.right { text-align: right; white-space: nowrap; }
small { display: block; }
.totals { width: auto; margin: 1.2rem 0 0 auto; font-size: .95rem; }
.totals td { border: 0; padding: .15rem .5rem; }
.totals .heading td { border-top: 1px solid #dcdcdc; padding-top: .7rem; font-size: .8rem;
  color: #5c5c5c; }
.strong td { font-weight: bold; font-size: 1.15rem; }
footer { margin-top: 2rem; font-size: .85rem; color: #5c5c5c; }
@media print {
  body { background: #fff; font-size: 10.5pt; }
  main { margin: 0; padding: 0; max-width: none; }
  thead { display: table-header-group; }
  tr, .totals { break-inside: avoid; }
  @page { size: A4; margin: 18mm; }
}
"""


def html(document: Document) -> bytes:
    """The document as one page; UTF-8."""
    shown = sheet(document)
    root = ET.Element("html", lang=shown.language)
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _text(head, "title", f"{shown.title} {shown.number}")
    _text(head, "style", _STYLE)
    main = ET.SubElement(ET.SubElement(root, "body"), "main")
    _top(main, shown)
    _lines(main, shown)
    _totals(main, shown)
    footer = ET.SubElement(main, "footer")
    for note in shown.notes:
        _text(footer, "p", note)
    text: str = ET.tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n".encode()


def _top(main: ET.Element, shown: Sheet) -> None:
    header = ET.SubElement(main, "header")
    _text(header, "h1", shown.title)
    _text(header, "address", "\n".join(shown.issuer))
    section = ET.SubElement(main, "section")
    to = ET.SubElement(section, "div")
    _text(to, "small", "To")
    _text(to, "address", "\n".join(shown.customer))
    facts = ET.SubElement(section, "dl")
    for label, value in [*shown.facts, ["Status", shown.status]]:
        _text(facts, "dt", label)
        _text(facts, "dd", value)


def _lines(main: ET.Element, shown: Sheet) -> None:
    table = ET.SubElement(ET.SubElement(main, "div", {"class": "wide"}), "table")
    head = ET.SubElement(ET.SubElement(table, "thead"), "tr")
    for column in shown.columns:
        _text(head, "th", column.title, column.align)
    body = ET.SubElement(table, "tbody")
    for row in shown.rows:
        line = ET.SubElement(body, "tr")
        for place, (column, text) in enumerate(zip(shown.columns, row.cells, strict=True)):
            cell = _text(line, "td", text, column.align)
            if place == 1 and row.note:
                _text(cell, "small", row.note)
    if not shown.rows:
        _text(main, "p", "Nothing was consumed in this period.")


def _totals(main: ET.Element, shown: Sheet) -> None:
    table = ET.SubElement(main, "table", {"class": "totals"})
    for total in shown.totals:
        if total.heading:
            row = ET.SubElement(table, "tr", {"class": "heading"})
            ET.SubElement(row, "td", colspan="2").text = total.heading
        row = ET.SubElement(table, "tr", {"class": "strong"} if total.strong else {})
        _text(row, "td", total.label)
        _text(row, "td", f"USD {total.value}" if total.strong else total.value, "right")


def _text(parent: ET.Element, name: str, text: str, style: str = "") -> ET.Element:
    element = ET.SubElement(parent, name, {"class": style} if style == "right" else {})
    element.text = text
    return element
