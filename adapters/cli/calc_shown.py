"""How the calculators' answers look: tables for people, with the formula and the inputs below."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from adapters.cli.output import print_facts, print_json, print_rows
from ledger.domain.budget import Budget
from ledger.domain.job_cost import Job, JobCost, JobOffer, KindCost, compare
from ledger.domain.sizing import GpuFit, GpuMemory
from ledger.domain.transfer import TransferCost
from ledger.domain.useful_hour import BreakEven, PlainCost

_GB: Final = 10**9
_GIB: Final = 2**30
_NAMES: Final = frozenset({"gpu", "gpus", "why"})
"""Columns whose texts may begin with a digit and are no numbers."""


# --- useful hour ---------------------------------------------------------------------------------


def print_job_costs(job: Job, offers: Sequence[JobOffer], *, as_json: bool) -> None:
    """The job on each of *offers*, best first; one offer is shown in full.

    Raises:
        RejectedError: `invalid_args`, as `ledger.domain.job_cost.compare` says.
    """
    found = compare(job, offers)
    if as_json:
        print_json(found)
    elif len(found) == 1:
        _print_one(found[0])
    else:
        _print_ranked(found)


class _Ranked(NamedTuple):
    """An offer in the ranked table, as texts; amounts in dollars."""

    offer: str
    gpus: str
    advised: str
    cost: str
    per_useful_h: str
    wall_h: str
    on_demand: str
    bid: str


def _print_ranked(found: Sequence[JobCost]) -> None:
    rows = [
        _Ranked(
            offer=str(one.offer.offer_id),
            gpus=f"{one.offer.gpus}x {one.offer.gpu_name}",
            advised=_words(one.advised or one.deadline or "neither"),
            cost=_number(one.cost_dollars),
            per_useful_h=_number(one.dollars_per_useful_hour, 3),
            wall_h=_number(one.wall_hours, 1),
            on_demand=_number(one.on_demand.estimate.cost_dollars),
            bid=_number(one.interruptible.estimate.cost_dollars if one.interruptible else None),
        )
        for one in found
    ]
    _table(rows, "the job on each offer, $", empty="no offer matches")
    if found:
        advice = [(f"offer {one.offer.offer_id}", one.advice) for one in found]
        _lines(*advice, ("formula", found[0].formula), ("job", _inputs(found[0].job)))


class _Quantity(NamedTuple):
    """One number of the job, by both kinds of rental."""

    quantity: str
    interruptible: str
    on_demand: str


def _print_one(found: JobCost) -> None:
    kinds = (found.interruptible, found.on_demand)
    columns = [{} if kind is None else _quantities(kind) for kind in kinds]
    rows = [
        _Quantity(quantity=name, interruptible=columns[0].get(name, "-"), on_demand=text)
        for name, text in columns[1].items()
    ]
    _table(rows, "the job by kind of rental", empty="")
    lines = [("advice", found.advice)]
    if found.break_even is not None:
        lines.append(("break-even", _break_even(found.break_even)))
    if found.plain is not None:
        lines += [("plainly", _plainly(found.plain)), ("plain formula", found.plain.formula)]
    _lines(
        *lines,
        ("formula", found.formula),
        ("job", _inputs(found.job)),
        ("prices", _inputs(found.offer)),
    )


def _quantities(kind: KindCost) -> dict[str, str]:
    """Every number of one kind, with its unit, in the order in which people ask."""
    found = kind.estimate
    meets = {None: "-", True: "meets it", False: "cannot meet it"}[kind.meets_deadline]
    first_order = found.first_order_hours
    return {
        "cost, $": _number(found.cost_dollars) if found.finishes else "never finishes",
        "per useful hour, $": _number(found.dollars_per_useful_hour, 3),
        "budget, $": _number(kind.budget_dollars),
        "wall time, h": _number(found.wall_hours),
        "deadline": meets,
        "billed, h": _number(found.billed_hours),
        "running, h": _number(found.running_hours),
        "running, first order, h": "undefined" if first_order is None else _number(first_order),
        "interruptions": _number(found.interruptions),
        "price, $/h": _number(found.inputs.dollars_per_hour, 4),
        "interruptions per hour": f"{found.inputs.interruptions_per_hour:.4g}",
        "writes checkpoints": "yes" if kind.writes_checkpoints else "no",
        "good interval, min": _number(found.good_interval_minutes or None, 1),
    }


def _plainly(plain: PlainCost) -> str:
    turn = plain.break_even_interruptions
    return (
        f"{plain.interruptions:g} interruptions: {plain.billed_hours:,.3f} h,"
        f" ${plain.cost_dollars:,.2f}, ${plain.dollars_per_useful_hour:,.3f} per useful hour,"
        f" against ${plain.on_demand_dollars:,.2f} on demand; break-even at"
        f" {'none' if turn is None else f'{turn:,.0f}'}"
    )


def _break_even(found: BreakEven) -> str:
    if found.mean_run_minutes is None:
        return "none: on demand costs no more even if nothing is interrupted"
    return (
        f"{found.interruptions_per_hour:,.3f} interruptions an hour,"
        f" a mean run of {found.mean_run_minutes:,.1f} min"
    )


# --- transfer and budget -------------------------------------------------------------------------


class _Attempt(NamedTuple):
    attempts: str
    seconds: str
    gpu: str
    traffic: str
    cost: str


def print_transfer(found: TransferCost, *, as_json: bool) -> None:
    """A transfer that succeeds at once, and one whose first attempt failed."""
    if as_json:
        print_json(found)
        return
    rows = [
        _Attempt(
            attempts=name,
            seconds=_number(one.seconds, 0),
            gpu=_number(one.gpu_dollars),
            traffic=_number(one.traffic_dollars),
            cost=_number(one.cost_dollars),
        )
        for name, one in (("at once", found.once), ("second try", found.with_failed_attempt))
    ]
    _table(rows, "transfer, $", empty="")
    _lines(("formula", found.formula), ("inputs", _inputs(found.inputs)))


class _Part(NamedTuple):
    part: str
    hours: str
    gpu: str
    storage: str
    traffic: str
    cost: str


def print_budget(found: Budget, *, as_json: bool) -> None:
    """The parts of a budget, and what they come to."""
    if as_json:
        print_json(found)
        return
    rows = [
        _Part(
            part=one.part,
            hours=_number(one.hours),
            gpu=_number(one.gpu_dollars),
            storage=_number(one.storage_dollars),
            traffic=_number(one.traffic_dollars),
            cost=_number(one.cost_dollars),
        )
        for one in found.parts
    ]
    _table(rows, "budget, $", empty="")
    _lines(
        ("budget", f"${found.cost_dollars:,.2f}, {found.hours:,.2f} h"),
        ("without failure", f"${found.cost_without_failed_attempt_dollars:,.2f}"),
        ("formula", found.formula),
        ("inputs", _inputs(found.inputs)),
    )


# --- memory --------------------------------------------------------------------------------------


class _Share(NamedTuple):
    part: str
    gb: str
    gib: str


class _FitRow(NamedTuple):
    gpu: str
    vram_gb: str
    in_slice: str
    needs_gb: str
    usable_gb: str
    fits: str
    why: str


class _MemoryAnswer(NamedTuple):
    memory: GpuMemory
    fits: Sequence[GpuFit]


def print_memory(found: GpuMemory, fitting: Sequence[GpuFit], *, as_json: bool) -> None:
    """What a GPU must hold, and what it fits on."""
    if as_json:
        print_json(_MemoryAnswer(found, fitting))
        return
    parts = [
        ("weights", found.weights_bytes),
        ("gradients", found.gradients_bytes),
        ("optimizer", found.optimizer_bytes),
        ("activations", found.activations_bytes),
        ("key-value cache", found.kv_bytes),
        ("CUDA context", found.context_bytes),
        ("driver reserve", found.reserve_bytes),
        ("fragmentation", found.fragmentation_bytes),
        ("needed per GPU", found.total_bytes),
    ]
    rows = [
        _Share(part=name, gb=_number(size / _GB), gib=_number(size / _GIB)) for name, size in parts
    ]
    _table(rows, "memory of one GPU", empty="")
    if fitting:
        sys.stdout.write("\n")
        shown = [
            _FitRow(
                gpu=one.name,
                vram_gb=_number(one.vram_gb, 1),
                in_slice=str(one.gpus),
                needs_gb=_number(one.needed_bytes / _GB, 1),
                usable_gb=_number(one.usable_bytes / _GB, 1),
                fits="yes" if one.fits else "no",
                why=one.why,
            )
            for one in fitting
        ]
        _table(shown, "what it fits on", empty="")
    _lines(
        (
            "states",
            f"{found.times_weights:.2f} times the weights; training adds"
            f" {found.added_times_weights:.2f} times",
        ),
        ("not counted", "; ".join(found.not_counted) or "-"),
        ("rule of thumb", found.rule_of_thumb),
        ("formula", found.formula),
        ("inputs", _inputs(found.inputs)),
    )


# --- how it looks --------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _table(rows: Sequence[Any], title: str, *, empty: str) -> None:
    """A table of texts; columns of numbers are aligned at their right end."""
    columns = rows[0]._fields if rows else ()
    padded = list(rows)
    for column in columns:
        cells = [getattr(row, column) for row in padded]
        if any(cell[:1].isdigit() for cell in cells) and column not in _NAMES:
            width = max(len(column), *map(len, cells))
            padded = [row._replace(**{column: getattr(row, column).rjust(width)}) for row in padded]
    print_rows(padded, columns, as_json=False, title=title, empty=empty)


def _inputs(inputs: Any) -> str:
    """The inputs that were given, each with its unit in its name."""
    given = {name: getattr(inputs, name) for name in inputs.__struct_fields__}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)


def _lines(*lines: tuple[str, str]) -> None:
    """Named sentences below a table."""
    sys.stdout.write("\n")
    print_facts(dict(lines), as_json=False)
