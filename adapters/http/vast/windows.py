"""The window of time and the page that a list of money is asked for, and the page that it gives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import Call
from adapters.http.vast.errors import Refusal
from adapters.http.vast.wire import Json, answer, number, token, whole
from ledger.domain.money import SECONDS_PER_DAY

ROWS_MAX: Final = 10_000
"""Rows of one answer of a list without pages."""
_LIMIT: Final = 20
_LIMIT_MAX: Final = 100
_WEEK: Final = 7 * SECONDS_PER_DAY


def window(asked: Any, column: str, now: int) -> tuple[int, int]:
    """First and last second; the last seven days where nothing is named."""
    if not isinstance(asked, dict):
        raise Refusal(400, "invalid_request", "`select_filters` is an object of columns")
    given = asked.get(column)
    if not isinstance(given, dict) or not given:
        return (0, now) if column == "day" else (now - _WEEK, now)
    first, last = 0, 2**53
    for operator, value in given.items():
        at = second(value, 0)
        match operator:
            case "gte":
                first = max(first, at)
            case "gt":
                first = max(first, at + 1)
            case "lte":
                last = min(last, at)
            case "lt":
                last = min(last, at - 1)
            case "eq":
                first = last = at
            case _:
                message = f"`{column}` is compared with gte, gt, lte, lt or eq"
                raise Refusal(400, "invalid_request", message)
    return first, last


def require_columns(asked: Json, known: Collection[str]) -> None:
    """Refuse a filter that would otherwise do nothing.

    Raises:
        Refusal: `invalid_request` for a column that the list does not have.
    """
    for name in asked:
        if name not in known:
            message = f"this list has no column `{name[:40]}`; it has {', '.join(sorted(known))}"
            raise Refusal(400, "invalid_request", message)


def require_rows(count: int) -> None:
    """Refuse what a list without pages could answer in part only.

    Raises:
        Refusal: `invalid_request` for more rows than one answer holds.
    """
    if count > ROWS_MAX:
        message = f"more than {ROWS_MAX} rows are in this window: ask for less time"
        raise Refusal(400, "invalid_request", message)


def second(value: Any, default: int) -> int:
    """A time of these clients', whose fraction is nothing.

    Raises:
        RejectedError: `invalid_args`.
    """
    return default if value is None else int(number(value, "time"))


def limit_of(call: Call) -> int:
    """How many rows a page may have; more than the most is the most.

    Raises:
        Refusal: `invalid_request` below one.
    """
    asked = call.query("limit")
    limit = _LIMIT if asked is None else whole(asked, "limit")
    if limit < 1:
        raise Refusal(400, "invalid_request", f"`limit` is 1 to {_LIMIT_MAX}")
    return min(limit, _LIMIT_MAX)


def page(rows: list[Json], total: int, after: Sequence[Any] | None) -> Response[Any]:
    """Rows of a list that has *total* of them, and where the next page begins."""
    return answer(
        {
            "success": True,
            "count": len(rows),
            "total": total,
            "next_token": token(after),
            "results": rows,
        }
    )
