"""Payments, cards and payouts, as they stand."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.store.database import Connection


class PaymentView(msgspec.Struct, frozen=True, kw_only=True):
    """A payment; its id is that of its deposit. `refunded` is gross: what left it in any way."""

    payment_id: str
    account_id: int
    method: str
    card: str | None
    credit: int
    tax: int
    total: int
    refunded: int
    difference: int
    """What payers' banks took beyond the payment."""
    status: str
    reason: str | None
    processor_payment: str | None
    ordered_at: int
    closed_at: int | None
    position: int


class RefundView(msgspec.Struct, frozen=True, kw_only=True):
    """Money back on purpose; `origin` says whether we asked for it."""

    refund_id: str
    payment_id: str
    origin: str
    amount: int
    credit: int
    tax: int
    status: str
    reason: str | None
    begun_at: int
    closed_at: int | None


class ChargebackView(msgspec.Struct, frozen=True, kw_only=True):
    """Money that a payer's bank took."""

    chargeback_id: str
    payment_id: str
    claimed: int
    withdrawn: int
    reason: str
    status: str
    opened_at: int
    closed_at: int | None


class PaymentHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A payment with all that went back of it."""

    payment: PaymentView
    refunds: list[RefundView]
    chargebacks: list[ChargebackView]


class CardView(msgspec.Struct, frozen=True, kw_only=True):
    """A saved card, and the terms under which it was saved."""

    card: str
    account_id: int
    status: str
    terms: str
    saved_at: int
    removed_at: int | None


class SetupView(msgspec.Struct, frozen=True, kw_only=True):
    """A consent to save a card."""

    setup_id: str
    account_id: int
    terms: str
    status: str
    reason: str | None
    begun_at: int
    closed_at: int | None


class PayoutView(msgspec.Struct, frozen=True, kw_only=True):
    """Money to a host."""

    payout_id: int
    host_id: int
    amount: int
    status: str
    reason: str | None
    due_at: int
    scheduled_at: int
    begun_at: int | None
    closed_at: int | None


_PAYMENT = (
    "SELECT payment_id, account_id, method, card, credit, tax, returned_credit + returned_tax,"
    " difference, status, reason, payment, ordered_at, closed_at, position FROM payments"
)


def payments(
    connection: Connection,
    *,
    account_id: int | None = None,
    status: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[PaymentView]:
    """Payments in the order in which they were ordered; of one account or all."""
    rows = connection.execute(
        f"{_PAYMENT} WHERE position > %s AND (%s::bigint IS NULL OR account_id = %s)"
        " AND (%s::text IS NULL OR status = %s) ORDER BY position LIMIT %s",
        [after, account_id, account_id, status, status, limit],
    )
    return [_payment(row) for row in rows]


def payment(
    connection: Connection, payment_id: str, account_id: int | None = None
) -> PaymentHistory:
    """One payment with all that went back of it; only of *account_id*, where that is given.

    Raises:
        NotFoundError: `no_such_payment`.
    """
    row = connection.execute(f"{_PAYMENT} WHERE payment_id = %s", [payment_id]).fetchone()
    if row is None or account_id not in {None, row[1]}:
        raise NotFoundError("no_such_payment", f"there is no payment {payment_id!r}")
    refunds = connection.execute(
        "SELECT refund_id, payment_id, origin, credit + tax + difference, credit, tax, status,"
        " reason, begun_at, closed_at FROM refunds WHERE payment_id = %s"
        " ORDER BY begun_at, refund_id",
        [payment_id],
    )
    chargebacks = connection.execute(
        "SELECT chargeback_id, payment_id, claimed, withdrawn, reason, status, opened_at,"
        " closed_at FROM chargebacks WHERE payment_id = %s ORDER BY opened_at, chargeback_id",
        [payment_id],
    )
    return PaymentHistory(
        payment=_payment(row),
        refunds=[_refund(one) for one in refunds],
        chargebacks=[_chargeback(one) for one in chargebacks],
    )


def _payment(row: tuple[object, ...]) -> PaymentView:
    credit, tax = int(row[4]), int(row[5])  # type: ignore[call-overload]  # numerics
    values = dict(
        zip(
            ("payment_id", "account_id", "method", "card"),
            row[:4],
            strict=True,
        )
    )
    names = ("status", "reason", "processor_payment", "ordered_at", "closed_at", "position")
    values |= dict(zip(names, row[8:], strict=True))
    values |= {"credit": credit, "tax": tax, "total": credit + tax}
    values |= {"refunded": int(row[6]), "difference": int(row[7])}  # type: ignore[call-overload]  # numerics
    return msgspec.convert(values, PaymentView)


def _refund(row: tuple[object, ...]) -> RefundView:
    money = [int(one) for one in row[3:6]]  # type: ignore[call-overload]  # numerics
    values = [*row[:3], *money, *row[6:]]
    return msgspec.convert(dict(zip(RefundView.__struct_fields__, values, strict=True)), RefundView)


def _chargeback(row: tuple[object, ...]) -> ChargebackView:
    money = [int(one) for one in row[2:4]]  # type: ignore[call-overload]  # numerics
    values = [*row[:2], *money, *row[4:]]
    return msgspec.convert(
        dict(zip(ChargebackView.__struct_fields__, values, strict=True)), ChargebackView
    )


def cards(connection: Connection, account_id: int) -> list[CardView]:
    """The cards of an account, removed ones too, the oldest first."""
    rows = connection.execute(
        "SELECT c.card, c.account_id, c.status, s.terms, c.saved_at, c.removed_at FROM cards c"
        " JOIN card_setups s USING (setup_id) WHERE c.account_id = %s"
        " ORDER BY c.saved_at, c.card",
        [account_id],
    )
    return [
        CardView(
            card=row[0],
            account_id=row[1],
            status=row[2],
            terms=row[3],
            saved_at=row[4],
            removed_at=row[5],
        )
        for row in rows
    ]


def setup(connection: Connection, setup_id: str) -> SetupView:
    """One consent to save a card.

    Raises:
        NotFoundError: `no_such_setup`.
    """
    row = connection.execute(
        "SELECT setup_id, account_id, terms, status, reason, begun_at, closed_at FROM card_setups"
        " WHERE setup_id = %s",
        [setup_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_setup", f"there is no card setup {setup_id!r}")
    return msgspec.convert(dict(zip(SetupView.__struct_fields__, row, strict=True)), SetupView)


def payouts(
    connection: Connection, *, host_id: int | None = None, after: int = 0, limit: int = 100
) -> list[PayoutView]:
    """Payouts by id; of one host or all."""
    rows = connection.execute(
        "SELECT payout_id, host_id, amount, status, reason, due_at, scheduled_at, begun_at,"
        " closed_at FROM payouts WHERE payout_id > %s AND (%s::bigint IS NULL OR host_id = %s)"
        " ORDER BY payout_id LIMIT %s",
        [after, host_id, host_id, limit],
    )
    return [
        PayoutView(
            payout_id=row[0],
            host_id=row[1],
            amount=int(row[2]),
            status=row[3],
            reason=row[4],
            due_at=row[5],
            scheduled_at=row[6],
            begun_at=row[7],
            closed_at=row[8],
        )
        for row in rows
    ]
