"""What the operator allows webhooks to reach beyond the public internet."""

from __future__ import annotations

import os
from typing import Final, get_args

from ledger.domain.webhook_targets import Reach
from ledger.errors import RejectedError

REACH_VARIABLE: Final = "GPULEDGER_WEBHOOK_REACH"


def configured_reach() -> frozenset[Reach]:
    """The kinds of address that the environment allows: words, separated by commas.

    Raises:
        RejectedError: `invalid_setting` for a word that is none of them.
    """
    words = [word.strip() for word in os.environ.get(REACH_VARIABLE, "").split(",")]
    known: tuple[Reach, ...] = get_args(Reach)
    for word in words:
        if word and word not in known:
            message = f"{REACH_VARIABLE}: {word!r} is none of {', '.join(known)}"
            raise RejectedError("invalid_setting", message)
    return frozenset(one for one in known if one in words)
