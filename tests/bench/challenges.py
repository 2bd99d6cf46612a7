"""What it takes the platform to see that a challenge was computed, beside computing it."""

from __future__ import annotations

import statistics
import time

from ledger.domain.challenge import LAYERS, ROWS_MIN, WIDTH, _is_proven, is_proven
from tests.bench.row import Row
from tests.support.suite import proven

_GPUS = 8


def row(*, quick: bool) -> Row:
    """A proof of eight GPUs, checked again and again without remembering it."""
    began = time.perf_counter()
    measures = proven("9f2c" * 8, _GPUS)
    computed = time.perf_counter() - began
    taken = []
    for _ in range(5 if quick else 50):
        _is_proven.cache_clear()
        began = time.perf_counter()
        assert is_proven("9f2c" * 8, _GPUS, measures)
        taken.append(time.perf_counter() - began)
    check = statistics.median(taken)
    work = 2 * WIDTH * WIDTH * LAYERS * ROWS_MIN * _GPUS / 1e9
    return Row(
        f"a challenge of {_GPUS} GPUs judged: the least work that counts, {work:,.0f} GFLOP",
        f"{check * 1_000:.0f} ms",
        "far below computing it",
        f"computing it here {computed:.1f} s ({computed / check:.0f} ×); more work takes no longer"
        " to judge, but for a longer path",
    )
