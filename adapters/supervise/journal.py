"""What the supervisor did: one line per action, for people or for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from ledger.domain.ids import rfc3339

_UNPRINTABLE: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")


class Journal:
    """Writes lines as they happen; nothing is buffered, so that a log shows the last action."""

    def __init__(self, out: TextIO, *, as_json: bool = False) -> None:
        """Write to *out*, one JSON object a line or one sentence a line."""
        self._out = out
        self._as_json = as_json

    def __call__(self, action: str, sentence: str, /, **data: Any) -> None:
        """Tell that *action* was taken; *data* is what programs read of it."""
        at = rfc3339(int(time.time()))
        if self._as_json:
            known: Mapping[str, Any] = {name: one for name, one in data.items() if one is not None}
            line = {"at": at, "action": action, "message": sentence, **known}
            self._out.write(msgspec.json.encode(line).decode() + "\n")
        else:
            self._out.write(f"{at}  {action:<9}  {sentence.translate(_UNPRINTABLE)}\n")
        self._out.flush()
