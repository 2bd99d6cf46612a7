"""How an account is billed: its periods, its tax, and who stands on its documents.

Names, addresses and tax numbers of customers lie in the vault; a fact holds the reference.
"""

from __future__ import annotations

from ledger.domain.events.base import Fact
from ledger.domain.periods import Cycle
from ledger.domain.tax import Treatment


class BillingChosen(Fact, tag="billing.chosen.v1"):
    """An account's own usage periods: monthly on a day, or weekly on an ISO weekday, in a zone.

    *boundaries* are the instants at which its coming periods begin; they replace those planned for
    later than *chosen_at*.
    """

    account_id: int
    zone: str
    cycle: Cycle
    anchor: int
    zero_invoices: bool
    boundaries: list[int]
    chosen_at: int


class PeriodsPlanned(Fact, tag="periods.planned.v1"):
    """Further boundaries of an account's periods, as the rules of its zone are known now."""

    account_id: int
    boundaries: list[int]
    planned_at: int


class TaxProfileSet(Fact, tag="tax_profile.set.v1"):
    """How credit that the account buys from here on is taxed."""

    account_id: int
    country: str | None
    rate_bp: int
    treatment: Treatment
    set_at: int


class CustomerDetailsGiven(Fact, tag="customer_details.given.v1"):
    """Who stands on the account's documents from here on; sealed under a subject of its own."""

    account_id: int
    details_no: int
    subject: str
    details_hash: str
    given_at: int


class CustomerDetailsErased(Fact, tag="customer_details.erased.v1"):
    """These details are gone; those that stand on an issued document are kept as the law asks."""

    account_id: int
    details_nos: list[int]
    erased_at: int


class IssuerDescribed(Fact, tag="issuer.described.v1"):
    """Who issues the platform's documents from here on: a company, nothing personal."""

    issuer_no: int
    name: str
    street: str
    postcode: str
    city: str
    country: str
    vat_id: str | None
    registration: str | None
    email: str | None
    described_at: int


BillingFact = (
    BillingChosen
    | PeriodsPlanned
    | TaxProfileSet
    | CustomerDetailsGiven
    | CustomerDetailsErased
    | IssuerDescribed
)
