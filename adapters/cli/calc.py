"""Commands that calculate before anybody rents: they read no ledger and change nothing.

Formulas and bounds are those of `ledger.domain`; here are the units that people type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from adapters.cli.options import AsJson
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from ledger.domain.sizing import ListedGpu

_GB: Final = 10**9
LEAST: Final = 1e-9
LIMIT: Final = 1e12
_GPU: Final = re.compile(r"(.+?):([0-9]{1,9}(?:\.[0-9]{1,9})?)(?::([0-9]{1,9}))?")


def _amount(_kind: object, value: Any) -> None:
    """Refuse what is no number from 0 on; NaN compares with nothing and is refused too."""
    if value is not None and not 0 <= value <= LIMIT:
        message = "Must be a number from 0 to 1e12."
        raise ValueError(message)


def _positive(_kind: object, value: Any) -> None:
    """Refuse what is no number above 0."""
    if value is not None and not LEAST <= value <= LIMIT:
        message = "Must be a number above 0, up to 1e12."
        raise ValueError(message)


def _share(_kind: object, value: Any) -> None:
    if value is not None and not 0 <= value <= 1:
        message = "Must be a number from 0 to 1."
        raise ValueError(message)


def _bytes(gb: float) -> int:
    return round(gb * _GB)


def _from_0(text: str) -> Parameter:
    return Parameter(help=text, validator=_amount)


def _above_0(text: str) -> Parameter:
    return Parameter(help=text, validator=_positive)


Setup = Annotated[float, _from_0("Billed minutes of boot, image and installation, once.")]
DownloadGb = Annotated[float, _from_0("GB (10^9 bytes) to fetch before the work.")]
LinkMbps = Annotated[float | None, _above_0("Listed download link, Mbit/s; 0.8 of it is used.")]
DownPrice = Annotated[float, _from_0("Traffic into the instance, $ per GB.")]
DiskGb = Annotated[float, _from_0("Rented disk, GB (10^9 bytes).")]
StoragePrice = Annotated[float, _from_0("Storage, $ per GB and month of 720 h.")]


# --- useful hour ---------------------------------------------------------------------------------


def useful_hour(
    *,
    useful_hours: Annotated[float, _above_0("Hours of work that count, uninterrupted.")],
    on_demand: Annotated[float, _above_0("Price on demand, $ per hour of the whole slice.")],
    interruptible: Annotated[
        float | None, _above_0("Bid, $ per hour of the whole slice; without: on demand only.")
    ] = None,
    interruptions_per_hour: Annotated[
        float, _from_0("How often a bid is displaced, per billed running hour.")
    ] = 0.0,
    pause_hours: Annotated[float, _from_0("Hours that a displaced bid waits on average.")] = 0.0,
    interval_minutes: Annotated[
        float | None,
        _above_0("Minutes of work between two checkpoints; without: an interruption costs all."),
    ] = None,
    write_minutes: Annotated[float, _from_0("Minutes to write a checkpoint.")] = 0.0,
    restart_minutes: Annotated[
        float, _from_0("Billed minutes of a restart: boot, resume; without the transfer.")
    ] = 0.0,
    setup_minutes: Setup = 0.0,
    download_gb: DownloadGb = 0.0,
    restart_download_gb: Annotated[float, _from_0("GB to fetch again at each restart.")] = 0.0,
    upload_gb: Annotated[float, _from_0("GB to send in all; its traffic is paid.")] = 0.0,
    down_mbps: LinkMbps = None,
    down_price: DownPrice = 0.0,
    up_price: Annotated[float, _from_0("Traffic out of the instance, $ per GB.")] = 0.0,
    disk_gb: DiskGb = 0.0,
    storage_price: StoragePrice = 0.0,
    failures_per_hour: Annotated[
        float | None, _from_0("How often the host fails; default: from --reliability.")
    ] = None,
    reliability: Annotated[
        float | None,
        Parameter(help="Lower bound of the host's reliability, 0 to 1.", validator=_share),
    ] = None,
    outage_hours: Annotated[float, _above_0("Hours that a host's outage lasts on average.")] = 1.0,
    deadline_hours: Annotated[
        float | None, _above_0("Hours of wall time until it must be done.")
    ] = None,
    uninterruptible: Annotated[
        bool, Parameter(negative="", help="The job cannot be interrupted safely.")
    ] = False,
    interruptions: Annotated[
        float | None, _from_0("A number of interruptions to reckon with plainly as well.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare a job on demand with interruptible: cost per useful hour, break-even, advice.

    Example: gpuledger calc useful-hour --useful-hours 40 --on-demand 0.50 --interruptible 0.25
    --interruptions-per-hour 0.125 --interval-minutes 20 --write-minutes 1 --restart-minutes 15
    --setup-minutes 15
    """
    from adapters.cli.calc_shown import print_job_costs
    from ledger.domain.job_cost import Job, JobOffer

    job = Job(
        useful_hours=useful_hours,
        interval_minutes=interval_minutes,
        write_minutes=write_minutes,
        restart_minutes=restart_minutes,
        setup_minutes=setup_minutes,
        download_bytes=_bytes(download_gb),
        upload_bytes=_bytes(upload_gb),
        restart_download_bytes=_bytes(restart_download_gb),
        disk_gb=disk_gb,
        deadline_hours=deadline_hours,
        interruptible=not uninterruptible,
        interruptions=interruptions,
    )
    offer = JobOffer(
        offer_id=0,
        gpu_name="as given",
        gpus=1,
        on_demand_dollars_per_hour=on_demand,
        interruptible_dollars_per_hour=interruptible,
        storage_dollars_per_gb_month=storage_price,
        up_dollars_per_gb=up_price,
        down_dollars_per_gb=down_price,
        down_mbps=down_mbps,
        interruptions_per_hour=interruptions_per_hour,
        pause_hours=pause_hours,
        failures_per_hour=failures_per_hour,
        reliability_lower_bound=reliability,
        outage_hours=outage_hours,
    )
    print_job_costs(job, [offer], as_json=json)


# --- transfer and budget -------------------------------------------------------------------------


def transfer(
    *,
    gb: Annotated[float, _from_0("Size, GB (10^9 bytes).")],
    mbps: Annotated[float, _above_0("Listed link, Mbit/s; 0.8 of it is used.")],
    price: Annotated[float, _from_0("GPU time, $ per hour of the whole slice.")] = 0.0,
    traffic_price: Annotated[float, _from_0("Traffic, $ per GB.")] = 0.0,
    json: AsJson = False,
) -> None:
    """Show how long a transfer takes and what it costs before the work starts.

    Example: gpuledger calc transfer --gb 500 --mbps 500 --price 0.40 --traffic-price 0.003
    """
    from adapters.cli.calc_shown import print_transfer
    from ledger.domain import transfer as formulas

    found = formulas.transfer(
        formulas.TransferInputs(
            size_bytes=_bytes(gb),
            link_mbps=mbps,
            dollars_per_hour=price,
            traffic_dollars_per_gb=traffic_price,
        )
    )
    print_transfer(found, as_json=json)


def budget(
    *,
    work_hours: Annotated[float, _above_0("Billed hours of work, interruptions included.")],
    price: Annotated[float, _above_0("GPU time, $ per hour of the whole slice.")],
    setup_minutes: Setup = 0.0,
    download_gb: DownloadGb = 0.0,
    down_mbps: LinkMbps = None,
    down_price: DownPrice = 0.0,
    disk_gb: DiskGb = 0.0,
    storage_price: StoragePrice = 0.0,
    failed_work_minutes: Annotated[
        float, _from_0("Minutes that the failed attempt runs before it fails.")
    ] = 0.0,
    json: AsJson = False,
) -> None:
    """Show what to set aside for a job: setup, transfer, work, and one failed attempt.

    Example: gpuledger calc budget --work-hours 40 --price 0.40 --setup-minutes 15
    --download-gb 500 --down-mbps 500 --down-price 0.003
    """
    from adapters.cli.calc_shown import print_budget
    from ledger.domain import budget as formulas
    from ledger.domain.estimate import storage_dollars_per_hour

    found = formulas.budget(
        formulas.BudgetInputs(
            work_hours=work_hours,
            dollars_per_hour=price,
            setup_minutes=setup_minutes,
            size_bytes=_bytes(download_gb),
            link_mbps=down_mbps,
            traffic_dollars_per_gb=down_price,
            storage_dollars_per_hour=storage_dollars_per_hour(storage_price, disk_gb),
            failed_work_minutes=failed_work_minutes,
        )
    )
    print_budget(found, as_json=json)


# --- memory --------------------------------------------------------------------------------------

Recipe = Literal[
    "adam_mixed",
    "adam_mixed_fp32_gradients",
    "adam_bf16",
    "adam_fp32",
    "adam_8bit",
    "sgd_momentum",
    "lora",
    "qlora",
    "inference",
]
"""Written again, because the help of a command must not load the domain; a test compares them."""


def memory(
    *,
    billions: Annotated[float, _above_0("Parameters, in billions (10^9).")],
    recipe: Annotated[Recipe, Parameter(help="What is done: states in bytes per parameter.")],
    trainable_millions: Annotated[
        float, _from_0("Parameters of the adapters, in millions; for lora and qlora.")
    ] = 0.0,
    weight_bytes: Annotated[
        float | None, _above_0("Bytes per weight that is not trained; default: the recipe's.")
    ] = None,
    zero_stage: Annotated[Literal[0, 1, 2, 3], Parameter(help="ZeRO stage.")] = 0,
    ranks: Annotated[
        int | None, _above_0("Data-parallel ranks; default: 1, on a --gpu as many as it has.")
    ] = None,
    model_parallel: Annotated[int, _above_0("GPUs that one copy of the model is split over.")] = 1,
    layers: Annotated[int, _from_0("Layers.")] = 0,
    hidden: Annotated[int, _from_0("Hidden size.")] = 0,
    heads: Annotated[int, _from_0("Attention heads.")] = 0,
    kv_heads: Annotated[int | None, _above_0("Key-value heads; default: --heads.")] = None,
    head_dim: Annotated[int | None, _above_0("Values per head; default: hidden/heads.")] = None,
    sequence: Annotated[int, _from_0("Tokens of one training sequence.")] = 0,
    batch: Annotated[int, _above_0("Sequences at once, on one rank.")] = 1,
    recompute: Annotated[
        Literal["none", "selective", "full"],
        Parameter(help="Activations recomputed; selective also with fused attention."),
    ] = "none",
    value_bytes: Annotated[float, _above_0("Bytes per activation value.")] = 2.0,
    kv_tokens: Annotated[int, _from_0("Tokens in the key-value cache, per sequence.")] = 0,
    kv_sequences: Annotated[int, _above_0("Sequences in the key-value cache.")] = 1,
    kv_bytes: Annotated[float, _above_0("Bytes per cached value.")] = 2.0,
    context_gib: Annotated[float, _from_0("CUDA context, GiB, 0.3 to 2.")] = 2.0,
    reserve_gib: Annotated[float, _from_0("The driver's reserve, GiB, 0.3 to 0.6.")] = 0.6,
    gpu: Annotated[
        list[str] | None,
        Parameter(
            help="A GPU to try, NAME:GB or NAME:GB:COUNT, GB (10^9 bytes) of one; repeat it.",
            negative="",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how much GPU memory a model needs, and on which GPUs it fits.

    Example: gpuledger calc memory --billions 7 --recipe adam_mixed --zero-stage 3
    --gpu "RTX 4090:24" --gpu "H100:80:8"
    """
    from adapters.cli.calc_shown import print_memory
    from ledger.domain import sizing

    inputs = sizing.MemoryInputs(
        parameters=round(billions * _GB),
        recipe=recipe,
        trainable_parameters=round(trainable_millions * 1e6),
        weight_bytes=weight_bytes,
        zero_stage=zero_stage,
        ranks=ranks,
        model_parallel=model_parallel,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        sequence=sequence,
        batch=batch,
        value_bytes=value_bytes,
        recompute=recompute,
        kv_tokens=kv_tokens,
        kv_sequences=kv_sequences,
        kv_bytes=kv_bytes,
        context_gib=context_gib,
        reserve_gib=reserve_gib,
    )
    listed = [_listed(text) for text in gpu or []]
    found, fitting = sizing.memory(inputs), sizing.fits(inputs, listed)
    print_memory(found, fitting, as_json=json)


def _listed(text: str) -> ListedGpu:
    """A GPU as it was typed, NAME:GB or NAME:GB:COUNT.

    Raises:
        RejectedError: `invalid_args`.
    """
    from ledger.domain.sizing import ListedGpu

    parts = _GPU.fullmatch(text)
    if parts is None:
        message = f"--gpu: {text!r} is not NAME:GB or NAME:GB:COUNT, such as H100:80:8"
        raise RejectedError("invalid_args", message)
    name, gb, count = parts.groups("1")
    return ListedGpu(name=name, vram_gb=float(gb), gpus=int(count))
