"""The benchmark suite of the platform, and what a run of it scores per GPU (`marketplace.md` §12).

Seven measurements on one GPU: matrix products in 32 bits at three sizes and in 16 bits at one, and
copies within GPU memory at three sizes; whole numbers of MFLOP/s and MB/s. Scores of different
suite versions are never compared: other measurements or another reference need another `SUITE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.domain.score import mean_ratio, score_raw

SUITE: Final = "products-1"

REFERENCE: Final[Mapping[str, int]] = {
    "fp32_2048_mflops": 10_000_000,
    "fp32_4096_mflops": 10_600_000,
    "fp32_8192_mflops": 10_800_000,
    "fp16_8192_mflops": 10_800_000,
    "copy_64_mib_mb_s": 365_000,
    "copy_256_mib_mb_s": 370_000,
    "copy_1024_mib_mb_s": 375_000,
}
"""A GTX 1080 Ti: published peaks (11.3 TFLOP/s, 484 GB/s; its 16-bit products run in 32 bits) times
the share that such products and copies usually reach. With published figures a 2080 Ti comes out
near 14 and a V100 near 21, as §12 wants."""

SCALING: Final = "scaling_ppm"
"""Millionths: speed of all GPUs together over the number of GPUs times the speed of one."""

WHOLE_PPM: Final = 1_000_000

_TIMES_REFERENCE_MAX: Final = 1_000
"""No card is this many times faster than the reference; what claims it is no measurement."""

DRIFT_PERCENT: Final = 15
"""A run this far off the median before it means that the machine must be verified anew."""


def ratio_of(measures: Mapping[str, int | str | None]) -> float | None:
    """Geometric mean of the measurements over the reference; None when they are no whole run."""
    taken: dict[str, float] = {
        name: value
        for name in REFERENCE
        if isinstance(value := measures.get(name), int)
        and value <= REFERENCE[name] * _TIMES_REFERENCE_MAX
    }
    return mean_ratio(taken, REFERENCE)


def score_per_gpu(measures: Mapping[str, int], scaling_ppm: int) -> float:
    """What one GPU of the machine contributes to the raw score of a slice.

    The efficiency was measured with all GPUs at work, so a smaller slice is scored with care.
    """
    ratio = ratio_of(measures)
    assert ratio is not None, measures
    return score_raw(ratio, 1, scaling_ppm / WHOLE_PPM)


def has_drifted(score: float, usual: float | None) -> bool:
    """Whether a new score is too far from what the machine usually scores."""
    return usual is not None and abs(score - usual) * 100 > DRIFT_PERCENT * usual
