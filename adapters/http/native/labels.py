"""Charges and budgets by label."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Response, delete, get, put
from litestar.params import FromQuery, JSONBody

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.books import Start
from adapters.http.native.statements import account_of
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
)
from ledger.domain.money import parse_amount
from ledger.errors import RejectedError
from ledger.services import budgets as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import labels as ask


class LabelledCharges(msgspec.Struct, frozen=True, kw_only=True):
    """What carries `label` was charged; null: what carries no label."""

    label: str | None
    instances: int
    gpu: Dollars
    storage: Dollars
    up: Dollars
    down: Dollars
    total: Dollars


class NewBudget(Body):
    """Dollars a UTC calendar month for what carries `label`; you are told at 80 % and 100 %."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"label": "train", "amount": "250"}

    label: str
    amount: Dollars
    account_id: Id | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, and what of it was spent since `month_from`."""

    account_id: int
    label: str
    amount: Dollars
    spent: Dollars
    month_from: Instant


class RemovedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is watched under this label any more."""

    label: str


@get("/v1/charges/by-label", opt=allowed(*ANYONE), summary="Charges by label")
async def list_charges_by_label(
    call: Caller,
    account_id: AccountFilter = None,
    start: Start = None,
    until: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[LabelledCharges]:
    """Sum charges of whole UTC hours by the label that instances and volumes carry now."""
    account = account_of(call, account_id)
    first, end = instant(start, "from"), instant(until, "until")
    after = decode_cursor(cursor, str, "") if cursor is not None else None
    found = await call.question(
        lambda connection: ask.charges_by_label(
            connection, account, start=first or 0, until=end, after=after, limit=limit + 1
        )
    )
    return page(LabelledCharges, found, limit, lambda one: one.label)


@put("/v1/budgets", opt=allowed(*RENTER), summary="Set a budget")
async def set_budget(call: Caller, data: JSONBody[NewBudget]) -> Response[Budget]:
    """Watch what carries a label; a budget tells and stops nothing."""
    account, amount = call.account(data.account_id), parse_amount(data.amount)

    def do(unit: Unit) -> Budget:
        use_cases.set_budget(unit, account, data.label, amount)
        (found,) = [
            one
            for one in use_cases.budgets(
                unit.connection, unit.now, account_id=account, limit=use_cases.BUDGETS_MAX
            )
            if one.label == data.label
        ]
        return render(Budget, found)

    return await call.command(do)


@get("/v1/budgets", opt=allowed(*ANYONE), summary="List budgets")
async def list_budgets(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Budget]:
    """List an account's budgets by label, with what was spent since the month began."""
    account = account_of(call, account_id)
    after, now = decode_cursor(cursor, str, ""), call.ledger.clock()
    found = await call.question(
        lambda connection: use_cases.budgets(
            connection, now, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Budget, found, limit, lambda one: one.label)


@delete("/v1/budgets", opt=allowed(*RENTER), status_code=200, summary="Remove a budget")
async def remove_budget(
    call: Caller, label: FromQuery[str | None] = None, account_id: AccountFilter = None
) -> Response[RemovedBudget]:
    """Watch a label no more; again changes nothing."""
    account = call.account(account_id)
    if label is None:
        raise RejectedError("invalid_args", "name the budget: ?label=train")

    def do(unit: Unit) -> RemovedBudget:
        use_cases.remove_budget(unit, account, label)
        return RemovedBudget(label=label)

    return await call.command(do)


HANDLERS = [list_charges_by_label, set_budget, list_budgets, remove_budget]
