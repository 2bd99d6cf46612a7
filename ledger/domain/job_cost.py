"""What a job costs on each offer, on demand and interruptibly, and which of the two fits.

Estimates are floats and never post money (`marketplace.md` §17). All cost formulas are those of
`useful_hour`; here a job and an offer become its inputs, and its answers become advice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.domain import useful_hour as formulas
from ledger.domain.estimate import (
    BYTES_PER_GB,
    LIMIT,
    MINUTES_PER_HOUR,
    Amount,
    Bytes,
    Inputs,
    Positive,
    Result,
    Share,
    storage_dollars_per_hour,
)
from ledger.domain.transfer import transfer_seconds
from ledger.errors import RejectedError

Kind = Literal["on_demand", "interruptible"]
Deadline = Literal["meets it", "cannot meet it"]
FORMULA: Final = (
    f"{formulas.FORMULA}. Setup and restart include the transfer, bytes·8/(down_mbps·10^6·0.8) s;"
    " K = storage_dollars_per_gb_month·disk_gb/720; λ interruptible = interruptions + failures;"
    " λ on demand = failures = (1 − reliability)/(reliability·outage_hours) where only the"
    " reliability is known; budget = cost + one failed attempt, its setup and transfer"
)
_SECONDS_PER_MINUTE: Final = 60.0
_WORDS: Final[dict[Kind, str]] = {"on_demand": "on demand", "interruptible": "interruptible"}
_HOW: Final[dict[Kind, str]] = {"on_demand": "on demand", "interruptible": "interruptibly"}


class Job(Inputs):
    """Work to be done on one slice. Its hours are those of uninterrupted work on these GPUs."""

    useful_hours: Annotated[Positive, Meta(description="Hours of work that count.")]
    interval_minutes: Annotated[
        Positive | None,
        Meta(description="Work between two checkpoints; null: none, an interruption costs all."),
    ] = None
    write_minutes: Annotated[Amount, Meta(description="To write a checkpoint.")] = 0.0
    restart_minutes: Annotated[
        Amount, Meta(description="Billed, per interruption, without the transfer.")
    ] = 0.0
    setup_minutes: Annotated[Amount, Meta(description="Billed, without the transfer.")] = 0.0
    download_bytes: Annotated[Bytes, Meta(description="To fetch before the work.")] = 0
    upload_bytes: Annotated[Bytes, Meta(description="To send in all; traffic only.")] = 0
    restart_download_bytes: Annotated[Bytes, Meta(description="To fetch again per restart.")] = 0
    disk_gb: Annotated[Amount, Meta(description="1 GB is 10^9 bytes.")] = 0.0
    deadline_hours: Annotated[
        Positive | None, Meta(description="Wall time from now until it must be done.")
    ] = None
    interruptible: Annotated[
        bool, Meta(description="Whether it can be interrupted safely, at any second.")
    ] = True
    interruptions: Annotated[
        Amount | None, Meta(description="A number to reckon with plainly, beside the estimate.")
    ] = None

    @property
    def fetches(self) -> bool:
        """True when time on the link is part of the cost."""
        return bool(self.download_bytes or self.restart_download_bytes)


class JobOffer(Inputs):
    """A slice with its prices, all for the whole slice, and how often work on it is interrupted."""

    offer_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    gpu_name: Annotated[str, Meta(max_length=256)]
    gpus: Annotated[int, Meta(ge=1, le=1_024)]
    on_demand_dollars_per_hour: Positive
    interruptible_dollars_per_hour: Annotated[
        Positive | None, Meta(description="At the bid that would run now; null: no bids.")
    ] = None
    storage_dollars_per_gb_month: Amount = 0.0
    up_dollars_per_gb: Amount = 0.0
    down_dollars_per_gb: Amount = 0.0
    down_mbps: Annotated[Positive | None, Meta(description="The listed link, Mbit/s.")] = None
    interruptions_per_hour: Annotated[
        Amount, Meta(description="How often a bid is displaced, per billed running hour.")
    ] = 0.0
    pause_hours: Annotated[
        Amount, Meta(description="How long a displaced bid waits on average.")
    ] = 0.0
    failures_per_hour: Annotated[
        Amount | None, Meta(description="Of the host; null: from the reliability.")
    ] = None
    reliability_lower_bound: Annotated[
        Share | None,
        Meta(description="Null (also for n = 0): no record, no failures reckoned with."),
    ] = None
    outage_hours: Annotated[Positive, Meta(description="Mean length of a host's outage.")] = 1.0


class KindCost(Result):
    """The job on one offer by one kind of rental; `writes_checkpoints` says how it is run best."""

    kind: Kind
    meets_deadline: bool | None
    writes_checkpoints: bool
    budget_dollars: float | None
    estimate: formulas.UsefulHour


class JobCost(Result):
    """The job on one offer. `cost_dollars` and the rest are those of the advised kind.

    When neither kind can be advised, `advised` is null, and they are those of the cheaper one.
    `interruptible` is null for an offer without bids and for a job that must not be interrupted;
    `break_even` then, and where on demand never finishes. It counts the host's failures too.
    """

    offer: JobOffer
    advised: Kind | None
    advice: str
    deadline: Deadline | None
    cost_dollars: float | None
    dollars_per_useful_hour: float | None
    wall_hours: float | None
    budget_dollars: float | None
    on_demand: KindCost
    interruptible: KindCost | None
    break_even: formulas.BreakEven | None
    plain: formulas.PlainCost | None
    formula: str
    job: Job


def compare(job: Job, offers: Sequence[JobOffer]) -> list[JobCost]:
    """The job on every offer: first those that it can be done on in time, cheapest first.

    Raises:
        RejectedError: `invalid_args`, there is data to fetch and an offer has no link.
    """
    found = [job_cost(job, offer) for offer in offers]
    return sorted(found, key=lambda cost: (cost.advised is None, _cost(cost), cost.offer.offer_id))


def job_cost(job: Job, offer: JobOffer) -> JobCost:
    """The job on one offer, and which kind of rental fits it.

    Raises:
        RejectedError: `invalid_args`, there is data to fetch and the offer has no link.
    """
    failures = failures_per_hour(offer)
    on_demand = _kind("on_demand", job, offer, _on_demand(job, offer, failures))
    interruptible, break_even, plain = None, None, None
    if job.interruptible and offer.interruptible_dollars_per_hour is not None:
        inputs = _inputs(
            job,
            offer,
            offer.interruptible_dollars_per_hour,
            min(offer.interruptions_per_hour + failures, LIMIT),
            _mean_pause(offer, failures),
        )
        interruptible = _kind("interruptible", job, offer, formulas.useful_hour(inputs))
        if on_demand.estimate.cost_dollars is not None:
            break_even = formulas.break_even(inputs, on_demand.estimate.cost_dollars)
        if job.interruptions is not None:
            plain = formulas.plain(inputs, job.interruptions, offer.on_demand_dollars_per_hour)
    advised, advice = _advice(job, offer, on_demand, interruptible, break_even)
    kinds = [kind for kind in (interruptible, on_demand) if kind is not None]
    shown = next((kind for kind in kinds if kind.kind == advised), min(kinds, key=_kind_cost))
    return JobCost(
        offer=offer,
        advised=advised,
        advice=advice,
        deadline=_deadline(job, advised),
        cost_dollars=shown.estimate.cost_dollars,
        dollars_per_useful_hour=shown.estimate.dollars_per_useful_hour,
        wall_hours=shown.estimate.wall_hours,
        budget_dollars=shown.budget_dollars,
        on_demand=on_demand,
        interruptible=interruptible,
        break_even=break_even,
        plain=plain,
        formula=FORMULA,
        job=job,
    )


def failures_per_hour(offer: JobOffer) -> float:
    """The host's failures per running hour.

    A reliability is a share of time, not a number of failures: with outages that last
    `outage_hours`, p = up/(up + outage), so a failure comes every p·outage/(1 − p) hours.
    """
    if offer.failures_per_hour is not None:
        return offer.failures_per_hour
    share = offer.reliability_lower_bound
    if share is None:
        return 0.0
    up_hours = share * offer.outage_hours
    return min((1 - share) / up_hours, LIMIT) if up_hours > 0 else LIMIT


def _mean_pause(offer: JobOffer, failures: float) -> float:
    """The pause of an interruption that is a displacement or an outage, by their frequency."""
    total = offer.interruptions_per_hour + failures
    if total == 0:
        return 0.0
    waited = offer.interruptions_per_hour / total * offer.pause_hours
    return waited + failures / total * offer.outage_hours


def _on_demand(job: Job, offer: JobOffer, failures: float) -> formulas.UsefulHour:
    price = offer.on_demand_dollars_per_hour
    inputs = _inputs(job, offer, price, failures, offer.outage_hours)
    return formulas.on_demand(
        inputs, price, failures_per_hour=failures, outage_hours=offer.outage_hours
    )


def _inputs(
    job: Job, offer: JobOffer, price: float, interruptions: float, pause: float
) -> formulas.UsefulHourInputs:
    keeps = job.interval_minutes is not None and job.interruptible
    interval = job.interval_minutes if keeps else None
    return formulas.UsefulHourInputs(
        useful_hours=job.useful_hours,
        dollars_per_hour=price,
        interruptions_per_hour=interruptions,
        interval_minutes=interval or formulas.whole_minutes(job.useful_hours),
        write_minutes=job.write_minutes if keeps else 0.0,
        restart_minutes=_bounded(
            job.restart_minutes + _fetch_minutes(job.restart_download_bytes, offer)
        ),
        setup_minutes=_bounded(job.setup_minutes + _fetch_minutes(job.download_bytes, offer)),
        storage_dollars_per_hour=_bounded(
            storage_dollars_per_hour(offer.storage_dollars_per_gb_month, job.disk_gb)
        ),
        pause_hours=pause,
        restart_traffic_dollars=_bounded(
            offer.down_dollars_per_gb * job.restart_download_bytes / BYTES_PER_GB
        ),
        setup_traffic_dollars=_bounded(
            offer.down_dollars_per_gb * job.download_bytes / BYTES_PER_GB
            + offer.up_dollars_per_gb * job.upload_bytes / BYTES_PER_GB
        ),
    )


def _fetch_minutes(size_bytes: int, offer: JobOffer) -> float:
    if not size_bytes:
        return 0.0
    if offer.down_mbps is None:
        message = f"down_mbps: there is data to fetch, and offer {offer.offer_id} states no link"
        raise RejectedError("invalid_args", message, status=400)
    return transfer_seconds(size_bytes, offer.down_mbps) / _SECONDS_PER_MINUTE


def _kind(kind: Kind, job: Job, offer: JobOffer, estimate: formulas.UsefulHour) -> KindCost:
    meets = None
    if job.deadline_hours is not None:
        meets = estimate.wall_hours is not None and estimate.wall_hours <= job.deadline_hours
    used = estimate.inputs
    budget = None
    if estimate.cost_dollars is not None:
        hourly = used.dollars_per_hour + used.storage_dollars_per_hour
        fetched = offer.down_dollars_per_gb * job.download_bytes / BYTES_PER_GB
        attempt = hourly * used.setup_minutes / MINUTES_PER_HOUR + fetched
        budget = estimate.cost_dollars + attempt
    return KindCost(
        kind=kind,
        meets_deadline=meets,
        writes_checkpoints=used.interval_minutes < formulas.whole_minutes(job.useful_hours),
        budget_dollars=budget,
        estimate=estimate,
    )


def _advice(
    job: Job,
    offer: JobOffer,
    on_demand: KindCost,
    interruptible: KindCost | None,
    break_even: formulas.BreakEven | None,
) -> tuple[Kind | None, str]:
    """Which kind fits, and the reason in a sentence."""
    usable = [kind for kind in (on_demand, interruptible) if kind is not None and _possible(kind)]
    if not usable:
        return None, _impossible(job, on_demand, interruptible)
    best = min(usable, key=_kind_cost)
    if not job.interruptible:
        return best.kind, (
            "on demand: this job cannot be interrupted safely, and an interruptible rental is"
            " stopped at any second, without warning"
        )
    if interruptible is None:
        return best.kind, f"on demand: offer {offer.offer_id} takes no bids"
    for late in (interruptible, on_demand):
        if late not in usable:
            return best.kind, f"{_WORDS[best.kind]}: {_HOW[late.kind]} it {_too_late(job, late)}"
    assert break_even is not None
    return best.kind, _cheaper(best, on_demand, interruptible, break_even)


def _cheaper(
    best: KindCost, on_demand: KindCost, interruptible: KindCost, break_even: formulas.BreakEven
) -> str:
    rate = interruptible.estimate.inputs.interruptions_per_hour
    point = break_even.interruptions_per_hour
    if point == 0:
        turn = "and it costs no more even if nothing is interrupted"
    else:
        side = "below" if best.kind == "interruptible" else "above"
        turn = f"at {rate:.4g} interruptions an hour, as at any number {side} {point:.4g}"
    if best.kind == "interruptible":
        costs = f"interruptible: {_dollars(interruptible)} against {_dollars(on_demand)} on demand"
    else:
        costs = f"on demand: {_dollars(on_demand)} against {_dollars(interruptible)} interruptibly"
    walls = f"{_wall(interruptible)} h interruptibly, {_wall(on_demand)} h on demand"
    return f"{costs}, {turn}; wall time {walls}"


def _possible(kind: KindCost) -> bool:
    return kind.estimate.finishes and kind.meets_deadline is not False


def _impossible(job: Job, on_demand: KindCost, interruptible: KindCost | None) -> str:
    kinds = [kind for kind in (on_demand, interruptible) if kind is not None]
    tried = [f"{_HOW[kind.kind]} it {_too_late(job, kind)}" for kind in kinds]
    start = "cannot be done" if job.deadline_hours is None else "cannot meet it"
    safely = "" if job.interruptible else "; it cannot be interrupted safely"
    return f"{start}: {', '.join(tried)}{safely}"


def _too_late(job: Job, kind: KindCost) -> str:
    wall = kind.estimate.wall_hours
    if wall is None:
        return "never finishes: it is interrupted faster than it gets on"
    return f"takes {wall:.1f} h on average, and the deadline is in {job.deadline_hours:g} h"


def _deadline(job: Job, advised: Kind | None) -> Deadline | None:
    if job.deadline_hours is None:
        return None
    return "cannot meet it" if advised is None else "meets it"


def _dollars(kind: KindCost) -> str:
    return f"${kind.estimate.cost_dollars:,.2f}"


def _wall(kind: KindCost) -> str:
    return f"{kind.estimate.wall_hours:,.1f}"


def _bounded(value: float) -> float:
    return min(value, LIMIT)


def _kind_cost(kind: KindCost) -> float:
    cost = kind.estimate.cost_dollars
    return math.inf if cost is None else cost


def _cost(cost: JobCost) -> float:
    return math.inf if cost.cost_dollars is None else cost.cost_dollars
