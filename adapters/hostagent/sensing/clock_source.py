"""The machine's clocks, read."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from adapters.hostagent.sensing.clocks import ClockReading

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UNSYNCHRONISED: Final = 5
"""What `adjtime` returns (TIME_ERROR) while nothing disciplines the clock."""
_TIMEX_BYTES: Final = 512
"""More than `struct timex` has on any platform; all zeros asks and sets nothing."""


def read_clocks() -> ClockReading:
    """All clocks now. The monotonic one is read between the others, so they belong together."""
    boottime_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    mono_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    return ClockReading(mono_ns, boottime_ns, wall_ns, is_synchronised(), _boot_id())


def is_synchronised() -> bool:
    """True when the kernel says that a time service disciplines the wall clock."""
    state: int = _adjtimex()(ctypes.create_string_buffer(_TIMEX_BYTES))
    return 0 <= state < _UNSYNCHRONISED


@cache
def _adjtimex() -> Callable[[ctypes.Array[ctypes.c_char]], int]:
    found: Callable[[ctypes.Array[ctypes.c_char]], int] = ctypes.CDLL(None).adjtimex
    return found


@cache
def _boot_id() -> str:
    """Of this boot: no process outlives it."""
    return _BOOT_ID.read_text().strip().replace("-", "")
