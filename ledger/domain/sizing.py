"""How much GPU memory a model needs, and which GPUs have it (`marketplace.md` §17.2).

The need of one GPU is the sum of the states (weights, gradients, optimizer), the activations, the
key-value cache, the CUDA context and the driver's reserve, and a tenth for fragmentation. It fits
where it takes no more than nine tenths of the memory: a rental that runs out of memory minutes
after its start is paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ledger.domain.estimate import (
    BYTES_PER_GB,
    BYTES_PER_GIB,
    Amount,
    Inputs,
    Positive,
    Result,
)
from ledger.errors import RejectedError

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
Recompute = Literal["none", "selective", "full"]


class StateBytes(NamedTuple):
    """Bytes per parameter that is trained (per parameter, for `inference`)."""

    weights: float
    gradients: float
    optimizer: float


RECIPES: Final[dict[Recipe, StateBytes]] = {
    "adam_mixed": StateBytes(2, 2, 12),
    "adam_mixed_fp32_gradients": StateBytes(2, 4, 12),
    "adam_bf16": StateBytes(2, 2, 8),
    "adam_fp32": StateBytes(4, 4, 8),
    "adam_8bit": StateBytes(2, 2, 6),
    "sgd_momentum": StateBytes(2, 2, 8),
    "lora": StateBytes(2, 2, 12),
    "qlora": StateBytes(2, 2, 12),
    "inference": StateBytes(2, 0, 0),
}
"""For LoRA and QLoRA these are the adapters'; the frozen base has `FROZEN` bytes a parameter."""
FROZEN: Final[dict[Recipe, float]] = {"lora": 2.0, "qlora": 0.52}
FRAGMENTATION: Final = 0.10
USABLE_SHARE: Final = 0.9
_OPTIMIZER_FROM: Final = 1
_GRADIENTS_FROM: Final = 2
_WEIGHTS_FROM: Final = 3
FORMULA: Final = (
    "total = (states + activations + KV cache + CUDA context + driver reserve)·1.1, per GPU; it"
    " fits if total ≤ 0.9·VRAM. States = (weights + gradients + optimizer bytes)·parameters; ZeRO"
    " over N ranks divides by N the optimizer (stage 1), the gradients too (2), the weights too"
    " (3); LoRA = frozen base + 16·trainable. Activations per layer, p = value_bytes:"
    " s·b·h·((16p+2) + (2p+1)·a·s/h); selective (16p+2)·s·b·h; full p·s·b·h."
    " KV = 2·layers·kv_heads·head_dim·kv_bytes·tokens·sequences. model_parallel divides states,"
    " activations and KV"
)
RULE_OF_THUMB: Final = (
    "Plain fp32: gradients and optimizer add 12 bytes to 4 of weights, 3 times the weights (16"
    " bytes in all, 4 times). Mixed precision: 16 bytes on 2-byte weights, 8 times the weights."
)

_Count = Annotated[int, Meta(ge=0, le=10**9)]
_OneUp = Annotated[int, Meta(ge=1, le=10**6)]


class MemoryInputs(Inputs):
    """A model and what is done with it. Shapes may be left out: then their part is not counted.

    `sequence` and `batch` are those of one data-parallel rank; `ranks` are data-parallel ranks, not
    all GPUs: one copy of the model takes `model_parallel` GPUs.
    """

    parameters: Annotated[int, Meta(ge=1, le=10**15)]
    recipe: Recipe
    trainable_parameters: Annotated[
        int, Meta(ge=0, le=10**15, description="Of the adapters, for lora and qlora.")
    ] = 0
    weight_bytes: Annotated[
        Annotated[float, Meta(gt=0, le=8)] | None,
        Meta(description="Per parameter, of weights that are not trained; default: the recipe's."),
    ] = None
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 0
    ranks: Annotated[
        _OneUp | None, Meta(description="Default: 1, and on a slice as many as it has.")
    ] = None
    model_parallel: Annotated[
        _OneUp, Meta(description="GPUs that one copy of the model is split over, evenly.")
    ] = 1
    layers: _Count = 0
    hidden: _Count = 0
    heads: Annotated[_Count, Meta(description="Attention heads.")] = 0
    kv_heads: Annotated[_OneUp | None, Meta(description="Default: as many as heads.")] = None
    head_dim: Annotated[_OneUp | None, Meta(description="Default: hidden/heads.")] = None
    sequence: Annotated[_Count, Meta(description="Tokens of one training sequence.")] = 0
    batch: Annotated[_OneUp, Meta(description="Sequences at once, on one rank.")] = 1
    value_bytes: Annotated[
        Annotated[float, Meta(gt=0, le=8)], Meta(description="p: bytes of an activation.")
    ] = 2.0
    recompute: Annotated[Recompute, Meta(description="selective: also with fused attention.")] = (
        "none"
    )
    kv_tokens: Annotated[_Count, Meta(description="Cached tokens of a sequence.")] = 0
    kv_sequences: Annotated[_OneUp, Meta(description="Sequences cached at once.")] = 1
    kv_bytes: Annotated[Annotated[float, Meta(gt=0, le=8)], Meta(description="Of a value.")] = 2.0
    context_gib: Annotated[Amount, Meta(description="CUDA context, 0.3 to 2 a process.")] = 2.0
    reserve_gib: Annotated[Amount, Meta(description="The driver's, 0.3 to 0.6.")] = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequence and self.recipe != "inference":
            self._require(("layers", "hidden"), "activations")
            if self.recompute == "none":
                self._require(("heads",), "activations that keep the attention scores")
        if self.kv_tokens:
            self._require(("layers",), "a key-value cache")
            if self.kv_heads is None or self.head_dim is None:
                self._require(("heads",), "a key-value cache without kv_heads and head_dim")
            if self.head_dim is None:
                self._require(("hidden",), "a key-value cache without head_dim")
        if self.trainable_parameters and self.recipe not in FROZEN:
            message = "trainable_parameters: only lora and qlora train fewer than all parameters"
            raise RejectedError("invalid_args", message, status=400)
        if self.weight_bytes is not None and self.recipe not in {*FROZEN, "inference"}:
            message = "weight_bytes: the recipe says how many bytes trained weights have"
            raise RejectedError("invalid_args", message, status=400)

    def _require(self, names: Sequence[str], what: str) -> None:
        for name in names:
            if not getattr(self, name):
                raise RejectedError("invalid_args", f"{name}: {what} need it", status=400)


class GpuMemory(Result):
    """What one GPU must hold, in bytes. `states_bytes` is weights + gradients + optimizer.

    `times_weights` is states over weights, before ZeRO; `added_times_weights` is one less: what
    training adds. `not_counted` names the parts whose shape was not given.
    """

    ranks: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    states_bytes: int
    activations_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    context_bytes: int
    reserve_bytes: int
    fragmentation_bytes: int
    total_bytes: int
    not_counted: list[str]
    times_weights: float
    added_times_weights: float
    rule_of_thumb: str
    formula: str
    inputs: MemoryInputs


class ListedGpu(Inputs):
    """GPUs of one slice, as they are listed."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    vram_gb: Annotated[Positive, Meta(description="Of one GPU; 1 GB is 10^9 bytes.")]
    gpus: Annotated[int, Meta(ge=1, le=1_024)] = 1


class GpuFit(Result):
    """Whether the model fits on a slice. The bytes are those of one GPU; `why` says it in words."""

    name: str
    vram_gb: float
    gpus: int
    ranks: int
    fits: bool
    needed_bytes: int
    usable_bytes: int
    why: str


def memory(inputs: MemoryInputs) -> GpuMemory:
    """What one GPU must hold."""
    ranks, split = inputs.ranks or 1, inputs.model_parallel
    states = state_bytes(inputs)
    weights = states.weights / (ranks if inputs.zero_stage >= _WEIGHTS_FROM else 1) / split
    gradients = states.gradients / (ranks if inputs.zero_stage >= _GRADIENTS_FROM else 1) / split
    optimizer = states.optimizer / (ranks if inputs.zero_stage >= _OPTIMIZER_FROM else 1) / split
    activations = activation_bytes(inputs) / split
    per_token = kv_bytes_per_token(inputs)
    cache = per_token * inputs.kv_tokens * inputs.kv_sequences / split
    context = inputs.context_gib * BYTES_PER_GIB
    reserve = inputs.reserve_gib * BYTES_PER_GIB
    used = weights + gradients + optimizer + activations + cache + context + reserve
    times = sum(states) / states.weights
    return GpuMemory(
        ranks=ranks,
        weights_bytes=round(weights),
        gradients_bytes=round(gradients),
        optimizer_bytes=round(optimizer),
        states_bytes=round(weights + gradients + optimizer),
        activations_bytes=round(activations),
        kv_bytes=round(cache),
        kv_bytes_per_token=round(per_token),
        context_bytes=round(context),
        reserve_bytes=round(reserve),
        fragmentation_bytes=round(used * FRAGMENTATION),
        total_bytes=round(used * (1 + FRAGMENTATION)),
        not_counted=_not_counted(inputs),
        times_weights=times,
        added_times_weights=times - 1,
        rule_of_thumb=RULE_OF_THUMB,
        formula=FORMULA,
        inputs=inputs,
    )


def _not_counted(inputs: MemoryInputs) -> list[str]:
    if inputs.recipe == "inference":
        return [] if inputs.kv_tokens else ["key-value cache: kv_tokens, layers, heads, hidden"]
    return [] if inputs.sequence else ["activations: sequence, batch, layers, hidden, heads"]


def state_bytes(inputs: MemoryInputs) -> StateBytes:
    """Bytes of weights, gradients and optimizer of one whole copy, before anything is divided."""
    per = RECIPES[inputs.recipe]
    if inputs.recipe in FROZEN:
        frozen = inputs.weight_bytes or FROZEN[inputs.recipe]
        trained = inputs.trainable_parameters
        base = frozen * inputs.parameters
        return StateBytes(
            base + per.weights * trained, per.gradients * trained, per.optimizer * trained
        )
    weights = inputs.weight_bytes or per.weights
    return StateBytes(
        weights * inputs.parameters,
        per.gradients * inputs.parameters,
        per.optimizer * inputs.parameters,
    )


def activation_bytes(inputs: MemoryInputs) -> float:
    """Bytes of all layers' activations; none for inference, where they are not kept."""
    if inputs.recipe == "inference" or not inputs.sequence:
        return 0.0
    p, values = inputs.value_bytes, inputs.sequence * inputs.batch * inputs.hidden
    match inputs.recompute:
        case "none":
            scores = inputs.heads * inputs.sequence / inputs.hidden
            per_value = (16 * p + 2) + (2 * p + 1) * scores
        case "selective":
            per_value = 16 * p + 2
        case "full":
            per_value = p
    return inputs.layers * values * per_value


def kv_bytes_per_token(inputs: MemoryInputs) -> float:
    """Bytes that the cache keeps for one token: a key and a value per layer and kv head."""
    heads = inputs.kv_heads or inputs.heads
    dim = inputs.head_dim or (inputs.hidden / inputs.heads if inputs.heads else 0)
    return 2 * inputs.layers * heads * dim * inputs.kv_bytes


def fits(inputs: MemoryInputs, gpus: Sequence[ListedGpu]) -> list[GpuFit]:
    """Which of the listed *gpus* the model fits on, in their order.

    Without a number of ranks, each slice runs as many as it has room for.
    """
    return [_fit(inputs, one) for one in gpus]


def _fit(inputs: MemoryInputs, gpu: ListedGpu) -> GpuFit:
    room = gpu.gpus // inputs.model_parallel
    ranks = inputs.ranks or max(room, 1)
    need = memory(msgspec.structs.replace(inputs, ranks=ranks)).total_bytes
    usable = round(USABLE_SHARE * gpu.vram_gb * BYTES_PER_GB)
    wanted = ranks * inputs.model_parallel
    if wanted > gpu.gpus:
        why = f"takes {wanted} GPUs, and the slice has {gpu.gpus}"
    elif need > usable:
        why = f"short by {(need - usable) / BYTES_PER_GB:.1f} GB on each GPU"
    else:
        why = f"{(usable - need) / BYTES_PER_GB:.1f} GB to spare on each GPU"
    return GpuFit(
        name=gpu.name,
        vram_gb=gpu.vram_gb,
        gpus=gpu.gpus,
        ranks=ranks,
        fits=wanted <= gpu.gpus and need <= usable,
        needed_bytes=need,
        usable_bytes=usable,
        why=why,
    )
