"""Names that renters give to what is theirs."""

from __future__ import annotations

import re

from ledger.errors import RejectedError

_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


def check_label(text: str | None) -> None:
    """Refuse a label that could not be shown.

    Raises:
        RejectedError: `invalid_args`.
    """
    if text is not None and not _LABEL.fullmatch(text):
        raise RejectedError("invalid_args", "a label is 1 to 128 printable characters")
