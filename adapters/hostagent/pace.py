"""How long a report is: short while all is well, longer where every report costs."""

from __future__ import annotations

from typing import Final

from adapters.hostagent.spool import Stage

LONG_SECONDS: Final = 60
LONGEST_SECONDS: Final = 300
OFFLINE_SECONDS: Final = 600
"""Without an answer for this long, nobody is waiting for short reports."""
OFFLINE_LONG_SECONDS: Final = 3_600


def seal_seconds(normal: int, stage: Stage, silent_seconds: float, *, is_idle: bool) -> int:
    """Seconds in the next report.

    Args:
        normal: While the server answers and there is room.
        stage: How full the spool is.
        silent_seconds: Since the last answer of the server.
        is_idle: No container is on the machine.
    """
    if stage == "full" or silent_seconds >= OFFLINE_LONG_SECONDS:
        return max(normal, LONGEST_SECONDS if is_idle or stage == "full" else LONG_SECONDS)
    if stage == "high" or silent_seconds >= OFFLINE_SECONDS:
        return max(normal, LONG_SECONDS)
    return normal
