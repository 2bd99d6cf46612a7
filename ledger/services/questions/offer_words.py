"""A search as people type it: `gpu_name=RTX_4090 num_gpus>=2`, in the order `dph_total,-score`.

It needs no database, so that a program far from one can read it too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from ledger.errors import RejectedError
from ledger.services.questions.offer_fields import fields

Filters = dict[str, dict[str, Any]]
_SIGNS: Final = {
    "=": "eq",
    "==": "eq",
    "!=": "neq",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "in": "in",
    "notin": "notin",
}
_CONDITION: Final = re.compile(
    r"\s*(?P<name>[a-z_][a-z0-9_]*)\s*"
    r"(?:(?P<sign>[=!<>]=|[=<>])\s*|\s(?P<word>in|notin)\s*(?=\[))"
    r"""(?P<value>"[^"]*"|'[^']*'|\[[^\]]*\]|[^\s\["'=<>!]\S*)(?=\s|$)""",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,"']+?)\s*(?:,|$)""")


def parse_filters(words: Sequence[str]) -> Filters:
    """Read conditions, all of which must hold, as field → operator → value.

    In a text that is not quoted an underscore also means a space: `RTX_4090` finds `RTX 4090`.

    Raises:
        RejectedError: `invalid_args` for what is no condition, or a field that offers do not have.
    """
    text = " ".join(words)
    filters: Filters = {}
    start = 0
    while text[start:].strip():
        found = _CONDITION.match(text, start)
        if found is None:
            message = f"{text[start:].strip()!r} is no condition such as num_gpus>=2"
            raise RejectedError("invalid_args", message)
        start = found.end()
        name = found["name"].lower()
        operator = _SIGNS[(found["sign"] or found["word"]).lower()]
        _add(filters, name, *_meant(name, operator, found["value"]))
    return filters


def parse_order(text: str) -> list[tuple[str, Literal["asc", "desc"]]]:
    """Read `dph_total,-score`: fields in order, those with a minus from large to small.

    The minus may also stand behind the name, as people know it from elsewhere.
    """
    order: list[tuple[str, Literal["asc", "desc"]]] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        falls = one.startswith("-") or one.endswith("-")
        order.append((one.strip("-"), "desc" if falls else "asc"))
    return order


def _add(filters: Filters, name: str, operator: str, value: Any) -> None:
    conditions = filters.setdefault(name, {})
    if operator in conditions:
        message = f"`{name}` has two conditions of one kind: write them as one, with in or notin"
        raise RejectedError("invalid_args", message)
    conditions[operator] = value


def _meant(name: str, operator: str, shown: str) -> tuple[str, Any]:
    """The operator and the value of one condition, as the search takes them."""
    is_list = shown.startswith("[")
    if is_list != (operator in {"in", "notin"}):
        message = f"`{name}`: a list in brackets goes with in or notin, and with nothing else"
        raise RejectedError("invalid_args", message)
    given = _items(name, shown[1:-1]) if is_list else [shown]
    values = [one for word in given for one in _texts(name, word)]
    if is_list:
        return operator, values
    if len(values) > 1 and operator in {"eq", "neq"}:
        return ("in" if operator == "eq" else "notin"), values
    return operator, values[-1]


def _items(name: str, inside: str) -> list[str]:
    items = []
    start = 0
    while start < len(inside):
        found = _ITEM.match(inside, start)
        if found is None:
            message = f"`{name}`: {inside!r} is no list such as [RTX_4090, RTX_5090]"
            raise RejectedError("invalid_args", message)
        items.append(found[1])
        start = found.end()
    return items


def _texts(name: str, word: str) -> list[str]:
    """What a word may stand for: itself, and itself with spaces where it is a text."""
    if word[0] in "\"'":
        return [word[1:-1]]
    if "_" in word and _is_text(name):
        return [word, word.replace("_", " ")]
    return [word]


def _is_text(name: str) -> bool:
    field = fields("on_demand").get(name)
    return field is not None and field.type == "text"
