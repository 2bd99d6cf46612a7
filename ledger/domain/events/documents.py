"""Closed periods, the documents of the four series, and notices."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import ContractKind, Fact, NoticeCode, Retired
from ledger.domain.tax import Treatment


class PeriodClosed(Fact, tag="period.closed.v1"):
    """Usage accepted after this fact goes on a later invoice of the account."""

    account_id: int
    period_from: int
    period_until: int
    closed_at: int


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one instance consumed on one meter in one rate segment.

    `quantity` is seconds (gpu, storage) or bytes; `rate` is nanos per hour, per GB-month or per GB.
    A late line names the seconds `[used_from, used_until)` and the period in which they lie.
    """

    instance_id: int
    meter: Literal["gpu", "storage", "up", "down", "reserved_idle"]
    segment_from: int
    kind: ContractKind
    rate: int
    quantity: int
    amount: int
    late: bool
    period_from: int
    used_from: int
    used_until: int


class InvoiceIssued(Fact, tag="invoice.issued.v2"):
    """A usage invoice: never changed afterwards. `opening + movements - total = closing`.

    Of `total`, `promotional` was paid by grants, and `paid` was covered when it was issued.
    """

    account_id: int
    number: str
    period_from: int
    period_until: int
    opening: int
    movements: int
    total: int
    closing: int
    paid: int
    promotional: int
    lines: list[InvoiceLine]
    issued_at: int


class InvoiceIssuedV1(Retired, tag="invoice.issued.v1"):
    """A usage invoice before there was promotional credit."""

    account_id: int
    number: str
    period_from: int
    period_until: int
    opening: int
    movements: int
    total: int
    closing: int
    paid: int
    lines: list[InvoiceLine]
    issued_at: int

    def upcast(self) -> InvoiceIssued:
        """The same invoice, of which no grant paid anything."""
        return InvoiceIssued(
            account_id=self.account_id,
            number=self.number,
            period_from=self.period_from,
            period_until=self.period_until,
            opening=self.opening,
            movements=self.movements,
            total=self.total,
            closing=self.closing,
            paid=self.paid,
            promotional=0,
            lines=self.lines,
            issued_at=self.issued_at,
        )


class TaxInvoiceIssued(Fact, tag="tax_invoice.issued.v1"):
    """The tax invoice of a top-up: whole cents, `net` became credit, `tax` is owed to the state.

    Country, treatment and rate are those of the second of settlement.
    """

    account_id: int
    number: str
    deposit_id: str
    net: int
    tax: int
    country: str | None
    rate_bp: int
    treatment: Treatment
    issued_at: int


class TaxInvoiceCredited(Fact, tag="tax_invoice.credited.v1"):
    """The credit note of a tax invoice: `net` of its credit and `tax` went back to the payer.

    `refund_id` names the refund or the chargeback. One that `voids` takes the whole
    remainder, and a second person approved it.
    """

    account_id: int
    number: str
    document: str
    deposit_id: str
    refund_id: str
    net: int
    tax: int
    reason: str
    voids: bool
    actor: str
    approved_by: str | None
    issued_at: int


class SelfBillingLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a machine earned on one meter: `charged` to renters, `fee` kept, `amount` the host's."""

    machine_id: int
    meter: Literal["gpu", "storage", "up", "down", "reserved_idle"]
    quantity: int
    charged: int
    fee: int
    amount: int


class SelfBillingIssued(Fact, tag="self_billing.issued.v1"):
    """What a host delivered in a UTC month, billed by the platform in the host's name.

    `adjustments` is what moved to or from the host outside the meters in that month (reversals,
    compensation); `total` is the lines and it.
    """

    account_id: int
    number: str
    period_from: int
    period_until: int
    adjustments: int
    total: int
    lines: list[SelfBillingLine]
    issued_at: int


class NoticeIssued(Fact, tag="notice.issued.v1"):
    """Somebody has to know something."""

    account_id: int
    code: NoticeCode
    about: str
    issued_at: int


DocumentFact = (
    PeriodClosed
    | InvoiceIssued
    | TaxInvoiceIssued
    | TaxInvoiceCredited
    | SelfBillingIssued
    | NoticeIssued
)
