"""How an account is billed: periods and time zone, tax, who stands on documents."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, get, put
from litestar.params import JSONBody
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, AUDITOR, PAYER, Caller, allowed
from adapters.http.native.accounts import AccountFilter
from adapters.http.wire import Body, Id, render
from ledger.domain.money import BASIS_POINTS, parse_fee
from ledger.domain.tax import TaxProfile as TaxProfileFound
from ledger.errors import NotFoundError
from ledger.services import billing as use_cases
from ledger.services.ledger import Unit

Text = Annotated[str, Meta(max_length=128)]


class Periods(Body):
    """Usage periods: calendar months, months from a day on, or weeks from an ISO weekday on.

    `anchor` is a day of the month (1 to 31; months that are shorter end with their last day) or a
    weekday (1 Monday to 7 Sunday); null for the first, or for the weekday of the opening.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "zone": "Europe/Berlin",
        "cycle": "monthly",
        "anchor": 15,
        "zero_invoices": False,
    }

    zone: Text
    cycle: Literal["monthly", "weekly"]
    anchor: int | None
    zero_invoices: bool


class Customer(Body):
    """Who stands on the account's documents from now on; kept encrypted, outside the log."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "name": "Alice Research",
        "street": "1 Long Road",
        "postcode": "75001",
        "city": "Paris",
        "country": "FR",
        "vat_id": None,
        "email": "alice@example.com",
    }

    name: Text
    street: Text
    postcode: Text
    city: Text
    country: Text | None
    vat_id: Text | None
    email: Text | None


class TaxProfile(Body):
    """How credit that an account buys is taxed; `rate` is a fraction such as 0.19."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "account_id": 2,
        "country": "FR",
        "rate": "0.2",
        "treatment": "standard",
    }

    account_id: Id
    country: Text | None
    rate: str
    treatment: Literal["standard", "reverse_charge", "exempt"]


class Issuer(Body):
    """The company that issues documents from now on."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "name": "Example Compute GmbH",
        "street": "Kanalstrasse 12",
        "postcode": "20095",
        "city": "Hamburg",
        "country": "DE",
        "vat_id": "DE123456788",
        "registration": "HRB 12345",
        "email": "billing@example.com",
    }

    name: Text
    street: Text
    postcode: Text
    city: Text
    country: Text
    vat_id: Text | None
    registration: Text | None
    email: Text | None


class ShownPeriods(msgspec.Struct, frozen=True, kw_only=True):
    """An account's usage periods."""

    zone: str
    cycle: str
    anchor: int
    zero_invoices: bool


class ShownTax(msgspec.Struct, frozen=True, kw_only=True):
    """How credit that the account buys is taxed; `effective_rate` is what is charged."""

    country: str | None
    rate: str
    treatment: str
    effective_rate: str


class ShownCustomer(msgspec.Struct, frozen=True, kw_only=True):
    """Who stands on the account's documents."""

    name: str
    street: str
    postcode: str
    city: str
    country: str | None
    vat_id: str | None
    email: str | None


class ShownIssuer(msgspec.Struct, frozen=True, kw_only=True):
    """The company that issues documents."""

    name: str
    street: str
    postcode: str
    city: str
    country: str
    vat_id: str | None
    registration: str | None
    email: str | None


@get("/v1/billing", opt=allowed(*ANYONE), summary="Show usage periods")
async def show_periods(call: Caller, account_id: AccountFilter = None) -> ShownPeriods:
    """Show an account's usage periods; UTC calendar months unless it chose others."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: use_cases.read_billing(connection, account))
    return render(ShownPeriods, found or use_cases.Billing())


@put("/v1/billing", opt=allowed(*PAYER), summary="Choose usage periods")
async def choose_periods(
    call: Caller, data: JSONBody[Periods], account_id: AccountFilter = None
) -> Response[ShownPeriods]:
    """Choose usage periods; the running one ends at the first boundary of the new ones."""
    account = call.account(account_id)

    def do(unit: Unit) -> ShownPeriods:
        chosen = use_cases.choose(
            unit,
            account,
            zone_name=data.zone,
            cycle=data.cycle,
            anchor=data.anchor,
            zero_invoices=data.zero_invoices,
        )
        return render(ShownPeriods, chosen)

    return await call.command(do)


@get("/v1/tax-profile", opt=allowed(*ANYONE), summary="Show the tax profile")
async def show_tax(call: Caller, account_id: AccountFilter = None) -> ShownTax:
    """Show how credit that the account buys is taxed."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: use_cases.read_tax(connection, account))
    return _tax(found)


@put("/v1/tax-profile", opt=allowed(*ADMIN), summary="Set a tax profile")
async def set_tax(call: Caller, data: JSONBody[TaxProfile]) -> Response[ShownTax]:
    """Set how credit is taxed that is settled from now on."""
    rate_bp = parse_fee(data.rate)

    def do(unit: Unit) -> ShownTax:
        profile = use_cases.set_tax(
            unit,
            data.account_id,
            country=data.country,
            rate_bp=rate_bp,
            treatment=data.treatment,
        )
        return _tax(profile)

    return await call.command(do)


@get("/v1/billing-details", opt=allowed(*PAYER), summary="Show who stands on documents")
async def show_customer(call: Caller, account_id: AccountFilter = None) -> ShownCustomer:
    """Show who stands on the account's documents from now on."""
    account = call.account(account_id)
    vault = call.ledger.vault
    found = await call.question(
        lambda connection: use_cases.read_customer(connection, vault, account)
    )
    return render(ShownCustomer, found)


@put("/v1/billing-details", opt=allowed(*PAYER), summary="Say who stands on documents")
async def set_customer(
    call: Caller, data: JSONBody[Customer], account_id: AccountFilter = None
) -> Response[ShownCustomer]:
    """Say who stands on documents from now on; what was issued stays as it is."""
    account = call.account(account_id)
    customer = use_cases.Customer(**msgspec.structs.asdict(data))

    def do(unit: Unit) -> ShownCustomer:
        use_cases.set_customer(unit, account, customer)
        return render(ShownCustomer, customer)

    return await call.command(do)


@get("/v1/issuer", opt=allowed(*AUDITOR), summary="Show who issues documents")
async def show_issuer(call: Caller) -> ShownIssuer:
    """Show the company that issues documents."""
    found = await call.question(use_cases.read_issuer)
    if found is None:
        message = "no issuer is described yet; `PUT /v1/issuer` does that"
        raise NotFoundError("no_such_issuer", message)
    return render(ShownIssuer, found)


@put("/v1/issuer", opt=allowed(*ADMIN), summary="Say who issues documents")
async def describe_issuer(call: Caller, data: JSONBody[Issuer]) -> Response[ShownIssuer]:
    """Say which company issues documents from now on; what was issued stays as it is."""
    issuer = use_cases.Issuer(**msgspec.structs.asdict(data))

    def do(unit: Unit) -> ShownIssuer:
        use_cases.describe_issuer(unit, issuer)
        return render(ShownIssuer, issuer)

    return await call.command(do)


def _tax(profile: TaxProfileFound) -> ShownTax:
    return ShownTax(
        country=profile.country,
        rate=_fraction(profile.rate_bp),
        treatment=profile.treatment,
        effective_rate=_fraction(profile.effective_bp),
    )


def _fraction(rate_bp: int) -> str:
    whole, rest = divmod(rate_bp, BASIS_POINTS)
    return f"{whole}.{rest:04d}".rstrip("0").rstrip(".")


HANDLERS = [
    show_periods,
    choose_periods,
    show_tax,
    set_tax,
    show_customer,
    set_customer,
    show_issuer,
    describe_issuer,
]
