"""The suite as the agent sees it, and the GPUs as the suite sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

SuiteKind = Literal["challenge", "benchmark"]


class Measured(NamedTuple):
    """What a suite found out."""

    result: Literal["passed", "failed", "inconclusive"]
    measures: Mapping[str, int | str | None]


def not_able(reason: str) -> Measured:
    """The suite could not be run; the platform learns nothing."""
    return Measured("inconclusive", {"reason": reason})


class Suite(Protocol):
    """Computes on all GPUs at once, where something is installed that can."""

    def run(self, kind: SuiteKind, nonce: str, seconds: float) -> Measured:
        """Carry out one check; ends within *seconds*."""


class NoSuite:
    """Nothing on this machine can compute on its GPUs for the platform."""

    def run(self, kind: SuiteKind, nonce: str, seconds: float) -> Measured:
        """Not able."""
        del kind, nonce, seconds
        return not_able("no_framework")


class Gpu(Protocol):
    """One GPU on which a framework computes; each method returns when the GPU has finished."""

    def fill(self) -> int:
        """Fill the free memory, but for a working space, with a pattern; MiB that were filled."""

    def is_intact(self) -> bool:
        """Whether the pattern is still what was written."""

    def release(self) -> None:
        """Give the filled memory back."""

    def finished_rows(self, nonce: str, gpu: int, first: int, count: int) -> bytes:
        """Rows *first* to *first* + *count* − 1 of GPU number *gpu* (`ledger.domain.challenge`).

        Returns:
            `WIDTH` bytes a row, one row after the other.
        """

    def product_mflops(self, size: int, bits: int, seconds: float) -> int:
        """MFLOP/s of products of square matrices of *size* in *bits*, for about *seconds*."""

    def copy_mb_s(self, mib: int, seconds: float) -> int:
        """MB/s, read plus written, of copies of *mib* MiB within the memory of the GPU."""
