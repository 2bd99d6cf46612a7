"""A host without hardware: it obeys the server, lives by the clock it is handed, and reports.

Nothing happens between two calls that the calls do not imply, and no second is visited one by one,
so that a quiet month is as cheap as its reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from adapters.hostagent.container import Container, Workload
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport
from ledger.domain.acknowledgement import Desired, DesiredInstance
from ledger.domain.hardware import Inventory
from ledger.domain.usage import (
    MAX_WINDOW_SECONDS,
    HealthEvent,
    Observation,
    ObservedState,
    TickState,
)

Failure = Literal["launch_failed", "disk_gone", "gpu_lost"]

_STATE_AFTER: Final[dict[Failure, TickState]] = {
    "launch_failed": "stopped",
    "disk_gone": "stopped",
    "gpu_lost": "gpu_lost",
}


class SimulatedHost:
    """One machine. Every call hands it the second; seconds never go back.

    A change at second s is true from s on: s is the first second of the new state. The host has
    sealed nothing at or after the second of a call, so the past is never rewritten.
    """

    def __init__(
        self,
        machine_id: int,
        identity: HostIdentity,
        *,
        now: int,
        epoch: str | None = None,
        boot_id: str = "boot-1",
        report_seconds: int = 10,
        boot_seconds: int | None = 0,
        idle_window_seconds: int = MAX_WINDOW_SECONDS,
        silent_when_idle: bool = False,
        utilisation_percent: int = 100,
        inventory: Inventory | None = None,
    ) -> None:
        """Start at *now*, the first second that the machine attests.

        Args:
            report_seconds: Reports end at multiples of this, 1 to 300.
            boot_seconds: From a grant to its confirmation; null where only `confirm` confirms.
            idle_window_seconds: The same as *report_seconds*, while no instance is there.
            silent_when_idle: Whether seconds without an instance are left unattested.
            utilisation_percent: GPU utilisation of instances for which none was set.
            inventory: Sent with the first report.
        """
        for seconds in (report_seconds, idle_window_seconds):
            if not 1 <= seconds <= MAX_WINDOW_SECONDS:
                reason = f"a report window has 1 to {MAX_WINDOW_SECONDS} s, not {seconds}"
                raise ValueError(reason)
        self.machine_id: Final = machine_id
        self.chain: Final = ReportChain(machine_id, identity, epoch=epoch, boot_id=boot_id)
        self.report_seconds = report_seconds
        self.idle_window_seconds = idle_window_seconds
        self.silent_when_idle = silent_when_idle
        self.down = False
        self.containers: Final[dict[int, Container]] = {}
        """What is on the machine now, by instance."""
        self.sealed_until = now
        """The next second to attest."""
        self._now = now
        self._boot_seconds = boot_seconds
        self._utilisation_percent = utilisation_percent
        self._inventory = inventory
        self._workloads: dict[int, Workload] = {}
        self._leaving: list[Container] = []
        self._gone: set[int] = set()
        self._desired: dict[int, DesiredInstance] = {}
        """What was ordered while the machine was down."""
        self._observed: list[Observation] = []
        self._health: list[HealthEvent] = []

    # What the server orders

    def obey(self, desired: Desired, now: int) -> None:
        """Carry out *desired* in second *now*; a machine that is down does it when it recovers.

        A new assignment is loading until it is confirmed. An instance that is not named is left
        alone, and one that is gone never comes back.
        """
        self._advance(now)
        if self.down:
            self._desired.update({wanted.instance: wanted for wanted in desired.instances})
            return
        for wanted in desired.instances:
            self._obey_one(wanted, now)
        self._confirm_due(now)

    def lapse(self, now: int) -> list[int]:
        """Stop what outlived its credit lease, for a host that cannot reach the server.

        Returns:
            The instances that stopped, each in its `run_until` second or, where that is already
            attested, in the next second to attest.
        """
        self._advance(now)
        lapsed = []
        for container in self.containers.values():
            end = container.run_until
            if not self.down and container.wants_to_run and end is not None and end <= now:
                container.end_run(max(end, self.sealed_until), "stopped")
                container.lapsed = True
                lapsed.append(container.instance)
        return lapsed

    # What happens on the machine

    def set_boot(self, instance: int, seconds: int | None) -> None:
        """From the next start on, *instance* is confirmed after *seconds*, or by hand on null."""
        self._workload(instance).boot_seconds = seconds

    def set_traffic(
        self, instance: int, now: int, *, up: int | None = None, down: int | None = None
    ) -> None:
        """Bytes per second while *instance* runs, from *now* on; null leaves that direction."""
        self._advance(now)
        workload = self._workload(instance)
        workload.up_bytes = workload.up_bytes if up is None else up
        workload.down_bytes = workload.down_bytes if down is None else down
        self._refresh(instance, now)

    def set_utilisation(self, instance: int, now: int, percent: int) -> None:
        """GPU utilisation while *instance* runs, from *now* on; −1 for no GPU that answers."""
        self._advance(now)
        self._workload(instance).utilisation_percent = percent
        self._refresh(instance, now)

    def confirm(self, instance: int, now: int) -> None:
        """Observe that *instance* runs; one that was loading or rebooting runs from *now* on."""
        self._advance(now)
        container = self.containers[instance]
        if container.wants_to_run and container.state in {"loading", "rebooting"}:
            container.run(now)
        self._observe(container, "running", now)

    def exit(self, instance: int, now: int, code: int = 0) -> None:
        """The container ends by itself with exit *code*; only a new assignment starts it again."""
        self._advance(now)
        container = self.containers[instance]
        container.end_run(now, "exited")
        self._observe(container, "exited", now, exit_code=code)

    def fail(self, instance: int, now: int, failure: Failure, reason: str | None = None) -> None:
        """The host loses a launch, a disk or a GPU; only a new assignment starts it again."""
        self._advance(now)
        container = self.containers[instance]
        container.end_run(now, _STATE_AFTER[failure])
        self._observe(container, failure, now, reason=reason)

    def reboot(self, instance: int, now: int, seconds: int | None = None) -> None:
        """Restart a running container in place: *seconds* of `rebooting`, then it runs again.

        Without *seconds* it takes as long as a boot of this instance, by hand where that is null.
        """
        self._advance(now)
        container = self.containers[instance]
        if container.state == "running":
            container.reboot(now, container.workload.boot_seconds if seconds is None else seconds)
        self._confirm_due(now)

    def crash(self, now: int) -> list[SealedReport]:
        """The machine is down from *now* on; what it had not yet sealed is returned sealed."""
        reports = self.seal(now, flush=True)
        self.down = True
        return reports

    def recover(self, now: int, boot_id: str) -> None:
        """The machine is up from *now* on under a new *boot_id*, and tells so at once.

        The seconds in between are never attested. It first obeys what was ordered meanwhile; what
        then wants to run is loading until it is confirmed.
        """
        if not self.down:
            reason = f"machine {self.machine_id} is not down"
            raise ValueError(reason)
        self._advance(now)
        self.down = False
        self.chain.boot_id = boot_id
        self.sealed_until = now
        self._leaving.clear()
        for container in self.containers.values():
            container.boot(now)
        for wanted in self._desired.values():
            self._obey_one(wanted, now)
        self._desired.clear()
        self._health.append(HealthEvent(at=now, kind="boot_changed"))
        self._confirm_due(now)

    # What the machine reports

    def next_due(self, now: int) -> int | None:
        """The second in which `seal` next has news of its own: a confirmation, or none.

        It is *now* while observations wait to be sealed.
        """
        if self.down:
            return None
        if self._observed or self._health:
            return now
        due = [c.due for c in self.containers.values() if c.due is not None and not c.quiet]
        return min(due, default=None)

    def next_cut(self, now: int) -> int | None:
        """The first second after *now* at which `seal` has a full window; null when it has none."""
        if self.down:
            return None
        start = max(self.sealed_until, now)
        if self.silent_when_idle and not self.containers:
            return None
        return self._cut(start, self._window_seconds(start))

    def seal(self, now: int, *, flush: bool = False) -> list[SealedReport]:
        """Reports for the finished windows before *now*, in order.

        The unfinished last window is sealed too on *flush*, or when there is something to observe.
        Observations without a finished second travel in a report that attests none.
        """
        self._advance(now)
        if self.down:
            return []
        reports = []
        while self.sealed_until < now:
            start, end = self._next_window(now)
            if start >= now:
                self.sealed_until = now
                break
            if end > now:
                if not (flush or self._observed or self._health):
                    break
                end = now
            reports.append(self._report(start, end))
        if self._observed or self._health:
            reports.append(self._report(self.sealed_until, self.sealed_until))
        return reports

    def _report(self, start: int, end: int) -> SealedReport:
        """Seal `[start, end)` with what was observed up to its end."""
        blocks = []
        for container in self._present():
            piece = container.block(start, end)
            if piece is not None:
                blocks.append(piece)
        sealed = self.chain.seal(
            start,
            end - start,
            blocks,
            [observation for observation in self._observed if observation.at <= end],
            health=[event for event in self._health if event.at <= end],
            inventory=self._inventory,
        )
        self._observed = [observation for observation in self._observed if observation.at > end]
        self._health = [event for event in self._health if event.at > end]
        self._inventory = None
        self.sealed_until = end
        self._leaving = [c for c in self._leaving if c.gone_at is not None and c.gone_at > end]
        return sealed

    def _next_window(self, now: int) -> tuple[int, int]:
        """The window that follows the last sealed one; it may end after *now*."""
        start = self.sealed_until
        if not self.silent_when_idle:
            return start, self._cut(start, self._window_seconds(start))
        spans = sorted((max(c.since, start), c.gone_at) for c in self._present() if c.alive(start))
        if not spans:
            return now, now
        start = spans[0][0]
        cut = self._cut(start, self.report_seconds)
        end = start
        for since, gone_at in spans:
            if since > end:
                break
            end = max(end, cut if gone_at is None else min(gone_at, cut))
        return start, end

    def _window_seconds(self, start: int) -> int:
        """The length that windows have: the idle one while nothing is or comes into the window."""
        if self.idle_window_seconds == self.report_seconds:
            return self.report_seconds
        end = self._cut(start, self.idle_window_seconds)
        used = any(c.since < end and c.alive(start) for c in self._present())
        return self.report_seconds if used else self.idle_window_seconds

    @staticmethod
    def _cut(start: int, seconds: int) -> int:
        """The first multiple of *seconds* after *start*."""
        return (start // seconds + 1) * seconds

    def _present(self) -> Iterator[Container]:
        """Containers that may have unsealed seconds."""
        yield from self._leaving
        yield from self.containers.values()

    def _obey_one(self, wanted: DesiredInstance, now: int) -> None:
        instance = wanted.instance
        container = self.containers.get(instance)
        if wanted.want == "gone":
            self._remove(instance, now)
            return
        if instance in self._gone:
            return
        if container is None:
            container = Container(
                instance=instance,
                assignment=wanted.assignment,
                since=now,
                workload=self._workload(instance),
            )
            self.containers[instance] = container
        container.run_until = wanted.run_until
        if wanted.want == "stopped":
            if container.wants_to_run:
                container.end_run(now, "stopped")
            container.lapsed = False
        elif wanted.assignment != container.started_assignment or container.lapsed:
            container.start(now, wanted.assignment)

    def _remove(self, instance: int, now: int) -> None:
        self._gone.add(instance)
        self._workloads.pop(instance, None)
        container = self.containers.pop(instance, None)
        if container is not None:
            container.gone_at = now
            self._leaving.append(container)

    def _advance(self, now: int) -> None:
        """Move to *now*, confirming on the way what falls due."""
        if now < self._now:
            reason = f"second {now} lies before {self._now}"
            raise ValueError(reason)
        self._now = now
        if not self.down:
            self._confirm_due(now)

    def _confirm_due(self, now: int) -> None:
        due = [
            (container.due, container.instance)
            for container in self.containers.values()
            if container.due is not None and container.due <= now
        ]
        for second, instance in sorted(due):
            container = self.containers[instance]
            quiet = container.quiet
            container.run(second)
            if not quiet:
                self._observe(container, "running", second)

    def _observe(
        self,
        container: Container,
        state: ObservedState,
        at: int,
        *,
        exit_code: int | None = None,
        reason: str | None = None,
    ) -> None:
        self._observed.append(
            Observation(
                instance=container.instance,
                assignment=container.assignment,
                state=state,
                at=at,
                exit_code=exit_code,
                reason=reason,
            )
        )

    def _refresh(self, instance: int, now: int) -> None:
        container = self.containers.get(instance)
        if container is not None:
            container.refresh(now)

    def _workload(self, instance: int) -> Workload:
        """What was set for *instance*, which need not be on the machine yet."""
        workload = self._workloads.get(instance)
        if workload is None:
            workload = Workload(
                boot_seconds=self._boot_seconds, utilisation_percent=self._utilisation_percent
            )
            self._workloads[instance] = workload
        return workload
