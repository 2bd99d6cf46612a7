"""Challenges and benchmarks as the suite carries them out, on GPUs that are the processor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.hostagent.suite import benchmark, challenge
from adapters.hostagent.suite.port import Measured, SuiteKind
from ledger.domain.benchmark import REFERENCE, SCALING, WHOLE_PPM
from ledger.domain.checks import NONCE, Hardware, Measures, Verdict, judge_answer
from tests.support.suite import NumpyGpu

TOLD = "ab12" * 8


def judged(kind: SuiteKind, gpus: int, result: str, measures: Measures) -> Verdict:
    """What the platform makes of it."""
    hardware = Hardware(gpus=gpus, gpu_ram_gb=24)
    return judge_answer(kind, TOLD, result, {**measures, NONCE: TOLD}, hardware)


def test_a_challenge_of_all_gpus_passes() -> None:
    """What the suite measures is what the platform wants to see."""
    gpus = [NumpyGpu(), NumpyGpu()]
    found = challenge.run(gpus, TOLD, seconds=0.1)
    assert judged("challenge", 2, found.result, found.measures).reason == "answered"
    assert not any(one.is_filled for one in gpus)


def test_the_smallest_fill_counts() -> None:
    """One GPU of two that holds less than it should is not hidden by the other."""
    gpus = [NumpyGpu(), NumpyGpu(filled_mib=11_000)]
    found = challenge.run(gpus, TOLD, seconds=0.1)
    assert judged("challenge", 2, found.result, found.measures).reason == "memory_missing"


def test_memory_that_forgets_is_a_failure() -> None:
    """The machine says so itself, and which GPU it is."""
    found = challenge.run([NumpyGpu(), NumpyGpu(intact=False)], TOLD, seconds=0.1)
    assert (found.result, found.measures["gpu"]) == ("failed", 1)
    assert judged("challenge", 2, found.result, found.measures).reason == "reported_failure"


def test_a_gpu_less_is_missed() -> None:
    """The suite takes what the framework shows; the platform knows how many there are."""
    found = challenge.run([NumpyGpu()], TOLD, seconds=0.1)
    assert judged("challenge", 2, found.result, found.measures).reason == "gpu_missing"


@pytest.mark.parametrize(
    ("pace", "seconds", "rows"),
    [(1.0, 0.5, 512), (1.0, 2.0, 1_024), (0.1, 1.0, 4_096), (1e-9, 10.0, 2**22)],
)
def test_the_work_fits_into_its_time(pace: float, seconds: float, rows: int) -> None:
    """A power of two of rows, by the pace of the slowest GPU; never fewer than count."""
    assert challenge._rows(pace, seconds) == rows


def test_memory_is_given_back_when_a_gpu_fails() -> None:
    """The error goes on, to be told as such."""

    class Broken(NumpyGpu):
        def finished_rows(self, nonce: str, gpu: int, first: int, count: int) -> bytes:
            message = "an illegal memory access was encountered"
            raise RuntimeError(message)

    gpus = [NumpyGpu(), Broken()]
    with pytest.raises(RuntimeError, match="illegal memory access"):
        challenge.run(gpus, TOLD, seconds=0.1)
    assert not any(one.is_filled for one in gpus)


def test_a_benchmark_is_a_whole_run_of_the_suite() -> None:
    """Every measurement on the first GPU, one on all at once, and it is worth a score."""
    gpus = [NumpyGpu(), NumpyGpu()]
    found = benchmark.run(gpus, seconds=60)
    assert judged("benchmark", 2, found.result, found.measures).reason == "answered"
    assert found.measures["fp16_8192_mflops"] == 16 * 8_192
    assert found.measures["copy_64_mib_mb_s"] == 64_000
    assert found.measures[SCALING] == WHOLE_PPM
    assert len(gpus[0].measured) == len(REFERENCE) + 1
    assert gpus[1].measured == ["fp32_4096"]


def test_gpus_that_slow_each_other_down_scale_less() -> None:
    """Half the speed on the second GPU is three quarters of what both should do."""

    class Slow(NumpyGpu):
        def product_mflops(self, size: int, bits: int, seconds: float) -> int:
            return super().product_mflops(size, bits, seconds) // 2

    found = benchmark.run([NumpyGpu(), Slow()], seconds=60)
    assert found.measures[SCALING] == 750_000


@pytest.mark.parametrize("run", [lambda: challenge.run([], TOLD, 1), lambda: benchmark.run([], 1)])
def test_without_a_gpu_nothing_is_claimed(run: Callable[[], Measured]) -> None:
    """A framework that sees no GPU makes the answer inconclusive, not failed."""
    assert run().result == "inconclusive"
