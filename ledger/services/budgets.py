"""Budgets by label: what may be spent under a label in a UTC calendar month.

A budget tells, at 80 % and at 100 %, once a month each; it stops nothing. What counts is what was
folded for the month's hours of everything that carries the label now.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import BudgetReached, BudgetRemoved, BudgetSet, NoticeCode
from ledger.domain.events.budgets import BudgetPercent
from ledger.domain.ids import account_stream, month_start
from ledger.domain.money import MAX_POSTING_NANOS, SECONDS_PER_HOUR
from ledger.errors import RejectedError
from ledger.services.accounts import require_account
from ledger.services.labels import check_label
from ledger.services.ledger import Ledger, Unit
from ledger.services.notices import notice
from ledger.services.questions.labels import LABELLED, USAGE_CHARGE
from ledger.store.database import Connection

BUDGETS_MAX: Final = 100
"""Budgets of one account."""
_EVERY_SECONDS: Final = 60
_CURSOR: Final = "budgets"
_STEPS: Final[tuple[tuple[BudgetPercent, NoticeCode], ...]] = (
    (80, "budget_80"),
    (100, "budget_100"),
)
BUDGETS_DUE: Final = (
    f"SELECT 1 FROM budgets WHERE coalesce((SELECT position FROM projection_positions"  # noqa: S608 - constants
    f" WHERE name = '{_CURSOR}'), 0) < %(now)s / {_EVERY_SECONDS} * {_EVERY_SECONDS}"
)
# Spent so far this month under each label that has a budget.
_SPENT: Final = f"""
SELECT b.account_id, b.label, b.amount,
       CASE WHEN b.month_from = %(month)s THEN b.percent ELSE 0 END,
       coalesce(sum({USAGE_CHARGE}), 0)
FROM budgets b JOIN {LABELLED} c ON c.account_id = b.account_id AND c.label = b.label
JOIN usage_hours h ON h.instance_id = c.instance_id AND h.hour >= %(hour)s
WHERE b.month_from < %(month)s OR b.percent < 100
GROUP BY b.account_id, b.label, b.amount, b.month_from, b.percent
HAVING sum({USAGE_CHARGE}) * 100 >= b.amount * 80 ORDER BY b.account_id, b.label
"""  # noqa: S608 - constants


class Budget(NamedTuple):
    """A budget, and what of it was spent since the month began."""

    account_id: int
    label: str
    amount: int
    spent: int
    month_from: int


def set_budget(unit: Unit, account_id: int, label: str, amount: int) -> None:
    """Watch what carries *label*; another amount is told of anew, the same changes nothing.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`, `invalid_amount`, `too_many_budgets`.
    """
    check_label(label)
    if not 1 <= amount <= MAX_POSTING_NANOS:
        raise RejectedError("invalid_amount", "a budget is between one nano and 10^9 dollars")
    require_account(unit.connection, account_id)
    known: dict[str, int] = dict(
        unit.connection.execute(
            "SELECT label, amount FROM budgets WHERE account_id = %s", [account_id]
        ).fetchall()
    )
    if known.get(label) == amount:
        return
    if label not in known and len(known) >= BUDGETS_MAX:
        message = f"an account has at most {BUDGETS_MAX} budgets"
        raise RejectedError("too_many_budgets", message)
    unit.append(
        account_stream(account_id),
        BudgetSet(account_id=account_id, label=label, amount=amount, set_at=unit.now),
    )


def remove_budget(unit: Unit, account_id: int, label: str) -> None:
    """Watch it no more; again changes nothing."""
    row = unit.connection.execute(
        "SELECT 1 FROM budgets WHERE account_id = %s AND label = %s", [account_id, label]
    ).fetchone()
    if row is not None:
        unit.append(
            account_stream(account_id),
            BudgetRemoved(account_id=account_id, label=label, removed_at=unit.now),
        )


def watch_budgets(ledger: Ledger) -> None:
    """Tell who has spent 80 % or 100 % of a budget; looked at once a minute, if there are any."""
    minute = ledger.clock() // _EVERY_SECONDS * _EVERY_SECONDS
    with ledger.reading() as connection:
        row = connection.execute(
            "SELECT (SELECT position FROM projection_positions WHERE name = %s)"
            " FROM budgets LIMIT 1",
            [_CURSOR],
        ).fetchone()
        if row is None or (row[0] or 0) >= minute:
            return
    with ledger.unit() as unit:
        for account_id, label, amount, told, spent in _reached(unit.connection, unit.now):
            for percent, code in _STEPS:
                if told < percent and spent * 100 >= amount * percent:
                    reached = BudgetReached(
                        account_id=account_id,
                        label=label,
                        month_from=month_start(unit.now),
                        percent=percent,
                        amount=int(amount),
                        spent=int(spent),
                        reached_at=unit.now,
                    )
                    told_of = notice(unit, account_id, code, f"label-{label}")
                    unit.append_all([(account_stream(account_id), reached), told_of])
        unit.connection.execute(
            "INSERT INTO projection_positions VALUES (%s, 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [_CURSOR, minute],
        )


def _reached(connection: Connection, now: int) -> list[tuple[int, str, int, int, int]]:
    month = month_start(now)
    values = {"month": month, "hour": month // SECONDS_PER_HOUR}
    return connection.execute(_SPENT, values).fetchall()


def budgets(
    connection: Connection, now: int, *, account_id: int, after: str = "", limit: int = 100
) -> list[Budget]:
    """An account's budgets by label, with what was spent since the month began."""
    month = month_start(now)
    rows = connection.execute(
        f"SELECT b.account_id, b.label, b.amount, coalesce((SELECT sum({USAGE_CHARGE})"  # noqa: S608 - constants
        f" FROM {LABELLED} c JOIN usage_hours h ON h.instance_id = c.instance_id"
        " AND h.hour >= %s WHERE c.account_id = b.account_id AND c.label = b.label), 0)"
        " FROM budgets b WHERE b.account_id = %s AND b.label > %s ORDER BY b.label LIMIT %s",
        [month // SECONDS_PER_HOUR, account_id, after, limit],
    )
    return [Budget(row[0], row[1], int(row[2]), int(row[3]), month) for row in rows]
