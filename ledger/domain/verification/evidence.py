"""How strongly a fact is known, and which of two claims holds (`marketplace.md` §11.2)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Evidence(Enum):
    """How strongly a fact is known; comparable, weakest first."""

    SELF_REPORTED = "self_reported"
    AGENT_REPORTED = "agent_reported"
    KERNEL_CORROBORATED = "kernel_corroborated"
    PLATFORM_CHALLENGED = "platform_challenged"
    HARDWARE_ATTESTED = "hardware_attested"

    @property
    def rank(self) -> int:
        """0 for the weakest."""
        return list(Evidence).index(self)

    def __lt__(self, other: Evidence) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Evidence) -> bool:
        return self.rank <= other.rank


class Claim(NamedTuple):
    """What is said of one field, how strongly it is known and since when."""

    value: int | str
    level: Evidence
    at: int


def stronger(a: Claim, b: Claim) -> Claim:
    """Which of two claims about one field holds: the higher level, of equal levels the later.

    A weaker claim never replaces a stronger one, however much later it is made or however well it
    agrees; of claims of one level and second *a* holds.
    """
    return max((a, b), key=lambda claim: (claim.level.rank, claim.at))
