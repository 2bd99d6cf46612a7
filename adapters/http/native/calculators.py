"""Calculators: what a job costs, what fits, how long a transfer takes, what to set aside.

They read no ledger and change nothing. The fields of a request are the inputs of `ledger.domain`
themselves, so their ranges and units are written once. Estimates are JSON numbers, not amounts.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from litestar import post
from litestar.openapi.spec import Operation
from litestar.params import JSONBody
from msgspec import Meta

from adapters.http.call import ANYONE, Caller, allowed
from adapters.http.wire import Body
from ledger.domain.budget import Budget, BudgetInputs, budget
from ledger.domain.estimate import Inputs, Result
from ledger.domain.job_cost import Job, JobCost, JobOffer, compare
from ledger.domain.sizing import GpuFit, GpuMemory, ListedGpu, MemoryInputs, fits, memory
from ledger.domain.transfer import TransferCost, TransferInputs, transfer

T = TypeVar("T", bound=Inputs)
_ERRORS: Final = (400, 401, 403, 413, 503)


class UsefulHourRequest(Job, Body, kw_only=True):
    """A job, and the offers to reckon it on; prices are those of the whole slice."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "useful_hours": 40,
        "interval_minutes": 20,
        "write_minutes": 1,
        "restart_minutes": 15,
        "setup_minutes": 15,
        "deadline_hours": 72,
        "offers": [
            {
                "offer_id": 7,
                "gpu_name": "RTX 4090",
                "gpus": 1,
                "on_demand_dollars_per_hour": 0.5,
                "interruptible_dollars_per_hour": 0.25,
                "interruptions_per_hour": 0.125,
                "pause_hours": 0.5,
                "reliability_lower_bound": 0.9979,
            }
        ],
    }

    offers: Annotated[list[JobOffer], Meta(min_length=1, max_length=100)]


class MemoryRequest(MemoryInputs, Body):
    """A model and what is done with it, and the GPUs to try it on."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "parameters": 7_000_000_000,
        "recipe": "adam_mixed",
        "zero_stage": 3,
        "layers": 32,
        "hidden": 4_096,
        "heads": 32,
        "sequence": 4_096,
        "recompute": "selective",
        "gpus": [
            {"name": "RTX 4090", "vram_gb": 24},
            {"name": "H100", "vram_gb": 80, "gpus": 8},
        ],
    }

    gpus: Annotated[list[ListedGpu], Meta(max_length=100)] = msgspec.field(default_factory=list)


class TransferRequest(TransferInputs, Body):
    """A data set, a link, and what GPU time and traffic cost meanwhile."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "size_bytes": 500_000_000_000,
        "link_mbps": 500,
        "dollars_per_hour": 0.4,
        "traffic_dollars_per_gb": 0.003,
    }


class BudgetRequest(BudgetInputs, Body):
    """A job on one slice; `work_hours` is what will be billed, interruptions included."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "work_hours": 44.3,
        "dollars_per_hour": 0.4,
        "setup_minutes": 15,
        "size_bytes": 500_000_000_000,
        "link_mbps": 500,
        "traffic_dollars_per_gb": 0.003,
    }


class UsefulHourAnswer(Result):
    """The job on each offer, best first."""

    items: list[JobCost]


class MemoryAnswer(Result):
    """What one GPU must hold, and which of the GPUs named can."""

    memory: GpuMemory
    fits: list[GpuFit]


def _describe(operation: Operation) -> None:
    operation.description = (
        f"{operation.description}\n\nIt changes nothing and needs no `Idempotency-Key`."
    )


def _inputs(kind: type[T], body: T) -> T:
    """The inputs alone, without what only the request has: an answer repeats them per offer."""
    return kind(**{name: getattr(body, name) for name in kind.__struct_fields__})


def _open() -> dict[str, Any]:
    return {**allowed(*ANYONE), "errors": _ERRORS, "describe": _describe}


@post("/v1/calculators/useful-hour", opt=_open(), status_code=200, summary="Cost per useful hour")
async def useful_hour(call: Caller, data: JSONBody[UsefulHourRequest]) -> UsefulHourAnswer:
    """Compare a job on demand with interruptible on each offer: cost, break-even, advice."""
    return UsefulHourAnswer(items=compare(_inputs(Job, data), data.offers))


@post("/v1/calculators/memory", opt=_open(), status_code=200, summary="GPU memory")
async def gpu_memory(call: Caller, data: JSONBody[MemoryRequest]) -> MemoryAnswer:
    """Show how much GPU memory a model needs, and on which GPUs it fits."""
    inputs = _inputs(MemoryInputs, data)
    return MemoryAnswer(memory=memory(inputs), fits=fits(inputs, data.gpus))


@post("/v1/calculators/transfer", opt=_open(), status_code=200, summary="Transfer")
async def transfer_time(call: Caller, data: JSONBody[TransferRequest]) -> TransferCost:
    """Show how long a transfer takes and what it costs before the work starts."""
    return transfer(data)


@post("/v1/calculators/budget", opt=_open(), status_code=200, summary="Budget")
async def budget_of(call: Caller, data: JSONBody[BudgetRequest]) -> Budget:
    """Show what to set aside for a job: setup, transfer, work, and one failed attempt."""
    return budget(data)


HANDLERS = [useful_hour, gpu_memory, transfer_time, budget_of]
