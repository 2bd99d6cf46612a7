"""Tax invoices (`INV-`) of top-ups and their credit notes (`CN-`): whole cents, net and tax.

Numbers are handed out as the last step under the log's lock, so neither series has a gap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.dispute import PLATFORM
from ledger.domain.events import TaxInvoiceCredited, TaxInvoiceIssued
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT, format_dollars
from ledger.domain.tax import Split, TaxProfile, credited, of_gross, spread, taxed
from ledger.errors import RejectedError
from ledger.services.billing import read_tax
from ledger.services.ledger import Unit
from ledger.store.database import Connection

SERIES: Final = "INV"
CREDIT_SERIES: Final = "CN"


def tax_on(connection: Connection, account_id: int, net: int) -> tuple[Split, TaxProfile]:
    """What a top-up of *net* costs now, by the tax profile in force.

    Raises:
        RejectedError: `invalid_amount` for a taxed amount that is not whole cents.
    """
    profile = read_tax(connection, account_id)
    split = taxed(net, profile)
    if profile.effective_bp and net % NANOS_PER_CENT:
        message = f"a taxed top-up is whole cents, and {format_dollars(net)} is not"
        raise RejectedError("invalid_amount", message)
    return split, profile


def split_gross(connection: Connection, account_id: int, gross: int) -> Split:
    """What an account paid, divided by the tax profile in force."""
    return of_gross(gross, read_tax(connection, account_id))


def issue(
    unit: Unit, account_id: int, deposit_id: str, split: Split, profile: TaxProfile
) -> str | None:
    """Issue the tax invoice of a settled top-up; its number.

    What is not whole cents was paid by nobody (a migration, a simulation): it is credit without a
    document.
    """
    if split.net % NANOS_PER_CENT:
        return None
    number = f"{SERIES}-{unit.next_id('tax_invoice'):08d}"
    unit.append(
        account_stream(account_id),
        TaxInvoiceIssued(
            account_id=account_id,
            number=number,
            deposit_id=deposit_id,
            net=split.net,
            tax=split.tax,
            country=profile.country,
            rate_bp=profile.rate_bp,
            treatment=profile.treatment,
            issued_at=unit.now,
        ),
    )
    return number


class TaxInvoice(NamedTuple):
    """A tax invoice: what it was over, and what went back of it so far."""

    number: str
    deposit_id: str
    original: Split
    credited: Split
    profile: TaxProfile

    @property
    def left(self) -> int:
        """Gross nanos that can still go back."""
        return self.original.gross - self.credited.gross


def of_deposit(connection: Connection, account_id: int, deposit_id: str) -> TaxInvoice | None:
    """The tax invoice of a deposit; none for what was no payment in whole cents."""
    return next(iter(_find(connection, account_id, "deposit_id", deposit_id)), None)


def of_number(connection: Connection, account_id: int, number: str) -> TaxInvoice | None:
    """A tax invoice of this account by its number."""
    return next(iter(_find(connection, account_id, "number", number)), None)


def _find(connection: Connection, account_id: int, column: str, value: str) -> list[TaxInvoice]:
    rows = connection.execute(
        "SELECT number, deposit_id, net, tax, credited_net, credited_tax, country, rate_bp,"  # noqa: S608 - a column of ours
        f" treatment FROM tax_invoices WHERE account_id = %s AND {column} = %s ORDER BY position",
        [account_id, value],
    )
    return [
        TaxInvoice(
            row[0],
            row[1],
            Split(int(row[2]), int(row[3])),
            Split(int(row[4]), int(row[5])),
            TaxProfile(*row[6:]),
        )
        for row in rows
    ]


def divide(invoice: TaxInvoice, gross: int) -> Split:
    """The parts of a gross amount that goes back of a tax invoice.

    Raises:
        RejectedError: `over_credit` beyond what is left; `invalid_amount`.
    """
    return credited(invoice.original, invoice.credited, gross)


class Cause(NamedTuple):
    """Why a credit note is issued, by whom, and whether it ends its document."""

    reason: str = "refund"
    actor: str = PLATFORM
    approved_by: str | None = None
    voids: bool = False


def credit(
    unit: Unit, account_id: int, invoice: TaxInvoice, parts: Split, refund_id: str, cause: Cause
) -> str | None:
    """Issue the credit note of a refund; its number. Parts of a cent have no document."""
    if parts.gross % NANOS_PER_CENT:
        return None
    number = f"{CREDIT_SERIES}-{unit.next_id('credit_note'):08d}"
    unit.append(
        account_stream(account_id),
        TaxInvoiceCredited(
            account_id=account_id,
            number=number,
            document=invoice.number,
            deposit_id=invoice.deposit_id,
            refund_id=refund_id,
            net=parts.net,
            tax=parts.tax,
            reason=cause.reason,
            voids=cause.voids,
            actor=cause.actor,
            approved_by=cause.approved_by,
            issued_at=unit.now,
        ),
    )
    return number


def follow(
    unit: Unit,
    account_id: int,
    payment_id: str,
    parts: Split,
    reference: str,
    cause: Cause,
    of: TaxInvoice | None = None,
) -> list[str]:
    """Document what left a payment of the processor, or came back to it; the numbers.

    What leaves is credited, *of* the invoice that is named, by default oldest first; what comes
    back, where *parts* are below 0, is bought again and has an invoice of its own. So the tax that
    is owed is that of the documents.
    """
    invoices = [of] if of else _find(unit.connection, account_id, "deposit_id", payment_id)
    if not invoices:
        return []
    if parts.gross < 0:
        again = Split(-parts.net, -parts.tax)
        number = issue(unit, account_id, payment_id, again, invoices[0].profile)
        return [] if number is None else [number]
    numbers = []
    left = [invoice.original.minus(invoice.credited) for invoice in invoices]
    for invoice, part in zip(invoices, spread(left, parts), strict=True):
        if part.gross:
            number = credit(unit, account_id, invoice, part, reference, cause)
            numbers += [] if number is None else [number]
    return numbers


def refunded(connection: Connection, account_id: int, refund_id: str) -> tuple[str, int] | None:
    """Of which deposit a documented refund was, and its gross amount; none if there is none."""
    row = connection.execute(
        "SELECT i.deposit_id, sum(c.net + c.tax) FROM tax_credits c JOIN tax_invoices i"
        " ON i.number = c.document WHERE c.account_id = %s AND c.refund_id = %s"
        " GROUP BY i.deposit_id",
        [account_id, refund_id],
    ).fetchone()
    return None if row is None else (row[0], int(row[1]))
