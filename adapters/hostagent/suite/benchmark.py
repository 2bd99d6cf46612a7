"""A benchmark: the platform's measurements on one GPU, and how well all of them work together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from adapters.hostagent.suite.port import Gpu, Measured, not_able
from ledger.domain.benchmark import REFERENCE, SCALING, SUITE, WHOLE_PPM

_SECONDS_EACH: Final = 1.0
_TOGETHER: Final = "fp32_4096_mflops"
"""What is measured once more with all GPUs at work."""


def run(gpus: Sequence[Gpu], seconds: float) -> Measured:
    """Measure; takes about nine seconds, less where *seconds* are fewer."""
    if not gpus:
        return not_able("no_gpu")
    each = min(_SECONDS_EACH, seconds / (2 * len(REFERENCE)))
    measures: dict[str, int | str] = {name: measurement(gpus[0], name, each) for name in REFERENCE}
    alone = measures[_TOGETHER]
    assert isinstance(alone, int)
    with ThreadPoolExecutor(len(gpus)) as threads:
        together = sum(threads.map(lambda gpu: measurement(gpu, _TOGETHER, each), gpus))
    scaling = min(WHOLE_PPM, WHOLE_PPM * together // max(1, alone * len(gpus)))
    return Measured(
        "passed", {"gpus": len(gpus), "suite": SUITE, **measures, SCALING: max(1, scaling)}
    )


def measurement(gpu: Gpu, name: str, seconds: float) -> int:
    """One measurement by its name in the suite: what, its size, and (after both) its unit."""
    what, size = name.split("_")[:2]
    if what == "copy":
        return gpu.copy_mb_s(int(size), seconds)
    return gpu.product_mflops(int(size), int(what.removeprefix("fp")), seconds)
