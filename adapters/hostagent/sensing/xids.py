"""What the driver's fault numbers mean for a machine, and counting each fault once. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

XIDS_VERSION: Final = 1
"""Grows with every change of the lists below, so that a record says which ones it was judged by."""

XidClass = Literal["application", "degraded", "fatal", "suspect"]

APPLICATION: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of the program on the GPU: out-of-range access, page fault, stopped or killed channel."""
DEGRADED: Final = frozenset({63, 92, 94})
"""Memory that was repaired or contained: the GPU works and must be challenged again."""
FATAL: Final = frozenset({48, 62, 64, 74, 79, 95, 119, 120})
"""The GPU is not usable: uncorrectable memory, halted controllers, links, the bus."""
OFF_THE_BUS: Final = 79

SAME_FAULT_NS: Final = 1_000_000_000
"""Driver event and kernel line of one fault are seen at most this far apart."""

Source = Literal["driver", "kernel", "bus"]
"""The NVML event, the kernel's Xid line, and the kernel's words about a GPU off the bus."""


class Fault(NamedTuple):
    """One fault as one source told it; without a UUID it may be any GPU of the machine."""

    at_ns: int
    gpu_uuid: str | None
    code: int | None
    source: Source
    detail: str | None = None


def classify(code: int | None) -> XidClass:
    """What *code* does to the GPU's standing; what is not known makes it suspect."""
    if code in APPLICATION:
        return "application"
    if code in DEGRADED:
        return "degraded"
    return "fatal" if code in FATAL else "suspect"


class _Told(NamedTuple):
    fault: Fault
    sources: set[Source]


class FaultBook:
    """Counts faults. The same fault from two sources is one; two from one source are two."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.counts: dict[str, int] = {}
        """By code; `unknown` where there was none."""
        self._recent: list[_Told] = []

    def take(self, fault: Fault) -> bool:
        """True when nobody told of this fault before."""
        self._recent = [
            one for one in self._recent if abs(fault.at_ns - one.fault.at_ns) <= SAME_FAULT_NS
        ]
        for one in self._recent:
            is_same = one.fault[1:3] == fault[1:3]
            if is_same and fault.source not in one.sources:
                one.sources.add(fault.source)
                return False
        self._recent.append(_Told(fault, {fault.source}))
        name = "unknown" if fault.code is None else str(fault.code)
        self.counts[name] = self.counts.get(name, 0) + 1
        return True
