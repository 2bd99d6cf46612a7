"""GPU memory: every number of `marketplace.md` §17.2, and what fits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.sizing import (
    RECIPES,
    ListedGpu,
    MemoryInputs,
    Recipe,
    activation_bytes,
    fits,
    kv_bytes_per_token,
    memory,
    state_bytes,
)
from ledger.errors import RejectedError

GB = 10**9
GIB = 2**30
MIB = 2**20
B = 10**9


def model(parameters: float = 7 * B, recipe: Recipe = "adam_mixed", **more: Any) -> MemoryInputs:
    """A model; *more* is what matters in a test."""
    return MemoryInputs(parameters=round(parameters), recipe=recipe, **more)


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "each"),
    [
        ("adam_mixed", 16),
        ("adam_mixed_fp32_gradients", 18),
        ("adam_bf16", 12),
        ("adam_fp32", 16),
        ("adam_8bit", 10),
        ("sgd_momentum", 12),
        ("inference", 2),
    ],
)
def test_bytes_per_parameter(recipe: Recipe, each: float) -> None:
    """Weights, gradients and optimizer come to the printed bytes per parameter."""
    assert sum(RECIPES[recipe]) == each
    assert memory(model(1_000, recipe)).states_bytes == 1_000 * each


@pytest.mark.parametrize(
    ("inputs", "gb"),
    [
        (model(7 * B), 112.0),
        (model(7 * B, "adam_mixed_fp32_gradients"), 126.0),
        (model(7 * B, "inference"), 14.0),
        (model(1.5 * B), 24),
        (model(4 * B, "adam_mixed_fp32_gradients"), 72),
        (model(65 * B, "adam_bf16"), 780),
        (model(65 * B, "qlora"), 33.8),
        (model(7.5 * B, ranks=64), 120),
        (model(7.5 * B, ranks=64, zero_stage=1), 31.41),
        (model(7.5 * B, ranks=64, zero_stage=2), 16.64),
        (model(7.5 * B, ranks=64, zero_stage=3), 1.875),
    ],
)
def test_states_of_the_table(inputs: MemoryInputs, gb: float) -> None:
    """States on one GPU, with ZeRO over its ranks, are those of the table."""
    assert memory(inputs).states_bytes / GB == pytest.approx(gb, abs=0.005)


@pytest.mark.parametrize(("recipe", "gib"), [("adam_mixed", 104.31), ("inference", 13.04)])
def test_states_in_gib(recipe: Recipe, gib: float) -> None:
    """112.0 GB are 104.31 GiB, and 14.0 GB are 13.04 GiB."""
    assert memory(model(7 * B, recipe)).states_bytes / GIB == pytest.approx(gib, abs=0.005)


def test_adapters_are_trained_on_a_frozen_base() -> None:
    """LoRA is w·P + 16·P_lora, QLoRA about 0.52·P + 16·P_lora; only the adapters have gradients."""
    lora = memory(model(7 * B, "lora", trainable_parameters=20_000_000))
    assert lora.states_bytes == 14 * GB + 16 * 20_000_000
    assert (lora.gradients_bytes, lora.optimizer_bytes) == (2 * 20_000_000, 12 * 20_000_000)
    wide = memory(model(7 * B, "lora", trainable_parameters=20_000_000, weight_bytes=4))
    assert wide.states_bytes == 28 * GB + 16 * 20_000_000
    qlora = memory(model(65 * B, "qlora", trainable_parameters=100_000_000))
    assert qlora.states_bytes == pytest.approx(33.8 * GB + 1.6 * GB)


def test_both_rules_of_thumb_are_told() -> None:
    """Plain fp32 adds three times its weights; mixed precision is eight times its weights."""
    plain, mixed = memory(model(recipe="adam_fp32")), memory(model(recipe="adam_mixed"))
    assert plain.added_times_weights == 3
    assert mixed.times_weights == 8
    for found in (plain, mixed):
        assert "3 times" in found.rule_of_thumb
        assert "8 times" in found.rule_of_thumb
    assert memory(model(recipe="inference")).added_times_weights == 0


# --- activations ---------------------------------------------------------------------------------

GPT3 = model(175 * B, layers=96, hidden=12_288, heads=96, sequence=2_048)
LLAMA = model(7 * B, layers=32, hidden=4_096, heads=32, sequence=4_096)


@pytest.mark.parametrize(
    ("inputs", "more", "gib"),
    [
        (GPT3, {}, 256.5),
        (GPT3, {"recompute": "selective"}, 76.5),
        (GPT3, {"recompute": "full"}, 4.5),
        (GPT3, {"value_bytes": 4.0}, 472.5),
        (LLAMA, {}, 97.0),
        (LLAMA, {"recompute": "selective"}, 17.0),
    ],
)
def test_activations_of_the_table(inputs: MemoryInputs, more: dict[str, Any], gib: float) -> None:
    """Activations at one sequence a batch, kept, recomputed in part or in full."""
    found = memory(msgspec.structs.replace(inputs, **more))
    assert found.activations_bytes / GIB == pytest.approx(gib, abs=0.05)


def test_selective_recomputation_saves_70_percent_of_gpt3() -> None:
    """5as/h is 80, so 80 of 114 bytes a value are saved."""
    kept = activation_bytes(GPT3)
    selective = activation_bytes(msgspec.structs.replace(GPT3, recompute="selective"))
    assert 5 * GPT3.heads * GPT3.sequence / GPT3.hidden == 80
    assert 1 - selective / kept == pytest.approx(80 / 114)
    assert 1 - selective / kept == pytest.approx(0.70, abs=0.005)


def test_activations_grow_with_the_batch_and_are_not_divided_by_zero() -> None:
    """A batch of 16 has 16 times the activations; ZeRO divides states only."""
    batch = msgspec.structs.replace(LLAMA, batch=16, ranks=8, zero_stage=3)
    assert activation_bytes(batch) == 16 * activation_bytes(LLAMA)
    assert memory(batch).activations_bytes == 16 * memory(LLAMA).activations_bytes


# --- key-value cache -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "kv_heads", "per_token", "tokens", "unit", "size"),
    [
        (32, 32, 524_288, 2_048, GB, 1.07),
        (32, 32, 524_288, 4_096, GIB, 2.0),
        (32, 8, 131_072, 1, 1, 131_072),
        (80, 8, 327_680, 1_024, MIB, 320),
        (80, 8, 327_680, 8_192, GIB, 2.5),
        (40, 40, 819_200, 1, 1_024, 800),
    ],
    ids=["Llama-2-7B", "Llama-2-7B, GiB", "Llama-3-8B", "70B, MiB", "70B, GiB", "OPT-13B"],
)
def test_key_value_caches_of_the_table(
    layers: int, kv_heads: int, per_token: int, tokens: int, unit: int, size: float
) -> None:
    """Bytes a token and of whole caches; the key, the value, and kv heads, not attention heads."""
    found = memory(
        model(
            recipe="inference",
            layers=layers,
            heads=64,
            kv_heads=kv_heads,
            head_dim=128,
            kv_tokens=tokens,
        )
    )
    assert found.kv_bytes_per_token == per_token
    assert found.kv_bytes / unit == pytest.approx(size, abs=0.005)


def test_a_cache_without_kv_heads_has_as_many_as_heads() -> None:
    """Llama-2-7B from its hidden size: 4 096/32 values a head."""
    inputs = model(
        recipe="inference", layers=32, hidden=4_096, heads=32, kv_tokens=10, kv_sequences=3
    )
    assert kv_bytes_per_token(inputs) == 524_288
    assert memory(inputs).kv_bytes == 30 * 524_288


# --- the whole, and what fits --------------------------------------------------------------------


def test_the_total_has_context_reserve_and_a_tenth() -> None:
    """14 GB of weights, 2 GiB of context, 0.6 GiB of reserve, and 10 % of all for fragments."""
    found = memory(model(recipe="inference"))
    assert found.total_bytes == pytest.approx(1.1 * (14 * GB + 2.6 * GIB), abs=1)
    slim = memory(model(recipe="inference", context_gib=0.3, reserve_gib=0.3))
    assert slim.total_bytes == pytest.approx(1.1 * (14 * GB + 0.6 * GIB), abs=1)
    parts = (
        found.states_bytes
        + found.activations_bytes
        + found.kv_bytes
        + found.context_bytes
        + found.reserve_bytes
        + found.fragmentation_bytes
    )
    assert found.total_bytes == pytest.approx(parts, abs=2)


def test_it_fits_in_nine_tenths_of_the_memory() -> None:
    """To the byte: as much as 0.9 of the GPU's memory fits, and a byte more does not."""
    bare = model(9 * GB, "qlora", weight_bytes=1.0, context_gib=0, reserve_gib=0)
    for gb, is_enough in ((11.0, True), (10.999999, False)):
        (found,) = fits(bare, [ListedGpu(name="any", vram_gb=gb)])
        assert found.needed_bytes == 9_900_000_000
        assert found.fits is is_enough
        assert ("to spare" in found.why) is is_enough


def test_zero_uses_the_gpus_of_the_slice() -> None:
    """Training 7 B fits on no single card of 80 GB, and on eight with stage 3."""
    listed = [
        ListedGpu(name="RTX 4090", vram_gb=24),
        ListedGpu(name="H100", vram_gb=80),
        ListedGpu(name="H100", vram_gb=80, gpus=8),
    ]
    found = fits(model(zero_stage=3), listed)
    assert [(one.gpus, one.ranks, one.fits) for one in found] == [
        (1, 1, False),
        (1, 1, False),
        (8, 8, True),
    ]
    assert [one.fits for one in fits(model(), listed)] == [False, False, False]
    assert [one.fits for one in fits(model(recipe="inference"), listed)] == [True, True, True]


def test_a_slice_needs_a_gpu_for_every_rank_and_part() -> None:
    """Ranks are data-parallel: one copy may be split, and then takes several GPUs."""
    split = model(70 * B, "inference", model_parallel=2)
    two = ListedGpu(name="H200", vram_gb=141, gpus=2)
    one = ListedGpu(name="H200", vram_gb=141)
    assert [found.fits for found in fits(split, [two, one])] == [True, False]
    assert fits(split, [one])[0].why == "takes 2 GPUs, and the slice has 1"
    ranked = msgspec.structs.replace(split, ranks=2)
    assert fits(ranked, [two])[0].why == "takes 4 GPUs, and the slice has 2"
    assert fits(split, [ListedGpu(name="H200", vram_gb=141, gpus=8)])[0].ranks == 4


def test_what_was_not_counted_is_said() -> None:
    """Training without a shape says that activations are missing, inference that the cache is."""
    assert "activations" in memory(model()).not_counted[0]
    assert "key-value cache" in memory(model(recipe="inference")).not_counted[0]
    assert memory(LLAMA).not_counted == []


def test_the_answer_carries_formula_and_inputs() -> None:
    """What it was made from comes with it."""
    found = memory(LLAMA)
    assert found.inputs == LLAMA
    assert "0.9" in found.formula
    assert "model_parallel" in found.formula


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"parameters": 0}, "parameters"),
        ({"parameters": -1}, "parameters"),
        ({"recipe": "magic"}, "recipe"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"ranks": 0}, "ranks"),
        ({"batch": 0}, "batch"),
        ({"value_bytes": 0.0}, "value_bytes"),
        ({"value_bytes": float("nan")}, "value_bytes"),
        ({"context_gib": -1.0}, "context_gib"),
        ({"sequence": 10}, "layers"),
        ({"sequence": 10, "layers": 2}, "hidden"),
        ({"sequence": 10, "layers": 2, "hidden": 8}, "heads"),
        ({"kv_tokens": 10}, "layers"),
        ({"kv_tokens": 10, "layers": 2}, "heads"),
        ({"kv_tokens": 10, "layers": 2, "kv_heads": 2, "heads": 2}, "hidden"),
        ({"trainable_parameters": 10}, "trainable_parameters"),
        ({"weight_bytes": 1.0}, "weight_bytes"),
    ],
)
def test_inputs_that_make_no_sense_are_refused_by_name(more: dict[str, Any], named: str) -> None:
    """Out of range, unknown, or lacking what they need: `invalid_args` names the field."""
    with pytest.raises(RejectedError, match=named) as refused:
        MemoryInputs(**{"parameters": 10, "recipe": "adam_mixed", **more})
    assert refused.value.code == "invalid_args"


def test_a_gpu_without_memory_is_refused() -> None:
    """No slice has zero GPUs or no memory."""
    for wrong in ({"vram_gb": 0.0}, {"vram_gb": float("nan")}, {"gpus": 0}, {"name": ""}):
        with pytest.raises(RejectedError, match=next(iter(wrong))):
            ListedGpu(**{"name": "any", "vram_gb": 24.0, **wrong})  # type: ignore[arg-type]  # that is the test


# --- laws ----------------------------------------------------------------------------------------


@given(
    st.sampled_from(sorted(RECIPES)),
    st.integers(1, 10**13),
    st.integers(1, 1_024),
    st.integers(0, 3),
)
def test_zero_never_needs_more(recipe: Recipe, parameters: int, ranks: int, stage: int) -> None:
    """Each stage and each rank divides the same bytes: never more on a GPU, never fewer in all."""
    whole = memory(model(parameters, recipe)).states_bytes
    assert whole == pytest.approx(sum(state_bytes(model(parameters, recipe))), abs=1)
    part = memory(model(parameters, recipe, ranks=ranks, zero_stage=stage)).states_bytes
    assert part <= whole + 1
    assert (part + 2) * ranks >= whole
    if stage < 3:
        above = memory(model(parameters, recipe, ranks=ranks, zero_stage=stage + 1)).states_bytes
        assert above <= part + 1


@given(st.floats(1, 1_000), st.integers(1, 16))
def test_what_fits_fits_on_a_larger_gpu(vram_gb: float, gpus: int) -> None:
    """More memory on the same number of GPUs never stops a model from fitting."""
    small = ListedGpu(name="small", vram_gb=vram_gb, gpus=gpus)
    large = ListedGpu(name="large", vram_gb=vram_gb * 1.5, gpus=gpus)
    first, second = fits(model(zero_stage=3), [small, large])
    assert second.fits or not first.fits
