"""Money: charges per instance and day, movements as invoices, earnings, transfers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal, translated
from adapters.http.vast.search import selected
from adapters.http.vast.wire import (
    Json,
    answer,
    ids,
    keys_of,
    money,
    names,
    number,
    plain,
    token,
    whole,
)
from adapters.http.vast.wire import text as read_text
from ledger.domain.money import (
    BYTES_PER_GB,
    NANOS_PER_CENT,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    format_dollars,
    parse_amount,
)
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import repeats
from ledger.services.ledger import Unit
from ledger.services.questions import accounts, balances, daily_charges, instances, money_rows
from ledger.services.questions.daily_charges import (
    ChargeDays,
    ChargeItem,
    Contract,
    DayCharge,
    Earned,
)
from ledger.services.questions.money_rows import MoneyRow, MoneyRows
from ledger.store.database import Connection

_LIMIT: Final = 20
_LIMIT_MAX: Final = 100
_WEEK: Final = 7 * SECONDS_PER_DAY
_OLD_ROWS_MAX: Final = 10_000
_PAGE: Final = 1_000
_CONTRACTS: Final[frozenset[Contract]] = frozenset({"instance", "volume"})
_CHARGE_TYPES: Final = frozenset({"instance", "volume", "serverless"})
_ITEM_TYPES: Final = {
    "gpu": "gpu",
    "reserved_idle": "gpu",
    "disk": "disk",
    "bwu": "bwu",
    "bwd": "bwd",
}
_STRIPE: Final = "stripe_payments"
_MOVEMENTS: Final = {
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


_MONEY: Final = ("api.billing.list_transfers", "api.billing.list_events")
"""What reading of money that came and went takes at the native API."""


# --- charges --------------------------------------------------------------------------------------


@endpoint("GET", "/v0/charges", roles=ANYONE, needs="api.billing.list_charges")
async def charges(call: Caller) -> Response[Any]:
    """What was used, a row per instance or volume and UTC day, an item per meter and rate."""
    asked = call.query("select_filters") or {}
    first, last = _window(asked, "day", call.now)
    types = _types(asked)
    keys = keys_of(call.query_text("after_token"), (int, int))

    def find(connection: Connection) -> ChargeDays:
        return daily_charges.charge_days(
            connection,
            call.account_id,
            first=first,
            last=last,
            contract=contract,
            latest_first=bool(call.query("latest_first")),
            after=None if keys is None else (keys[0], keys[1]),
            limit=_limit(call),
        )

    wanted = _CONTRACTS & types
    contract: Contract | None = next(iter(wanted)) if len(wanted) == 1 else None
    found = ChargeDays(days=[], total=0, after=None)
    if wanted:
        found = await call.question(find)
    return _page([_day(one) for one in found.days], found.total, found.after)


def _types(asked: Json) -> frozenset[str]:
    given = asked.get("type")
    if given is None:
        return _CHARGE_TYPES
    values = given.get("in", given.get("eq")) if isinstance(given, dict) else given
    found = frozenset(str(one) for one in (values if isinstance(values, list) else [values]))
    if not found <= _CHARGE_TYPES:
        shown = ", ".join(sorted(_CHARGE_TYPES))
        raise Refusal(400, "invalid_request", f"a charge's type is one of {shown}")
    return found


def _day(view: DayCharge) -> Json:
    return {
        "start": view.start,
        "end": view.until,
        "type": view.contract,
        "source": f"{view.contract}-{view.instance_id}",
        "description": f"{view.contract.capitalize()} {view.instance_id} Charges - 1 days",
        "amount": money(view.amount),
        "metadata": {"label": view.label, "template_id": None, "day": view.day},
        "items": [_item(one, view) for one in view.items],
    }


def _item(item: ChargeItem, day: DayCharge) -> Json:
    return {
        "start": item.start,
        "end": item.until,
        "type": _ITEM_TYPES[item.item],
        "source": None,
        "description": _described(item, day),
        "amount": money(item.amount),
        "metadata": {
            "rental_type": item.kind,
            "meter": item.item,
            "quantity": item.quantity,
            "rate": money(item.rate),
        },
        "items": [],
    }


def _described(item: ChargeItem, day: DayCharge) -> str:
    rate = format_dollars(item.rate)
    hours = Decimal(item.quantity) / SECONDS_PER_HOUR
    match item.item:
        case "gpu":
            return f"{hours:.3f} hours at ${rate}/hour ({item.kind})"
        case "reserved_idle":
            return f"{hours:.3f} hours reserved and not running, at ${rate}/hour"
        case "disk":
            size = day.disk_bytes // BYTES_PER_GB
            return f"{hours:.3f} hours of {size} GB at ${rate}/GB/month"
        case "bwu" | "bwd":
            way = "up" if item.item == "bwu" else "down"
            return f"{item.quantity} bytes {way} at ${rate}/GB"


# --- movements ------------------------------------------------------------------------------------


@endpoint("GET", "/v1/invoices", roles=ANYONE, needs=_MONEY)
async def invoices(call: Caller) -> Response[Any]:
    """Money that came and went: payments, refunds, deposits, transfers, payouts."""
    asked = call.query("select_filters") or {}
    first, last = _window(asked, "when", call.now)
    kinds = _kinds(asked)
    keys = keys_of(call.query_text("after_token"), (int, int, int))

    def find(connection: Connection) -> MoneyRows:
        return money_rows.money_rows(
            connection,
            call.account_id,
            filters={"at": {"gte": first, "lte": last}, "kind": {"in": kinds}},
            latest_first=bool(call.query("latest_first")),
            last=keys,
            limit=_limit(call),
        )

    found = await call.question(find) if kinds else MoneyRows(rows=[], total=0, after=None)
    return _page([_movement(one) for one in found.rows], found.total, found.after)


def _kinds(asked: Json) -> list[str]:
    """The movements whose service and type are wanted."""
    kept = dict(_MOVEMENTS)
    for column, place in (("type", 0), ("service", 1)):
        given = asked.get(column)
        if given is not None:
            values = given.get("in", given.get("eq")) if isinstance(given, dict) else given
            wanted = values if isinstance(values, list) else [values]
            kept = {kind: known for kind, known in kept.items() if known[place] in wanted}
    return list(kept)


def _movement(row: MoneyRow) -> Json:
    kind, service, description = _MOVEMENTS[row.kind]
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


@endpoint("GET", "/v0/invoices", roles=ANYONE, needs=_MONEY)
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
    kind, service, description = _MOVEMENTS[row.kind]
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


# --- the old list ---------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/v0/users/me/invoices",
    roles=ANYONE,
    needs=("api.billing.list_charges", *_MONEY, "api.user.show_balance"),
)
async def old_invoices(call: Caller) -> Response[Any]:
    """Charges and payments of a window in one list, as older clients ask for them."""
    first = _second(call.query("sdate"), 0)
    last = _second(call.query("edate"), call.now)

    def find(connection: Connection) -> Json:
        rows: list[Json] = []
        after: tuple[int, int] | None = None
        total = 0
        while len(rows) < _OLD_ROWS_MAX:
            found = daily_charges.charge_days(
                connection, call.account_id, first=first, last=last, after=after, limit=_PAGE
            )
            for day in found.days:
                rows += [_old_charge(item, day) for item in day.items]
                total += day.amount
            after = found.after
            if after is None:
                break
        paid = money_rows.money_rows(
            connection, call.account_id, filters={"at": {"gte": first, "lte": last}}, limit=_PAGE
        )
        rows += [_old_payment(one) for one in paid.rows]
        rows.sort(key=lambda row: row["timestamp"])
        credit = balances.balance(connection, call.account_id, call.now).available
        return {
            "invoices": [{"id": n, **row} for n, row in enumerate(rows, 1)],
            "current": {
                "charges": money(total),
                "service_fee": 0,
                "total": money(total),
                "credit": money(credit),
            },
        }

    return answer(await call.question(find))


def _old_charge(item: ChargeItem, day: DayCharge) -> Json:
    is_time = item.item in {"gpu", "reserved_idle", "disk"}
    quantity = Decimal(item.quantity) / (SECONDS_PER_HOUR if is_time else BYTES_PER_GB)
    name = f"{day.contract.capitalize()} {day.instance_id}"
    return {
        "type": "charge",
        "description": f"{name} {item.item}: {_described(item, day)}",
        "quantity": f"{quantity:.3f}",
        "rate": format_dollars(item.rate),
        "amount": format_dollars(item.amount),
        "timestamp": item.until,
        "instance_id": day.instance_id,
        "machine_id": None,
    }


def _old_payment(row: MoneyRow) -> Json:
    kind, _, description = _MOVEMENTS[row.kind]
    return {
        "type": "payment",
        "description": f"{description} {row.reference} ({kind})",
        "quantity": "1",
        "rate": format_dollars(row.amount),
        "amount": format_dollars(row.amount),
        "timestamp": row.at,
        "instance_id": None,
        "machine_id": None,
    }


@endpoint("POST", "/v0/contracts/fetch", roles=ANYONE, needs="api.instance.list_instances")
async def contracts_with_label(call: Caller) -> Response[Any]:
    """Those of some contracts that have a label, also after they were destroyed."""
    asked = call.body.get("contract_ids") or []
    wanted = ids(asked, "contract_ids", _OLD_ROWS_MAX) if asked else []
    label = read_text(call.body.get("label"), "label")
    views = await call.question(lambda connection: instances.instances_by_id(connection, wanted))
    return answer(
        {
            "success": True,
            "contracts": [
                {"id": one.instance_id, "label": one.label}
                for one in views.values()
                if one.account_id == call.account_id and label in {None, one.label}
            ],
        }
    )


# --- earnings -------------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/v0/users/me/machine-earnings",
    roles=ANYONE,
    needs=("api.billing.list_charges", "api.user.show_balance"),
)
async def earnings(call: Caller) -> Response[Any]:
    """What one's machines earned after the platform's fee, per machine and per day."""
    first = int(number(call.query("sday") or 0, "sday"))
    last = call.query("eday")
    machine = call.query("machid")

    def find(connection: Connection) -> Json:
        found = daily_charges.earnings(
            connection,
            call.account_id,
            first_day=first,
            last_day=None if last is None else int(number(last, "eday")),
            machine_id=None if machine is None else whole(machine, "machid"),
        )
        account = accounts.account(connection, call.ledger.vault, call.account_id)
        payable = balances.balance(connection, call.account_id, call.now).host_payable
        return _earnings(found, account.name or "", payable)

    return answer(await call.question(find))


def _earnings(found: Sequence[Earned], name: str, payable: int) -> Json:
    return {
        "summary": {
            f"total_{meter}": money(sum(getattr(one, column) for one in found))
            for meter, column in (
                ("gpu", "gpu"),
                ("stor", "storage"),
                ("bwu", "up"),
                ("bwd", "down"),
            )
        },
        "username": name,
        "email": "",
        **dict.fromkeys(("fullname", "address1", "address2", "city", "zip", "country"), ""),
        "taxinfo": "",
        "current": {
            "balance": money(payable),
            "service_fee": money(sum(one.fee for one in found)),
            "total": money(payable),
            "credit": 0,
        },
        "per_machine": _grouped(found, "machine_id", "machine_id"),
        "per_day": _grouped(found, "day", "day"),
    }


def _grouped(found: Sequence[Earned], column: str, name: str) -> list[Json]:
    keys = sorted({getattr(one, column) for one in found})
    return [
        {
            name: key,
            **{
                f"{shown}_earn": money(
                    sum(getattr(one, part) for one in found if getattr(one, column) == key)
                )
                for shown, part in (
                    ("gpu", "gpu"),
                    ("sto", "storage"),
                    ("bwu", "up"),
                    ("bwd", "down"),
                )
            },
        }
        for key in keys
    ]


# --- transfers ------------------------------------------------------------------------------------


@endpoint(
    "PUT",
    "/v0/commands/transfer_credit",
    roles=("renter", "host", "admin"),
    needs="api.billing.transfer",
)
async def transfer(call: Caller) -> Response[Any]:
    """Move credit to another account; a refusal is a 200, or the client hides its text."""
    recipient = read_text(call.body.get("recipient"), "recipient") or ""

    def do(unit: Unit) -> Json:
        amount = parse_amount(_amount(call.body.get("amount")))
        try:
            to = accounts.find_account(unit.connection, unit.vault, recipient)
        except NotFoundError:
            message = f"there is no account {recipient!r}"
            raise RejectedError("invalid_recipient", message) from None
        made = repeats.transfer_once(unit, call.account_id, to, amount)
        return {
            "success": True,
            "replayed": made.replayed,
            "id": made.transfer_id,
            "msg": f"${format_dollars(amount)} went to {recipient}; this cannot be undone.",
        }

    try:
        return await call.command(do)
    except LedgerError as error:
        status, code, msg, _ = translated(error)
        if status >= 500:  # noqa: PLR2004 - a failure, no refusal: the client tries it again
            raise
        return answer({"success": False, "error": code, "msg": msg})


def _amount(value: Any) -> str | int | Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise RejectedError("invalid_args", "`amount` must be a number of dollars")
    return value


# --- windows and pages ----------------------------------------------------------------------------


def _window(asked: Any, column: str, now: int) -> tuple[int, int]:
    """First and last second; the last seven days where nothing is named."""
    if not isinstance(asked, dict):
        raise Refusal(400, "invalid_request", "`select_filters` is an object of columns")
    given = asked.get(column)
    if not isinstance(given, dict) or not given:
        return (0, now) if column == "day" else (now - _WEEK, now)
    first, last = 0, 2**53
    for operator, value in given.items():
        second = _second(value, 0)
        match operator:
            case "gte":
                first = max(first, second)
            case "gt":
                first = max(first, second + 1)
            case "lte":
                last = min(last, second)
            case "lt":
                last = min(last, second - 1)
            case "eq":
                first = last = second
            case _:
                message = f"`{column}` is compared with gte, gt, lte, lt or eq"
                raise Refusal(400, "invalid_request", message)
    return first, last


def _second(value: Any, default: int) -> int:
    return default if value is None else int(number(value, "time"))


def _limit(call: Call) -> int:
    asked = call.query("limit")
    limit = _LIMIT if asked is None else whole(asked, "limit")
    if limit < 1:
        raise Refusal(400, "invalid_request", f"`limit` is 1 to {_LIMIT_MAX}")
    return min(limit, _LIMIT_MAX)


def _page(rows: list[Json], total: int, after: Sequence[Any] | None) -> Response[Any]:
    return answer(
        {
            "success": True,
            "count": len(rows),
            "total": total,
            "next_token": token(after),
            "results": rows,
        }
    )


ENDPOINTS: Sequence[Any] = [
    charges,
    invoices,
    search_invoices,
    old_invoices,
    contracts_with_label,
    earnings,
    transfer,
]
