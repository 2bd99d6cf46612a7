"""Documents over the API: every form, by header and by ending, and nobody else's."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from tests.http.conftest import Api
from tests.support.einvoices import broken_rules

CUSTOMER: dict[str, Any] = {
    "name": "Alice <Research>", "street": "1 Long Road", "postcode": "75001", "city": "Paris",
    "country": "FR", "vat_id": "FR12345678901", "email": None,
}  # fmt: skip
ISSUER: dict[str, Any] = {
    "name": "Example GmbH", "street": "Kanal 1", "postcode": "20095", "city": "Hamburg",
    "country": "DE", "vat_id": "DE123456788", "registration": "HRB 1", "email": None,
}  # fmt: skip


@pytest.fixture
def number(api: Api) -> str:
    """A tax invoice of Alice's, everything known that stands on it."""
    alice = api.accounts["alice"]
    profile = {"account_id": alice, "country": "FR", "rate": "0.2", "treatment": "standard"}
    for path, body in (
        ("/v1/issuer", ISSUER),
        (f"/v1/billing-details?account_id={alice}", CUSTOMER),
        ("/v1/tax-profile", profile),
    ):
        answer = api("root", "PUT", path, body)
        assert answer.status_code == 200, answer.text
    paid = {"account_id": alice, "amount": "3.09", "id": "bank-1"}
    assert api("root", "POST", "/v1/deposits", paid).status_code == 201
    found = api("alice", "GET", "/v1/documents?kind=tax_invoice").json()["items"]
    assert found[-1]["tax"] == "0.62"
    return str(found[-1]["number"])


@pytest.mark.parametrize(
    ("ending", "accept", "media_type", "begins"),
    [
        (".pdf", "", "application/pdf", b"%PDF"),
        ("", "application/pdf", "application/pdf", b"%PDF"),
        (".html", "", "text/html; charset=utf-8", b"<!doctype html>"),
        ("", "text/html,*/*;q=0.8", "text/html; charset=utf-8", b"<!doctype html>"),
        (".csv", "", "text/csv; charset=utf-8", b"number,kind"),
        (".json", "text/csv", "application/json", b"{"),
        ("", "", "application/json", b"{"),
        (".xml", "", "application/xml", b"<?xml"),
    ],
)
def test_a_document_comes_in_the_form_that_is_asked_for(
    api: Api, number: str, ending: str, accept: str, media_type: str, begins: bytes
) -> None:
    """By its ending or by the Accept header, with a name to save it under; the ending wins."""
    answer = api("alice", "GET", f"/v1/invoices/{number}{ending}", Accept=accept)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media_type
    assert answer.content.startswith(begins)
    assert number in answer.headers["content-disposition"]


def test_the_e_invoice_of_a_real_top_up_and_of_its_refund_are_valid(api: Api, number: str) -> None:
    """PRICE-11: what the services issue breaks no rule of EN 16931."""
    xml = api("alice", "GET", f"/v1/invoices/{number}.xml").content
    assert broken_rules(xml) == []
    note = {
        "account_id": api.accounts["alice"], "document": number, "amount": "1", "reason": "gift",
    }  # fmt: skip
    refund = {
        "account_id": api.accounts["alice"], "deposit_id": "bank-1", "amount": "1", "id": "r",
    }  # fmt: skip
    assert api("root", "POST", "/v1/refunds", refund).status_code == 201
    assert api("root", "POST", "/v1/credit-notes", note).status_code == 201
    found = api("alice", "GET", "/v1/documents?kind=credit_note").json()["items"]
    assert [(one["net"], one["tax"]) for one in found] == [("0.83", "0.17"), ("0.84", "0.16")]
    for one in found:
        xml = api("alice", "GET", f"/v1/invoices/{one['number']}.xml").content
        assert broken_rules(xml) == []


@pytest.mark.parametrize("ending", ["", ".pdf", ".html", ".csv", ".json", ".xml"])
@pytest.mark.parametrize("who", ["carol", "bob"])
def test_somebody_elses_document_is_not_found_in_any_form(
    api: Api, number: str, ending: str, who: str
) -> None:
    """The answer is that of a document that does not exist."""
    theirs = api(who, "GET", f"/v1/invoices/{number}{ending}")
    nobodys = api(who, "GET", f"/v1/invoices/INV-09999999{ending}")
    assert (theirs.status_code, nobodys.status_code) == (404, 404)
    assert theirs.json()["code"] == nobodys.json()["code"] == "no_such_invoice"


def test_auditors_see_amounts_and_no_names(api: Api, number: str) -> None:
    """A reference stands where the customer's name and address would."""
    for ending in (".json", ".html"):
        text = api("audrey", "GET", f"/v1/invoices/{number}{ending}").text
        assert "Alice" not in text
        assert "Paris" not in text
        assert f"account {api.accounts['alice']}" in text


def test_what_is_missing_for_an_e_invoice_is_said(api: Api) -> None:
    """Without an issuer the PDF works and the XML is refused, naming what to set."""
    number = api("carol", "GET", "/v1/documents").json()["items"][0]["number"]
    assert api("carol", "GET", f"/v1/invoices/{number}.pdf").status_code == 200
    answer = api("carol", "GET", f"/v1/invoices/{number}.xml")
    assert (answer.status_code, answer.json()["code"]) == (422, "incomplete_details")
    assert "the issuer" in answer.text


def test_an_ending_that_is_no_form_says_which_there_are(api: Api, number: str) -> None:
    """A document in a form that does not exist is not found, and the answer lists the forms."""
    answer = api("alice", "GET", f"/v1/invoices/{number}.docx")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_invoice")
    assert ".pdf" in answer.text


def test_a_table_reads_back(api: Api, number: str) -> None:
    """The CSV's one line has the document's amounts as decimal texts."""
    text = api("alice", "GET", f"/v1/invoices/{number}.csv").text
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["net"], row["tax"], row["total"]) == ("3.09", "0.62", "3.71")


def test_settings_read_back_as_they_were_put(api: Api, number: str) -> None:
    """Periods, tax, names and issuer: what was put is what is shown."""
    del number
    periods = {"zone": "Europe/Berlin", "cycle": "weekly", "anchor": 7, "zero_invoices": True}
    assert api("alice", "PUT", "/v1/billing", periods).status_code == 200
    assert api("alice", "GET", "/v1/billing").json() == periods
    assert api("carol", "GET", "/v1/billing").json()["zone"] == "UTC"
    assert api("alice", "GET", "/v1/billing-details").json() == CUSTOMER
    assert api("audrey", "GET", "/v1/issuer").json() == ISSUER
    assert api("alice", "GET", "/v1/tax-profile").json() == {
        "country": "FR", "rate": "0.2", "treatment": "standard", "effective_rate": "0.2",
    }  # fmt: skip
    wrong = api("alice", "PUT", "/v1/billing", {**periods, "zone": "Berlin"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_args")


def test_grants_are_given_listed_and_revoked(api: Api) -> None:
    """CRED-06: an admin grants and revokes; the renter sees what is left, and no one else does."""
    alice = api.accounts["alice"]
    body = {
        "account_id": alice, "amount": "5", "expires_at": "2030-01-01T00:00:00Z", "id": "g",
        "reason": "welcome",
    }  # fmt: skip
    for _ in range(2):
        assert api("root", "POST", "/v1/grants", body).status_code == 201
    assert api("alice", "GET", "/v1/balance").json()["promotional"] == "5"
    (one,) = api("alice", "GET", "/v1/grants").json()["items"]
    assert (one["amount"], one["unspent"], one["status"]) == ("5", "5", "active")
    assert api("carol", "GET", "/v1/grants").json()["items"] == []
    end = {"account_id": alice, "reason": "abuse"}
    revoked = api("root", "POST", "/v1/grants/g/revoke", end).json()
    assert revoked["status"] == "revoked"
    shown = api("alice", "GET", "/v1/balance").json()
    assert (shown["available"], shown["promotional"], shown["lapsed"]) == ("100", "0", "5")


def test_the_running_period_is_previewed(api: Api) -> None:
    """Nothing is issued; the balance so far stands there."""
    shown = api("alice", "GET", "/v1/invoice-preview").json()
    assert (shown["movements"], shown["total"], shown["closing"]) == ("100", "0", "100")
    assert shown["lines"] == []
