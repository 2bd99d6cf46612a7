"""Tax invoices (`INV-`) of top-ups and their credit notes (`CN-`): whole cents, net and tax.

Numbers are handed out as the last step under the log's lock, so neither series has a gap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.dispute import PLATFORM
from ledger.domain.events import TaxInvoiceCredited, TaxInvoiceIssued
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT, format_dollars
from ledger.domain.tax import Split, TaxProfile, credited, taxed
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


def issue(unit: Unit, account_id: int, deposit_id: str, net: int) -> str | None:
    """Issue the tax invoice of a settled top-up; its number.

    What is not whole cents was paid by nobody (a migration, a simulation): it is credit without a
    document.
    """
    split, profile = tax_on(unit.connection, account_id, net)
    if net % NANOS_PER_CENT:
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

    @property
    def left(self) -> int:
        """Gross nanos that can still go back."""
        return self.original.gross - self.credited.gross


def of_deposit(connection: Connection, account_id: int, deposit_id: str) -> TaxInvoice | None:
    """The tax invoice of a deposit; none for what was no payment in whole cents."""
    return _find(connection, account_id, "deposit_id", deposit_id)


def of_number(connection: Connection, account_id: int, number: str) -> TaxInvoice | None:
    """A tax invoice of this account by its number."""
    return _find(connection, account_id, "number", number)


def _find(connection: Connection, account_id: int, column: str, value: str) -> TaxInvoice | None:
    row = connection.execute(
        "SELECT number, deposit_id, net, tax, credited_net, credited_tax FROM tax_invoices"  # noqa: S608 - a column of ours
        f" WHERE account_id = %s AND {column} = %s",
        [account_id, value],
    ).fetchone()
    if row is None:
        return None
    amounts = [int(one) for one in row[2:]]
    return TaxInvoice(row[0], row[1], Split(*amounts[:2]), Split(*amounts[2:]))


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


def refunded(connection: Connection, account_id: int, refund_id: str) -> tuple[str, int] | None:
    """Of which deposit a documented refund was, and its gross amount; none if there is none."""
    row = connection.execute(
        "SELECT i.deposit_id, c.net + c.tax FROM tax_credits c JOIN tax_invoices i"
        " ON i.number = c.document WHERE c.account_id = %s AND c.refund_id = %s",
        [account_id, refund_id],
    ).fetchone()
    return None if row is None else (row[0], int(row[1]))
