"""The deprecated list of charges and payments in one, and what its clients ask with it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.charges import described
from adapters.http.vast.movements import MONEY, MOVEMENTS, every_row
from adapters.http.vast.windows import ROWS_MAX, require_rows, second
from adapters.http.vast.wire import Json, answer, ids, money
from adapters.http.vast.wire import text as read_text
from ledger.domain.money import BYTES_PER_GB, SECONDS_PER_HOUR, format_dollars
from ledger.services.questions import balances, daily_charges, instances
from ledger.services.questions.daily_charges import ChargeItem, DayCharge
from ledger.services.questions.money_rows import MoneyRow
from ledger.store.database import Connection

_PAGE: Final = 1_000


@endpoint(
    "GET",
    "/v0/users/me/invoices",
    roles=ANYONE,
    needs=("api.billing.list_charges", *MONEY, "api.user.show_balance"),
)
async def old_invoices(call: Caller) -> Response[Any]:
    """Charges and payments of a window in one list, as older clients ask for them."""
    first = second(call.query("sdate"), 0)
    last = second(call.query("edate"), call.now)

    def find(connection: Connection) -> Json:
        rows: list[Json] = []
        after: tuple[int, int] | None = None
        total = 0
        while True:
            found = daily_charges.charge_days(
                connection, call.account_id, first=first, last=last, after=after, limit=_PAGE
            )
            for day in found.days:
                rows += [_old_charge(item, day) for item in day.items]
                total += day.amount
            require_rows(len(rows))
            after = found.after
            if after is None:
                break
        paid = every_row(connection, call.account_id, {"at": {"gte": first, "lte": last}})
        rows += [_old_payment(one) for one in paid]
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
        "description": f"{name} {item.item}: {described(item, day)}",
        "quantity": f"{quantity:.3f}",
        "rate": format_dollars(item.rate),
        "amount": format_dollars(item.amount),
        "timestamp": item.until,
        "instance_id": day.instance_id,
        "machine_id": None,
    }


def _old_payment(row: MoneyRow) -> Json:
    kind, _, description = MOVEMENTS[row.kind]
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
    wanted = ids(asked, "contract_ids", ROWS_MAX) if asked else []
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


ENDPOINTS: Sequence[Any] = [old_invoices, contracts_with_label]
