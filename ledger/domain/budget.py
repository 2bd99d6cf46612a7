"""A budget: setup, transfer, work, and one attempt that fails (`marketplace.md` §17.1).

Billing runs while one debugs, so a job is planned with one attempt that came to nothing: its setup
and its transfer are paid again, and the minutes until somebody noticed.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ledger.domain.estimate import (
    BYTES_PER_GB,
    MINUTES_PER_HOUR,
    SECONDS_PER_HOUR,
    Amount,
    Bytes,
    Inputs,
    Positive,
    Result,
)
from ledger.domain.transfer import transfer_seconds
from ledger.errors import RejectedError

FORMULA: Final = (
    "budget = setup + transfer + work + failed attempt; each part = hours·(dollars_per_hour +"
    " storage_dollars_per_hour) + GB·traffic_dollars_per_gb; transfer hours ="
    " size_bytes·8/(link_mbps·10^6·0.8)/3600; failed attempt = setup + transfer +"
    " failed_work_minutes"
)


class BudgetInputs(Inputs):
    """One job on one slice. `work_hours` is what will be billed, interruptions included."""

    work_hours: Annotated[Positive, Meta(description="Billed hours of work.")]
    dollars_per_hour: Annotated[Positive, Meta(description="Of the whole slice.")]
    setup_minutes: Annotated[Amount, Meta(description="Boot, image, installation.")] = 0.0
    size_bytes: Annotated[Bytes, Meta(description="To fetch; 1 GB is 10^9 bytes.")] = 0
    link_mbps: Annotated[Positive | None, Meta(description="The listed link, Mbit/s.")] = None
    traffic_dollars_per_gb: Annotated[Amount, Meta(description="The host's rate.")] = 0.0
    storage_dollars_per_hour: Annotated[Amount, Meta(description="The disk, per hour.")] = 0.0
    failed_work_minutes: Annotated[
        Amount, Meta(description="How long the failed attempt runs before it fails.")
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size_bytes and self.link_mbps is None:
            message = "link_mbps: data to fetch needs a link to fetch it over"
            raise RejectedError("invalid_args", message, status=400)


class BudgetPart(Result):
    """One part of a budget."""

    part: str
    hours: float
    gpu_dollars: float
    storage_dollars: float
    traffic_dollars: float
    cost_dollars: float


class Budget(Result):
    """The parts in the order in which they happen, and what they come to."""

    parts: list[BudgetPart]
    hours: float
    cost_dollars: float
    cost_without_failed_attempt_dollars: float
    formula: str
    inputs: BudgetInputs


def budget(inputs: BudgetInputs) -> Budget:
    """What to set aside for a job."""
    setup = inputs.setup_minutes / MINUTES_PER_HOUR
    fetching = 0.0
    if inputs.link_mbps is not None:
        fetching = transfer_seconds(inputs.size_bytes, inputs.link_mbps) / SECONDS_PER_HOUR
    failed = setup + fetching + inputs.failed_work_minutes / MINUTES_PER_HOUR
    traffic = inputs.traffic_dollars_per_gb * inputs.size_bytes / BYTES_PER_GB
    parts = [
        _part(inputs, "setup", setup, 0.0),
        _part(inputs, "transfer", fetching, traffic),
        _part(inputs, "work", inputs.work_hours, 0.0),
        _part(inputs, "failed attempt", failed, traffic),
    ]
    return Budget(
        parts=parts,
        hours=sum(one.hours for one in parts),
        cost_dollars=sum(one.cost_dollars for one in parts),
        cost_without_failed_attempt_dollars=sum(one.cost_dollars for one in parts[:-1]),
        formula=FORMULA,
        inputs=inputs,
    )


def _part(inputs: BudgetInputs, name: str, hours: float, traffic: float) -> BudgetPart:
    gpu = inputs.dollars_per_hour * hours
    storage = inputs.storage_dollars_per_hour * hours
    return BudgetPart(
        part=name,
        hours=hours,
        gpu_dollars=gpu,
        storage_dollars=storage,
        traffic_dollars=traffic,
        cost_dollars=gpu + storage + traffic,
    )
