"""Names that renters give to what is theirs."""

from __future__ import annotations

import re
from typing import Final

from ledger.errors import RejectedError

_LABEL: Final = re.compile(r"[^\x00-\x1f\x7f]+")
_CHARACTERS_MAX: Final = 1_024


def check_label(text: str | None) -> None:
    """Refuse a label that could not be shown.

    Raises:
        RejectedError: `invalid_args`, or `label_too_long` above 1,024 characters.
    """
    if text is None:
        return
    if len(text) > _CHARACTERS_MAX:
        message = f"a label has at most {_CHARACTERS_MAX} characters"
        raise RejectedError("label_too_long", message)
    if not _LABEL.fullmatch(text):
        raise RejectedError("invalid_args", "a label is made of printable characters")
