"""What the keys of a step may hold: each reader turns a written value into what services take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ledger.domain.ids import parse_rfc3339
from ledger.domain.money import parse_dollars, parse_fee
from ledger.errors import RejectedError

_SPAN: Final = re.compile(r"([+-])(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Reader = Callable[[Any], Any]


def name(value: Any) -> str:
    """A name of the scenario's own."""
    if not isinstance(value, str) or not value:
        message = f"{value!r} is not a name"
        raise ValueError(message)
    return value


def money(value: Any) -> int:
    """An amount or rate in nanos, written as a decimal text of dollars."""
    if not isinstance(value, str):
        message = f'write amounts and rates as text: "{value}"'
        raise ValueError(message)  # noqa: TRY004 - a mistake in a file, told with its line
    try:
        return parse_dollars(value)
    except RejectedError as error:
        raise ValueError(error.message) from error


def whole(value: Any) -> int:
    """A whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = f"{value!r} is not a whole number from 0 on"
        raise ValueError(message)
    return value


def cycle(value: Any) -> str:
    """How often usage is billed."""
    if value not in {"monthly", "weekly"}:
        message = f'{value!r} is neither "monthly" nor "weekly"'
        raise ValueError(message)
    return str(value)


def fraction(value: Any) -> int:
    """A share such as ``"0.19"``, in basis points."""
    try:
        return parse_fee(name(value))
    except RejectedError as error:
        raise ValueError(error.message) from error


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        message = f"{value!r} is neither true nor false"
        raise ValueError(message)  # noqa: TRY004 - a mistake in a file, told with its line
    return value


def boot(value: Any) -> int | None:
    """Seconds from a grant to its confirmation; none for `manual`."""
    return None if value == "manual" else whole(value)


def span_seconds(text: Any) -> int | None:
    """Seconds of a text such as ``+90s`` or ``-2h``; none if it is not one."""
    found = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    seconds = int(found[2]) * _SECONDS[found[3]]
    return seconds if found[1] == "+" else -seconds


def instant(value: Any) -> int | str:
    """A Unix second, or a span that is counted from the step's own second."""
    if span_seconds(value) is not None:
        return str(value)
    if not isinstance(value, str):
        message = f"{value!r} is not an instant"
        raise ValueError(message)  # noqa: TRY004 - a mistake in a file, told with its line
    return parse_rfc3339(value)


def names(value: Any) -> dict[str, str]:
    """Names of the scenario's own, each with a text."""
    if not isinstance(value, dict) or not value:
        message = f"{value!r} is not a mapping of names"
        raise ValueError(message)
    return {name(key): name(text) for key, text in value.items()}


def anything(value: Any) -> Any:
    """Whatever stands there."""
    return value
