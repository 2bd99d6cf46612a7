"""GPUs that are this computer's processor, and proofs of work that they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ledger.domain.challenge import (
    ROWS_MIN,
    WIDTH,
    inputs,
    matrix,
    proof,
    through_layers,
)
from ledger.domain.merkle import HashTree, leaf_hash

FILLED_MIB: Final = 23_000


class NumpyGpu:
    """Computes what a GPU would; its memory is only said to be filled."""

    def __init__(self, *, filled_mib: int = FILLED_MIB, intact: bool = True) -> None:
        """Say that *filled_mib* were filled, and whether they kept what was written."""
        self._filled_mib = filled_mib
        self._intact = intact
        self.is_filled = False
        self.measured: list[str] = []

    def fill(self) -> int:
        """Nothing is filled."""
        self.is_filled = True
        return self._filled_mib

    def is_intact(self) -> bool:
        """As the test wants it."""
        return self._intact

    def release(self) -> None:
        """Nothing is held."""
        self.is_filled = False

    def finished_rows(self, nonce: str, gpu: int, first: int, count: int) -> bytes:
        """Compute rows of the challenge."""
        square = matrix(nonce, np.arange(WIDTH * WIDTH, dtype=np.int64)).reshape(WIDTH, WIDTH)
        factor = square.astype(np.float32)
        numbers = np.arange(first * WIDTH, (first + count) * WIDTH, dtype=np.int64)
        rows = inputs(nonce, gpu, numbers).reshape(count, WIDTH).astype(np.int32)
        done = through_layers(
            rows, lambda factors: (factors.astype(np.float32) @ factor).astype(np.int32)
        )
        return bytes(done.astype(np.uint8).tobytes())

    def product_mflops(self, size: int, bits: int, seconds: float) -> int:
        """As fast as a number says that holds what was asked."""
        self.measured.append(f"fp{bits}_{size}")
        return size * bits

    def copy_mb_s(self, mib: int, seconds: float) -> int:
        """The same."""
        self.measured.append(f"copy_{mib}")
        return mib * 1_000


def leaves(done: bytes) -> list[bytes]:
    """The hashes of finished rows."""
    return [leaf_hash(done[at : at + WIDTH]) for at in range(0, len(done), WIDTH)]


def proven(nonce: str, gpus: int = 1, rows: int = ROWS_MIN) -> dict[str, Any]:
    """What a machine says that carried out a challenge on so many GPUs with 24 GB."""
    one = NumpyGpu()
    trees: Sequence[HashTree] = [
        HashTree(leaves(one.finished_rows(nonce, gpu, 0, rows))) for gpu in range(gpus)
    ]
    return {
        "gpus": gpus,
        "filled_mib": FILLED_MIB,
        "elapsed_ms": 900,
        **proof(nonce, rows, trees),
    }
