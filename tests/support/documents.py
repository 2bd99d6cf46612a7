"""Documents for tests of their forms: as the read models would give them."""

from __future__ import annotations

from typing import Any

from ledger.services.billing import Customer, Issuer
from ledger.services.questions.documents import Document, DocumentLine

T = 1_798_761_600
CENT = 10_000_000
ISSUER = Issuer(
    name="Example Compute GmbH",
    street="Kanalstraße 12",
    postcode="20095",
    city="Hamburg",
    country="DE",
    vat_id="DE123456788",
    registration="HRB 12345",
    email="billing@example.com",
)
CUSTOMER = Customer(
    name="Alice & Töchter <Research>",
    street="1 Long Road",
    postcode="75001",
    city="Paris",
    country="FR",
    vat_id="FR12345678901",
    email="alice@example.com",
)


def tax_invoice(net: int = 10_000, tax: int = 1_900, **change: Any) -> Document:
    """A tax invoice; *net* and *tax* in cents."""
    line = DocumentLine(
        line=1,
        description="Prepaid credit for GPU rental",
        quantity=1,
        unit="",
        rate=net * CENT,
        rate_unit="",
        amount=net * CENT,
        cents=net,
    )
    fields: dict[str, Any] = {
        "number": "INV-00000001",
        "kind": "tax_invoice",
        "account_id": 7,
        "issuer": ISSUER,
        "customer": CUSTOMER,
        "issued_at": T,
        "position": 9,
        "currency": "USD",
        "status": "paid",
        "zone": "Europe/Paris",
        "lines": [line],
        "net": net * CENT,
        "tax": tax * CENT,
        "total": (net + tax) * CENT,
        "total_cents": net + tax,
        "country": "FR",
        "rate_bp": 1_900,
        "treatment": "standard",
        "reference": "bank-17",
        "paid": (net + tax) * CENT,
        "due": 0,
    }
    return Document(**{**fields, **change})


def credit_note(net: int = 83, tax: int = 17, **change: Any) -> Document:
    """A credit note of that tax invoice; *net* and *tax* in cents."""
    about = {
        "number": "CN-00000001",
        "kind": "credit_note",
        "document": "INV-00000001",
        "document_issued_at": T - 86_400,
        "reason": "goodwill",
        "reference": None,
        "status": "issued",
    }
    return tax_invoice(net, tax, **{**about, **change})


def usage_invoice(lines: int = 3, **change: Any) -> Document:
    """A usage invoice over 0.1234567 dollars a line, the last line late."""
    amount = 123_456_700
    total = lines * amount
    found = [
        DocumentLine(
            line=number,
            description=f"GPU, instance {1_000 + number}, on demand",
            quantity=3_600,
            unit="s",
            rate=amount,
            rate_unit="h",
            amount=amount,
            cents=12,
            instance_id=1_000 + number,
            meter="gpu",
            rental="on_demand",
            late=number == lines,
            used_from=T,
            used_until=T + 3_600,
            period_from=T,
        )
        for number in range(1, lines + 1)
    ]
    fields: dict[str, Any] = {
        "number": "USE-00000042",
        "kind": "usage_invoice",
        "issued_at": T + 2_682_000,
        "lines": found,
        "net": total,
        "tax": 0,
        "total": total,
        "total_cents": (total + CENT // 2) // CENT,
        "country": None,
        "rate_bp": None,
        "treatment": None,
        "reference": None,
        "zone": "Australia/Adelaide",
        "period_from": T,
        "period_until": T + 2_678_400,
        "opening": 5 * 10**9,
        "movements": 10**9,
        "closing": 6 * 10**9 - total,
        "promotional": 10**8,
        "paid": total,
        "due": 0,
    }
    return tax_invoice(**{**fields, **change})
