"""What it takes to fetch data before the work can start (`marketplace.md` §17.1)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ledger.domain.estimate import (
    BYTES_PER_GB,
    SECONDS_PER_HOUR,
    Amount,
    Bytes,
    Inputs,
    Positive,
    Result,
)

LINK_SHARE: Final = 0.8
"""What a transfer gets of the listed link."""
FORMULA: Final = (
    "seconds = size_bytes·8/(link_mbps·10^6·0.8); GPU = dollars_per_hour·seconds/3600;"
    " traffic = traffic_dollars_per_gb·size_bytes/10^9; a failed first attempt doubles all of it"
)
_BITS_PER_MEGABIT: Final = 1e6


class TransferInputs(Inputs):
    """A data set, a link, and what GPU time and traffic cost meanwhile."""

    size_bytes: Annotated[Bytes, Meta(description="1 GB is 10^9 bytes.")]
    link_mbps: Annotated[Positive, Meta(description="The listed link, Mbit/s.")]
    dollars_per_hour: Annotated[Amount, Meta(description="Of the whole slice.")] = 0.0
    traffic_dollars_per_gb: Annotated[Amount, Meta(description="The host's rate.")] = 0.0


class TransferAttempt(Result):
    """Time and money of one transfer, or of all attempts at it."""

    seconds: float
    gpu_dollars: float
    traffic_dollars: float
    cost_dollars: float


class TransferCost(Result):
    """A transfer that succeeds at once, and one whose first attempt failed."""

    once: TransferAttempt
    with_failed_attempt: TransferAttempt
    formula: str
    inputs: TransferInputs


def transfer(inputs: TransferInputs) -> TransferCost:
    """Time and cost of a transfer before the work."""
    seconds = transfer_seconds(inputs.size_bytes, inputs.link_mbps)
    gpu = inputs.dollars_per_hour * seconds / SECONDS_PER_HOUR
    traffic = inputs.traffic_dollars_per_gb * inputs.size_bytes / BYTES_PER_GB
    return TransferCost(
        once=_attempts(1, seconds, gpu, traffic),
        with_failed_attempt=_attempts(2, seconds, gpu, traffic),
        formula=FORMULA,
        inputs=inputs,
    )


def transfer_seconds(size_bytes: int, link_mbps: float) -> float:
    """Seconds for *size_bytes* at the usable part of a link of *link_mbps* Mbit/s."""
    return size_bytes * 8 / (link_mbps * _BITS_PER_MEGABIT * LINK_SHARE)


def _attempts(count: int, seconds: float, gpu: float, traffic: float) -> TransferAttempt:
    return TransferAttempt(
        seconds=count * seconds,
        gpu_dollars=count * gpu,
        traffic_dollars=count * traffic,
        cost_dollars=count * (gpu + traffic),
    )
