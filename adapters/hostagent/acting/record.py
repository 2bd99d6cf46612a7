"""What the agent did with each instance: kept for the next agent, told to the server, noted.

`kept` and what is told are committed with the same report (`sealing`); notes are for the renter.
"""

from __future__ import annotations

import time
from typing import Final

from adapters.hostagent.acting.diary import Diary
from adapters.hostagent.acting.plan import Kept, Phase
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.acting.telling import Telling
from adapters.hostagent.runtime.port import Connection
from ledger.domain.usage import HealthEvent, HealthKind, Observation, ObservedState

_REASON_CHARS: Final = 256


class Record:
    """Writes things down in their order; `kept` is by instance."""

    def __init__(self, senses: Senses, kept: dict[int, Kept], telling: Telling) -> None:
        """Go on with *kept*, and tell by *telling*; *senses* know the second and the boot."""
        self._senses, self._telling = senses, telling
        self.kept = kept
        self.diary = Diary()

    def keep(
        self,
        instance: int,
        assignment: int,
        phase: Phase,
        *,
        reboots: int | None = None,
        by_lease: bool = False,
    ) -> None:
        """Remember how far an instance has come; *reboots* null: as many as before."""
        before = self.kept.get(instance)
        if reboots is None:
            reboots = 0 if before is None else before.reboots
        self.kept[instance] = Kept(
            instance=instance,
            assignment=assignment,
            phase=phase,
            boot_id=self._senses.boot_id,
            reboots=reboots,
            by_lease=by_lease,
        )

    def forget(self, instance: int) -> None:
        """It is removed."""
        self.kept.pop(instance, None)
        self.diary.forget(instance)

    def observe(
        self,
        instance: int,
        assignment: int,
        state: ObservedState,
        *,
        exit_code: int | None = None,
        reason: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Tell the server what an instance is now."""
        self._telling.observe(
            Observation(
                instance=instance,
                assignment=assignment,
                state=state,
                at=0,
                exit_code=exit_code,
                reason=None if reason is None else reason[:_REASON_CHARS],
                ports=connection.ports or None if connection is not None else None,
                public_ip=None if connection is None else connection.public_ip,
                digest=None if connection is None else connection.digest,
            )
        )

    def say(
        self, kind: HealthKind, *, instance: int | None = None, detail: str | None = None
    ) -> None:
        """Tell the server what is with the machine now."""
        self._telling.say(HealthEvent(at=0, kind=kind, instance=instance, detail=detail))

    def note(self, instance: int, text: str) -> None:
        """Write a line for the renter."""
        self.diary.note(instance, self._senses.second or int(time.time()), text)
