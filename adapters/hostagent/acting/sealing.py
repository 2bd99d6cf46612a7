"""From finished seconds and what waits to be told to reports: one transaction each, and in order.

What the agent knows of its instances is committed with the report that tells of it, so after a kill
at any moment the two do not contradict each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from adapters.hostagent.acting.plan import Kept
from adapters.hostagent.acting.senses import Attested, Senses
from adapters.hostagent.acting.telling import Telling
from adapters.hostagent.pace import seal_seconds
from adapters.hostagent.reports import ReportChain, SealedReport, Signer
from adapters.hostagent.spool import SqliteSpool, Stage
from ledger.domain.usage import UNKNOWN_UTILISATION, HealthEvent, InstanceBlock
from ledger.errors import UnavailableError

_EMPTY_SECONDS: Final = 0.1
"""Reports that attest no second come at most ten times a second."""
_SHORTEST_SECONDS: Final = 1.0
_MAX_HEALTH: Final = 256

log = structlog.get_logger("gpuledger.agent")


class _Untold(msgspec.Struct):
    """What could not be sealed: the news, and the agent's memory that goes with it."""

    news: bytes
    kept: list[Kept]


class Sealer:
    """Seals, and holds what is committed with it: `kept` by instance, and `telling`.

    `stage` says how full the spool is: what is sealed then gets leaner.
    """

    def __init__(
        self,
        *,
        senses: Senses,
        spool: SqliteSpool,
        signer: Signer,
        report_seconds: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on where the spool says that the agent before ended.

        Args:
            senses: Attests seconds.
            spool: Keeps reports, and what this agent knows.
            signer: Holds the machine's key.
            report_seconds: Seconds in a report while all is well.
            monotonic: Seconds that never go back.
        """
        self._senses, self._spool, self._signer = senses, spool, signer
        self._report_seconds = report_seconds
        self._monotonic = monotonic
        self.on_sealed: Callable[[], None] = _nobody
        """Called after every report."""
        untold = spool.load("untold")
        before = msgspec.json.decode(untold, type=_Untold) if untold else None
        kept = msgspec.json.decode(spool.load("kept") or b"[]", type=list[Kept])
        self.kept: dict[int, Kept] = {
            one.instance: one for one in (kept if before is None else before.kept)
        }
        self.telling = Telling(
            lambda: senses.second,
            senses.boot_id,
            None if before is None else before.news,
            monotonic,
        )
        self._saved = untold or b""
        """What the spool holds of news that could not be sealed."""
        self.sealed = 0
        self.stage: Stage = "ok"
        self._sealed_at = 0.0
        self._unsealed: Attested | None = None

    def seal(self, *, silent_seconds: float, is_idle: bool, is_last: bool = False) -> None:
        """Seal what is due: a full window, news at once, or all that is finished at the end.

        Args:
            silent_seconds: Since the last answer of the server.
            is_idle: Whether the machine holds no instance.
            is_last: Whether this agent ends.
        """
        if self._senses.second is None:
            self._keep_untold()
            return
        due_in = self.due_in_seconds(silent_seconds=silent_seconds, is_idle=is_idle)
        if due_in > 0 and not is_last:
            return
        is_news = self.telling.is_news
        attested = self._unsealed or self._senses.attest()
        if attested is None and not (is_news or self._senses.has_news):
            return
        while attested is not None:
            if not self._seal_one(attested):
                return
            attested = self._senses.attest()
        if not self.telling.is_empty or self._senses.has_news:
            self._seal_one(self._senses.news())

    def due_in_seconds(self, *, silent_seconds: float, is_idle: bool) -> float:
        """Until the next report is to be sealed; not positive when it is due.

        News are sealed at once, what the senses have to tell after a second at least.
        """
        if self.telling.is_news:
            step = _EMPTY_SECONDS
        elif self._senses.has_news:
            step = _SHORTEST_SECONDS
        else:
            normal = self._report_seconds
            step = seal_seconds(normal, self.stage, silent_seconds, is_idle=is_idle)
        return self._sealed_at + step - self._monotonic()

    def _keep_untold(self) -> None:
        """Without the time nothing can be sealed: what was done and seen outlives this agent."""
        if self.telling.is_empty and not self._saved:
            return
        untold = msgspec.json.encode(_Untold(self.telling.stored(), list(self.kept.values())))
        if untold != self._saved:
            self._spool.save("untold", untold)
            self._saved = untold

    def _seal_one(self, attested: Attested) -> bool:
        """Seal one window with all that waits to be told; false when it must be tried again."""
        batch = self.telling.batch(_MAX_HEALTH - len(attested.health))
        lean = self.stage == "full"
        blocks = [_without_utilisation(one) for one in attested.blocks] if lean else attested.blocks

        def make(chain: ReportChain) -> SealedReport:
            start, count, kept = attested.start, attested.count, blocks
            if start < chain.sealed_until:
                # It was committed though the answer did not come back: only what was not is left.
                start, count, kept = max(chain.sealed_until, start), 0, []
            return chain.seal(
                start,
                count,
                kept,
                batch.observed,
                health=[*attested.health, *batch.health][:_MAX_HEALTH],
                gpus=[] if lean else attested.gpus,
                inventory=attested.inventory,
                answers=batch.answers,
                clock=attested.clock,
            )

        states: Mapping[str, bytes] = {
            "senses": attested.state,
            "kept": msgspec.json.encode(list(self.kept.values())),
            "untold": b"",
        }
        second = self._senses.second or int(time.time())
        try:
            self._spool.seal(self._signer, self._senses.boot_id, second, make, states)
        except UnavailableError as error:
            log.error("cannot seal", reason=error.message)  # noqa: TRY400 - a full disk
            self._unsealed = attested
            self._sealed_at = self._monotonic()
            return False
        except ValueError as error:
            # The server would refuse it for ever: better a hole than an agent that goes no further.
            log.exception("a report cannot be sealed", start=attested.start, why=str(error))
        self._unsealed = None
        self.telling.told(batch)
        self._saved = b""
        self._sealed_at = self._monotonic()
        self.sealed += 1
        self._note_stage()
        self.on_sealed()
        return True

    def _note_stage(self) -> None:
        stage = self._spool.stage
        if stage != self.stage:
            log.warning("spool", stage=stage)
            if stage != "ok" and self.stage == "ok":
                self.telling.say(HealthEvent(at=0, kind="spool_high", detail=stage))
            self.stage = stage


def _nobody() -> None:
    """Nobody waits for reports."""


def _without_utilisation(block: InstanceBlock) -> InstanceBlock:
    return msgspec.structs.replace(block, util=bytes([UNKNOWN_UTILISATION]) * block.count)
