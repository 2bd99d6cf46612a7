"""What comparisons return: every difference as data."""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.events import FindingUnit


class Difference(NamedTuple):
    """Two sides disagree about one thing.

    `kind` is a stable word, `about` names the thing within its job (and day), so that the same
    thing is recognised again; `detail` is for people and holds nothing personal.
    """

    kind: str
    about: str
    expected: int
    actual: int
    unit: FindingUnit
    detail: str = ""


class Compared(NamedTuple):
    """All differences of one comparison, and what the numbers cannot say.

    Where `is_done` is false nothing was compared: what was found before stays as it is.
    """

    differences: list[Difference]
    note: str = ""
    is_done: bool = True
