"""What a challenge computes, and how the platform sees that it was computed.

The check's nonce names a square matrix and, for each GPU, as many rows of numbers as one likes. A
row goes through `LAYERS` layers: square each entry, add the number of the layer, multiply by the
matrix, all modulo a prime so small that every sum of products is exact in 32-bit floating point,
on any card and in any order. The squares keep anybody from multiplying the layers beforehand.

A machine commits to all of its rows at once by the roots of hash trees. The commitment chooses a
few of them, and the machine shows their paths; the platform computes just these rows anew (a
thousandth of the work and less) and follows the paths to the roots. What is proven is that this
much was computed for this nonce before the answer came, for as many GPUs as were claimed. How long
it took and how much memory was held meanwhile stays the machine's word.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ledger.domain.merkle import HASH_BYTES, HashTree, verify_inclusion

WIDTH: Final = 512
LAYERS: Final = 64
PRIME: Final = 181
"""(PRIME − 1)² · WIDTH is below 2^24: each sum of products is a whole number that a float holds."""

ROWS_MIN: Final = 512
ROWS_MAX: Final = 2**22
"""Rows per GPU, always a power of two: 17 to 140,000 GFLOP."""

_MASK: Final = 2**32 - 1
_DOMAIN: Final = "ledger.challenge.v1"
_HASHES_A_MEASURE: Final = 6
"""Base 85 turns so many hashes into 240 characters; a measure has 256 at most."""
_SHOWN: Final = 8
"""Rows that are shown of all GPUs together; at least two of each."""

Array = Any
"""Integers of at least 32 bits with the operators of NumPy, on whatever computes."""


# --- the work -------------------------------------------------------------------------------------


def matrix(nonce: str, numbers: Array) -> Array:
    """Entries of the matrix.

    Args:
        nonce: Of the check.
        numbers: Row · `WIDTH` + column of each entry that is wanted, in 64 bits.
    """
    return _entries(_seed(nonce, "matrix"), numbers)


def inputs(nonce: str, gpu: int, numbers: Array) -> Array:
    """Entries of the rows of *gpu* (0, 1, …), numbered like those of `matrix`."""
    return _entries(_seed(nonce, f"gpu {gpu}"), numbers)


def through_layers(rows: Array, product: Callable[[Array], Array]) -> Array:
    """What becomes of *rows* (n × `WIDTH`); *product* multiplies by the matrix, exactly."""
    for layer in range(LAYERS):
        rows = product((rows * rows + layer) % PRIME) % PRIME
    return rows


def _seed(nonce: str, name: str) -> int:
    return int.from_bytes(_sha256(f"{_DOMAIN}\0{nonce}\0{name}".encode())[:4], "big")


def _entries(seed: int, numbers: Array) -> Array:
    """A well-mixed number below the prime for each of *numbers* (the end of MurmurHash3)."""
    words = (numbers * 0x9E3779B1 + seed) & _MASK
    words = ((words ^ (words >> 16)) * 0x85EBCA6B) & _MASK
    words = ((words ^ (words >> 13)) * 0xC2B2AE35) & _MASK
    return (words ^ (words >> 16)) % PRIME


# --- the commitment -------------------------------------------------------------------------------


def proof(nonce: str, rows: int, trees: Sequence[HashTree]) -> dict[str, int | str]:
    """The measures that prove the work: roots, and paths of the rows that they choose.

    Args:
        nonce: Of the check.
        rows: Of each GPU: a power of two from `ROWS_MIN` to `ROWS_MAX`.
        trees: Of each GPU, over its finished rows of `WIDTH` bytes.
    """
    roots = [tree.root for tree in trees]
    measures: dict[str, int | str] = {"rows": rows}
    for gpu, (tree, chosen) in enumerate(zip(trees, _chosen(nonce, roots, rows), strict=True)):
        measures[f"root.{gpu}"] = tree.root.hex()
        for number, row in enumerate(chosen):
            path = tree.path(row)
            for part, first in enumerate(range(0, len(path), _HASHES_A_MEASURE)):
                shown = b"".join(path[first : first + _HASHES_A_MEASURE])
                measures[f"path.{gpu}.{number}.{part}"] = base64.b85encode(shown).decode()
    return measures


def is_proven(nonce: str, gpus: int, measures: Mapping[str, int | str | None]) -> bool:
    """Whether *measures* show that each of *gpus* computed its rows for *nonce*.

    Takes some 50 ms of a core, for 16 rows that are computed anew and the slow choice of them. It
    is remembered for a while, so that it can be found out before a lock is taken.
    """
    return _is_proven(nonce, gpus, frozenset(measures.items()))


@lru_cache(maxsize=64)
def _is_proven(nonce: str, gpus: int, items: frozenset[tuple[str, int | str | None]]) -> bool:
    measures = dict(items)
    rows = measures.get("rows")
    if not isinstance(rows, int) or not ROWS_MIN <= rows <= ROWS_MAX or rows & (rows - 1):
        return False
    try:
        roots = [bytes.fromhex(_text(measures, f"root.{gpu}")) for gpu in range(gpus)]
        chosen = _chosen(nonce, roots, rows)
        paths = [
            [_path(measures, f"path.{gpu}.{number}", rows) for number in range(len(of_gpu))]
            for gpu, of_gpu in enumerate(chosen)
        ]
    except ValueError:
        return False
    finished = iter(_computed(nonce, chosen))
    return all(
        verify_inclusion(root, next(finished), row, rows, path)
        for root, of_gpu, paths_of_gpu in zip(roots, chosen, paths, strict=True)
        for row, path in zip(of_gpu, paths_of_gpu, strict=True)
    )


def _computed(nonce: str, chosen: Sequence[Sequence[int]]) -> list[bytes]:
    """The chosen rows of each GPU, finished, one after the other."""
    import numpy as np  # noqa: PLC0415 - 20 MB of memory that only a process that judges needs

    columns = np.arange(WIDTH, dtype=np.int64)
    square = matrix(nonce, np.arange(WIDTH * WIDTH, dtype=np.int64)).reshape(WIDTH, WIDTH)
    factor = square.astype(np.float32)
    rows = np.concatenate(
        [
            inputs(nonce, gpu, np.array(of_gpu, dtype=np.int64)[:, None] * WIDTH + columns)
            for gpu, of_gpu in enumerate(chosen)
        ]
    )
    finished = through_layers(
        rows.astype(np.int32),
        lambda factors: (factors.astype(np.float32) @ factor).astype(np.int32),
    )
    return [row.tobytes() for row in finished.astype(np.uint8)]


def _chosen(nonce: str, roots: Sequence[bytes], rows: int) -> list[list[int]]:
    """Rows to be shown of each GPU; unknown before all roots are.

    Whoever did only a part of the work could try commitments until one chooses just that part. So
    the choice takes a slow hash: a few dozen tries a second, and not millions.
    """
    count = max(2, _SHOWN // len(roots))
    commitment = _sha256(b"".join(roots) + rows.to_bytes(4, "big"))
    drawn = hashlib.scrypt(
        commitment, salt=nonce.encode(), n=2**14, r=8, p=1, dklen=4 * count * len(roots)
    )
    numbers = [int.from_bytes(drawn[at : at + 4], "big") % rows for at in range(0, len(drawn), 4)]
    return [numbers[at : at + count] for at in range(0, len(numbers), count)]


def _path(measures: Mapping[str, int | str | None], name: str, rows: int) -> list[bytes]:
    levels = rows.bit_length() - 1
    parts = range(-(-levels // _HASHES_A_MEASURE))
    joined = b"".join(base64.b85decode(_text(measures, f"{name}.{part}")) for part in parts)
    return [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]


def _text(measures: Mapping[str, int | str | None], name: str) -> str:
    found = measures.get(name)
    if not isinstance(found, str):
        raise ValueError(name)  # noqa: TRY004 - one kind of error for whatever is no proof
    return found


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
