"""Logs on demand: what renters wait for is read from the runtime and uploaded, cut to its end.

The wait for news (`link`) says that somebody waits; the requests themselves, with what of a log is
wanted, are asked for then. A request stays open at the server until its text is there, so a lost
answer or a runtime that is away costs another try and nothing else.
"""

from __future__ import annotations

from typing import Final

import httpx
import msgspec
import structlog

from adapters.hostagent.acting.calls import SignedCalls, is_final
from adapters.hostagent.acting.diary import Diary
from adapters.hostagent.acting.errand import Errand
from adapters.hostagent.runtime.port import Runtime, RuntimeUnavailableError

TEXT_CHARACTERS: Final = 100_000
"""What the server keeps of a log: more is not sent."""

log = structlog.get_logger("gpuledger.agent")


class LogWish(msgspec.Struct, frozen=True, kw_only=True):
    """A log that a renter waits for."""

    token: str
    instance_id: int
    tail: int = 1_000
    """Lines at most."""
    filter: str | None = None
    """Only lines with this in them."""
    daemon: bool = False
    """Not what the container wrote, but what the agent did with it."""


class _Wishes(msgspec.Struct):
    items: list[LogWish]


class Scribe(Errand):
    """Uploads, on a thread of its own: a long log holds up nothing else."""

    def __init__(self, calls: SignedCalls, runtime: Runtime, diary: Diary) -> None:
        """Read from *runtime* and *diary*, and send by *calls*."""
        self._calls = calls
        self._runtime = runtime
        self._diary = diary
        self._decoder = msgspec.json.Decoder(_Wishes)
        super().__init__(
            "scribe",
            self.serve,
            "logs could not be uploaded",
            (httpx.HTTPError, msgspec.DecodeError, RuntimeUnavailableError),
        )

    def notice(self, newest: int | None) -> None:
        """The server says which log request is the newest that waits; 0 and null: none does."""
        if newest:
            self.call()

    def serve(self) -> None:
        """Upload everything that is waited for now.

        Raises:
            httpx.HTTPError: The server did not answer.
            msgspec.DecodeError: What answered is not the ledger.
            RuntimeUnavailableError: The runtime did not answer.
        """
        waits = self._decoder.decode(
            self._calls.get(f"/v1/machines/{self._calls.machine}/log-requests")
        )
        for wish in waits.items:
            text = self._text(wish)
            try:
                self._calls.put(f"/v1/log-requests/{wish.token}", {"text": text})
            except httpx.HTTPStatusError as error:
                if not is_final(error):
                    raise
                # It has expired, or somebody else has answered it.
                log.info("a log is not wanted any more", instance=wish.instance_id)

    def _text(self, wish: LogWish) -> str:
        if wish.daemon:
            return shown(self._diary.text(wish.instance_id).encode(), wish.tail, wish.filter)
        found = [one for one in self._runtime.list() if one.instance == wish.instance_id]
        if not found:
            return ""
        newest = max(found, key=lambda one: one.assignment)
        # Where lines are chosen by their text, more is read than will be shown.
        tail = wish.tail if wish.filter is None else None
        return shown(self._runtime.logs(newest.id, tail), wish.tail, wish.filter)


def shown(output: bytes, tail: int, text: str | None) -> str:
    """The last *tail* lines of *output* that have *text* in them, cut to the end that is kept."""
    lines = output.decode(errors="replace").splitlines(keepends=True)
    if text is not None:
        lines = [line for line in lines if text in line]
    return "".join(lines[-tail:])[-TEXT_CHARACTERS:]
