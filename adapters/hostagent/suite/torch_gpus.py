"""GPUs under PyTorch; it is imported here and nowhere else, and only in the suite's process."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch

from ledger.domain.challenge import WIDTH, inputs, matrix, through_layers

_MIB: Final = 2**20
_CHUNK_WORDS: Final = 2**24
_CHUNK_MIB: Final = 4 * _CHUNK_WORDS // _MIB
_WORKING_SPACE_MIB: Final = 512
_SPREAD: Final = -1_640_531_535
"""2^32 divided by the golden ratio, as a signed word: neighbours differ in many bits."""


def visible_gpus() -> list[TorchGpu]:
    """The GPUs that the process was given (`CUDA_VISIBLE_DEVICES`), in that order."""
    torch.set_float32_matmul_precision("highest")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [TorchGpu(torch.device("cuda", index)) for index in range(count)]


class TorchGpu:
    """One device of PyTorch."""

    def __init__(self, device: torch.device, free_mib: int | None = None) -> None:
        """Compute on *device*; *free_mib* instead of what it says of its free memory."""
        self._device = device
        self._free_mib = free_mib
        self._chunks: list[torch.Tensor] = []
        self._matrix = lru_cache(maxsize=1)(self._matrix_of)

    def fill(self) -> int:
        """Fill the free memory, but for a working space, with a pattern; MiB that were filled."""
        pattern = self._pattern()
        free = self._free_mib
        if free is None:
            free = torch.cuda.mem_get_info(self._device)[0] // _MIB - _WORKING_SPACE_MIB
        try:
            for number in range(free // _CHUNK_MIB):
                self._chunks.append(pattern ^ number)
        except torch.cuda.OutOfMemoryError:
            # What is there is what counts; the last chunks make room for the work.
            del self._chunks[-(_WORKING_SPACE_MIB // _CHUNK_MIB) :]
        self._wait()
        return len(self._chunks) * _CHUNK_MIB

    def is_intact(self) -> bool:
        """Whether the pattern is still what was written."""
        pattern = self._pattern()
        return all(
            torch.equal(chunk, pattern ^ number) for number, chunk in enumerate(self._chunks)
        )

    def release(self) -> None:
        """Give the filled memory back."""
        self._chunks.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def finished_rows(self, nonce: str, gpu: int, first: int, count: int) -> bytes:
        """Rows of the challenge, `WIDTH` bytes each (`port.Gpu`)."""
        factor = self._matrix(nonce)
        numbers = self._numbers(first * WIDTH, (first + count) * WIDTH)
        rows = inputs(nonce, gpu, numbers).reshape(count, WIDTH).to(torch.int32)
        done = through_layers(
            rows, lambda factors: (factors.to(torch.float32) @ factor).to(torch.int32)
        )
        found = done.to(torch.uint8).cpu().contiguous()
        return ctypes.string_at(found.data_ptr(), found.numel())

    def product_mflops(self, size: int, bits: int, seconds: float) -> int:
        """MFLOP/s of products of square matrices (`port.Gpu`)."""
        kind = torch.float32 if bits == 32 else torch.float16  # noqa: PLR2004 - bits of a number
        left = torch.rand(size, size, device=self._device).to(kind)
        right = torch.rand(size, size, device=self._device).to(kind)
        into = torch.empty_like(left)
        rate = self._per_second(lambda: torch.mm(left, right, out=into), seconds)
        return int(rate * 2 * size**3 / 1e6)

    def copy_mb_s(self, mib: int, seconds: float) -> int:
        """MB/s, read plus written, of copies within the memory (`port.Gpu`)."""
        source = torch.ones(mib * _MIB, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        rate = self._per_second(lambda: target.copy_(source), seconds)
        return int(rate * 2 * mib * _MIB / 1e6)

    def _matrix_of(self, nonce: str) -> torch.Tensor:
        numbers = self._numbers(0, WIDTH * WIDTH)
        return matrix(nonce, numbers).reshape(WIDTH, WIDTH).to(torch.float32)

    def _numbers(self, first: int, end: int) -> torch.Tensor:
        return torch.arange(first, end, dtype=torch.int64, device=self._device)

    def _pattern(self) -> torch.Tensor:
        words = torch.arange(_CHUNK_WORDS, dtype=torch.int32, device=self._device)
        return words * _SPREAD

    def _per_second(self, work: Callable[[], Any], seconds: float) -> float:
        """Runs of *work* a second; the first few, in which the framework chooses, do not count."""
        for _ in range(3):
            work()
        self._wait()
        began, runs, at_once = time.perf_counter(), 0, 1
        while True:
            for _ in range(at_once):
                work()
            self._wait()
            runs += at_once
            elapsed = time.perf_counter() - began
            if elapsed >= seconds:
                return runs / elapsed
            at_once *= 2

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
