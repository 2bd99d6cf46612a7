"""How answers look: tables for people, plain columns in a pipe, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars

MONEY: Final = frozenset({
    "accrued", "amount", "available", "burn_per_hour", "captured", "charge", "charged", "closing",
    "credit", "debit", "debt_limit", "down_charge", "down_rate", "fee", "gpu_charge", "gpu_rate",
    "gpu_rate_per_gpu", "held", "host_payable", "host_share", "min_bid_per_gpu", "movements",
    "opening", "paid", "posted", "rate", "storage_charge", "storage_rate", "storage_rate_per_hour",
    "total", "up_charge", "up_rate",
})  # fmt: skip
TIMES: Final = frozenset({
    "at", "closed_at", "created_at", "destroyed_at", "enrolled_at", "erased_at", "exhausted_at",
    "expires_at", "first_run_at", "hour", "issued_at", "last_report_at", "last_used_at",
    "listed_at", "occurred_at", "opened_at", "period_from", "period_until", "placed_at",
    "received_at", "recorded_at", "registered_at", "revoked_at", "second", "segment_from", "start",
    "stopped_at", "until", "used_from", "used_until",
})  # fmt: skip
_TEXT_MONEY: Final = frozenset({"debit", "credit"})


def plain(value: Any, name: str = "") -> Any:
    """A view as JSON shows it: amounts as decimal texts, instants as RFC 3339."""
    if isinstance(value, msgspec.Struct):
        return {field: plain(getattr(value, field), field) for field in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {field: plain(inner, field) for field, inner in value._asdict().items()}
    if isinstance(value, dict):
        return value
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
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    console = Console(no_color=not is_terminal, width=None if is_terminal else 10_000)
    table = Table(
        title=title if is_terminal else None, box=SIMPLE if is_terminal else None, pad_edge=False
    )
    shown = [plain(row) for row in rows]
    for column in columns:
        numeric = any(isinstance(getattr(row, column), int) for row in rows)
        right = numeric and column not in TIMES
        table.add_column(column, justify="right" if right else "left", no_wrap=not is_terminal)
    for row in shown:
        table.add_row(*(_cell(row[column]) for column in columns))
    if is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


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
        return " ".join(map(str, value))
    return str(value)
