"""A challenge: fill the memory of all GPUs, compute on all of them at once, prove it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from adapters.hostagent.suite.port import Gpu, Measured, not_able
from ledger.domain.challenge import ROWS_MAX, ROWS_MIN, WIDTH, proof
from ledger.domain.merkle import HashTree, leaf_hash

WORK_SECONDS: Final = 10.0
"""Long enough to warm a GPU up and to show its faults, short enough for whoever waits to rent."""
_ROWS_AT_ONCE: Final = 8_192
_T = TypeVar("_T")


def run(gpus: Sequence[Gpu], nonce: str, seconds: float) -> Measured:
    """Challenge *gpus*; as much work as fits into `WORK_SECONDS` and a quarter of *seconds*."""
    if not gpus:
        return not_able("no_gpu")
    with ThreadPoolExecutor(len(gpus)) as threads:

        def on_all(work: Callable[[int, Gpu], _T]) -> list[_T]:
            return list(threads.map(work, range(len(gpus)), gpus))

        try:
            filled = on_all(lambda _, gpu: gpu.fill())
            on_all(lambda number, gpu: gpu.finished_rows(nonce, number, 0, ROWS_MIN))
            paces = on_all(lambda number, gpu: _seconds_of(gpu, nonce, number))
            rows = _rows(max(paces), min(WORK_SECONDS, seconds / 4))
            began = time.monotonic()
            trees = on_all(lambda number, gpu: _tree(gpu, nonce, number, rows))
            elapsed = time.monotonic() - began
            bad = [number for number, good in enumerate(on_all(_is_intact)) if not good]
        finally:
            on_all(lambda _, gpu: gpu.release())
    measures = {
        "gpus": len(gpus),
        "filled_mib": min(filled),
        "elapsed_ms": round(1_000 * elapsed),
        **proof(nonce, rows, trees),
    }
    if bad:
        return Measured("failed", {**measures, "reason": "memory_differs", "gpu": bad[0]})
    return Measured("passed", measures)


def _is_intact(_: int, gpu: Gpu) -> bool:
    return gpu.is_intact()


def _seconds_of(gpu: Gpu, nonce: str, number: int) -> float:
    """How long `ROWS_MIN` rows take, hashed, once the GPU is warm and all others compute too."""
    began = time.monotonic()
    _tree(gpu, nonce, number, ROWS_MIN)
    return time.monotonic() - began


def _rows(pace: float, seconds: float) -> int:
    """Rows per GPU, a power of two: as many as fit into *seconds*, *pace* being of `ROWS_MIN`."""
    rows = ROWS_MIN
    while rows < ROWS_MAX and 2 * rows * pace <= seconds * ROWS_MIN:
        rows *= 2
    return rows


def _tree(gpu: Gpu, nonce: str, number: int, rows: int) -> HashTree:
    """Compute and hash all rows of one GPU; only the hashes are kept."""
    leaves: list[bytes] = []
    for first in range(0, rows, _ROWS_AT_ONCE):
        done = gpu.finished_rows(nonce, number, first, min(_ROWS_AT_ONCE, rows - first))
        leaves += [leaf_hash(done[at : at + WIDTH]) for at in range(0, len(done), WIDTH)]
    return HashTree(leaves)
