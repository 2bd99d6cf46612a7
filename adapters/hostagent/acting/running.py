"""What runs as it is wanted: told to the server when it begins, and to whoever shows the way in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from adapters.hostagent.acting.record import Record
from adapters.hostagent.acting.roll import Roll
from adapters.hostagent.acting.wanted import Wanted
from adapters.hostagent.runtime.port import Connection, Found, Runtime, RuntimeUnavailableError


class Running:
    """Confirms that an instance runs under its assignment."""

    def __init__(self, runtime: Runtime, wanted: Wanted, roll: Roll, record: Record) -> None:
        """Tell of what is on *roll* as it is *wanted*, by *record*."""
        self._runtime = runtime
        self._wanted, self._roll, self._record = wanted, roll, record
        self.on_running: Callable[[Collection[Found]], None] = _nothing
        """Called with what runs as it is wanted, at every list and whenever more runs."""

    def confirm(self, found: Found, connection: Connection | None) -> None:
        """It runs under the assignment that its own label says; null: its ports are asked for."""
        if connection is None:
            with contextlib.suppress(RuntimeUnavailableError):
                connection = self._runtime.connection(found.id)
        kept = self._record.kept.get(found.instance)
        want = self._wanted.instances.get(found.instance)
        is_same = kept is not None and kept.assignment == found.assignment
        reboots = kept.reboots if kept is not None and is_same else 0
        if not is_same and want is not None:
            reboots = want.reboots
        self._record.keep(found.instance, found.assignment, "running", reboots=reboots)
        self._record.note(found.instance, f"runs under assignment {found.assignment}")
        self._record.observe(found.instance, found.assignment, "running", connection=connection)
        self.tell()

    def tell(self) -> None:
        """Say which containers run as they are wanted."""
        wanted = self._wanted.instances
        self.on_running(
            [
                one
                for one in self._roll.found.values()
                if one.is_alive
                and (want := wanted.get(one.instance)) is not None
                and (want.want, want.assignment) == ("running", one.assignment)
            ]
        )


def _nothing(_: Collection[Found]) -> None:
    """Nobody asks what runs."""
