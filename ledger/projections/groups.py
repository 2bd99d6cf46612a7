"""The two groups of read models, and how they are folded now.

Apart from the tables' declarations: whoever folds and asks needs no SQLAlchemy.
"""

from __future__ import annotations

from typing import Final

FACTS: Final = "facts"
USAGE: Final = "usage"

GENERATION: Final = 6
"""Raise it when a fold changes; the program then asks for a rebuild before it serves."""
