"""`gpuledger timeline`: what happened when, in the terminal or as a picture."""

from __future__ import annotations

import string
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from adapters.cli.options import Account, AsJson, Home, Id, Instant, account_id, instant, reading
from ledger.errors import NotFoundError, RejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.pictures.forms import Timeline
    from ledger.services.questions.timelines import (
        InstanceTimeline,
        MachineTimeline,
        SpendTimeline,
        Stretch,
    )

From = Annotated[Instant, Parameter(name="--from")]
Out = Annotated[
    Path | None,
    Parameter(name="--out", help="Draw it into this file: .svg, .png or .pdf."),
]
_COLUMNS: Final = 72
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_SHADES: Final = "░▒▓█"
_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase


def instance(
    instance_id: Id,
    *,
    start: From = None,
    until: Instant = None,
    out: Out = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show an instance's life: when it existed, held GPUs, ran, was attested, and what it cost.

    Example: gpuledger timeline instance 7 --out life.svg
    """
    from ledger.services.questions import timelines as ask

    first, end = instant(start, "--from"), instant(until, "--until")
    with reading(home) as (ledger, connection):
        now = ledger.clock()
        found = ask.instance_timeline(connection, instance_id, now, start=first, until=end)
    _show(found, out, as_json=json)


def machine(
    machine_id: Id,
    *,
    start: From = None,
    until: Instant = None,
    out: Out = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show who held which GPU of a machine, and when it was heard; the last 24 hours.

    Example: gpuledger timeline machine 3 --from 2026-03-01T00:00:00Z --out machine.svg
    """
    from ledger.services.questions import timelines as ask

    first, end = instant(start, "--from"), instant(until, "--until")
    with reading(home) as (ledger, connection):
        now = ledger.clock()
        found = ask.machine_timeline(connection, machine_id, now, start=first, until=end)
    _show(found, out, as_json=json)


def account(
    account: Account,
    *,
    start: From = None,
    until: Instant = None,
    out: Out = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show what an account's instances and volumes cost, by hour or day; the last 30 days.

    Example: gpuledger timeline account alice --out spent.svg
    """
    from ledger.services.questions import timelines as ask

    first, end = instant(start, "--from"), instant(until, "--until")
    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        if owner is None:
            raise NotFoundError("no_such_account", "name an account")
        now = ledger.clock()
        found = ask.spend_timeline(connection, owner, now, start=first, until=end)
    _show(found, out, as_json=json)


def _show(found: Timeline, out: Path | None, *, as_json: bool) -> None:
    from adapters.cli.output import print_json
    from adapters.pictures.forms import MEDIA_TYPES, picture

    if out is not None:
        form = out.suffix.removeprefix(".").lower()
        if form not in MEDIA_TYPES:
            endings = ", ".join(f".{one}" for one in MEDIA_TYPES)
            raise RejectedError("invalid_args", f"--out ends in one of {endings}")
        out.write_bytes(picture(found, form))
    if as_json:
        print_json(found)
    elif out is not None:
        sys.stdout.write(f"{out}\n")
    else:
        sys.stdout.write(_in_text(found))


# --- in the terminal ------------------------------------------------------------------------------


def _in_text(found: Timeline) -> str:
    from ledger.domain.ids import rfc3339
    from ledger.services.questions.timelines import InstanceTimeline, MachineTimeline

    head = f"{rfc3339(found.start)} to {rfc3339(found.until)}"
    match found:
        case InstanceTimeline():
            lanes = [
                ("exists", found.existed),
                ("holds GPUs", found.held),
                ("runs", found.running),
                ("attested", found.attested),
            ]
            rows = [(name, bar(one, found.start, found.until)) for name, one in lanes]
            below = _costs(found)
        case MachineTimeline():
            letters = _letters(found)
            rows = [(f"GPU {slot}", _holders(found, slot, letters)) for slot in range(found.gpus)]
            rows.append(("attested", bar(found.attested, found.start, found.until)))
            kinds = {one.instance_id: one.kind.replace("_", " ") for one in found.held}
            below = ["", *(f"{letters[one]:>12} instance {one}, {kinds[one]}" for one in letters)]
        case _:
            rows, below = [], _costs(found)
    return "\n".join([head, *(f"{name:>12} {drawn}" for name, drawn in rows), *below]) + "\n"


def _letters(found: MachineTimeline) -> dict[int, str]:
    """A letter for each instance, in the order in which they came; `*` when letters run out."""
    order = sorted(found.held, key=lambda one: (one.start, one.instance_id))
    ids = dict.fromkeys(one.instance_id for one in order)
    return {one: _LETTERS[number : number + 1] or "*" for number, one in enumerate(ids)}


def _holders(found: MachineTimeline, slot: int, letters: dict[int, str]) -> str:
    """One line: in each column the letter of whoever held the GPU in its middle."""
    width = found.until - found.start
    middles = [found.start + (2 * one + 1) * width // (2 * _COLUMNS) for one in range(_COLUMNS)]
    boxes = [one for one in found.held if one.slot == slot]
    return "".join(
        next((letters[one.instance_id] for one in boxes if one.start <= at < one.until), "·")
        for at in middles
    )


def bar(stretches: Sequence[Stretch], start: int, until: int, columns: int = _COLUMNS) -> str:
    """One line of *columns*: `·` where nothing is, `█` where all is covered, shades between."""
    seconds = [0] * columns
    width = until - start
    for one in stretches:
        first, last = (one.start - start) * columns, (one.until - start) * columns
        for column in range(first // width, min(columns, -(-last // width))):
            left, right = column * width, (column + 1) * width
            seconds[column] += min(last, right) - max(first, left)
    return "".join(_cell(covered, width) for covered in seconds)


def _cell(covered: int, width: int) -> str:
    if not covered:
        return "·"
    return _SHADES[min(len(_SHADES) - 1, covered * len(_SHADES) // width)]


def _costs(found: InstanceTimeline | SpendTimeline) -> list[str]:
    from ledger.domain.ids import rfc3339
    from ledger.domain.money import format_dollars

    totals = [one.total for one in found.costs]
    most = max(totals, default=0)
    lines = [""]
    for one, total in zip(found.costs, totals, strict=True):
        eighths = total * 8 * (_COLUMNS // 2) // most if most else 0
        drawn = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append(f"{rfc3339(one.start)} {drawn} ${format_dollars(total)}")
    lines.append(f"{'total':>20} ${format_dollars(sum(totals))}")
    return lines
