"""Conditions of a list as SQL: typed comparisons, and the rows after the last one of a page.

The fields are a list's own (`Field` of `offer_fields`); names that are not among them are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ledger.errors import RejectedError
from ledger.services.questions.offer_fields import OPERATORS, Field, read_value

Filters = Mapping[str, Mapping[str, Any]]
Order = Sequence[tuple[str, Literal["asc", "desc"]]]
_LISTS = frozenset({"in", "notin"})


def where(fields: Mapping[str, Field], filters: Filters, values: dict[str, Any]) -> list[str]:
    """One SQL condition per comparison; what they compare with is added to *values*.

    A null is found by `eq`, `neq`, `in` and `notin`, and by nothing else.

    Raises:
        RejectedError: `invalid_args` for an unknown field or operator, or a value of another type.
    """
    found = []
    for name, comparisons in filters.items():
        field = require(fields, name)
        for operator, value in comparisons.items():
            if operator not in OPERATORS:
                message = f"`{operator}` is no operator: use {' '.join(OPERATORS)}"
                raise RejectedError("invalid_args", message)
            found.append(_compared(name, field, operator, value, values))
    return found


def require(fields: Mapping[str, Field], name: str) -> Field:
    """The field of this name.

    Raises:
        RejectedError: `invalid_args` when the list has none.
    """
    if name not in fields:
        message = f"this list has no column `{name}`; it has {', '.join(fields)}"
        raise RejectedError("invalid_args", message)
    return fields[name]


def _compared(name: str, field: Field, operator: str, value: Any, values: dict[str, Any]) -> str:
    is_list = operator in _LISTS
    if is_list and not isinstance(value, list):
        raise RejectedError("invalid_args", f"`{name}` {operator}: give a list of values")
    given = list(value) if is_list else [value]
    known = [one for one in given if one is not None]
    for one in known:
        if not isinstance(one, str | int | float) and not hasattr(one, "is_finite"):
            message = f"`{name}` {operator}: {one!r} is no text, number or flag"
            raise RejectedError("invalid_args", message)
    parts = []
    positive = operator not in {"neq", "notin"}
    if known:
        key = f"c{len(values)}"
        values[key] = read_value(name, field, operator, known if is_list else known[0])
        mark = f"(%({key})s)" if is_list else f" %({key})s"
        parts.append(f"{field.sql} {OPERATORS[operator]}{mark}")
    if len(known) < len(given):
        if operator not in {"eq", "neq", *_LISTS}:
            raise RejectedError("invalid_args", f"`{name}` {operator}: nothing compares with null")
        parts.append(f"{field.sql} IS {'' if positive else 'NOT '}NULL")
    elif not positive and known:
        parts = [f"({parts[0]} OR {field.sql} IS NULL)"]
    if not parts:
        return "false" if positive else "true"
    return "(" + (" OR " if positive else " AND ").join(parts) + ")"


def after(
    columns: Sequence[tuple[str, Literal["asc", "desc"]]],
    last: Sequence[Any],
    values: dict[str, Any],
) -> str:
    """Rows that come after the one with the keys *last*; no column of *columns* is ever null.

    Raises:
        RejectedError: `invalid_args` for keys of another list.
    """
    if len(last) != len(columns):
        raise RejectedError("invalid_args", "this token belongs to another list")
    equal: list[str] = []
    found = []
    for (sql, way), value in zip(columns, last, strict=True):
        key = f"a{len(values)}"
        values[key] = value
        found.append(" AND ".join([*equal, f"{sql} {'>' if way == 'asc' else '<'} %({key})s"]))
        equal.append(f"{sql} = %({key})s")
    return "(" + " OR ".join(f"({one})" for one in found) + ")"
