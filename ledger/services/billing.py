"""How an account is billed: its periods, its tax, who stands on its documents, who issues them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ledger.domain.events import (
    BillingChosen,
    CustomerDetailsErased,
    CustomerDetailsGiven,
    Fact,
    IssuerDescribed,
    PeriodsPlanned,
    TaxProfileSet,
)
from ledger.domain.ids import account_stream, next_month_start
from ledger.domain.money import BASIS_POINTS
from ledger.domain.periods import (
    DAYS_OF_WEEK,
    LAST_ANCHOR_DAY,
    Cycle,
    Rule,
    boundaries,
    local_day,
)
from ledger.domain.tax import TaxProfile, Treatment
from ledger.errors import NotFoundError, RejectedError
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.services.zones import zone
from ledger.store.database import Connection
from ledger.store.vault import Vault

PLAN_SECONDS: Final = 120 * 86_400
"""Boundaries are planned so far ahead, and again when half of it is left."""
_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_VAT_ID: Final = re.compile(r"[A-Z]{2}[A-Z0-9+*]{2,13}")
_TEXT_MAX: Final = 128
_ITEM: Final = "details"


class Customer(msgspec.Struct, frozen=True, kw_only=True):
    """Who stands on documents of an account; kept in the vault."""

    name: str
    street: str = ""
    postcode: str = ""
    city: str = ""
    country: str | None = None
    vat_id: str | None = None
    email: str | None = None


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """The company that issues the platform's documents."""

    name: str
    street: str
    postcode: str
    city: str
    country: str
    vat_id: str | None = None
    registration: str | None = None
    email: str | None = None


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """An account's periods: `anchor` is a day of the month, or an ISO weekday from 1 to 7."""

    zone: str = "UTC"
    cycle: Cycle = "monthly"
    anchor: int = 1
    zero_invoices: bool = False


# --- periods -------------------------------------------------------------------------------------


def choose(
    unit: Unit,
    account_id: int,
    *,
    zone_name: str = "UTC",
    cycle: Cycle = "monthly",
    anchor: int | None = None,
    zero_invoices: bool = False,
) -> Billing:
    """Choose an account's periods; the running one ends at the first boundary of the new ones.

    Without *anchor*: calendar months, or weeks from the weekday of the account's opening.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args` for a zone or an anchor that is none.
    """
    row = unit.connection.execute(
        "SELECT opened_at, closed_until FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    where = zone(zone_name)
    if anchor is None:
        anchor = local_day(row[0], where).isoweekday() if cycle == "weekly" else 1
    last = DAYS_OF_WEEK if cycle == "weekly" else LAST_ANCHOR_DAY
    if not 1 <= anchor <= last:
        message = f"the anchor of {cycle} billing is a day from 1 to {last}"
        raise RejectedError("invalid_args", message)
    chosen = Billing(zone=zone_name, cycle=cycle, anchor=anchor, zero_invoices=zero_invoices)
    if read_billing(unit.connection, account_id) == chosen:
        return chosen
    ended = _ended(unit.connection, account_id, row[1], unit.now)
    coming = boundaries(Rule(cycle, anchor, where), unit.now, unit.now + PLAN_SECONDS)
    unit.append(
        account_stream(account_id),
        BillingChosen(
            account_id=account_id,
            zone=zone_name,
            cycle=cycle,
            anchor=anchor,
            zero_invoices=zero_invoices,
            boundaries=[*ended, *coming],
            chosen_at=unit.now,
        ),
    )
    return chosen


def _ended(connection: Connection, account_id: int, closed_until: int, now: int) -> list[int]:
    """Boundaries that have passed and whose periods are not closed yet."""
    if read_billing(connection, account_id) is not None:
        return []  # They are planned already, and stay.
    found = []
    boundary = next_month_start(closed_until)
    while boundary <= now:
        found.append(int(boundary))
        boundary = next_month_start(boundary)
    return found


def read_billing(connection: Connection, account_id: int) -> Billing | None:
    """What the account chose; none for UTC calendar months."""
    row = connection.execute(
        "SELECT zone, cycle, anchor, zero_invoices FROM billing WHERE account_id = %s",
        [account_id],
    ).fetchone()
    if row is None:
        return None
    return Billing(zone=row[0], cycle=row[1], anchor=row[2], zero_invoices=row[3])


PLAN_DUE: Final = (
    "SELECT b.account_id, b.zone, b.cycle, b.anchor, max(p.boundary) FROM billing b"  # noqa: S608 - a constant
    " JOIN planned_boundaries p USING (account_id) GROUP BY b.account_id"
    f" HAVING max(p.boundary) < %(now)s + {PLAN_SECONDS // 2} ORDER BY b.account_id"
)
"""Accounts whose plan ends within half of its reach."""


def plan_due(unit: Unit) -> int:
    """Plan further periods where the plan comes to its end; returns for how many accounts."""
    new: list[tuple[str, Fact]] = []
    for account_id, zone_name, cycle, anchor, last in unit.connection.execute(
        PLAN_DUE, {"now": unit.now}
    ).fetchall():
        rule = Rule(cycle, anchor, zone(zone_name))
        found = boundaries(rule, last, unit.now + PLAN_SECONDS)
        fact = PeriodsPlanned(account_id=account_id, boundaries=found, planned_at=unit.now)
        new.append((account_stream(account_id), fact))
    unit.append_all(new)
    return len(new)


# --- tax -----------------------------------------------------------------------------------------


def set_tax(
    unit: Unit,
    account_id: int,
    *,
    country: str | None = None,
    rate_bp: int = 0,
    treatment: Treatment = "standard",
) -> TaxProfile:
    """Set how credit that the account buys from now on is taxed.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`: no country code, a rate beyond 100 %, or reverse charge
            without a VAT id among the customer's details.
    """
    require_account(unit.connection, account_id)
    if country is not None and not _COUNTRY.fullmatch(country):
        raise RejectedError("invalid_args", f"{country!r} is no ISO 3166 code such as DE")
    if not 0 <= rate_bp <= BASIS_POINTS:
        raise RejectedError("invalid_args", "a tax rate is between 0 and 1")
    if treatment == "reverse_charge":
        customer = read_customer(unit.connection, unit.vault, account_id)
        if customer.vat_id is None:
            message = "reverse charge needs the customer's VAT id: set the customer's details first"
            raise RejectedError("invalid_args", message)
    profile = TaxProfile(country, rate_bp, treatment)
    if read_tax(unit.connection, account_id) != profile:
        unit.append(
            account_stream(account_id),
            TaxProfileSet(
                account_id=account_id,
                country=country,
                rate_bp=rate_bp,
                treatment=treatment,
                set_at=unit.now,
            ),
        )
    return profile


def read_tax(connection: Connection, account_id: int) -> TaxProfile:
    """How credit of the account is taxed; not at all unless something was set."""
    row = connection.execute(
        "SELECT country, rate_bp, treatment FROM tax_profiles WHERE account_id = %s", [account_id]
    ).fetchone()
    return TaxProfile() if row is None else TaxProfile(*row)


# --- who stands on documents ---------------------------------------------------------------------


def set_customer(unit: Unit, account_id: int, customer: Customer) -> None:
    """Say who stands on documents from now on; what was issued stays as it is.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`.
    """
    require_account(unit.connection, account_id)
    if not customer.name:
        raise RejectedError("invalid_args", "a customer has a name")
    _check(customer)
    _seal(unit, account_id, customer)


def _seal(unit: Unit, account_id: int, customer: Customer) -> None:
    row = unit.connection.execute(
        "SELECT coalesce(max(details_no), 0) FROM customer_details WHERE account_id = %s",
        [account_id],
    ).fetchone()
    assert row is not None
    text = msgspec.json.encode(customer)
    subject = unit.vault.new_subject(unit.connection)
    unit.vault.put(unit.connection, subject, _ITEM, text)
    unit.append(
        account_stream(account_id),
        CustomerDetailsGiven(
            account_id=account_id,
            details_no=row[0] + 1,
            subject=subject,
            details_hash=unit.vault.keyed_hash(text.decode()),
            given_at=unit.now,
        ),
    )


def read_customer(
    connection: Connection, vault: Vault, account_id: int, position: int | None = None
) -> Customer:
    """Who stands on a document of the account at a place in the log; now by default.

    An account that never said so goes by its own name.
    """
    row = connection.execute(
        "SELECT subject, erased_at FROM customer_details WHERE account_id = %s"
        " AND (%s::bigint IS NULL OR position < %s) ORDER BY position DESC LIMIT 1",
        [account_id, position, position],
    ).fetchone()
    if row is None and position is not None:
        # Whoever was erased is kept, by name, on what was issued before.
        row = connection.execute(
            "SELECT subject, erased_at FROM customer_details WHERE account_id = %s"
            " ORDER BY position LIMIT 1",
            [account_id],
        ).fetchone()
        if row is not None and not _is_erased(connection, account_id):
            row = None
    if row is None:
        subject = _subject(connection, account_id)
        name = vault.names(connection, [subject]).get(subject)
        return Customer(name=name or f"account {account_id} (erased)")
    if row[1] is not None:
        return Customer(name=f"account {account_id} (erased)")
    return msgspec.json.decode(vault.get(connection, row[0], _ITEM), type=Customer)


def erase_customer(unit: Unit, account_id: int) -> None:
    """Erase the details that stand on no document; those on documents are kept as the law asks.

    Called before the account's own key is destroyed: a name that stands on documents is kept.
    """
    rows = unit.connection.execute(_DETAILS, {"account": account_id}).fetchall()
    if not rows and _has_documents(unit.connection, account_id):
        _seal(unit, account_id, read_customer(unit.connection, unit.vault, account_id))
        return
    gone = [(number, subject) for number, subject, is_used in rows if not is_used]
    if not gone:
        return
    for _, subject in gone:
        unit.vault.erase(unit.connection, subject)
    unit.append(
        account_stream(account_id),
        CustomerDetailsErased(
            account_id=account_id,
            details_nos=[number for number, _ in gone],
            erased_at=unit.now,
        ),
    )


_DOCUMENTS: Final = (
    "SELECT account_id, position FROM invoices UNION ALL SELECT account_id, position FROM"
    " tax_invoices UNION ALL SELECT account_id, position FROM tax_credits UNION ALL"
    " SELECT account_id, position FROM credit_notes UNION ALL SELECT account_id, position"
    " FROM self_billings"
)
_DETAILS: Final = f"""
SELECT d.details_no, d.subject, EXISTS (
    SELECT 1 FROM ({_DOCUMENTS}) AS one WHERE one.account_id = d.account_id
    AND one.position > d.position AND one.position < coalesce((
        SELECT min(n.position) FROM customer_details n
        WHERE n.account_id = d.account_id AND n.position > d.position), {2**62}))
FROM customer_details d WHERE d.account_id = %(account)s AND d.erased_at IS NULL
ORDER BY d.details_no
"""  # noqa: S608 - constants


def _has_documents(connection: Connection, account_id: int) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM ({_DOCUMENTS}) AS one WHERE account_id = %s LIMIT 1",  # noqa: S608 - a constant
        [account_id],
    ).fetchone()
    return row is not None


def _is_erased(connection: Connection, account_id: int) -> bool:
    row = connection.execute(
        "SELECT erased_at FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    return row is not None and row[0] is not None


def _subject(connection: Connection, account_id: int) -> str:
    row = connection.execute(
        "SELECT subject FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    return str(row[0])


# --- who issues them -----------------------------------------------------------------------------


def describe_issuer(unit: Unit, issuer: Issuer) -> None:
    """Say which company issues documents from now on.

    Raises:
        RejectedError: `invalid_args`.
    """
    for value in (issuer.name, issuer.street, issuer.postcode, issuer.city):
        if not value:
            message = "an issuer has a name, a street, a postcode and a city"
            raise RejectedError("invalid_args", message)
    _check(issuer)
    if read_issuer(unit.connection) == issuer:
        return
    unit.append(
        "platform",
        IssuerDescribed(
            issuer_no=unit.next_id("issuer"),
            **msgspec.structs.asdict(issuer),
            described_at=unit.now,
        ),
    )


def read_issuer(connection: Connection, position: int | None = None) -> Issuer | None:
    """The company that issued documents at a place in the log; now by default."""
    row = connection.execute(
        "SELECT name, street, postcode, city, country, vat_id, registration, email FROM issuers"
        " WHERE %s::bigint IS NULL OR position < %s ORDER BY position DESC LIMIT 1",
        [position, position],
    ).fetchone()
    if row is None:
        return None
    return Issuer(**dict(zip(Issuer.__struct_fields__, row, strict=True)))


def _check(party: Customer | Issuer) -> None:
    for name, value in msgspec.structs.asdict(party).items():
        if value is not None and (len(value) > _TEXT_MAX or not value.isprintable()):
            message = f"{name} is at most {_TEXT_MAX} printable characters"
            raise RejectedError("invalid_args", message)
    if party.country is not None and not _COUNTRY.fullmatch(party.country):
        raise RejectedError("invalid_args", f"{party.country!r} is no ISO 3166 code such as DE")
    if party.vat_id is not None and not _VAT_ID.fullmatch(party.vat_id):
        raise RejectedError("invalid_args", f"{party.vat_id!r} is no VAT id such as DE123456789")
