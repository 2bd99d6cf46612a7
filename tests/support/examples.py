"""How many examples a law is tried on: few in every run, many more with `make soak`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

EVERYDAY: Final = 60
"""Examples of a law that says nothing of its own; one that needs a database says fewer."""
SOAK: Final = 20 * EVERYDAY


def examples(everyday: int) -> int:
    """So many in every run, and as many times more as the profile in force has more."""
    return everyday * settings().max_examples // EVERYDAY
