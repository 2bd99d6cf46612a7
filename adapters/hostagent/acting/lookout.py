"""The look at every instance, once a second: what the second is, and who lost GPUs."""

from __future__ import annotations

import time

from adapters.hostagent.acting.crew import Crew
from adapters.hostagent.acting.probes import Probes
from adapters.hostagent.acting.record import Record
from adapters.hostagent.acting.roll import Roll
from adapters.hostagent.acting.senses import Senses, Watched
from adapters.hostagent.runtime.port import Found
from ledger.domain.usage import TickState


class Lookout:
    """Shows the senses what is on the machine, in the middle of every second."""

    def __init__(
        self, senses: Senses, roll: Roll, crew: Crew, probes: Probes, record: Record
    ) -> None:
        """Look through *senses* at what is on *roll*, and at what the *crew* works on."""
        self._senses, self._roll, self._crew = senses, roll, crew
        self._probes, self._record = probes, record
        self._due_ns = 0

    @property
    def due_in_seconds(self) -> float:
        """Until the next look; negative when it is late."""
        return (self._due_ns - time.monotonic_ns()) / 1e9

    def look(self) -> None:
        """Look, if it is due."""
        if time.monotonic_ns() < self._due_ns:
            return
        self._probes.ask(self._roll.found, self._crew.busy, self._senses.doubtful)
        self._notice_losses()
        on_host = sorted(self._roll.found.keys() | self._crew.busy.keys())
        self._senses.look([self._watched(one) for one in on_host])
        self._due_ns = self._senses.next_look_ns(time.monotonic_ns())

    def _watched(self, instance: int) -> Watched:
        found = self._roll.found.get(instance)
        if found is None:
            return Watched(instance, self.state(instance))
        return Watched(
            instance=instance,
            state=self.state(instance),
            pid=found.pid,
            gpu_uuids=found.gpu_uuids,
            container=found.id,
            disk=found.disk,
        )

    def state(self, instance: int) -> TickState:
        """What an instance does now."""
        step, found = self._crew.busy.get(instance), self._roll.found.get(instance)
        if step is not None and step.kind == "start":
            return "loading"
        if step is not None and step.kind == "reboot":
            return "rebooting"
        return "stopped" if found is None else self._state_of(found)

    def _state_of(self, found: Found) -> TickState:
        if found.is_alive and found.instance not in self._roll.gone:
            if found.instance in self._probes.lost:
                return "gpu_lost"
            return "frozen" if found.state == "paused" else "running"
        kept = self._record.kept.get(found.instance)
        is_exit = kept is not None and kept.phase in {"running", "exited"}
        return "exited" if is_exit else "stopped"

    def _notice_losses(self) -> None:
        """Take in what probes found, and what fell off the bus."""
        off_the_bus = self._senses.lost_gpus
        for found in self._probes.losses(self._roll.found, self._crew.busy, off_the_bus):
            if off_the_bus.isdisjoint(found.gpu_uuids):
                # What fell off the bus is told by the senses, with its UUID.
                self._record.say("instance_gpu_lost", instance=found.instance)
            self._record.note(found.instance, "its GPUs are not seen any more")
            self._record.observe(found.instance, found.assignment, "gpu_lost")
