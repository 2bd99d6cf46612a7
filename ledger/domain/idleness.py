"""What counts as idle: no work, no process that matters, no power (`marketplace.md` §13.5).

Utilisation alone proves nothing: drivers report 0 for what they cannot measure, and 100 for days
after a process died. So every measure that is there must agree, and what is unknown is never idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.domain.usage import GpuSample

IDLE_BELOW_PERCENT: Final = 5
IDLE_BYTES: Final = bytes(range(IDLE_BELOW_PERCENT))
"""The values of a utilisation column that show an idle second; 255, unknown, is none of them."""
IDLE_MEMORY_BYTES: Final = 2**30
IDLE_POWER_PERCENT: Final = 25
"""Of the GPU's own limit. Cards rest at 5 to 15 %, and at up to 20 % with a context open."""
IDLE_POWER_MW: Final = 50_000
"""Where the limit of a GPU is not known."""


def idle_tail(util: bytes) -> int:
    """How many of the last seconds of a utilisation column are idle without a break."""
    return len(util) - len(util.rstrip(IDLE_BYTES))


def is_idle(sample: GpuSample, max_power_mw: int | None) -> bool:
    """True when a reading of a GPU shows that nothing works on it, and leaves nothing unknown."""
    if sample.status != "ok" or sample.util is None or sample.power_mw is None:
        return False
    if not 0 <= sample.util < IDLE_BELOW_PERCENT:
        return False
    has_no_process = sample.procs is not None and not sample.procs
    holds_little = sample.mem_used is not None and sample.mem_used < IDLE_MEMORY_BYTES
    if not (has_no_process or holds_little):
        return False
    near_idle = IDLE_POWER_MW if not max_power_mw else max_power_mw * IDLE_POWER_PERCENT // 100
    return sample.power_mw <= near_idle
