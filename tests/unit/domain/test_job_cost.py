"""What a job costs on each offer, the order of the offers, and the advice."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.estimate import LEAST, LIMIT
from ledger.domain.job_cost import Job, JobOffer, compare, failures_per_hour, job_cost
from ledger.errors import RejectedError

JOB = Job(
    useful_hours=40, interval_minutes=20, write_minutes=1, restart_minutes=15, setup_minutes=15
)


def job(**more: Any) -> Job:
    """The job of the table in `marketplace.md` §17.1, with what matters in a test."""
    return msgspec.structs.replace(JOB, **more)


def offer(offer_id: int = 1, **more: Any) -> JobOffer:
    """$0.50 on demand, $0.25 interruptibly, an interruption in eight hours."""
    values: dict[str, Any] = {
        "gpu_name": "RTX 4090",
        "gpus": 1,
        "on_demand_dollars_per_hour": 0.50,
        "interruptible_dollars_per_hour": 0.25,
        "interruptions_per_hour": 1 / 8,
        **more,
    }
    return JobOffer(offer_id=offer_id, **values)


# --- costs ---------------------------------------------------------------------------------------


def test_both_kinds_are_reckoned() -> None:
    """$11.14 against $20.125, and a break-even at 1.497 interruptions an hour."""
    found = job_cost(JOB, offer())
    assert found.interruptible is not None
    assert found.interruptible.estimate.cost_dollars == pytest.approx(11.14, abs=0.005)
    assert found.on_demand.estimate.cost_dollars == pytest.approx(20.125)
    assert found.break_even is not None
    assert found.break_even.interruptions_per_hour == pytest.approx(1.497, abs=0.0005)
    assert (found.advised, found.deadline) == ("interruptible", None)
    assert found.cost_dollars == found.interruptible.estimate.cost_dollars
    assert "$11.14 against $20.12 on demand" in found.advice
    assert "below 1.497" in found.advice


def test_transfer_traffic_and_disk_are_in_the_cost() -> None:
    """500 GB at 500 Mbit/s and $0.003, 100 GB of disk at $0.15 a month, 10 GB sent at $0.01."""
    found = job_cost(
        job(download_bytes=500 * 10**9, upload_bytes=10 * 10**9, disk_gb=100),
        offer(
            interruptible_dollars_per_hour=None,
            down_mbps=500,
            down_dollars_per_gb=0.003,
            up_dollars_per_gb=0.01,
            storage_dollars_per_gb_month=0.15,
        ),
    )
    hours = 40 + 0.25 + 10_000 / 3_600
    assert found.wall_hours == pytest.approx(hours)
    assert found.cost_dollars == pytest.approx(hours * (0.5 + 0.15 * 100 / 720) + 1.5 + 0.1)


def test_the_budget_has_one_failed_attempt_more() -> None:
    """The budget is the cost, and setup and transfer once again."""
    found = job_cost(
        job(download_bytes=500 * 10**9),
        offer(interruptible_dollars_per_hour=None, down_mbps=500, down_dollars_per_gb=0.003),
    )
    assert found.cost_dollars is not None
    attempt = 0.5 * (0.25 + 10_000 / 3_600) + 1.5
    assert found.budget_dollars == pytest.approx(found.cost_dollars + attempt)


def test_a_restart_that_fetches_again_can_flip_the_result() -> None:
    """With 400 GB to fetch per restart over a slow link, on demand wins by cost."""
    far = offer(interruptions_per_hour=1 / 2, down_mbps=500)
    assert job_cost(JOB, far).advised == "interruptible"
    heavy = job_cost(job(restart_download_bytes=400 * 10**9), far)
    assert heavy.advised == "on_demand"
    assert heavy.interruptible is not None
    assert heavy.interruptible.estimate.inputs.restart_minutes == pytest.approx(15 + 8_000 / 60)


def test_huge_checkpoints_can_flip_the_result() -> None:
    """At τ = 4 h and δ = 30 min, the last row of the table: $36.51 against on demand."""
    found = job_cost(
        job(interval_minutes=240, write_minutes=30, restart_minutes=60),
        offer(interruptions_per_hour=1 / 3),
    )
    assert found.advised == "on_demand"
    assert found.interruptible is not None
    assert found.interruptible.estimate.cost_dollars == pytest.approx(36.51, abs=0.005)
    assert "$36.51 interruptibly" in found.advice


def test_a_plain_number_of_interruptions_is_shown_beside_it() -> None:
    """Without setup, five interruptions: $10.52 against $20.00, break-even at 96."""
    found = job_cost(job(setup_minutes=0, interruptions=5), offer()).plain
    assert found is not None
    assert found.cost_dollars == pytest.approx(10.52, abs=0.005)
    assert found.break_even_interruptions == pytest.approx(96)


# --- reliability ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "rate"),
    [
        ({}, 0.0),
        ({"reliability_lower_bound": 1.0}, 0.0),
        ({"reliability_lower_bound": 0.75}, 1 / 3),
        ({"reliability_lower_bound": 0.75, "outage_hours": 4.0}, 1 / 12),
        ({"reliability_lower_bound": 0.75, "failures_per_hour": 0.01}, 0.01),
        ({"reliability_lower_bound": 0.0}, LIMIT),
    ],
)
def test_a_share_of_time_becomes_a_rate(more: dict[str, Any], rate: float) -> None:
    """Three hours up and one down: a failure every three hours of running."""
    assert failures_per_hour(offer(**more)) == pytest.approx(rate)


def test_reliability_is_a_price() -> None:
    """The less reliable of two hosts at one price costs more on demand, and ranks behind."""
    good = offer(2, interruptible_dollars_per_hour=None, reliability_lower_bound=0.999)
    bad = offer(1, interruptible_dollars_per_hour=None, reliability_lower_bound=0.95)
    first, second = compare(JOB, [bad, good])
    assert first.offer.offer_id == 2
    assert first.cost_dollars is not None
    assert second.cost_dollars is not None
    assert first.cost_dollars < second.cost_dollars


def test_the_host_fails_under_interruptible_rentals_too() -> None:
    """Displacements and failures add up, and the pause is their mean by frequency."""
    found = job_cost(
        JOB,
        offer(interruptions_per_hour=0.3, pause_hours=2, failures_per_hour=0.1, outage_hours=6),
    ).interruptible
    assert found is not None
    assert found.estimate.inputs.interruptions_per_hour == pytest.approx(0.4)
    assert found.estimate.inputs.pause_hours == pytest.approx(0.75 * 2 + 0.25 * 6)


# --- advice --------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_interrupted_safely_is_told_so() -> None:
    """It is reckoned on demand only, whatever the bid would save."""
    found = job_cost(job(interruptible=False), offer())
    assert found.advised == "on_demand"
    assert found.interruptible is None
    assert found.break_even is None
    assert "cannot be interrupted safely" in found.advice


def test_a_job_that_cannot_be_interrupted_starts_over_when_its_host_fails() -> None:
    """No checkpoint helps it: one segment of all its work."""
    found = job_cost(job(interruptible=False), offer(failures_per_hour=0.05)).on_demand
    assert found.writes_checkpoints is False
    assert found.estimate.running_hours == pytest.approx(
        math.expm1(0.05 * 40) * math.exp(0.05 * 0.25) / 0.05
    )


def test_an_offer_without_bids_is_told_so() -> None:
    """There is nothing to compare with, and the advice says why."""
    found = job_cost(JOB, offer(7, interruptible_dollars_per_hour=None))
    assert (found.advised, found.interruptible) == ("on_demand", None)
    assert "offer 7 takes no bids" in found.advice


def test_a_deadline_flips_the_result_by_wall_time() -> None:
    """Pauses of three hours bring 61 h against 50 h: on demand, though it costs more."""
    waits = offer(pause_hours=3)
    assert job_cost(job(deadline_hours=62), waits).advised == "interruptible"
    found = job_cost(job(deadline_hours=50), waits)
    assert (found.advised, found.deadline) == ("on_demand", "meets it")
    assert found.interruptible is not None
    assert found.interruptible.meets_deadline is False
    assert found.on_demand.meets_deadline is True
    assert "61.2 h" in found.advice
    assert found.cost_dollars == pytest.approx(20.125)


def test_cannot_meet_it_is_an_answer() -> None:
    """40 hours of work are not done in 10, and the answer says how long they take."""
    found = job_cost(job(deadline_hours=10), offer())
    assert (found.advised, found.deadline) == (None, "cannot meet it")
    assert found.advice.startswith("cannot meet it: on demand it takes 40.2 h")
    assert found.cost_dollars == pytest.approx(11.14, abs=0.005)
    alone = job_cost(job(deadline_hours=10, interruptible=False), offer())
    assert alone.deadline == "cannot meet it"
    assert "cannot be interrupted safely" in alone.advice


def test_what_never_finishes_is_an_answer() -> None:
    """A job that is interrupted faster than it gets on is done on demand, or not at all."""
    found = job_cost(JOB, offer(interruptions_per_hour=1e5))
    assert found.advised == "on_demand"
    assert "never finishes" in found.advice
    gone = job_cost(JOB, offer(failures_per_hour=1e5))
    assert (gone.advised, gone.cost_dollars, gone.break_even) == (None, None, None)
    assert gone.advice.startswith("cannot be done")


def test_without_checkpoints_an_interruption_costs_all() -> None:
    """A job without an interval is one segment, and its break-even is low."""
    found = job_cost(job(interval_minutes=None), offer())
    assert found.advised == "on_demand"
    assert found.break_even is not None
    assert found.break_even.interruptions_per_hour == pytest.approx(0.0312, abs=0.0001)


# --- the order -----------------------------------------------------------------------------------


def test_offers_are_ranked_by_the_cost_of_what_is_advised() -> None:
    """Cheapest first; equal ones by id; those that cannot meet the deadline last."""
    offers = [
        offer(4, interruptible_dollars_per_hour=0.01, pause_hours=100, failures_per_hour=2),
        offer(3, interruptible_dollars_per_hour=0.20),
        offer(2),
        offer(1),
        offer(5, on_demand_dollars_per_hour=0.20, interruptible_dollars_per_hour=None),
    ]
    found = compare(job(deadline_hours=50), offers)
    assert [one.offer.offer_id for one in found] == [5, 3, 1, 2, 4]
    assert [one.deadline for one in found] == ["meets it"] * 4 + ["cannot meet it"]


def test_no_offer_gives_no_row() -> None:
    """Nothing matches, and nothing is made up."""
    assert compare(JOB, []) == []


# --- inputs --------------------------------------------------------------------------------------


def test_data_without_a_link_is_refused() -> None:
    """Bytes to fetch need a link, and the offer is named."""
    for more in ({"download_bytes": 1}, {"restart_download_bytes": 1}):
        with pytest.raises(RejectedError, match="offer 9 states no link"):
            compare(job(**more), [offer(9)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("on_demand_dollars_per_hour", 0.0),
        ("on_demand_dollars_per_hour", math.nan),
        ("interruptible_dollars_per_hour", 0.0),
        ("storage_dollars_per_gb_month", -0.1),
        ("down_mbps", 0.0),
        ("reliability_lower_bound", 1.01),
        ("reliability_lower_bound", math.nan),
        ("interruptions_per_hour", math.inf),
        ("outage_hours", 0.0),
        ("gpus", 0),
        ("offer_id", -1),
    ],
)
def test_offers_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    """Zero rates, negatives, NaN: `invalid_args` names the field."""
    with pytest.raises(RejectedError, match=field):
        msgspec.structs.replace(offer(), **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("useful_hours", 0.0),
        ("interval_minutes", 0.0),
        ("deadline_hours", -1.0),
        ("download_bytes", -1),
        ("disk_gb", math.nan),
        ("interruptions", -1.0),
        ("interruptible", "maybe"),
    ],
)
def test_jobs_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    """No work, no interval, a deadline in the past: `invalid_args` names the field."""
    with pytest.raises(RejectedError, match=field):
        job(**{field: value})


def test_the_answer_carries_formula_job_and_offer() -> None:
    """What it was made from comes with it, for a frontend to show."""
    found = job_cost(JOB, offer())
    assert (found.job, found.offer) == (JOB, offer())
    for name in ("down_mbps", "storage_dollars_per_gb_month", "useful_hours", "reliability"):
        assert name in found.formula


# --- laws ----------------------------------------------------------------------------------------

AMOUNTS = st.floats(0, LIMIT)
POSITIVES = st.floats(LEAST, LIMIT)
BYTES = st.integers(0, 10**18)
JOBS = st.builds(
    Job,
    useful_hours=POSITIVES,
    interval_minutes=st.none() | POSITIVES,
    write_minutes=AMOUNTS,
    restart_minutes=AMOUNTS,
    setup_minutes=AMOUNTS,
    download_bytes=BYTES,
    upload_bytes=BYTES,
    restart_download_bytes=BYTES,
    disk_gb=AMOUNTS,
    deadline_hours=st.none() | POSITIVES,
    interruptible=st.booleans(),
    interruptions=st.none() | AMOUNTS,
)
OFFERS = st.builds(
    JobOffer,
    offer_id=st.integers(0, 3),
    gpu_name=st.just("any"),
    gpus=st.integers(1, 16),
    on_demand_dollars_per_hour=POSITIVES,
    interruptible_dollars_per_hour=st.none() | POSITIVES,
    storage_dollars_per_gb_month=AMOUNTS,
    up_dollars_per_gb=AMOUNTS,
    down_dollars_per_gb=AMOUNTS,
    down_mbps=POSITIVES,
    interruptions_per_hour=AMOUNTS,
    pause_hours=AMOUNTS,
    failures_per_hour=st.none() | AMOUNTS,
    reliability_lower_bound=st.none() | st.floats(0, 1),
    outage_hours=POSITIVES,
)


@given(JOBS, st.lists(OFFERS, max_size=4))
def test_every_job_has_an_answer_on_every_offer(wanted: Job, offers: list[JobOffer]) -> None:
    """No traceback, no NaN; ranked by cost; and on demand is never the slower of the two."""
    found = compare(wanted, offers)
    assert len(found) == len(offers)
    for one in found:
        costs = (one.cost_dollars, one.wall_hours, one.budget_dollars)
        assert all(value is None or (math.isfinite(value) and value >= 0) for value in costs)
        assert one.advice
        if one.advised is not None:
            assert one.cost_dollars is not None
        if not wanted.interruptible:
            assert one.advised != "interruptible"
        if one.interruptible is not None and one.interruptible.estimate.wall_hours is not None:
            on_demand = one.on_demand.estimate.wall_hours
            assert on_demand is not None
            assert on_demand <= one.interruptible.estimate.wall_hours * (1 + 1e-9)
    usable = [one.cost_dollars for one in found if one.advised is not None]
    assert usable == sorted(usable, key=lambda cost: cost or 0)
