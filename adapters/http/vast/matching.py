"""Filters of these clients on rows that are already there: few of them, so they are compared here.

Values arrive as texts or numbers; a null matches no comparison, as in a search of offers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from adapters.http.vast.wire import Json
from ledger.errors import RejectedError

_OPERATORS: Final = frozenset({"eq", "neq", "gt", "gte", "lt", "lte", "in", "notin"})
ANYTHING: Final = frozenset({"any", "?", "*"})


def matching(rows: Sequence[Json], filters: Mapping[str, Any]) -> list[Json]:
    """The rows that meet every filter; a column that a row does not have matches nothing.

    Raises:
        RejectedError: `invalid_args` for an operator or a value that cannot be.
    """
    return [
        row
        for row in rows
        if all(_meets(row.get(name), name, asked) for name, asked in filters.items())
    ]


def ordered(rows: Sequence[Json], order: Any) -> list[Json]:
    """The rows in the order asked for, nulls last; columns that they do not have order nothing.

    Raises:
        RejectedError: `invalid_args`.
    """
    found = list(rows)
    for part in reversed(order if isinstance(order, list) else []):
        if not (isinstance(part, list) and len(part) == 2 and isinstance(part[0], str)):  # noqa: PLR2004 - a pair
            message = '`order` is a list of pairs such as ["storage_cost", "asc"]'
            raise RejectedError("invalid_args", message)
        name, is_down = part[0], str(part[1]).lower() == "desc"
        known = [one for one in found if one.get(name) is not None]
        unknown = [one for one in found if one.get(name) is None]
        found = [*sorted(known, key=lambda one: one[name], reverse=is_down), *unknown]
    return found


def _meets(held: Any, name: str, asked: Any) -> bool:
    comparisons = asked if isinstance(asked, Mapping) else {"eq": asked}
    return all(_holds(held, name, operator, value) for operator, value in comparisons.items())


def _holds(held: Any, name: str, operator: str, value: Any) -> bool:
    if operator not in _OPERATORS:
        shown = " ".join(sorted(_OPERATORS))
        raise RejectedError("invalid_args", f"`{name}`: {operator!r} is no operator; use {shown}")
    if isinstance(value, str) and value.lower() in ANYTHING:
        return True
    if operator in {"in", "notin"}:
        if not isinstance(value, list):
            raise RejectedError("invalid_args", f"`{name}` {operator}: give a list of values")
        found = any(_same(held, one) for one in value)
        return held is not None and found == (operator == "in")
    if operator in {"eq", "neq"}:
        return (held is not None or value is None) and _same(held, value) == (operator == "eq")
    one, other = _number(held), _number(value)
    if one is None or other is None:
        return False
    return {"gt": one > other, "gte": one >= other, "lt": one < other, "lte": one <= other}[
        operator
    ]


def _same(held: Any, value: Any) -> bool:
    if held is None or value is None:
        return held is value
    if isinstance(held, bool):
        return str(value).lower() == str(held).lower()
    if isinstance(held, str):
        return held.casefold() == str(value).casefold()
    return _number(value) == _number(held)


def _number(value: Any) -> Decimal | None:
    """A number, also one written as text; none for anything else."""
    if value is None or isinstance(value, bool):
        return None
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None
