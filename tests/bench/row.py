"""One line of the table of measurements."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What was measured, what came out, what was wanted, and what it is compared with."""

    what: str
    reached: str
    target: str
    beside: str
