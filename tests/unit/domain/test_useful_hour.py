"""Cost per useful hour: every number of `marketplace.md` §17.1, a simulation, and its laws."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.estimate import LEAST, LIMIT
from ledger.domain.useful_hour import (
    NEVER_HOURS,
    UsefulHourInputs,
    break_even,
    compare,
    good_interval_minutes,
    on_demand,
    plain,
    running_hours,
    useful_hour,
)
from ledger.errors import RejectedError

P = 0.25
ON_DEMAND = 0.50
W = 40.0
SIMULATED_JOBS = 4 * 4_000
"""Four batches of the 4 000 that must agree: one batch may be off by 0.5 % by chance (2 sigma)."""


def job(
    rate: float, *, interval: float = 20, write: float = 1, restart: float = 15, setup: float = 15
) -> UsefulHourInputs:
    """The job of the table: 40 hours at $0.25; interval, write, restart and setup in minutes."""
    return UsefulHourInputs(
        useful_hours=W,
        dollars_per_hour=P,
        interruptions_per_hour=rate,
        interval_minutes=interval,
        write_minutes=write,
        restart_minutes=restart,
        setup_minutes=setup,
    )


TABLE = [
    (job(1 / 24), 42.75, 42.76, None, 1.78, 10.75, 0.269),
    (job(1 / 8), 44.30, 44.36, 44.30, 5.54, 11.14, 0.278),
    (job(1 / 2), 52.01, 53.33, 51.98, 26.01, 13.07, 0.327),
    (job(1 / 8, restart=90), 51.79, 53.12, 51.74, 6.47, 13.01, 0.325),
    (job(1 / 8, restart=240), 70.78, 87.84, None, 8.85, 17.76, 0.444),
    (job(1 / 4, interval=120, write=15, restart=60), 77.56, 96.00, 77.32, 19.39, 19.45, 0.486),
    (job(1 / 2, restart=60), 75.67, 101.82, 75.57, 37.84, 18.98, 0.475),
    (job(1 / 2, restart=90), 97.17, 258.46, None, 48.58, 24.35, 0.609),
    (job(1 / 3, interval=240, write=30, restart=60), 145.77, None, None, 48.59, 36.51, 0.913),
]
"""Inputs; H exact, to the first order, and simulated; N, cost, cost per useful hour.

As printed, but for one digit: 75.6748 h is printed as 75.68.
"""
PRINTED = [(inputs, row) for inputs, *row in TABLE]
SIMULATED = [(inputs, row[0], row[2]) for inputs, row in PRINTED if row[2] is not None]


# --- the printed numbers --------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "row"), PRINTED)
def test_the_table_is_the_exact_formula(inputs: UsefulHourInputs, row: list[float | None]) -> None:
    """H, N, the cost and the cost per useful hour are those of the table, to its last digit."""
    hours, first_order, _, interruptions, cost, per_hour = row
    found = useful_hour(inputs)
    assert found.running_hours == pytest.approx(hours, abs=0.005)
    assert found.interruptions == pytest.approx(interruptions, abs=0.005)
    assert found.cost_dollars == pytest.approx(cost, abs=0.005)
    assert found.dollars_per_useful_hour == pytest.approx(per_hour, abs=0.0005)
    if first_order is None:
        assert found.first_order_hours is None
    else:
        assert found.first_order_hours == pytest.approx(first_order, abs=0.005)


@pytest.mark.parametrize(("inputs", "row"), PRINTED)
def test_the_last_two_rows_are_cheaper_on_demand(
    inputs: UsefulHourInputs, row: list[float | None]
) -> None:
    """On demand costs $20.125, $0.5031 per useful hour, and wins where a row costs more."""
    found = compare(inputs, ON_DEMAND)
    assert found.on_demand.cost_dollars == pytest.approx(20.125)
    assert found.on_demand.dollars_per_useful_hour == pytest.approx(0.5031, abs=0.00005)
    wins = row[4] is not None and row[4] > 20.125
    assert found.cheaper == ("on_demand" if wins else "interruptible")


def test_the_plain_example() -> None:
    """Five interruptions: 42.083 h, $10.52, $0.263, against $20.00; break-even at 96."""
    found = plain(job(0, setup=0), 5, ON_DEMAND)
    assert found.billed_hours == pytest.approx(42.083, abs=0.0005)
    assert found.cost_dollars == pytest.approx(10.52, abs=0.005)
    assert found.dollars_per_useful_hour == pytest.approx(0.263, abs=0.0005)
    assert found.on_demand_dollars == pytest.approx(20.00)
    assert found.break_even_interruptions == pytest.approx(96)


@pytest.mark.parametrize(("rate", "minutes"), [(1 / 8, 31.0), (1 / 2, 15.5)])
def test_the_good_interval(rate: float, minutes: float) -> None:
    """With a minute to write, √(2δ/λ) is 31.0 min at λ = 1/8 and 15.5 min at λ = 1/2."""
    assert good_interval_minutes(job(rate)) == pytest.approx(minutes, abs=0.05)


def test_the_break_even_of_the_table() -> None:
    """At τ = 20 min and R = 15 min both kinds cost the same at λ = 1.497, a run of 40.1 min."""
    found = compare(job(1 / 8), ON_DEMAND).break_even
    assert found is not None
    assert found.interruptions_per_hour == pytest.approx(1.497, abs=0.0005)
    assert found.mean_run_minutes == pytest.approx(40.1, abs=0.05)
    even = useful_hour(job(found.interruptions_per_hour)).cost_dollars
    assert even == pytest.approx(20.125, abs=1e-9)


@pytest.mark.parametrize(("restart", "percent"), [(60, 35), (90, 166)])
def test_the_first_order_is_too_high(restart: float, percent: float) -> None:
    """At λ = 1/2 the first order is too high by 35 % with R = 1 h, by 166 % with R = 1.5 h."""
    found = useful_hour(job(1 / 2, restart=restart))
    assert found.first_order_hours is not None
    assert found.running_hours is not None
    assert (found.first_order_hours / found.running_hours - 1) * 100 == pytest.approx(
        percent, abs=0.5
    )


# --- a simulation ---------------------------------------------------------------------------------


def simulated_hours(inputs: UsefulHourInputs, seed: int) -> float:
    """Mean running hours of jobs that are interrupted at random.

    A gap between interruptions decides all that happens in it: a restart, and then as many whole
    segments as fit.
    """
    chance = random.Random(seed)  # noqa: S311 - a simulation, no secret
    rate, restart = inputs.interruptions_per_hour, inputs.restart_minutes / 60
    segment = (inputs.interval_minutes + inputs.write_minutes) / 60
    segments = round(inputs.useful_hours * 60 / inputs.interval_minutes)
    total = 0.0
    for _ in range(SIMULATED_JOBS):
        left, boot = segments, 0.0
        while (gap := chance.expovariate(rate)) < boot + left * segment:
            left -= max(0, int((gap - boot) / segment))
            total += gap
            boot = restart
        total += boot + left * segment
    return total / SIMULATED_JOBS


@pytest.mark.parametrize(("inputs", "printed", "printed_simulated"), SIMULATED)
def test_a_simulation_agrees(
    inputs: UsefulHourInputs, printed: float, printed_simulated: float
) -> None:
    """Simulated jobs take the exact formula's hours within 0.5 %, as those of the table did."""
    hours = simulated_hours(inputs, seed=17)
    assert hours == pytest.approx(running_hours(inputs, inputs.interruptions_per_hour), rel=0.005)
    assert printed_simulated == pytest.approx(printed, rel=0.005)


# --- on demand -----------------------------------------------------------------------------------


def test_reliability_enters_the_same_formula() -> None:
    """On demand at a failure rate costs what an interruptible rental costs at that rate."""
    ours = useful_hour(job(1 / 8))
    theirs = on_demand(job(0), P, failures_per_hour=1 / 8)
    assert theirs.cost_dollars == ours.cost_dollars
    assert theirs.inputs.interval_minutes == 20


def test_checkpoints_are_left_out_where_they_do_not_pay() -> None:
    """A host that fails once in 100 000 h costs P·(S + W) to a cent, without a jump at zero."""
    rare = on_demand(job(0), ON_DEMAND, failures_per_hour=1e-5)
    assert rare.inputs.write_minutes == 0
    assert rare.cost_dollars == pytest.approx(20.125, abs=0.01)


def test_an_outage_adds_to_the_wall_time_and_not_to_the_bill() -> None:
    """N·A of outages comes to the wall time only."""
    still = on_demand(job(0), ON_DEMAND, failures_per_hour=0.1)
    slow = on_demand(job(0), ON_DEMAND, failures_per_hour=0.1, outage_hours=3)
    assert slow.cost_dollars == still.cost_dollars
    assert slow.wall_hours is not None
    assert still.wall_hours is not None
    assert slow.interruptions is not None
    assert slow.wall_hours == pytest.approx(still.wall_hours + 3 * slow.interruptions)


# --- edges ---------------------------------------------------------------------------------------


def test_storage_pauses_and_traffic_are_in_the_cost() -> None:
    """Cost = P·(S + H) + K·wall + N·B + T, term by term."""
    inputs = msgspec.structs.replace(
        job(1 / 8),
        storage_dollars_per_hour=0.02,
        pause_hours=0.5,
        restart_traffic_dollars=0.03,
        setup_traffic_dollars=1.5,
    )
    found, bare = useful_hour(inputs), useful_hour(job(1 / 8))
    assert bare.running_hours is not None
    assert bare.cost_dollars is not None
    interruptions = bare.running_hours / 8
    wall = 0.25 + bare.running_hours + interruptions * 0.5
    assert found.wall_hours == pytest.approx(wall)
    assert found.cost_dollars == pytest.approx(
        bare.cost_dollars + 0.02 * wall + 0.03 * interruptions + 1.5
    )


def test_what_is_interrupted_too_often_never_finishes() -> None:
    """Where e^x has no float the answer is that it never ends, and no error."""
    for rate in (100, 1e6, 1e12):
        found = useful_hour(job(rate))
        assert found.finishes is False
        assert found.cost_dollars is found.wall_hours is found.interruptions is None
        assert compare(job(rate), ON_DEMAND).cheaper == "on_demand"
    both = compare(job(1e6), ON_DEMAND, failures_per_hour=1e6)
    assert both.cheaper is None
    assert both.break_even is None


def test_nothing_is_even_with_a_price_that_is_too_high_already() -> None:
    """An interruptible price that is no lower has its break-even at zero interruptions."""
    dear = msgspec.structs.replace(job(0), dollars_per_hour=ON_DEMAND)
    found = compare(dear, ON_DEMAND).break_even
    assert found is not None
    assert (found.interruptions_per_hour, found.mean_run_minutes) == (0, None)
    assert plain(dear, 3, P).break_even_interruptions is None


def test_an_interval_is_never_longer_than_the_work() -> None:
    """A checkpoint interval of a year is one checkpoint at the end."""
    year, whole = job(1 / 8, interval=525_600), job(1 / 8, interval=W * 60)
    assert useful_hour(year).cost_dollars == useful_hour(whole).cost_dollars


def test_the_answer_carries_formula_and_inputs() -> None:
    """Every input that counts is named in the formula, and the inputs come with the answer."""
    found = useful_hour(job(1 / 8))
    assert found.inputs == job(1 / 8)
    for name in UsefulHourInputs.__struct_fields__:
        assert name in found.formula


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (name, value)
        for name in UsefulHourInputs.__struct_fields__
        for value in (-1.0, math.nan, math.inf, 2e12)
    ]
    + [(name, 0.0) for name in ("useful_hours", "dollars_per_hour", "interval_minutes")],
)
def test_inputs_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    """Negative, NaN, endless, and zero where nothing could be divided by it: `invalid_args`."""
    with pytest.raises(RejectedError, match=field) as refused:
        msgspec.structs.replace(job(1 / 8), **{field: value})
    assert refused.value.code == "invalid_args"


# --- laws ----------------------------------------------------------------------------------------

AMOUNTS = st.floats(0, LIMIT)
POSITIVES = st.floats(LEAST, LIMIT)
USUAL = st.floats(0.01, 100)
ANY_JOB = st.builds(
    UsefulHourInputs,
    useful_hours=POSITIVES,
    dollars_per_hour=POSITIVES,
    interruptions_per_hour=AMOUNTS,
    interval_minutes=POSITIVES,
    write_minutes=AMOUNTS,
    restart_minutes=AMOUNTS,
    setup_minutes=AMOUNTS,
    storage_dollars_per_hour=AMOUNTS,
    pause_hours=AMOUNTS,
    restart_traffic_dollars=AMOUNTS,
    setup_traffic_dollars=AMOUNTS,
)
USUAL_JOB = st.builds(
    UsefulHourInputs,
    useful_hours=USUAL,
    dollars_per_hour=USUAL,
    interruptions_per_hour=st.floats(0, 1),
    interval_minutes=st.floats(1, 120),
    write_minutes=st.floats(0, 30),
    restart_minutes=st.floats(0, 60),
    setup_minutes=st.floats(0, 60),
    storage_dollars_per_hour=st.floats(0, 1),
    pause_hours=st.floats(0, 10),
)


@given(ANY_JOB, POSITIVES, AMOUNTS)
def test_no_input_gives_a_number_that_is_none(
    inputs: UsefulHourInputs, price: float, failures: float
) -> None:
    """Every number of every answer is finite and not negative, or null; nothing overflows."""
    answers = [
        compare(inputs, price, failures_per_hour=failures, outage_hours=failures),
        plain(inputs, failures, price),
    ]
    for name, value in numbers(msgspec.to_builtins(answers)):
        assert math.isfinite(value), name
        assert value >= 0, name


def numbers(value: object, name: str = "") -> list[tuple[str, float]]:
    """Every number in a document, with its name."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in numbers(inner, key)]
    if isinstance(value, list):
        return [found for inner in value for found in numbers(inner, name)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [(name, float(value))] if is_number else []  # type: ignore[arg-type]  # checked above


@given(USUAL_JOB)
def test_few_interruptions_are_none(inputs: UsefulHourInputs) -> None:
    """As λ falls to 0, H falls to W·(1 + δ/τ)."""
    interval = min(inputs.interval_minutes, inputs.useful_hours * 60)
    limit = inputs.useful_hours * (1 + inputs.write_minutes / interval)
    assert running_hours(inputs, 0) == pytest.approx(limit)
    for rate in (1e-300, 1e-15, 1e-10, 1e-9):
        assert running_hours(inputs, rate) == pytest.approx(limit, rel=1e-6)


@given(ANY_JOB, AMOUNTS, AMOUNTS)
def test_more_interruptions_never_take_less_time(
    inputs: UsefulHourInputs, one: float, other: float
) -> None:
    """H rises with λ, from the work itself on, up to never."""
    few, many = sorted((one, other))
    assert inputs.useful_hours <= running_hours(inputs, 0) * (1 + 1e-12)
    assert running_hours(inputs, few) <= running_hours(inputs, many) * (1 + 1e-12)
    assert running_hours(inputs, many) <= NEVER_HOURS or math.isinf(running_hours(inputs, many))


@given(USUAL_JOB, st.sampled_from(["restart_minutes", "write_minutes", "setup_minutes"]), USUAL)
def test_what_takes_longer_costs_more(inputs: UsefulHourInputs, field: str, more: float) -> None:
    """A longer restart, checkpoint or setup never lowers the cost."""
    longer = msgspec.structs.replace(inputs, **{field: getattr(inputs, field) + more})
    few, many = useful_hour(inputs).cost_dollars, useful_hour(longer).cost_dollars
    assert few is not None
    assert many is None or few <= many * (1 + 1e-12)


@given(USUAL_JOB)
def test_the_first_order_is_never_below_the_exact(inputs: UsefulHourInputs) -> None:
    """Where the first order is defined, it errs upwards only."""
    found = useful_hour(inputs)
    if found.first_order_hours is not None and found.running_hours is not None:
        assert found.first_order_hours >= found.running_hours * (1 - 1e-9)


@given(USUAL_JOB, st.floats(0.01, 1_000))
def test_below_the_break_even_interruptible_wins(
    inputs: UsefulHourInputs, on_demand_dollars: float
) -> None:
    """Just below the break-even the job costs less than on demand, just above it costs more."""
    point = break_even(inputs, on_demand_dollars).interruptions_per_hour
    for factor, is_less in ((0.99, True), (1.01, False)):
        if point > 0:
            there = msgspec.structs.replace(inputs, interruptions_per_hour=point * factor)
            cost = useful_hour(there).cost_dollars
            # A job of which a part is never interrupted costs nearly the same on both sides.
            slack = 1e-9 * on_demand_dollars
            is_cheap = cost is not None and cost <= on_demand_dollars + slack
            is_dear = cost is None or cost >= on_demand_dollars - slack
            assert is_cheap if is_less else is_dear
