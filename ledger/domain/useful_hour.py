"""Cost per useful hour: what work costs when it is interrupted (`marketplace.md` §17.1).

The exact formula takes interruptions as a Poisson process in billed running time. One of them
throws away what was done since the last checkpoint, and it may hit a restart too. On demand is the
same formula at the host's failure rate, so reliability is a price like any other.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from ledger.domain.estimate import LIMIT, MINUTES_PER_HOUR, Amount, Inputs, Positive, Result

NEVER_HOURS: Final = 1e9
"""Work that would run for 100 000 years is said never to finish."""
FORMULA: Final = (
    "H = (W/τ)·(e^(λ(τ+δ)) − 1)·e^(λR)/λ, and W·(1 + δ/τ) without interruptions; N = λ·H;"
    " wall = S + H + N·A; cost = P·(S + H) + K·wall + N·B + T; per useful hour = cost/W."
    " W useful_hours, P dollars_per_hour, λ interruptions_per_hour, τ interval_minutes"
    " (at most W), δ write_minutes, R restart_minutes, S setup_minutes, K"
    " storage_dollars_per_hour, A pause_hours, B restart_traffic_dollars, T setup_traffic_dollars,"
    " minutes taken as hours. First order: W·(1 + δ/τ)/(1 − λ·(R + (τ+δ)/2)). Good interval:"
    " √(2δ/λ)"
)
PLAIN_FORMULA: Final = (
    "hours = S + W + N·(τ/2 + R); cost = P·hours; break-even N ="
    " ((on demand $/h)·(S + W)/P − S − W)/(τ/2 + R)"
)
_LARGEST_EXPONENT: Final = 700.0
_SMALLEST_EXPONENT: Final = 1e-8
_HALVINGS: Final = 200
_FIRST_GUESS: Final = 1e-6


class UsefulHourInputs(Inputs):
    """One job at one price. Hours and minutes are billed time unless they say otherwise."""

    useful_hours: Annotated[Positive, Meta(description="W: hours of work that count.")]
    dollars_per_hour: Annotated[Positive, Meta(description="P: of the whole slice.")]
    interruptions_per_hour: Annotated[Amount, Meta(description="λ: per billed running hour.")]
    interval_minutes: Annotated[Positive, Meta(description="τ: work between two checkpoints.")]
    write_minutes: Annotated[Amount, Meta(description="δ: to write a checkpoint.")] = 0.0
    restart_minutes: Annotated[Amount, Meta(description="R: boot, data, resume.")] = 0.0
    setup_minutes: Annotated[Amount, Meta(description="S: before the first work.")] = 0.0
    storage_dollars_per_hour: Annotated[Amount, Meta(description="K: also in pauses.")] = 0.0
    pause_hours: Annotated[Amount, Meta(description="A: unbilled, per interruption.")] = 0.0
    restart_traffic_dollars: Annotated[Amount, Meta(description="B: per interruption.")] = 0.0
    setup_traffic_dollars: Annotated[Amount, Meta(description="T: once.")] = 0.0


class UsefulHour(Result):
    """What the job costs. All but `finishes` and `first_order_hours` are null if it never ends.

    `billed_hours` is S + H, `running_hours` H. `first_order_hours` is for comparison only: it is
    too high where interruptions are frequent, and null where it is undefined.
    """

    finishes: bool
    running_hours: float | None
    first_order_hours: float | None
    interruptions: float | None
    billed_hours: float | None
    wall_hours: float | None
    cost_dollars: float | None
    dollars_per_useful_hour: float | None
    good_interval_minutes: float | None
    formula: str
    inputs: UsefulHourInputs


class BreakEven(Result):
    """How often an interruptible rental may be interrupted before on demand costs less.

    It is 0, with `mean_run_minutes` null, where on demand costs no more even if nothing interrupts.
    """

    interruptions_per_hour: float
    mean_run_minutes: float | None


class PlainCost(Result):
    """The cost with a number of interruptions that was guessed, half an interval lost in each.

    `break_even_interruptions` is null when no number of them makes on demand as dear or as cheap.
    """

    interruptions: float
    billed_hours: float
    cost_dollars: float
    dollars_per_useful_hour: float
    on_demand_dollars: float
    break_even_interruptions: float | None
    formula: str
    inputs: UsefulHourInputs


class Comparison(Result):
    """The same job interruptibly and on demand; `cheaper` is null when neither ever finishes.

    `break_even` is null when on demand never finishes: there is nothing to be even with.
    """

    interruptible: UsefulHour
    on_demand: UsefulHour
    cheaper: Literal["on_demand", "interruptible"] | None
    break_even: BreakEven | None


def useful_hour(inputs: UsefulHourInputs) -> UsefulHour:
    """What the job costs, by the exact formula."""
    running = running_hours(inputs, inputs.interruptions_per_hour)
    finishes = math.isfinite(running)
    interruptions = inputs.interruptions_per_hour * running if finishes else None
    cost = _cost(inputs, inputs.interruptions_per_hour) if finishes else None
    return UsefulHour(
        finishes=finishes,
        running_hours=running if finishes else None,
        first_order_hours=first_order_hours(inputs),
        interruptions=interruptions,
        billed_hours=_setup_hours(inputs) + running if finishes else None,
        wall_hours=_wall_hours(inputs, inputs.interruptions_per_hour) if finishes else None,
        cost_dollars=cost,
        dollars_per_useful_hour=None if cost is None else cost / inputs.useful_hours,
        good_interval_minutes=good_interval_minutes(inputs),
        formula=FORMULA,
        inputs=inputs,
    )


def running_hours(inputs: UsefulHourInputs, interruptions_per_hour: float) -> float:
    """H, exact: expected billed hours from the first work to the last; infinite if never.

    Written as W·(1 + δ/τ) times two factors of at least 1, so that λ → 0 is no special case.
    """
    interval, write = _interval_hours(inputs), inputs.write_minutes / MINUTES_PER_HOUR
    restart = inputs.restart_minutes / MINUTES_PER_HOUR
    hours = (
        inputs.useful_hours
        * (1 + write / interval)
        * _growth(interruptions_per_hour * (interval + write))
        * _exp(interruptions_per_hour * restart)
    )
    return hours if hours <= NEVER_HOURS else math.inf


def first_order_hours(inputs: UsefulHourInputs) -> float | None:
    """H, to the first order in λ; null where that is undefined. It is shown, never used."""
    interval, write = _interval_hours(inputs), inputs.write_minutes / MINUTES_PER_HOUR
    restart = inputs.restart_minutes / MINUTES_PER_HOUR
    useful = 1 - inputs.interruptions_per_hour * (restart + (interval + write) / 2)
    return inputs.useful_hours * (1 + write / interval) / useful if useful > 0 else None


def good_interval_minutes(inputs: UsefulHourInputs) -> float | None:
    """τ* ≈ √(2δ/λ), at most the whole work; null when nothing interrupts."""
    rate, write = inputs.interruptions_per_hour, inputs.write_minutes / MINUTES_PER_HOUR
    if rate == 0:
        return None
    return min(math.sqrt(2 * write / rate), inputs.useful_hours) * MINUTES_PER_HOUR


def whole_minutes(useful_hours: float) -> float:
    """The interval of a job without checkpoints: all of its work."""
    return min(useful_hours * MINUTES_PER_HOUR, LIMIT)


def plain(
    inputs: UsefulHourInputs, interruptions: float, on_demand_dollars_per_hour: float
) -> PlainCost:
    """The cost with *interruptions* in all, against on demand without any."""
    setup, work = _setup_hours(inputs), inputs.useful_hours
    lost = _interval_hours(inputs) / 2 + inputs.restart_minutes / MINUTES_PER_HOUR
    hours = setup + work + interruptions * lost
    on_demand = on_demand_dollars_per_hour * (setup + work)
    spare_hours = on_demand / inputs.dollars_per_hour - setup - work
    return PlainCost(
        interruptions=interruptions,
        billed_hours=hours,
        cost_dollars=inputs.dollars_per_hour * hours,
        dollars_per_useful_hour=inputs.dollars_per_hour * hours / work,
        on_demand_dollars=on_demand,
        break_even_interruptions=spare_hours / lost if spare_hours >= 0 else None,
        formula=PLAIN_FORMULA,
        inputs=inputs,
    )


def on_demand(
    inputs: UsefulHourInputs,
    dollars_per_hour: float,
    *,
    failures_per_hour: float = 0.0,
    outage_hours: float = 0.0,
) -> UsefulHour:
    """The same job on demand: only the host's failures interrupt it.

    Checkpoints are written at the job's interval if that pays, and else not at all, so a host that
    never fails costs P·(S + W) and one that fails once in a year hardly more.
    """
    kept = msgspec.structs.replace(
        inputs,
        dollars_per_hour=dollars_per_hour,
        interruptions_per_hour=failures_per_hour,
        pause_hours=outage_hours,
    )
    bare = msgspec.structs.replace(
        kept, interval_minutes=whole_minutes(inputs.useful_hours), write_minutes=0.0
    )
    best = min((bare, kept), key=lambda one: _cost(one, failures_per_hour))
    return useful_hour(best)


def compare(
    inputs: UsefulHourInputs,
    on_demand_dollars_per_hour: float,
    *,
    failures_per_hour: float = 0.0,
    outage_hours: float = 0.0,
) -> Comparison:
    """The job of *inputs*, interruptibly at its price, against on demand at another price."""
    ours = useful_hour(inputs)
    theirs = on_demand(
        inputs,
        on_demand_dollars_per_hour,
        failures_per_hour=failures_per_hour,
        outage_hours=outage_hours,
    )
    cheaper: Literal["on_demand", "interruptible"] | None = None
    if ours.cost_dollars is not None or theirs.cost_dollars is not None:
        cheaper = "interruptible" if _or_inf(ours) < _or_inf(theirs) else "on_demand"
    cost = theirs.cost_dollars
    return Comparison(
        interruptible=ours,
        on_demand=theirs,
        cheaper=cheaper,
        break_even=None if cost is None else break_even(inputs, cost),
    )


def break_even(inputs: UsefulHourInputs, on_demand_dollars: float) -> BreakEven:
    """The λ at which the job of *inputs* costs *on_demand_dollars*.

    The cost rises with λ, without a bound and from a known value at 0, so doubling finds a bracket
    and halving the root, whatever the numbers are.
    """
    assert math.isfinite(on_demand_dollars), on_demand_dollars
    if _cost(inputs, 0.0) >= on_demand_dollars:
        return BreakEven(interruptions_per_hour=0.0, mean_run_minutes=None)
    low, high = 0.0, _FIRST_GUESS
    while _cost(inputs, high) < on_demand_dollars:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _cost(inputs, middle) < on_demand_dollars:
            low = middle
        else:
            high = middle
    return BreakEven(interruptions_per_hour=high, mean_run_minutes=MINUTES_PER_HOUR / high)


def _cost(inputs: UsefulHourInputs, interruptions_per_hour: float) -> float:
    """Dollars at another λ; infinite if the job never finishes."""
    running = running_hours(inputs, interruptions_per_hour)
    if math.isinf(running):
        return math.inf
    return (
        inputs.dollars_per_hour * (_setup_hours(inputs) + running)
        + inputs.storage_dollars_per_hour * _wall_hours(inputs, interruptions_per_hour)
        + interruptions_per_hour * running * inputs.restart_traffic_dollars
        + inputs.setup_traffic_dollars
    )


def _wall_hours(inputs: UsefulHourInputs, interruptions_per_hour: float) -> float:
    running = running_hours(inputs, interruptions_per_hour)
    pauses = interruptions_per_hour * running * inputs.pause_hours
    return _setup_hours(inputs) + running + pauses


def _setup_hours(inputs: UsefulHourInputs) -> float:
    return inputs.setup_minutes / MINUTES_PER_HOUR


def _interval_hours(inputs: UsefulHourInputs) -> float:
    """τ; no interval is longer than the work that it divides."""
    return min(inputs.interval_minutes / MINUTES_PER_HOUR, inputs.useful_hours)


def _growth(exponent: float) -> float:
    """(e^x − 1)/x, which is 1 at 0 and infinite where e^x has no float."""
    if exponent < _SMALLEST_EXPONENT:
        return 1 + exponent / 2
    return math.expm1(exponent) / exponent if exponent < _LARGEST_EXPONENT else math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


def _or_inf(result: UsefulHour) -> float:
    return math.inf if result.cost_dollars is None else result.cost_dollars
