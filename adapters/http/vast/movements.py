"""Money that came and went: payments, refunds, deposits, transfers, payouts, as invoices."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.search import selected
from adapters.http.vast.windows import limit_of, page, window
from adapters.http.vast.wire import Json, answer, keys_of, money, names, number, plain
from ledger.domain.money import NANOS_PER_CENT
from ledger.services.questions import money_rows
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


@endpoint("GET", "/v0/invoices", roles=ANYONE, needs=MONEY)
async def search_invoices(call: Caller) -> Response[Any]:
    """The same movements with filters on every column, numbers as text or not."""
    filters: dict[str, dict[str, Any]] = {}
    never = False
    for name, comparisons in (call.query("select_filters") or {}).items():
        given = comparisons if isinstance(comparisons, dict) else {"eq": comparisons}
        if name in _INVOICE_COLUMNS:
            column = _INVOICE_COLUMNS[name]
            known = filters.setdefault(column, {})
            known |= (
                {op: _seconds(value) for op, value in given.items()} if column == "at" else given
            )
        elif name in {"service", "type"}:
            filters.setdefault("kind", {})["in"] = _kinds({name: given})
        elif name == "user_id":
            never |= not _is_own(given, call.account_id)
        elif name in _INVOICE_NULLS:
            never = True
        else:
            raise Refusal(400, "invalid_request", f"invoices have no column `{name[:40]}`")
    rows: list[MoneyRow] = []
    if not never and filters.get("kind", {}).get("in") != []:

        def find(connection: Connection) -> MoneyRows:
            return money_rows.money_rows(connection, call.account_id, filters=filters, limit=_PAGE)

        rows = (await call.question(find)).rows
    found = [_invoice(one, call.account_id) for one in rows]
    return answer(selected(found, call.query("select_cols")))


_INVOICE_COLUMNS: Final = {
    "id": "position",
    "event_id": "position",
    "when": "at",
    "paid_on": "at",
    "payment_expected": "at",
    "amount_cents": "amount_cents",
    "original_amount": "amount_cents",
    "is_credit": "is_credit",
}
_INVOICE_NULLS: Final = names(
    "is_delayed balance_before balance_after cut_amount cut_percent extra stripe_charge",
    "stripe_refund stripe_payout error paypal_email transfer_group failed refunded",
    "is_check",
)
"""Columns that are null in every row: nothing compares with them."""


def _is_own(comparisons: Json, account_id: int) -> bool:
    """Whether comparisons with the id of the account whose rows these are can hold."""
    return all(
        str(account_id) in [str(one) for one in (value if isinstance(value, list) else [value])]
        for operator, value in comparisons.items()
        if operator in {"eq", "in"}
    )


def _seconds(value: Any) -> Any:
    return plain(number(value, "when")) if not isinstance(value, list) else value


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
