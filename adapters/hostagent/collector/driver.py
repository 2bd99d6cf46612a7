"""NVML calls whose failures are data: each field has a number, or a status that says why not.

What a card or a driver cannot do is asked once per generation and remembered (`host-agent.md` §5).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pynvml

from adapters.hostagent.collector.codes import (
    ENDING,
    FUNCTION_MISSING,
    LOSING,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
)
from adapters.hostagent.collector.protocol import Field, Status

Handle = Any
"""What NVML calls a device; the binding has no type for it."""

_LASTING: Final[dict[int, Status]] = {
    NOT_SUPPORTED: "not_supported",
    NO_PERMISSION: "no_permission",
    NOT_FOUND: "not_supported",
    FUNCTION_MISSING: "function_missing",
}


class GenerationEndedError(Exception):
    """NVML must be initialised again before anything else is asked."""

    def __init__(self, code: int) -> None:
        """End because a call returned *code*."""
        super().__init__(f"NVML code {code}")
        self.code = code


class GpuLostError(Exception):
    """The GPU does not answer any more; the others may."""


class Way(NamedTuple):
    """One way to read something: a name to remember its absence by, and the call."""

    symbol: str
    call: Callable[[Handle], Any]


class Facts:
    """What is known to be impossible in this generation, per GPU and call."""

    def __init__(self) -> None:
        """Begin knowing nothing."""
        self._known: dict[tuple[str, str], Status] = {}
        self._untold: dict[str, Status] = {}
        self._told: set[str] = set()

    def take_news(self) -> str:
        """The calls found impossible since the last time, each named once; empty without any."""
        found = [f"{symbol} ({status})" for symbol, status in self._untold.items()]
        self._told |= self._untold.keys()
        self._untold.clear()
        return ", ".join(found)

    def ask(self, uuid: str, handle: Handle, *ways: Way) -> tuple[Any, Status]:
        """What the first way that exists returns, or null and why.

        Raises:
            GpuLostError: This GPU is gone.
            GenerationEndedError: All are.
        """
        status: Status = "error"
        for way in ways:
            known = self._known.get((uuid, way.symbol)) or self._known.get(("", way.symbol))
            if known is not None:
                status = known
                if known == "function_missing":
                    continue
                return None, status
            try:
                return way.call(handle), "ok"
            except pynvml.NVMLError as error:
                code = int(error.value)
            if code in ENDING:
                raise GenerationEndedError(code)
            if code in LOSING:
                raise GpuLostError
            if code not in _LASTING:
                return None, "error"
            status = _LASTING[code]
            # What the library lacks, it lacks for every GPU.
            of = "" if code == FUNCTION_MISSING else uuid
            self._known[(of, way.symbol)] = status
            if way.symbol not in self._told:
                self._untold[way.symbol] = status
            if code != FUNCTION_MISSING:
                return None, status
        return None, status


def address(handle: Handle) -> int:
    """Two handles of one address are one device."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def way(symbol: str, *arguments: Any) -> Way:
    """Call the binding's function of that name with the handle and *arguments*."""

    def call(handle: Handle) -> Any:
        return getattr(pynvml, symbol)(handle, *arguments)

    return Way(f"{symbol}{arguments}" if arguments else symbol, call)


NUMBERS: Final[dict[Field, tuple[Way, ...]]] = {
    "power_mw": (way("nvmlDeviceGetPowerUsage"),),
    "power_limit_mw": (way("nvmlDeviceGetEnforcedPowerLimit"),),
    "temp_c": (way("nvmlDeviceGetTemperature", 0),),
    "energy_mj": (way("nvmlDeviceGetTotalEnergyConsumption"),),
    "throttle": (
        way("nvmlDeviceGetCurrentClocksEventReasons"),
        way("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    "sm_mhz": (way("nvmlDeviceGetClockInfo", 1),),
    "mem_mhz": (way("nvmlDeviceGetClockInfo", 2),),
    "pstate": (way("nvmlDeviceGetPerformanceState"),),
}
"""Of the 5 s sweep: calls that answer one number."""

SLOW_NUMBERS: Final[dict[Field, tuple[Way, ...]]] = {
    "link_gen": (way("nvmlDeviceGetCurrPcieLinkGeneration"),),
    "link_gen_max": (way("nvmlDeviceGetMaxPcieLinkGeneration"),),
    "link_width": (way("nvmlDeviceGetCurrPcieLinkWidth"),),
    "link_width_max": (way("nvmlDeviceGetMaxPcieLinkWidth"),),
    "pcie_replays": (way("nvmlDeviceGetPcieReplayCounter"),),
    "pcie_tx_kb_s": (way("nvmlDeviceGetPcieThroughput", 0),),
    "pcie_rx_kb_s": (way("nvmlDeviceGetPcieThroughput", 1),),
    "ecc_corrected_volatile": (way("nvmlDeviceGetTotalEccErrors", 0, 0),),
    "ecc_uncorrected_volatile": (way("nvmlDeviceGetTotalEccErrors", 1, 0),),
    "ecc_corrected_aggregate": (way("nvmlDeviceGetTotalEccErrors", 0, 1),),
    "ecc_uncorrected_aggregate": (way("nvmlDeviceGetTotalEccErrors", 1, 1),),
}
"""Of the 60 s sweep; the two of PCIe traffic take 20 ms each."""
