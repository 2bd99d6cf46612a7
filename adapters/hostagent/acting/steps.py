"""Steps: decided from what is wanted and what runs, begun, and taken in when they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from adapters.hostagent.acting.crew import Crew, Done
from adapters.hostagent.acting.hearing import Hearing
from adapters.hostagent.acting.plan import Situation, Step, plan
from adapters.hostagent.acting.probes import Probes
from adapters.hostagent.acting.record import Record
from adapters.hostagent.acting.roll import RETRY_SECONDS, Roll
from adapters.hostagent.acting.running import Running
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.runtime.launching import spec_of
from adapters.hostagent.runtime.port import LaunchError, LaunchSpec

log = structlog.get_logger("gpuledger.agent")


class Steps:
    """Moves the machine towards what is wanted, one step per instance at a time."""

    def __init__(
        self,
        *,
        hearing: Hearing,
        roll: Roll,
        crew: Crew,
        probes: Probes,
        running: Running,
        record: Record,
        senses: Senses,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let the *crew* carry out what *hearing* and *roll* ask for."""
        self._hearing, self._wanted = hearing, hearing.wanted
        self._roll, self._crew, self._probes = roll, crew, probes
        self._running, self._record, self._senses = running, record, senses
        self._monotonic = monotonic
        self._tried_at: dict[int, float] = {}

    def begin(self, *, may_start: bool) -> None:
        """Begin what can be begun now; without *may_start* nothing new is started."""
        if not self._roll.is_read or self._wanted.version < 0:
            return  # Nothing is decided before it is known what runs and what is wanted.
        for step in plan(self._situation(may_start=may_start)):
            spec = self._launch(step)
            if step.kind in {"start", "reboot"} and spec is None:
                continue
            if step.kind != "start":
                self._senses.last_reading(step.instance)
            if step.kind == "start" and not self._is_loading(step):
                self._record.keep(step.instance, step.assignment, "loading", reboots=step.reboots)
                self._record.observe(step.instance, step.assignment, "loading")
            log.info(step.kind, instance=step.instance, assignment=step.assignment)
            self._record.note(step.instance, f"{step.kind} under assignment {step.assignment}")
            self._tried_at.pop(step.instance, None)
            self._crew.begin(step, spec)

    def conclude(self) -> None:
        """Take in what has ended since the last call."""
        for done in self._crew.take_done():
            self._conclude(done)

    def _situation(self, *, may_start: bool) -> Situation:
        now = self._monotonic()
        wanted = self._wanted
        waiting = {instance for instance, at in self._tried_at.items() if now < at + RETRY_SECONDS}
        return Situation(
            wanted=wanted.instances,
            found=self._roll.found,
            kept=self._record.kept,
            busy={*self._crew.busy, *waiting},
            ready=wanted.ready,
            boot_id=self._senses.boot_id,
            now=self._senses.second or int(time.time()),
            silent_seconds=self._hearing.silent_seconds,
            may_start=may_start,
        )

    def _is_loading(self, step: Step) -> bool:
        kept = self._record.kept.get(step.instance)
        return kept is not None and kept.phase == "loading" and kept.assignment == step.assignment

    def _launch(self, step: Step) -> LaunchSpec | None:
        wanted = self._wanted.spec(step.instance)
        if wanted is None or step.kind not in {"start", "reboot"}:
            return None
        try:
            return spec_of(wanted, self._wanted.volumes)
        except LaunchError as error:
            self._refuse(step, error)
            return None

    def _conclude(self, done: Done) -> None:
        step = done.step
        self._roll.hint()
        if done.refused is not None:
            self._refuse(step, done.refused)
            return
        if done.trouble is not None:
            log.warning("a step failed", kind=step.kind, instance=step.instance, why=done.trouble)
            text = f"{step.kind} failed, and is tried again: {done.trouble}"
            self._record.note(step.instance, text)
            self._tried_at[step.instance] = self._monotonic()
            return
        self._probes.lost.discard(step.instance)
        match step.kind:
            case "start" | "reboot":
                self._started(step, done)
            case "stop":
                self._stopped(step, done)
            case "remove":
                self._roll.found.pop(step.instance, None)
                self._record.forget(step.instance)
                self._record.observe(step.instance, step.assignment, "exited")

    def _started(self, step: Step, done: Done) -> None:
        assert done.found is not None
        self._roll.found[step.instance] = done.found
        self._record.keep(step.instance, step.assignment, "running", reboots=step.reboots)
        if done.found.is_alive or step.kind == "start":
            self._running.confirm(done.found, done.connection)

    def _stopped(self, step: Step, done: Done) -> None:
        if done.found is not None:
            self._roll.found[step.instance] = done.found
            if done.found.is_alive:
                self._tried_at[step.instance] = self._monotonic()
                return
        self._record.keep(step.instance, step.assignment, "stopped", by_lease=step.by_lease)
        want = self._wanted.instances.get(step.instance)
        is_last = want is None or want.assignment == step.assignment
        if is_last and not step.by_lease:
            code = None if done.found is None else done.found.exit_code
            self._record.observe(step.instance, step.assignment, "exited", exit_code=code)

    def _refuse(self, step: Step, error: LaunchError) -> None:
        log.warning("launch failed", instance=step.instance, code=error.reason, why=str(error))
        self._record.note(step.instance, f"cannot be started ({error.reason}): {error}")
        self._record.keep(step.instance, step.assignment, "failed", reboots=step.reboots)
        self._record.observe(step.instance, step.assignment, "launch_failed", reason=error.reason)
