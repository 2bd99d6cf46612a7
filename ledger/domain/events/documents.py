"""Closed periods, invoices and notices."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import ContractKind, Fact, NoticeCode


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


class InvoiceIssued(Fact, tag="invoice.issued.v1"):
    """A usage invoice: never changed afterwards. `opening + deposits + other - total = closing`."""

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


class NoticeIssued(Fact, tag="notice.issued.v1"):
    """Somebody has to know something."""

    account_id: int
    code: NoticeCode
    about: str
    issued_at: int


DocumentFact = PeriodClosed | InvoiceIssued | NoticeIssued
