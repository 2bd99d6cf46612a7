"""The framework's GPUs; its processor stands in for them, where the framework is installed."""

from __future__ import annotations

import pytest

from adapters.hostagent.suite import benchmark, challenge
from adapters.hostagent.suite.port import Gpu
from ledger.domain.challenge import is_proven
from tests.support.suite import NumpyGpu

torch = pytest.importorskip("torch", reason="PyTorch is not installed; it is 3 GB")

NONCE = "ab12" * 8


def gpus(count: int = 1, mib: int = 192) -> list[Gpu]:
    """So many, each with so much free memory."""
    from adapters.hostagent.suite.torch_gpus import TorchGpu  # noqa: PLC0415 - needs the framework

    return [TorchGpu(torch.device("cpu"), mib) for _ in range(count)]


def test_rows_are_the_same_as_without_a_framework() -> None:
    """To the byte, whatever computes them."""
    assert gpus()[0].finished_rows(NONCE, 5, 1_000, 33) == NumpyGpu().finished_rows(
        NONCE, 5, 1_000, 33
    )


def test_a_challenge_is_proven() -> None:
    """From the fill to the proof."""
    found = challenge.run(gpus(2), NONCE, 2)
    assert (found.result, found.measures["filled_mib"]) == ("passed", 192)
    assert is_proven(NONCE, 2, found.measures)


def test_a_changed_word_is_noticed() -> None:
    """One word of millions."""
    (one,) = gpus()
    assert one.fill() == 192
    assert one.is_intact()
    one._chunks[2][12_345] += 1  # type: ignore[attr-defined]
    assert not one.is_intact()
    one.release()
    assert one.is_intact()


def test_measurements_are_positive() -> None:
    """Small ones of each kind."""
    for name in ("fp32_256_mflops", "fp16_64_mflops", "copy_1_mib_mb_s"):
        assert benchmark.measurement(gpus()[0], name, 0.01) > 0
