"""Transfers before work and budgets (`marketplace.md` §17.1)."""

from __future__ import annotations

import math

import pytest

from ledger.domain.budget import BudgetInputs, budget
from ledger.domain.estimate import LIMIT, Inputs
from ledger.domain.transfer import TransferInputs, transfer
from ledger.errors import RejectedError

EXAMPLE = TransferInputs(
    size_bytes=500 * 10**9, link_mbps=500, dollars_per_hour=0.40, traffic_dollars_per_gb=0.003
)


def test_500_gb_at_500_mbit_take_10_000_seconds() -> None:
    """$1.11 of GPU time at $0.40 an hour, and $1.50 of traffic at $0.003 a GB."""
    found = transfer(EXAMPLE).once
    assert found.seconds == pytest.approx(10_000)
    assert found.gpu_dollars == pytest.approx(1.11, abs=0.005)
    assert found.traffic_dollars == pytest.approx(1.50)
    assert found.cost_dollars == pytest.approx(2.61, abs=0.005)


def test_a_failed_first_attempt_doubles_both() -> None:
    """Time, GPU cost and traffic are those of two attempts."""
    found = transfer(EXAMPLE)
    once, twice = found.once, found.with_failed_attempt
    assert twice.seconds == 2 * once.seconds
    assert twice.gpu_dollars == 2 * once.gpu_dollars
    assert twice.traffic_dollars == 2 * once.traffic_dollars
    assert twice.cost_dollars == pytest.approx(2 * 1.1111 + 2 * 1.5, abs=0.001)


def test_nothing_to_fetch_costs_nothing() -> None:
    """Zero bytes take no time on any link."""
    found = transfer(TransferInputs(size_bytes=0, link_mbps=1e-9, dollars_per_hour=9)).once
    assert (found.seconds, found.cost_dollars) == (0, 0)


def test_a_transfer_of_any_size_is_a_number() -> None:
    """The largest data set over the slowest link is finite."""
    found = transfer(
        TransferInputs(
            size_bytes=10**18, link_mbps=1e-9, dollars_per_hour=LIMIT, traffic_dollars_per_gb=LIMIT
        )
    )
    assert math.isfinite(found.with_failed_attempt.cost_dollars)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size_bytes", -1),
        ("size_bytes", 1.5),
        ("link_mbps", 0),
        ("link_mbps", -500),
        ("link_mbps", math.nan),
        ("dollars_per_hour", -0.4),
        ("traffic_dollars_per_gb", math.inf),
    ],
)
def test_a_transfer_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    """A link of nothing, a negative size or rate, NaN: `invalid_args` names the field."""
    with pytest.raises(RejectedError, match=field) as refused:
        TransferInputs(**{"size_bytes": 1, "link_mbps": 500, field: value})  # type: ignore[arg-type]  # that is the test
    assert refused.value.code == "invalid_args"


def test_a_budget_is_setup_transfer_work_and_one_failed_attempt() -> None:
    """A quarter of an hour, the transfer above, 40 h, and the first two once more."""
    found = budget(
        BudgetInputs(
            work_hours=40,
            dollars_per_hour=0.40,
            setup_minutes=15,
            size_bytes=500 * 10**9,
            link_mbps=500,
            traffic_dollars_per_gb=0.003,
        )
    )
    assert {one.part: round(one.cost_dollars, 4) for one in found.parts} == {
        "setup": 0.1,
        "transfer": 2.6111,
        "work": 16.0,
        "failed attempt": 2.7111,
    }
    assert found.cost_dollars == pytest.approx(21.4222, abs=0.0001)
    assert found.cost_without_failed_attempt_dollars == pytest.approx(18.7111, abs=0.0001)
    assert found.hours == pytest.approx(40 + 2 * (0.25 + 10_000 / 3_600))


def test_a_budget_counts_the_disk_and_what_ran_before_it_failed() -> None:
    """Storage runs all the time, and the failed attempt as long as it was given."""
    found = budget(
        BudgetInputs(
            work_hours=2,
            dollars_per_hour=1,
            setup_minutes=30,
            storage_dollars_per_hour=0.1,
            failed_work_minutes=10,
        )
    )
    assert found.hours == pytest.approx(0.5 + 2 + 0.5 + 1 / 6)
    assert found.cost_dollars == pytest.approx(1.1 * found.hours)


def test_data_without_a_link_is_refused() -> None:
    """There is no time for a transfer without a link."""
    with pytest.raises(RejectedError, match="link_mbps"):
        BudgetInputs(work_hours=1, dollars_per_hour=1, size_bytes=1)


def test_answers_carry_formula_and_inputs() -> None:
    """Each answer can be checked by hand: its formula names its inputs."""
    moved = transfer(EXAMPLE)
    planned = budget(BudgetInputs(work_hours=1, dollars_per_hour=1))
    inputs: list[tuple[Inputs, str]] = [
        (moved.inputs, moved.formula),
        (planned.inputs, planned.formula),
    ]
    assert moved.inputs == EXAMPLE
    for given, formula in inputs:
        for name in set(given.__struct_fields__) - {"work_hours", "setup_minutes"}:
            assert name in formula
