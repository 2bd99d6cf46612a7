"""Answers to the platform's checks: each open check once, a ping at once, a long one beside.

The platform judges; a machine that cannot compute says so (`inconclusive`) and claims nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import structlog

from adapters.hostagent.suite.port import Measured, Suite, not_able
from ledger.domain.checks import NONCE
from ledger.domain.usage import CheckAnswer

_REMEMBERED: Final = 1_000

log = structlog.get_logger("gpuledger.agent")


class Answerer:
    """Takes checks from acknowledgements and gives answers for the next report."""

    def __init__(
        self,
        gpus: Callable[[], int | None],
        second: Callable[[], int | None],
        suite: Suite,
    ) -> None:
        """Answer pings from *gpus* (null: the driver does not answer), others by *suite*."""
        self._gpus = gpus
        self._second = second
        self._suite = suite
        self._known: dict[tuple[int, str], None] = {}
        self._answers: SimpleQueue[CheckAnswer] = SimpleQueue()

    def ask(self, checks: Sequence[Mapping[str, Any]]) -> None:
        """Begin to answer those *checks* that are new; a kind that is unknown is left alone."""
        for check in checks:
            key = (int(check["slot"]), str(check["nonce"]))
            if key in self._known:
                continue
            self._known[key] = None
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
            match check["kind"]:
                case "ping":
                    self._ping(check)
                case "challenge" | "benchmark":
                    threading.Thread(
                        target=self._measure, args=[check], name=check["kind"], daemon=True
                    ).start()
                case kind:
                    log.warning("unknown check", kind=kind)

    def take_answers(self) -> list[CheckAnswer]:
        """The answers that are there since the last call."""
        found: list[CheckAnswer] = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except Empty:
                return found

    def _ping(self, check: Mapping[str, Any]) -> None:
        gpus = self._gpus()
        if gpus is None:
            self._answer(check, not_able("driver_does_not_answer"))
        else:
            self._answer(check, Measured("passed", {"gpus": gpus}))

    def _measure(self, check: Mapping[str, Any]) -> None:
        seconds = max(1.0, check["deadline"] - (self._second() or check["at"]) - 60.0)
        try:
            measured = self._suite.run(check["kind"], str(check["nonce"]), seconds)
        except Exception as error:
            log.exception("a check could not be carried out", kind=check["kind"])
            measured = not_able(type(error).__name__)
        self._answer(check, measured)

    def _answer(self, check: Mapping[str, Any], measured: Measured) -> None:
        at = self._second() or int(check["at"])
        measures = {**measured.measures, NONCE: str(check["nonce"])}
        self._answers.put(
            CheckAnswer(slot=check["slot"], at=at, result=measured.result, measures=measures)
        )
