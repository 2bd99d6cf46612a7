"""Money that came and went: payments, refunds, deposits, transfers, payouts, as invoices."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.matching import ANYTHING, matching
from adapters.http.vast.search import selected
from adapters.http.vast.windows import limit_of, page, require_columns, require_rows, window
from adapters.http.vast.wire import Json, answer, keys_of, mapping, money, names, number, plain
from ledger.domain.money import NANOS_PER_CENT
from ledger.services.questions import money_rows
from ledger.services.questions.conditions import Filters
from ledger.services.questions.money_rows import MoneyRow, MoneyRows
from ledger.store.database import Connection

_PAGE: Final = 1_000
_STRIPE: Final = "stripe_payments"
MOVEMENTS: Final = {
    "deposit": ("credit", _STRIPE, "Payment"),
    "refund": ("refund", _STRIPE, "Refund of a payment"),
    "transfer": ("transfer", "transfer", "Credit transfer"),
    "prepaid": ("reserved", "instance_prepay", "Prepaid instance"),
    "returned": ("reserved", "instance_prepay", "Returned deposit"),
    "payout": ("payout", "wise_manual", "Payout"),
    "credited": ("credit", "transfer", "Credit"),
    "debited": ("transfer", "transfer", "Debit"),
}
"""Movement → type, service and description as these clients know them."""
MONEY: Final = ("api.billing.list_transfers", "api.billing.list_events")
"""What reading of money that came and went takes at the native API."""


@endpoint("GET", "/v1/invoices", roles=ANYONE, needs=MONEY)
async def invoices(call: Caller) -> Response[Any]:
    """Money that came and went: payments, refunds, deposits, transfers, payouts."""
    asked = call.query("select_filters") or {}
    first, last = window(asked, "when", call.now)
    require_columns(asked, ("when", "type", "service"))
    kinds = _kinds(asked)
    keys = keys_of(call.query_text("after_token"), (int, int, int))

    def find(connection: Connection) -> MoneyRows:
        return money_rows.money_rows(
            connection,
            call.account_id,
            filters={"at": {"gte": first, "lte": last}, "kind": {"in": kinds}},
            latest_first=bool(call.query("latest_first")),
            last=keys,
            limit=limit_of(call),
        )

    found = await call.question(find) if kinds else MoneyRows(rows=[], total=0, after=None)
    return page([_movement(one) for one in found.rows], found.total, found.after)


def _kinds(asked: Json) -> list[str]:
    """The movements whose service and type are wanted."""
    kept = dict(MOVEMENTS)
    for column, place in (("type", 0), ("service", 1)):
        given = asked.get(column)
        if given is not None:
            if isinstance(given, dict) and not given.keys() <= {"in", "eq"}:
                message = f"`{column}` is compared with in or eq"
                raise Refusal(400, "invalid_request", message)
            values = given.get("in", given.get("eq")) if isinstance(given, dict) else given
            wanted = values if isinstance(values, list) else [values]
            kept = {kind: known for kind, known in kept.items() if known[place] in wanted}
    return list(kept)


def _movement(row: MoneyRow) -> Json:
    kind, service, description = MOVEMENTS[row.kind]
    # These clients turn the sign of everything but transfers and payouts before they show it.
    keeps_sign = kind in {"transfer", "payout"}
    return {
        "start": row.at,
        "end": row.at,
        "type": kind,
        "source": "stripe" if service == _STRIPE else service,
        "description": f"{description} {row.reference}",
        "amount": money(row.amount if keeps_sign else -row.amount),
        "metadata": {"invoice_id": row.position, "service": service, "reference": row.reference},
        "items": [],
    }


def every_row(connection: Connection, account_id: int, filters: Filters) -> list[MoneyRow]:
    """All movements that meet *filters*, in the order of time.

    Raises:
        Refusal: `invalid_request` for more of them than one answer holds.
    """
    found: list[MoneyRow] = []
    last: list[Any] | None = None
    while True:
        more = money_rows.money_rows(
            connection, account_id, filters=filters, last=last, limit=_PAGE
        )
        require_rows(more.total)
        found += more.rows
        last = more.after
        if last is None:
            return found


@endpoint("GET", "/v0/invoices", roles=ANYONE, needs=MONEY)
async def search_invoices(call: Caller) -> Response[Any]:
    """The same movements with filters on every column, numbers as text or not."""
    filters = mapping(call.query("select_filters"), "select_filters")
    require_columns(filters, _INVOICE_COLUMNS)
    for name in _NUMBERS & filters.keys():
        for value in _compared(filters[name]):
            number(value, name)
    given = filters.get("when")
    bounds = given if isinstance(given, dict) else {}
    at = {
        operator: plain(number(value, "when"))
        for operator, value in bounds.items()
        if operator in _BOUNDS
    }

    def find(connection: Connection) -> list[MoneyRow]:
        return every_row(connection, call.account_id, {"at": at})

    rows = [_invoice(one, call.account_id) for one in await call.question(find)]
    return answer(selected(matching(rows, filters), call.query("select_cols")))


_BOUNDS: Final = frozenset({"gt", "gte", "lt", "lte"})
_NUMBERS: Final = names(
    "id event_id user_id when paid_on payment_expected amount_cents amount original_amount"
)
_INVOICE_NULLS: Final = names(
    "is_delayed balance_before balance_after cut_amount cut_percent extra stripe_charge",
    "stripe_refund stripe_payout error paypal_email transfer_group failed refunded",
    "is_check",
)
"""Columns that are null in every row: nothing compares with them."""
_INVOICE_COLUMNS: Final = _NUMBERS | _INVOICE_NULLS | names("is_credit service type")


def _compared(given: Any) -> list[Any]:
    """The values that a filter compares with."""
    values = given.values() if isinstance(given, dict) else [given]
    return [
        one
        for value in values
        for one in (value if isinstance(value, list) else [value])
        if one is not None and str(one).lower() not in ANYTHING
    ]


def _invoice(row: MoneyRow, account_id: int) -> Json:
    kind, service, description = MOVEMENTS[row.kind]
    return {
        "id": row.position,
        "user_id": account_id,
        "when": row.at,
        "paid_on": row.at,
        "payment_expected": row.at,
        "amount_cents": plain(Decimal(abs(row.amount)) / NANOS_PER_CENT),
        "amount": money(abs(row.amount)),
        "original_amount": plain(Decimal(abs(row.amount)) / NANOS_PER_CENT),
        "is_credit": row.amount > 0,
        "type": kind,
        "service": service,
        "description": f"{description} {row.reference}",
        "event_id": row.position,
    }


ENDPOINTS: Sequence[Any] = [invoices, search_invoices]
