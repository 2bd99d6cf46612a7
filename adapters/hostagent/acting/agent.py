"""The agent's loop: hear what is wanted, see what runs, step, look, seal.

One thread decides everything; others only carry: steps (`crew`), reports (`delivery`), the wait for
news (`link`). Facts about instances are kept in the spool, in the transaction of the report that
tells of them, so a kill at any moment loses at most the seconds since the last report.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import structlog

from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.crew import Crew, Done
from adapters.hostagent.acting.diary import Diary
from adapters.hostagent.acting.plan import Kept, Situation, Step, ended_by_itself, plan
from adapters.hostagent.acting.probes import Probes
from adapters.hostagent.acting.sealing import Sealer
from adapters.hostagent.acting.senses import Senses, Watched
from adapters.hostagent.acting.wanted import Wanted
from adapters.hostagent.delivery import Heard
from adapters.hostagent.reports import Signer
from adapters.hostagent.runtime.launching import spec_of
from adapters.hostagent.runtime.port import (
    Connection,
    Found,
    LaunchError,
    LaunchSpec,
    Runtime,
    RuntimeUnavailableError,
)
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.acknowledgement import Desired, DesiredInstance
from ledger.domain.usage import (
    HealthEvent,
    Observation,
    TickState,
)
from ledger.errors import UnavailableError

LIST_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 0.2
_REASON_CHARS: Final = 256

log = structlog.get_logger("gpuledger.agent")


class _Wish(NamedTuple):
    """What the server wants, and when it was asked and heard; monotonic nanoseconds."""

    desired: Desired
    sent_ns: int
    received_ns: int


class Agent:
    """One machine's agent: `turn` is one pass of the loop, `run` repeats it until told to end.

    `wanted`, `kept` and `found` are what it leans on: the server's wish, its own memory, the truth.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        senses: Senses,
        spool: SqliteSpool,
        signer: Signer,
        answerer: Answerer,
        report_seconds: int = 10,
        lives: Callable[[Found], bool] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on where the spool says that the agent before ended.

        Args:
            runtime: Runs the instances.
            senses: Looks at the machine.
            spool: Keeps reports, and what this agent knows.
            signer: Holds the machine's key.
            answerer: Answers the platform's checks.
            report_seconds: Seconds in a report while all is well.
            lives: False when the first process of a container is gone; cheaper than a list.
            monotonic: Seconds that never go back.
        """
        self._runtime, self._senses, self._spool = runtime, senses, spool
        self._answerer = answerer
        self.sealer = Sealer(
            senses=senses,
            spool=spool,
            signer=signer,
            report_seconds=report_seconds,
            monotonic=monotonic,
        )
        self.kept, self._telling = self.sealer.kept, self.sealer.telling
        self.on_running: Callable[[Collection[Found]], None] = _nothing
        """Called with what runs as it is wanted, at every look into the runtime."""
        self.diary = Diary()
        self._lives = lives or _lives
        self._monotonic = monotonic
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._heard: SimpleQueue[Heard | _Wish] = SimpleQueue()
        self.wanted = Wanted(spool.load("desired"))
        self.found: dict[int, Found] = {}
        self.crew = Crew(runtime, self._woken.set)
        self.contact_at: float | None = None
        """Monotonic second of the last answer; null before the first of this run."""
        self._began_at = monotonic()
        self._is_listed = False
        self._list_at = 0.0
        self._look_ns = 0
        self._tried_at: dict[int, float] = {}
        self.probes = Probes(runtime, self._woken.set, monotonic)
        self._missing: dict[int, float] = {}
        """Instance that should have a disk and has none → since when."""
        self._foreign: set[str] = set()
        self._is_hinted = False

    # --- called from other threads ---------------------------------------------------------------

    def hear(self, heard: Heard) -> None:
        """The server answered a delivery."""
        self._heard.put(heard)
        self._woken.set()

    def want(self, desired: Desired, sent_ns: int = 0, received_ns: int = 0) -> None:
        """The server said what it wants, to a request that this machine signed.

        *sent_ns* and *received_ns* are when the request left and the answer came.
        """
        self._heard.put(_Wish(desired, sent_ns, received_ns))
        self._woken.set()

    def hint(self) -> None:
        """Something may have happened to a container: the list is read at the next turn."""
        self._is_hinted = True
        self._woken.set()

    def end(self) -> None:
        """Let `run` return after the present turn."""
        self._ending.set()
        self._woken.set()

    # --- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `end`; then seal what is finished. Instances go on without the agent."""
        self._senses.start()
        try:
            while not self._ending.is_set():
                self._woken.clear()
                try:
                    self.turn()
                except UnavailableError as error:
                    log.error("the spool fails", reason=error.message)  # noqa: TRY400 - no defect
                    self._ending.wait(1.0)
                self._woken.wait(self._pause())
            self._seal(is_last=True)
        finally:
            self._senses.stop()

    def turn(self) -> None:
        """One pass: everything that is due now."""
        self._take_heard()
        for done in self.crew.take_done():
            self._conclude(done)
        self._see()
        self._step()
        self._look()
        self._telling.answer(self._answerer.take_answers())
        self._seal()

    def _pause(self) -> float:
        until_look = (self._look_ns - time.monotonic_ns()) / 1e9
        return min(max(until_look, 0.0), _TURN_SECONDS)

    def _take_heard(self) -> None:
        is_news = False
        while True:
            try:
                heard = self._heard.get_nowait()
            except Empty:
                break
            if isinstance(heard, _Wish):
                is_news |= self.wanted.take(heard.desired)
                self.contact_at = self._monotonic()
                if heard.desired.server_time_ms is not None:
                    # After a long wait it says little; the smallest round trip wins.
                    self._senses.contact(
                        heard.sent_ns, heard.received_ns, heard.desired.server_time_ms
                    )
                continue
            self.contact_at = self._monotonic()
            self._senses.contact(heard.sent_ns, heard.received_ns, heard.answer.server_time_ms)
            for ack in heard.answer.acks:
                if ack.machine != self._spool.machine:
                    continue
                if ack.desired is not None:
                    is_news |= self.wanted.take(ack.desired)
                self._answerer.ask(ack.checks)
        if self._spool.is_behind():
            log.error("the spool is an old copy; going on under a new epoch")
            self._spool.begin_epoch()
        if is_news:
            with contextlib.suppress(UnavailableError):
                self._spool.save("desired", self.wanted.stored())

    @property
    def _silent_seconds(self) -> float:
        """Since the last answer of the server, or the beginning."""
        contact = self._began_at if self.contact_at is None else self.contact_at
        return self._monotonic() - contact

    def _seal(self, *, is_last: bool = False) -> None:
        self.sealer.seal(
            silent_seconds=self._silent_seconds, is_idle=not self.found, is_last=is_last
        )

    # --- what runs -------------------------------------------------------------------------------

    def _see(self) -> None:
        """Read the runtime's list when it is due, or when a process that should live is gone."""
        now = self._monotonic()
        is_due = self._is_hinted or now >= self._list_at
        if not is_due and all(self._lives(one) for one in self.found.values()):
            return
        self._is_hinted = False
        try:
            listed = self._runtime.list()
        except RuntimeUnavailableError as error:
            # Not "nothing runs": what was seen last is kept, and looked at again soon.
            log.warning("the runtime does not answer", reason=str(error))
            self._list_at = now + _RETRY_SECONDS
            return
        self._list_at = now + LIST_SECONDS
        found: dict[int, Found] = {}
        for one in sorted(listed, key=lambda one: one.assignment):
            found[one.instance] = one
        self.found = found
        self._is_listed = True
        self._notice_ends()
        self._notice_strangers(listed)
        self._notice_missing_disks(now)
        self._tell_running()

    def _tell_running(self) -> None:
        """Say which containers run as they are wanted."""
        wanted = self.wanted.instances
        self.on_running(
            [
                one
                for one in self.found.values()
                if one.is_alive
                and (want := wanted.get(one.instance)) is not None
                and (want.want, want.assignment) == ("running", one.assignment)
            ]
        )

    def _notice_ends(self) -> None:
        seen = self._situation()
        for instance, found in self.found.items():
            want = self.wanted.instances.get(instance)
            if want is None or instance in self.crew.busy:
                continue
            if want.want == "running" and ended_by_itself(seen, want, found):
                self._keep(instance, found.assignment, "exited")
                self._note(instance, f"ended by itself, exit code {found.exit_code}")
                self._observe(instance, found.assignment, "exited", exit_code=found.exit_code)
            elif want.want == "running" and found.is_alive and self._is_unconfirmed(found, want):
                # Started by this agent's last life, or by nobody it remembers: it runs, and is
                # told with the assignment that its own label says.
                self._confirm(found, None)

    def _is_unconfirmed(self, found: Found, want: DesiredInstance) -> bool:
        kept = self.kept.get(found.instance)
        return found.assignment == want.assignment and (
            kept is None
            or kept.assignment != found.assignment
            or kept.phase not in {"running", "failed"}
        )

    def _notice_strangers(self, listed: list[Found]) -> None:
        """Tell once of containers that carry the platform's label and that nobody wants."""
        if self.wanted.version < 0 or self._senses.second is None:
            return
        for one in listed:
            if one.instance not in self.wanted.instances and one.id not in self._foreign:
                self._foreign.add(one.id)
                what = f"{one.state} container {one.id[:12]} of unknown instance {one.instance}"
                self._say("foreign_process", detail=what)

    def _notice_missing_disks(self, now: float) -> None:
        """A disk that was there and is gone, seen twice 10 s apart, is told."""
        for instance, kept in list(self.kept.items()):
            want = self.wanted.instances.get(instance)
            is_gone = (
                want is not None
                and want.want != "gone"
                and (instance not in self.found or instance in self._senses.gone_disks)
                and instance not in self.crew.busy
                and kept.phase in {"running", "exited", "stopped"}
            )
            if not is_gone:
                self._missing.pop(instance, None)
                continue
            since = self._missing.setdefault(instance, now)
            if now - since >= LIST_SECONDS:
                del self._missing[instance]
                # Not forgotten: whatever still runs there is not confirmed once more.
                self._keep(instance, kept.assignment, "failed")
                self._note(instance, "its disk is gone")
                self._observe(instance, kept.assignment, "disk_gone")

    # --- steps -----------------------------------------------------------------------------------

    def _situation(self) -> Situation:
        now = self._monotonic()
        ready = [one for one in self.wanted.instances if self.wanted.spec(one) is not None]
        waiting = {instance for instance, at in self._tried_at.items() if now < at + _RETRY_SECONDS}
        return Situation(
            wanted=self.wanted.instances,
            found=self.found,
            kept=self.kept,
            busy={*self.crew.busy, *waiting},
            ready=ready,
            boot_id=self._senses.boot_id,
            now=self._senses.second or int(time.time()),
            silent_seconds=self._silent_seconds,
            may_start=self.sealer.stage != "full",
        )

    def _step(self) -> None:
        if not self._is_listed or self.wanted.version < 0:
            return  # Nothing is decided before it is known what runs and what is wanted.
        for step in plan(self._situation()):
            spec = self._launch(step)
            if step.kind in {"start", "reboot"} and spec is None:
                continue
            if step.kind != "start":
                self._senses.last_reading(step.instance)
            if step.kind == "start" and not self._is_loading(step):
                self._keep(step.instance, step.assignment, "loading", reboots=step.reboots)
                self._observe(step.instance, step.assignment, "loading")
            log.info(step.kind, instance=step.instance, assignment=step.assignment)
            self._note(step.instance, f"{step.kind} under assignment {step.assignment}")
            self._tried_at.pop(step.instance, None)
            self.crew.begin(step, spec)

    def _is_loading(self, step: Step) -> bool:
        kept = self.kept.get(step.instance)
        return kept is not None and kept.phase == "loading" and kept.assignment == step.assignment

    def _launch(self, step: Step) -> LaunchSpec | None:
        wanted = self.wanted.spec(step.instance)
        if wanted is None or step.kind not in {"start", "reboot"}:
            return None
        try:
            return spec_of(wanted, self.wanted.volumes)
        except LaunchError as error:
            self._refuse(step, error)
            return None

    def _conclude(self, done: Done) -> None:
        step = done.step
        self._list_at = 0.0
        if done.refused is not None:
            self._refuse(step, done.refused)
            return
        if done.trouble is not None:
            log.warning("a step failed", kind=step.kind, instance=step.instance, why=done.trouble)
            self._note(step.instance, f"{step.kind} failed, and is tried again: {done.trouble}")
            self._tried_at[step.instance] = self._monotonic()
            return
        self.probes.lost.discard(step.instance)
        match step.kind:
            case "start" | "reboot":
                assert done.found is not None
                self.found[step.instance] = done.found
                self._keep(step.instance, step.assignment, "running", reboots=step.reboots)
                if done.found.is_alive or step.kind == "start":
                    self._confirm(done.found, done.connection)
            case "stop":
                if done.found is not None:
                    self.found[step.instance] = done.found
                    if done.found.is_alive:
                        self._tried_at[step.instance] = self._monotonic()
                        return
                self._keep(step.instance, step.assignment, "stopped", by_lease=step.by_lease)
                want = self.wanted.instances.get(step.instance)
                is_last = want is None or want.assignment == step.assignment
                if is_last and not step.by_lease:
                    code = None if done.found is None else done.found.exit_code
                    self._observe(step.instance, step.assignment, "exited", exit_code=code)
            case "remove":
                self.found.pop(step.instance, None)
                self.kept.pop(step.instance, None)
                self.diary.forget(step.instance)
                self._observe(step.instance, step.assignment, "exited")

    def _confirm(self, found: Found, connection: Connection | None) -> None:
        if connection is None:
            with contextlib.suppress(RuntimeUnavailableError):
                connection = self._runtime.connection(found.id)
        kept = self.kept.get(found.instance)
        want = self.wanted.instances.get(found.instance)
        is_same = kept is not None and kept.assignment == found.assignment
        reboots = kept.reboots if kept is not None and is_same else 0
        if not is_same and want is not None:
            reboots = want.reboots
        self._keep(found.instance, found.assignment, "running", reboots=reboots)
        self._note(found.instance, f"runs under assignment {found.assignment}")
        self._observe(found.instance, found.assignment, "running", connection=connection)
        self._tell_running()

    def _refuse(self, step: Step, error: LaunchError) -> None:
        log.warning("launch failed", instance=step.instance, code=error.reason, why=str(error))
        self._note(step.instance, f"cannot be started ({error.reason}): {error}")
        self._keep(step.instance, step.assignment, "failed", reboots=step.reboots)
        self._observe(step.instance, step.assignment, "launch_failed", reason=error.reason)

    def _keep(
        self,
        instance: int,
        assignment: int,
        phase: Any,
        *,
        reboots: int | None = None,
        by_lease: bool = False,
    ) -> None:
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

    # --- looking ---------------------------------------------------------------------------------

    def _look(self) -> None:
        if time.monotonic_ns() < self._look_ns:
            return
        self.probes.ask(self.found, self.crew.busy, self._senses.doubtful)
        self._notice_losses()
        self._senses.look([self._watched(one) for one in self._on_host()])
        self._look_ns = self._senses.next_look_ns(time.monotonic_ns())

    def _on_host(self) -> list[int]:
        return sorted(self.found.keys() | self.crew.busy.keys())

    def _watched(self, instance: int) -> Watched:
        found = self.found.get(instance)
        if found is None:
            return Watched(instance, self._state(instance, None))
        return Watched(
            instance=instance,
            state=self._state(instance, found),
            pid=found.pid,
            gpu_uuids=found.gpu_uuids,
            container=found.id,
            disk=found.disk,
        )

    def _state(self, instance: int, found: Found | None) -> TickState:
        step = self.crew.busy.get(instance)
        if step is not None and step.kind == "start":
            return "loading"
        if step is not None and step.kind == "reboot":
            return "rebooting"
        if found is None:
            return "stopped"
        if found.is_alive and self._lives(found):
            if instance in self.probes.lost:
                return "gpu_lost"
            return "frozen" if found.state == "paused" else "running"
        kept = self.kept.get(instance)
        is_exit = kept is not None and kept.phase in {"running", "exited"}
        return "exited" if is_exit else "stopped"

    def _notice_losses(self) -> None:
        """Take in what probes found, and what fell off the bus."""
        off_the_bus = self._senses.lost_gpus
        for found in self.probes.losses(self.found, self.crew.busy, off_the_bus):
            if off_the_bus.isdisjoint(found.gpu_uuids):
                # What fell off the bus is told by the senses, with its UUID.
                self._say("instance_gpu_lost", instance=found.instance)
            self._note(found.instance, "its GPUs are not seen any more")
            self._observe(found.instance, found.assignment, "gpu_lost")

    # --- telling ---------------------------------------------------------------------------------

    def _observe(
        self,
        instance: int,
        assignment: int,
        state: Any,
        *,
        exit_code: int | None = None,
        reason: str | None = None,
        connection: Connection | None = None,
    ) -> None:
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

    def _say(self, kind: Any, *, instance: int | None = None, detail: str | None = None) -> None:
        self._telling.say(HealthEvent(at=0, kind=kind, instance=instance, detail=detail))

    def _note(self, instance: int, text: str) -> None:
        self.diary.note(instance, self._senses.second or int(time.time()), text)

    def status(self) -> dict[str, Any]:
        """What a person wants to know of the agent now."""
        contact = self.contact_at
        return {
            "machine": self._spool.machine,
            "runtime": self._runtime.name,
            "boot_id": self._senses.boot_id,
            "second": self._senses.second,
            "gpus": self._senses.gpu_count(),
            "desired_version": self.wanted.version,
            "instances": [
                {
                    "instance": one.instance,
                    "want": one.want,
                    "assignment": one.assignment,
                    "state": self._state(one.instance, self.found.get(one.instance)),
                    "step": step.kind if (step := self.crew.busy.get(one.instance)) else None,
                }
                for one in self.wanted.instances.values()
                if one.want != "gone" or one.instance in self.found
            ],
            "strangers": sorted(self._foreign),
            "last_answer_seconds_ago": None
            if contact is None
            else round(self._monotonic() - contact, 1),
            "stage": self.sealer.stage,
            "sealed": self.sealer.sealed,
        }


def _nothing(_: Collection[Found]) -> None:
    """Nobody asks what runs."""


def _lives(found: Found) -> bool:
    """False when the process that should be there is not; true where nothing is known of one."""
    if found.pid is None or not Path("/proc/self").exists():
        return True
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
