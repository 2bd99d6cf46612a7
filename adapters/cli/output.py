"""How answers look: tables for people, plain columns in a pipe, JSON for programs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars

MONEY: Final = frozenset({
    "accrued", "adjustments", "amount", "available", "balance", "base_rate", "bid",
    "burn_per_hour", "captured", "charge", "charged", "claimed", "closing", "credit", "debit",
    "debt_limit", "deposit", "difference", "down_charge", "down_rate", "dph_base",
    "dph_per_gpu", "dph_total", "due", "fee", "floor_per_gpu", "gpu_charge", "gpu_rate",
    "gpu_rate_per_gpu", "held", "host_payable", "host_share", "inet_down_cost", "inet_up_cost",
    "lapsed", "locked", "min_bid", "min_bid_per_gpu", "movements", "net", "opening", "paid",
    "posted", "promotional", "rate", "refunded", "reserved_idle_charge", "reserved_rate", "spent",
    "storage_charge",
    "storage_cost", "storage_rate", "storage_rate_per_hour", "storage_total", "tax", "total",
    "unspent", "up_charge", "up_rate", "withdrawn",
})  # fmt: skip
TIMES: Final = frozenset({
    "at", "begun_at", "bid_effective_at", "booked", "closed_at", "created_at", "decided_at",
    "destroyed_at", "effective_at", "enrolled_at", "erased_at", "exhausted_at", "expires_at",
    "first_run_at", "granted_at", "hour", "issued_at", "last_report_at", "last_used_at",
    "listed_at", "occurred_at", "offline_since", "opened_at", "ordered_at", "period_from",
    "period_until", "placed_at", "posted_at", "received_at", "recorded_at", "registered_at",
    "revoked_at", "second", "segment_from", "segment_until", "since", "start", "stopped_at",
    "term_from", "term_until", "terms_due_at", "until", "used_from", "used_until", "waiting_since",
})  # fmt: skip
_COUNTS: Final = {"AnomalyView": frozenset({"amount"})}
"""Fields that are named like money and are none: an anomaly's amount counts bytes."""

_UNPRINTABLE: Final = {
    **dict.fromkeys((*range(32), *range(127, 160)), "�"),
    0x2028: "\N{REPLACEMENT CHARACTER}",
    0x2029: "\N{REPLACEMENT CHARACTER}",
}

T = TypeVar("T")


def plain(value: Any, name: str = "") -> Any:
    """A view as JSON shows it: amounts as decimal texts, instants as RFC 3339."""
    if isinstance(value, msgspec.Struct):
        counts = _COUNTS.get(type(value).__name__, frozenset())
        return {
            field: plain(getattr(value, field), "" if field in counts else field)
            for field in value.__struct_fields__
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {field: plain(inner, field) for field, inner in value._asdict().items()}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {field: plain(getattr(value, field), field) for field in names}
    if isinstance(value, dict):
        return value  # What an event says is shown as it is stored.
    if isinstance(value, list | tuple):
        return [plain(one, name) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        if name in MONEY:
            return format_dollars(value)
        if name in TIMES:
            return rfc3339(value)
    return value


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")


def page(
    rows: Sequence[T], limit: int, key: Callable[[T], object], option: str = "--after"
) -> list[T]:
    """The first *limit* of *rows*; how to go on is said on standard error when there are more."""
    shown = list(rows[:limit])
    if len(rows) > limit:
        more(f"{option} {key(shown[-1])}")
    return shown


def more(option: str) -> None:
    """Say on standard error that there are more rows, and the option that shows them."""
    sys.stderr.write(f"more: repeat with {option}\n")


def print_rows(
    rows: Sequence[Any], columns: Sequence[str], *, as_json: bool, title: str, empty: str
) -> None:
    """A list of views as a table of *columns*, or all of their fields as JSON."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        sys.stdout.write(f"{empty}\n")
        return
    # A row's properties may be shown too; only its fields are in the JSON.
    cells = [[_cell(_shown(row, column)) for column in columns] for row in rows]
    right = [
        column not in TIMES and any(type(getattr(row, column)) is int for row in rows)
        for column in columns
    ]
    if sys.stdout.isatty():
        _print_table(title, columns, right, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, *cells):
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _shown(row: Any, column: str) -> Any:
    counts = _COUNTS.get(type(row).__name__, frozenset())
    return plain(getattr(row, column), "" if column in counts else column)


def _print_table(
    title: str, columns: Sequence[str], right: list[bool], cells: list[list[str]]
) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=SIMPLE, pad_edge=False)
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


def print_facts(view: Any, *, as_json: bool) -> None:
    """One view, a field a line."""
    if as_json:
        print_json(view)
        return
    shown = plain(view)
    width = max(len(name) for name in shown)
    for name, value in shown.items():
        sys.stdout.write(f"{name:<{width}}  {_cell(value)}\n")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)).translate(_UNPRINTABLE)
    return str(value).translate(_UNPRINTABLE)
