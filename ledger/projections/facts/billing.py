"""How accounts are billed, and who stands on documents: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted


def billing_changes(fact: e.BillingFact, position: int) -> Iterator[Change]:
    """Periods, tax, names on documents."""
    match fact:
        case e.BillingChosen():
            yield Change(
                "INSERT INTO billing VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (account_id) DO UPDATE SET zone = EXCLUDED.zone,"
                " cycle = EXCLUDED.cycle, anchor = EXCLUDED.anchor,"
                " zero_invoices = EXCLUDED.zero_invoices, chosen_at = EXCLUDED.chosen_at",
                (
                    fact.account_id,
                    fact.zone,
                    fact.cycle,
                    fact.anchor,
                    fact.zero_invoices,
                    fact.chosen_at,
                ),
            )
            yield Change(
                "INSERT INTO billing_zones VALUES (%s, %s, %s)",
                (fact.account_id, position, fact.zone),
            )
            yield Change(
                "DELETE FROM planned_boundaries WHERE account_id = %s AND boundary > %s",
                (fact.account_id, fact.chosen_at),
            )
            yield from _planned(fact.account_id, fact.boundaries)
        case e.PeriodsPlanned():
            yield from _planned(fact.account_id, fact.boundaries)
        case e.TaxProfileSet():
            yield Change(
                "INSERT INTO tax_profiles VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (account_id) DO UPDATE SET country = EXCLUDED.country,"
                " rate_bp = EXCLUDED.rate_bp, treatment = EXCLUDED.treatment,"
                " set_at = EXCLUDED.set_at",
                (fact.account_id, fact.country, fact.rate_bp, fact.treatment, fact.set_at),
            )
        case e.CustomerDetailsGiven():
            yield Change(
                "INSERT INTO customer_details (account_id, details_no, subject, given_at, position)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.account_id, fact.details_no, fact.subject, fact.given_at, position),
            )
        case e.CustomerDetailsErased():
            for number in fact.details_nos:
                yield Change(
                    "UPDATE customer_details SET erased_at = %s"
                    " WHERE account_id = %s AND details_no = %s",
                    (fact.erased_at, fact.account_id, number),
                )
        case e.IssuerDescribed():
            yield Change(
                "INSERT INTO issuers VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.issuer_no,
                    fact.name,
                    fact.street,
                    fact.postcode,
                    fact.city,
                    fact.country,
                    fact.vat_id,
                    fact.registration,
                    fact.email,
                    fact.described_at,
                    position,
                ),
            )
            yield counted("issuer", fact.issuer_no)


def _planned(account_id: int, boundaries: Sequence[int]) -> Iterator[Change]:
    for boundary in boundaries:
        yield Change(
            "INSERT INTO planned_boundaries VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (account_id, boundary),
        )
