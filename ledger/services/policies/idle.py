"""Instances that run and do nothing: told after an hour and after a day, stopped on request.

How long an instance has been idle is attested, never guessed: the meters keep the unbroken run of
idle ticks (`idle_spans`), and a machine that is silent adds nothing to it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import IdleNoticed
from ledger.domain.ids import account_stream
from ledger.domain.instance import StopInstance
from ledger.services.idleness import SECOND_NOTICE_SECONDS, IdlePolicy
from ledger.services.ledger import Ledger
from ledger.services.notices import notice
from ledger.services.rentals import command_all
from ledger.store.database import Connection

_DEFAULT: Final = IdlePolicy()
_RUNS: Final = f"""
SELECT s.instance_id, i.account_id, s.start, s.until,
       coalesce(p.notice_seconds, {_DEFAULT.notice_seconds}), p.stop_seconds,
       CASE WHEN n.idle_from = s.start THEN n.number ELSE 0 END
FROM idle_spans s JOIN instances i USING (instance_id)
LEFT JOIN idle_policies p ON p.account_id = i.account_id
LEFT JOIN idle_notices n ON n.instance_id = s.instance_id
WHERE i.status = 'running'
"""  # noqa: S608 - a constant

MAY_BE_IDLE: Final = f"""
{_RUNS} AND s.until - s.start >= least(coalesce(p.notice_seconds, {_DEFAULT.notice_seconds}),
                                       p.stop_seconds)
"""


class _Run(NamedTuple):
    """An instance that has been idle since `start`, as far as its ticks up to `until` say."""

    instance_id: int
    account_id: int
    start: int
    until: int
    notice_seconds: int
    stop_seconds: int | None
    notices: int

    @property
    def stops_at(self) -> int | None:
        """The second at which it is to be stopped."""
        return None if self.stop_seconds is None else self.start + self.stop_seconds

    @property
    def notice_at(self) -> int | None:
        """The second of its next notice: there are two at most."""
        if self.notices == 0:
            return self.start + self.notice_seconds
        if self.notices == 1 and self.notice_seconds < SECOND_NOTICE_SECONDS:
            return self.start + SECOND_NOTICE_SECONDS
        return None

    @property
    def due_at(self) -> int | None:
        """The second at which something is to be done about it."""
        due = [second for second in (self.stops_at, self.notice_at) if second is not None]
        return min(due, default=None)


def watch_idle(ledger: Ledger) -> None:
    """Tell owners of what is idle, and stop it where they asked for that."""
    with ledger.reading() as connection:
        if not _due(connection):
            return
    with ledger.unit() as unit:
        stopping = []
        for run in _due(unit.connection):
            if run.notice_at is not None and run.notice_at <= run.until:
                noticed = IdleNoticed(
                    account_id=run.account_id,
                    instance_id=run.instance_id,
                    number=run.notices + 1,
                    idle_from=run.start,
                    noticed_at=unit.now,
                )
                told = notice(unit, run.account_id, "idle", f"instance-{run.instance_id}")
                unit.append_all([(account_stream(run.account_id), noticed), told])
            if run.stops_at is not None and run.stops_at <= run.until:
                stopping.append((run.instance_id, StopInstance("idle_policy")))
        command_all(unit, stopping)


def _due(connection: Connection) -> list[_Run]:
    runs = [_Run(*row) for row in connection.execute(f"{_RUNS} ORDER BY s.instance_id")]
    return [run for run in runs if run.due_at is not None and run.due_at <= run.until]


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which what is idle now has been idle for long enough."""
    runs = [_Run(*row) for row in connection.execute(_RUNS)]
    due = [run.due_at for run in runs]
    return min((second for second in due if second is not None and second > now), default=None)
