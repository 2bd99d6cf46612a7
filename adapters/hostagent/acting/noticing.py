"""What a fresh list means: who ended, who runs unconfirmed, who is strange, whose disk is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from adapters.hostagent.acting.crew import Crew
from adapters.hostagent.acting.plan import ended_by_itself
from adapters.hostagent.acting.record import Record
from adapters.hostagent.acting.roll import LIST_SECONDS, Roll
from adapters.hostagent.acting.running import Running
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.acting.wanted import Wanted
from adapters.hostagent.runtime.port import Found
from ledger.domain.acknowledgement import DesiredInstance


class Noticing:
    """Compares the roll with what is wanted and with what the agent did; each thing is told once.

    `strangers` are containers under the platform's label that nobody wants.
    """

    def __init__(
        self,
        *,
        wanted: Wanted,
        roll: Roll,
        crew: Crew,
        running: Running,
        record: Record,
        senses: Senses,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing noticed; instances on which the *crew* is at work are left alone."""
        self._wanted, self._roll, self._crew = wanted, roll, crew
        self._running, self._record, self._senses = running, record, senses
        self._monotonic = monotonic
        self._missing: dict[int, float] = {}
        """Instance that should have a disk and has none → since when."""
        self.strangers: set[str] = set()

    def notice(self, listed: list[Found]) -> None:
        """Take in a list that was read now."""
        self._ends()
        self._strangers(listed)
        self._missing_disks()
        self._running.tell()

    def _ends(self) -> None:
        for instance, found in self._roll.found.items():
            want = self._wanted.instances.get(instance)
            if want is None or want.want != "running" or instance in self._crew.busy:
                continue
            kept = self._record.kept.get(instance)
            if ended_by_itself(kept, self._senses.boot_id, want, found):
                self._record.keep(instance, found.assignment, "exited")
                self._record.note(instance, f"ended by itself, exit code {found.exit_code}")
                self._record.observe(
                    instance, found.assignment, "exited", exit_code=found.exit_code
                )
            elif found.is_alive and self._is_unconfirmed(found, want):
                # Started by this agent's last life, or by nobody it remembers: it runs, and is
                # told with the assignment that its own label says.
                self._running.confirm(found, None)

    def _is_unconfirmed(self, found: Found, want: DesiredInstance) -> bool:
        kept = self._record.kept.get(found.instance)
        return found.assignment == want.assignment and (
            kept is None
            or kept.assignment != found.assignment
            or kept.phase not in {"running", "failed"}
        )

    def _strangers(self, listed: list[Found]) -> None:
        if self._wanted.version < 0 or self._senses.second is None:
            return
        for one in listed:
            if one.instance not in self._wanted.instances and one.id not in self.strangers:
                self.strangers.add(one.id)
                what = f"{one.state} container {one.id[:12]} of unknown instance {one.instance}"
                self._record.say("foreign_process", detail=what)

    def _missing_disks(self) -> None:
        """A disk that was there and is gone, seen twice 10 s apart, is told."""
        now = self._monotonic()
        for instance, kept in list(self._record.kept.items()):
            want = self._wanted.instances.get(instance)
            is_gone = (
                want is not None
                and want.want != "gone"
                and (instance not in self._roll.found or instance in self._senses.gone_disks)
                and instance not in self._crew.busy
                and kept.phase in {"running", "exited", "stopped"}
            )
            if not is_gone:
                self._missing.pop(instance, None)
                continue
            since = self._missing.setdefault(instance, now)
            if now - since >= LIST_SECONDS:
                del self._missing[instance]
                # Not forgotten: whatever still runs there is not confirmed once more.
                self._record.keep(instance, kept.assignment, "failed")
                self._record.note(instance, "its disk is gone")
                self._record.observe(instance, kept.assignment, "disk_gone")
