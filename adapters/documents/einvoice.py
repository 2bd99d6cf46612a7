"""EN 16931 e-invoices in the CII syntax (Factur-X), of tax invoices and credit notes.

Every amount is whole cents and every element has one place: the schema knows their order, the rules
of EN 16931 what they must add up to.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from ledger.domain.money import NANOS_PER_CENT
from ledger.errors import RejectedError
from ledger.services.billing import Customer, Issuer
from ledger.services.questions.documents import Document, cents_of

PROFILE: Final = "urn:cen.eu:en16931:2017"
_NAMESPACES: Final = {
    "rsm": "urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100",
    "ram": "urn:un:unece:uncefact:data:standard:ReusableAggregateBusinessInformationEntity:100",
    "udt": "urn:un:unece:uncefact:data:standard:UnqualifiedDataType:100",
    "qdt": "urn:un:unece:uncefact:data:standard:QualifiedDataType:100",
}
for _prefix, _uri in _NAMESPACES.items():
    ET.register_namespace(_prefix, _uri)
_INVOICE: Final = "380"
_CREDIT_NOTE: Final = "381"
_PIECE: Final = "C62"
_PREPAID: Final = "57"  # UNTDID 4461: a standing agreement; nothing is left to be paid
_LEAST_RATE_BP: Final = 50
"""The published check of BR-CO-17 rounds a rate to whole percent, and where that is 0 it allows no
tax: an invoice at a rate below half a percent is refused by whoever receives it."""


class _Category(NamedTuple):
    """How tax is described: UNCL 5305, the rate, and why there is none."""

    code: str
    rate: str | None
    reason: str | None = None
    reason_code: str | None = None


def has_e_invoice(document: Document) -> bool:
    """True when everything is known that an e-invoice of this document must say."""
    return _unfit(document) is None and not _missing(document)


def e_invoice(document: Document) -> bytes:
    """The document as a CrossIndustryInvoice; UTF-8.

    Raises:
        RejectedError: `no_e_invoice` for a document that has none, or whose rate EN 16931 has no
            place for; `incomplete_details` where the issuer or the customer is not described well
            enough.
    """
    unfit = _unfit(document)
    if unfit is not None:
        raise RejectedError("no_e_invoice", unfit)
    missing = _missing(document)
    if missing:
        message = f"an e-invoice needs {', '.join(missing)}, set before it was issued"
        raise RejectedError("incomplete_details", message, missing=missing)
    root = ET.Element(_name("rsm:CrossIndustryInvoice"))
    context = _add(root, "rsm:ExchangedDocumentContext")
    _add(context, "ram:GuidelineSpecifiedDocumentContextParameter/ram:ID", PROFILE)
    _head(root, document)
    trade = _add(root, "rsm:SupplyChainTradeTransaction")
    category = _category(document)
    _line(trade, document, category)
    _agreement(trade, document, category)
    delivery = _add(trade, "ram:ApplicableHeaderTradeDelivery")
    _day(
        delivery,
        "ram:ActualDeliverySupplyChainEvent/ram:OccurrenceDateTime/udt:DateTimeString",
        document.issued_at,
    )
    _settlement(trade, document, category)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _unfit(document: Document) -> str | None:
    """Why a document can be no e-invoice, whatever is known of the parties; none if it can."""
    if document.kind not in {"tax_invoice", "credit_note"}:
        return "only tax invoices and credit notes are e-invoices"
    if document.treatment == "standard" and 0 < (document.rate_bp or 0) < _LEAST_RATE_BP:
        return "EN 16931 takes a tax rate below 0.5 % for none: the PDF is the document"
    return None


def _missing(document: Document) -> list[str]:
    """What is not known and would have to stand on it."""
    found = []
    issuer, customer = document.issuer, document.customer
    category = _category(document).code
    if issuer is None:
        found.append("the issuer")
    elif category == "O" and issuer.registration is None:
        found.append("the issuer's registration")
    elif category != "O" and issuer.vat_id is None:
        found.append("the issuer's VAT id")
    if (customer.country or document.country) is None:
        found.append("the customer's country")
    if category == "AE" and customer.vat_id is None:
        found.append("the customer's VAT id")
    return found


def _category(document: Document) -> _Category:
    match document.treatment:
        case "reverse_charge":
            return _Category("AE", "0.00", "Reverse charge", "VATEX-EU-AE")
        case "exempt":
            return _Category("E", "0.00", "Exempt from tax")
        case "standard" if document.rate_bp:
            return _Category("S", f"{document.rate_bp // 100}.{document.rate_bp % 100:02d}")
        case _:
            return _Category("O", None, "Not subject to tax", "VATEX-EU-O")


def _head(root: ET.Element, document: Document) -> None:
    head = _add(root, "rsm:ExchangedDocument")
    _add(head, "ram:ID", document.number)
    _add(head, "ram:TypeCode", _CREDIT_NOTE if document.document else _INVOICE)
    _day(head, "ram:IssueDateTime/udt:DateTimeString", document.issued_at)
    if document.reason:
        _add(head, "ram:IncludedNote/ram:Content", document.reason)


def _line(trade: ET.Element, document: Document, category: _Category) -> None:
    line = _add(trade, "ram:IncludedSupplyChainTradeLineItem")
    _add(line, "ram:AssociatedDocumentLineDocument/ram:LineID", "1")
    what = document.lines[0].description
    if document.document is not None:
        what = f"Credit on {document.document}"
    _add(line, "ram:SpecifiedTradeProduct/ram:Name", what)
    net = _net(document)
    agreement = _add(line, "ram:SpecifiedLineTradeAgreement")
    _add(agreement, "ram:NetPriceProductTradePrice/ram:ChargeAmount", net)
    delivery = _add(line, "ram:SpecifiedLineTradeDelivery")
    _add(delivery, "ram:BilledQuantity", "1", unitCode=_PIECE)
    settlement = _add(line, "ram:SpecifiedLineTradeSettlement")
    tax = _add(settlement, "ram:ApplicableTradeTax")
    _add(tax, "ram:TypeCode", "VAT")
    _add(tax, "ram:CategoryCode", category.code)
    if category.rate is not None:
        _add(tax, "ram:RateApplicablePercent", category.rate)
    total = "ram:SpecifiedTradeSettlementLineMonetarySummation/ram:LineTotalAmount"
    _add(settlement, total, net)


def _agreement(trade: ET.Element, document: Document, category: _Category) -> None:
    agreement = _add(trade, "ram:ApplicableHeaderTradeAgreement")
    assert document.issuer is not None
    with_vat = category.code != "O"  # Who is not subject to VAT names no VAT id (BR-O-02).
    _seller(_add(agreement, "ram:SellerTradeParty"), document.issuer, with_vat=with_vat)
    buyer = _add(agreement, "ram:BuyerTradeParty")
    _buyer(buyer, document.customer, document.country, with_vat=with_vat)


def _seller(party: ET.Element, issuer: Issuer, *, with_vat: bool) -> None:
    _add(party, "ram:Name", issuer.name)
    if issuer.registration:
        _add(party, "ram:SpecifiedLegalOrganization/ram:ID", issuer.registration)
    _address(party, issuer.postcode, issuer.street, issuer.city, issuer.country)
    if issuer.email:
        _add(party, "ram:URIUniversalCommunication/ram:URIID", issuer.email, schemeID="EM")
    if issuer.vat_id and with_vat:
        _add(party, "ram:SpecifiedTaxRegistration/ram:ID", issuer.vat_id, schemeID="VA")


def _buyer(party: ET.Element, customer: Customer, country: str | None, *, with_vat: bool) -> None:
    _add(party, "ram:Name", customer.name)
    place = customer.country or country
    assert place is not None
    _address(party, customer.postcode, customer.street, customer.city, place)
    if customer.email:
        _add(party, "ram:URIUniversalCommunication/ram:URIID", customer.email, schemeID="EM")
    if customer.vat_id and with_vat:
        _add(party, "ram:SpecifiedTaxRegistration/ram:ID", customer.vat_id, schemeID="VA")


def _address(party: ET.Element, postcode: str, street: str, city: str, country: str) -> None:
    address = _add(party, "ram:PostalTradeAddress")
    for name, value in (("PostcodeCode", postcode), ("LineOne", street), ("CityName", city)):
        if value:
            _add(address, f"ram:{name}", value)
    _add(address, "ram:CountryID", country)


def _settlement(trade: ET.Element, document: Document, category: _Category) -> None:
    net, tax = _net(document), _money(document.tax)
    gross = _cents(cents_of(document.net) + cents_of(document.tax))
    settlement = _add(trade, "ram:ApplicableHeaderTradeSettlement")
    if document.reference:
        _add(settlement, "ram:PaymentReference", document.reference)
    _add(settlement, "ram:InvoiceCurrencyCode", document.currency)
    _add(settlement, "ram:SpecifiedTradeSettlementPaymentMeans/ram:TypeCode", _PREPAID)
    breakdown = _add(settlement, "ram:ApplicableTradeTax")
    _add(breakdown, "ram:CalculatedAmount", tax)
    _add(breakdown, "ram:TypeCode", "VAT")
    if category.reason:
        _add(breakdown, "ram:ExemptionReason", category.reason)
    _add(breakdown, "ram:BasisAmount", net)
    _add(breakdown, "ram:CategoryCode", category.code)
    if category.reason_code:
        _add(breakdown, "ram:ExemptionReasonCode", category.reason_code)
    if category.rate is not None:
        _add(breakdown, "ram:RateApplicablePercent", category.rate)
    sums = _add(settlement, "ram:SpecifiedTradeSettlementHeaderMonetarySummation")
    _add(sums, "ram:LineTotalAmount", net)
    _add(sums, "ram:TaxBasisTotalAmount", net)
    _add(sums, "ram:TaxTotalAmount", tax, currencyID=document.currency)
    _add(sums, "ram:GrandTotalAmount", gross)
    _add(sums, "ram:TotalPrepaidAmount", gross)
    _add(sums, "ram:DuePayableAmount", "0.00")
    if document.document is not None and document.document_issued_at is not None:
        about = _add(settlement, "ram:InvoiceReferencedDocument")
        _add(about, "ram:IssuerAssignedID", document.document)
        _day(
            about,
            "ram:FormattedIssueDateTime/qdt:DateTimeString",
            document.document_issued_at,
        )


def _net(document: Document) -> str:
    """The net in whole cents; what a usage invoice gave back is rounded to them once."""
    return _cents(cents_of(document.net))


def _money(nanos: int) -> str:
    assert nanos % NANOS_PER_CENT == 0, nanos
    return _cents(nanos // NANOS_PER_CENT)


def _cents(whole: int) -> str:
    assert whole >= 0, whole
    return f"{whole // 100}.{whole % 100:02d}"


def _day(parent: ET.Element, path: str, second: int) -> None:
    text = datetime.fromtimestamp(second, UTC).strftime("%Y%m%d")
    _add(parent, path, text, format="102")


def _add(parent: ET.Element, path: str, text: str | None = None, **attributes: str) -> ET.Element:
    """Append the elements of a path, one inside the other; the last one holds the text."""
    element = parent
    for name in path.split("/"):
        element = ET.SubElement(element, _name(name))
    element.text = text
    element.attrib.update(attributes)
    return element


def _name(prefixed: str) -> str:
    prefix, _, name = prefixed.partition(":")
    return f"{{{_NAMESPACES[prefix]}}}{name}"
