"""E-invoices: valid by the schema and by every rule of EN 16931, in every tax treatment."""

from __future__ import annotations

import io
import re
from typing import Any

import facturx
import msgspec
import pypdf
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.documents import einvoice
from adapters.documents.einvoice import e_invoice, has_e_invoice
from adapters.documents.pdf import pdf
from ledger.domain.tax import TaxProfile, taxed
from ledger.errors import RejectedError
from ledger.services.questions.documents import Document
from tests.support.documents import CENT, CUSTOMER, ISSUER, credit_note, tax_invoice, usage_invoice
from tests.support.einvoices import broken_rules, fits_schema

CASES: dict[str, Document] = {
    "standard": tax_invoice(),
    "a cent": tax_invoice(1, 0, rate_bp=1_900),
    "untaxed": tax_invoice(10_000, 0, rate_bp=0),
    "untaxed, no country of the customer": tax_invoice(
        10_000, 0, rate_bp=0, customer=msgspec.structs.replace(CUSTOMER, country=None)
    ),
    "exempt": tax_invoice(10_000, 0, rate_bp=0, treatment="exempt"),
    "reverse charge": tax_invoice(10_000, 0, rate_bp=2_000, treatment="reverse_charge"),
    "bare customer": tax_invoice(
        customer=msgspec.structs.replace(
            CUSTOMER, street="", postcode="", city="", vat_id=None, email=None
        )
    ),
    "no e-mail, no registration": tax_invoice(
        issuer=msgspec.structs.replace(ISSUER, email=None, registration=None)
    ),
    "credit note": credit_note(),
    "credit note, reverse charge": credit_note(100, 0, treatment="reverse_charge"),
    "credit note of usage": msgspec.structs.replace(
        credit_note(rate_bp=None, treatment=None, country=None, document="USE-00000001"),
        net=123_456_789, tax=0, total=123_456_789, total_cents=12,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_treatment_is_valid_by_schema_and_rules(case: str) -> None:
    """The XSD accepts it and no rule of the EN 16931 Schematron fails."""
    xml = e_invoice(CASES[case])
    assert fits_schema(xml)
    assert broken_rules(xml) == []


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 10**11),
    st.integers(50, 10_000) | st.sampled_from([50, 700, 770, 810, 1_900, 2_100, 2_550, 10_000]),
)
@example(10**9, 50)
@example(10**11, 10_000)
def test_amounts_of_any_size_and_rate_are_valid(cents: int, rate_bp: int) -> None:
    """Net, tax and total agree by the rules' own arithmetic, to the cent."""
    split = taxed(cents * CENT, TaxProfile("FR", rate_bp))
    document = tax_invoice(cents, split.tax // CENT, rate_bp=rate_bp)
    assert broken_rules(e_invoice(document)) == []


@pytest.mark.parametrize(("cents", "rate_bp"), [(10**9, 1), (10_205, 49)])
@pytest.mark.parametrize("kind", ["tax_invoice", "credit_note"])
def test_a_rate_below_half_a_percent_has_no_e_invoice(
    monkeypatch: pytest.MonkeyPatch, cents: int, rate_bp: int, kind: str
) -> None:
    """$10,000,000 at 0.01 %: BR-CO-17 takes the rate for none, so it is refused and paper works."""
    make = tax_invoice if kind == "tax_invoice" else credit_note
    tax = taxed(cents * CENT, TaxProfile("FR", rate_bp)).tax // CENT
    document = make(cents, tax, rate_bp=rate_bp)
    assert not has_e_invoice(document)
    with pytest.raises(RejectedError, match=r"below 0\.5 %") as refused:
        e_invoice(document)
    assert refused.value.code == "no_e_invoice"
    assert pdf(document).startswith(b"%PDF")
    monkeypatch.setattr(einvoice, "_LEAST_RATE_BP", 0)
    assert any("BR-CO-17" in said for said in broken_rules(e_invoice(document)))


def planted(xml: bytes, pattern: str, text: str) -> bytes:
    """The e-invoice with one element's text replaced."""
    found, count = re.subn(pattern, text, xml.decode(), count=1)
    assert count == 1
    return found.encode()


@pytest.mark.parametrize(
    ("pattern", "text", "rule"),
    [
        (r"(<ram:GrandTotalAmount>)119\.00", r"\g<1>119.000", "BR-DEC-14"),
        (r"(<ram:GrandTotalAmount>)119\.00", r"\g<1>119.01", "BR-CO-15"),
        (r"(<ram:CalculatedAmount>)19\.00", r"\g<1>18.00", "BR-S-09"),
        (r"(<ram:CountryID>)DE", r"\g<1>ZZ", "CountryID"),
        (r"<ram:Name>Example[^<]*</ram:Name>", "<ram:Name> </ram:Name>", "R008"),
    ],
)
def test_a_planted_mistake_is_refused(pattern: str, text: str, rule: str) -> None:
    """An amount with three decimals, a wrong sum, a country that is none: the rules say which."""
    xml = planted(e_invoice(tax_invoice()), pattern, text)
    assert any(rule in said for said in broken_rules(xml)), broken_rules(xml)


def test_the_schema_refuses_what_is_not_in_its_place() -> None:
    """An element that the profile does not know makes the XML invalid."""
    xml = planted(e_invoice(tax_invoice()), "<ram:TypeCode>380</ram:TypeCode>", "<ram:Odd/>")
    assert not fits_schema(xml)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"issuer": None}, "the issuer"),
        ({"issuer": msgspec.structs.replace(ISSUER, vat_id=None)}, "the issuer's VAT id"),
        (
            {"country": None, "customer": msgspec.structs.replace(CUSTOMER, country=None)},
            "the customer's country",
        ),
        (
            {
                "treatment": "reverse_charge",
                "customer": msgspec.structs.replace(CUSTOMER, vat_id=None),
            },
            "the customer's VAT id",
        ),
    ],
)
def test_what_cannot_be_said_is_named_and_the_pdf_goes_without(
    change: dict[str, Any], missing: str
) -> None:
    """Without a detail there is no e-invoice, the refusal says which one, and paper still works."""
    document = tax_invoice(**change)
    assert not has_e_invoice(document)
    with pytest.raises(RejectedError) as refused:
        e_invoice(document)
    assert refused.value.code == "incomplete_details"
    assert missing in refused.value.message
    assert pdf(document).startswith(b"%PDF")


def test_a_usage_invoice_is_no_e_invoice() -> None:
    """It is paid from credit that was taxed when it was bought."""
    with pytest.raises(RejectedError) as refused:
        e_invoice(usage_invoice())
    assert refused.value.code == "no_e_invoice"


@pytest.mark.parametrize("make", [tax_invoice, credit_note])
def test_the_pdf_carries_its_e_invoice_as_pdf_a_3(make: Any) -> None:
    """What a recipient's program takes out of the PDF is the e-invoice, byte for byte."""
    document = make()
    content = pdf(document)
    name, xml = facturx.get_xml_from_pdf(content)
    assert (name, xml) == ("factur-x.xml", e_invoice(document))
    reader = pypdf.PdfReader(io.BytesIO(content))
    stream: Any = reader.root_object["/Metadata"]
    metadata = stream.get_data().decode()
    assert re.search(r"<pdfaid:part>3</pdfaid:part>", metadata)
    assert "urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#" in metadata
    assert "/OutputIntents" in reader.root_object
