"""Documents as paper, page, table and JSON: everything on them, nothing that is code."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pypdf
import pytest

from adapters.documents.forms import FORMS, form_of
from adapters.documents.page import html
from adapters.documents.pdf import pdf
from adapters.documents.sheet import aligned, cents, exact, percent, quantity, sheet
from adapters.documents.table import COLUMNS, table
from tests.support.documents import CUSTOMER, credit_note, tax_invoice, usage_invoice


def text_of(content: bytes) -> str:
    """The text of all pages."""
    reader = pypdf.PdfReader(io.BytesIO(content))
    return "\n".join(one.extract_text() for one in reader.pages)


def test_a_pdf_says_everything_that_its_sheet_says() -> None:
    """Every line, sum, name and note of the sheet is text on the pages."""
    document = usage_invoice(40)
    shown = sheet(document)
    text = text_of(pdf(document))
    for row in shown.rows:
        for cell in row.cells:
            assert cell in text
    for total in shown.totals:
        assert total.value in text
    for line in [*shown.issuer, *shown.customer, shown.number, shown.status]:
        assert line in text


def test_a_long_invoice_repeats_its_heads_and_counts_its_pages() -> None:
    """With 100 lines there are several pages; each has the table's head and its own number."""
    pages = pypdf.PdfReader(io.BytesIO(pdf(usage_invoice(100)))).pages
    assert len(pages) > 3
    for number, page in enumerate(pages, 1):
        text = page.extract_text()
        assert f"Page {number} of {len(pages)}" in text
        assert ("Quantity" in text) == ("instance" in text)


def test_the_same_document_is_the_same_bytes() -> None:
    """A usage invoice printed again, at any time and on any machine, is the same file."""
    assert pdf(usage_invoice()) == pdf(usage_invoice())


@pytest.mark.parametrize(
    "name",
    ['#panic("x")', "#import \"@preview/x:1.0.0\": *", "</style><script>alert(1)</script>",
     "$ x $ *bold* _it_ \\ `raw` @ref <label>", "=HYPERLINK(\"http://x\")", "名前 éß ☃"],
)  # fmt: skip
def test_a_name_is_never_code(name: str) -> None:
    """Whatever a customer is called stands there as it was written: no markup, no script."""
    document = tax_invoice(customer=msgspec.structs.replace(CUSTOMER, name=name))
    page = html(document).decode()
    assert "<script" not in page
    assert pdf(document).startswith(b"%PDF")
    if name.isascii():
        assert name.replace("\\", "") in text_of(pdf(document)).replace("\\", "")


def test_a_name_that_no_font_has_still_prints() -> None:
    """Signs outside Latin, Greek and Cyrillic are marked on paper; the other forms have them."""
    document = tax_invoice(customer=msgspec.structs.replace(CUSTOMER, name="名前 Ωмега Ltd"))
    text = text_of(pdf(document))
    assert "?? Ωмега Ltd" in text
    assert "cannot be printed" in text
    assert "名前 Ωмега Ltd" in html(document).decode()


def test_an_invoice_without_lines_is_a_document_too() -> None:
    """INV-05: a zero invoice prints, with its balance and without a table of lines."""
    document = usage_invoice(0)
    assert "Nothing was consumed" in text_of(pdf(document))
    assert b"Nothing was consumed" in html(document)
    assert len(table(document).splitlines()) == 1


def test_a_table_has_a_row_per_line_and_no_formula() -> None:
    """CSV reads back; a text that begins like a formula is quoted, a negative number is not."""
    document = usage_invoice(2)
    lines = [msgspec.structs.replace(document.lines[0], description="=1+1", amount=-5)]
    rows = list(csv.DictReader(io.StringIO(
        table(msgspec.structs.replace(document, lines=lines)).decode()
    )))  # fmt: skip
    assert list(rows[0]) == list(COLUMNS)
    assert rows[0]["description"] == "'=1+1"
    assert rows[0]["amount"] == "-0.000000005"
    assert [row["late"] for row in csv.DictReader(io.StringIO(table(document).decode()))] == [
        "false",
        "true",
    ]


def test_json_has_decimal_texts_and_instants() -> None:
    """No amount is a JSON number, and no instant a count of seconds."""
    shown = json.loads(FORMS["json"].make(usage_invoice(1)))
    assert (shown["total"], shown["opening"]) == ("0.1234567", "5")
    assert shown["period_from"] == "2027-01-01T00:00:00Z"
    assert shown["lines"][0]["quantity"] == 3_600


def test_a_page_tells_the_time_of_the_account() -> None:
    """The period stands there by the account's clock, half hours included."""
    assert ["Period from", "2027-01-01 10:30:00 ACDT"] in sheet(usage_invoice()).facts


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/pdf", "pdf"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html"),
        ("text/csv;q=0.5, application/pdf;q=0.4", "csv"),
        ("application/pdf;q=0, text/csv;q=0.1", "csv"),
        ("application/pdf;q=x", "json"),
        ("image/png", "json"),
        (";;,,", "json"),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str, form: str) -> None:
    """The heaviest wish that can be met wins; without one it is JSON."""
    assert form_of(accept) == form


def test_amounts_are_written_for_people() -> None:
    """Cents have two digits, exact amounts all they need, columns nine."""
    assert [cents(one) for one in (0, 5, 123_456, -7)] == ["0.00", "0.05", "1,234.56", "−0.07"]
    assert [exact(one) for one in (0, 1, 10**12, -5 * 10**8)] == [
        "0.00", "0.000000001", "1,000.00", "−0.50",
    ]  # fmt: skip
    assert [aligned(one) for one in (1, -(10**9))] == ["0.000000001", "−1.000000000"]
    assert [percent(one) for one in (0, 1_900, 770, 2_000)] == ["0 %", "19 %", "7.7 %", "20 %"]
    assert quantity(3_661, "s") == "3,661 s = 1:01:01 h"
    assert quantity(10**9, "B") == "1,000,000,000 B"


def test_a_credit_note_names_what_it_corrects() -> None:
    """The document it is about, with its day, and the reason."""
    facts = sheet(credit_note()).facts
    assert ["Corrects", "INV-00000001 of 2026-12-31"] in facts
    assert ["Reason", "goodwill"] in facts
