"""What a fact changes in a read model: one statement with its values."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

FAR_FUTURE: Final = 2**62
"""The end of what has no end yet, where a range scan must find it."""


class Change(NamedTuple):
    """One statement of a read model."""

    sql: str
    values: tuple[Any, ...]


def counted(kind: str, number: int) -> Change:
    """The last id of a kind that was handed out."""
    return Change(
        "INSERT INTO id_counters (kind, last) VALUES (%s, %s)"
        " ON CONFLICT (kind) DO UPDATE SET last = EXCLUDED.last",
        (kind, number),
    )
