"""A host that exists only as numbers: it obeys, crashes, recovers and attests by a given clock.

Demo, scenarios and the trace use it in place of a machine. Nothing happens by itself: every method
is told the second, a step at second `s` acts at the start of `s`, and `seal` attests what is
finished. What a container did is kept as changes, not as seconds, so quiet months are cheap.
"""

from __future__ import annotations

from adapters.hostagent.container import Container, Load
from adapters.hostagent.reports import ReportChain, SealedReport, Signer
from ledger.domain.acknowledgement import Desired, DesiredInstance
from ledger.domain.hardware import Inventory
from ledger.domain.usage import MAX_WINDOW_SECONDS, InstanceBlock, Observation


class SimulatedHost:
    """One machine under a clock that its owner moves; time never goes back.

    `containers` (by instance) and `loads` may be read at any time; `now` is the second of the last
    call, `sealed_until` the first second not yet in a report.
    """

    def __init__(
        self,
        machine: int,
        signer: Signer,
        *,
        now: int,
        epoch: str,
        boot_id: str,
        report_seconds: int = 10,
        idle_window_seconds: int = MAX_WINDOW_SECONDS,
        boot_seconds: int = 0,
        inventory: Inventory | None = None,
    ) -> None:
        """Be up from second *now*, without containers.

        Args:
            machine: Id of the machine.
            signer: Signs the reports.
            now: First second that is attested.
            epoch: 32 hex digits, the name of the chain of reports.
            boot_id: Name of the first boot.
            report_seconds: Reports end at multiples of this, 1 to 300.
            idle_window_seconds: The same while no container is on the host.
            boot_seconds: From a grant to its confirmation, where no `set_boot` says otherwise.
            inventory: Goes with the first report of each boot.
        """
        assert 1 <= report_seconds <= MAX_WINDOW_SECONDS, report_seconds
        assert 1 <= idle_window_seconds <= MAX_WINDOW_SECONDS, idle_window_seconds
        self.chain = ReportChain(machine, signer, boot_id=boot_id, epoch=epoch)
        self.machine = machine
        self.report_seconds = report_seconds
        self.idle_window_seconds = idle_window_seconds
        self.boot_seconds = boot_seconds
        self.inventory = inventory
        self.containers: dict[int, Container] = {}
        self.loads: dict[int, Load] = {}
        self.now = now
        self.sealed_until = now
        self.is_down = False
        self.silent_since: int | None = None
        self._departed: list[Container] = []
        self._observed: list[Observation] = []
        self._version = 0
        self._missed: Desired | None = None
        """What was wanted while the host was down."""
        self._is_new_boot = True

    # --- what the server wants -------------------------------------------------------------------

    def obey(self, desired: Desired, now: int) -> None:
        """Carry out *desired* in second *now*; an older version than the last is ignored.

        A new assignment is `loading` and runs `boot_seconds` later. An instance that is not named
        is left as it is. A host that is down obeys when it recovers.
        """
        self.advance(now)
        if desired.version < self._version:
            return
        self._version = desired.version
        if self.is_down:
            self._missed = desired
            return
        for wanted in desired.instances:
            self._obey(wanted, now)
        self.advance(now)

    def _obey(self, wanted: DesiredInstance, now: int) -> None:
        container = self.containers.get(wanted.instance)
        if wanted.want == "gone":
            if container is not None:
                self._remove(container, now)
            return
        if container is None:
            container = self._create(wanted, now)
        container.run_until = wanted.run_until
        if wanted.want == "stopped":
            if container.is_active:
                self._stop(container, now)
            return
        is_new = wanted.assignment > container.assignment
        # A stopped container of the same assignment was stopped by its lease, which is renewed.
        if is_new or container.state == "stopped":
            container.assignment = wanted.assignment
            self._load_image(container, now)

    def _create(self, wanted: DesiredInstance, now: int) -> Container:
        container = Container(
            instance=wanted.instance,
            assignment=wanted.assignment,
            state="stopped",
            since=now,
            load=self._load(wanted.instance),
        )
        assert all(one.instance != wanted.instance for one in self._departed), wanted.instance
        container.record(now)
        self.containers[wanted.instance] = container
        return container

    def _remove(self, container: Container, now: int) -> None:
        del self.containers[container.instance]
        container.gone_at = now
        if container.changes[0].second < now:
            self._departed.append(container)

    def _load_image(self, container: Container, now: int) -> None:
        boot = container.load.boot_seconds
        container.ready_at = None if boot is None else now + boot
        container.become("loading", now)

    def _stop(self, container: Container, now: int) -> None:
        container.ready_at = None
        container.become("stopped", now)

    # --- what happens on the host ----------------------------------------------------------------

    def set_traffic(self, instance: int, now: int, up: int, down: int) -> None:
        """Bytes per second from *now* on, in every second in which the instance runs."""
        self.advance(now)
        load = self._load(instance)
        load.up_bytes_per_second = up
        load.down_bytes_per_second = down
        self._record(instance, now)

    def set_utilisation(self, instance: int, now: int, percent: int) -> None:
        """GPU utilisation from *now* on, in percent; -1 for unknown."""
        self.advance(now)
        self._load(instance).util = percent
        self._record(instance, now)

    def set_boot(self, instance: int, seconds: int | None) -> None:
        """Time from a grant to its confirmation, from the next grant on; null: until `confirm`."""
        self._load(instance).boot_seconds = seconds

    def confirm(self, instance: int, now: int) -> None:
        """The container of a loading instance runs; in any other state nothing happens."""
        self.advance(now)
        container = self.containers.get(instance)
        if container is not None and container.state == "loading" and not self.is_down:
            container.ready_at = now
            self.advance(now)

    def exit(self, instance: int, now: int, code: int = 0) -> None:
        """The container ends by itself and is not started again under this assignment."""
        self.advance(now)
        container = self.containers.get(instance)
        if container is None or not container.is_active or self.is_down:
            return
        container.ready_at = None
        container.become("exited", now)
        self._observed.append(
            Observation(
                instance=instance,
                assignment=container.assignment,
                state="exited",
                at=now,
                exit_code=code,
            )
        )

    def reboot(self, instance: int, now: int, seconds: int) -> None:
        """The running container is `rebooting` for *seconds* and then runs on, on the same GPUs."""
        self.advance(now)
        container = self.containers.get(instance)
        if container is None or container.state != "running" or self.is_down:
            return
        container.ready_at = now + seconds
        container.become("rebooting", now)
        self.advance(now)

    def silence(self, now: int) -> None:
        """The host reaches nobody; it runs what it runs, each instance up to the end of its lease.

        Its owner neither seals nor delivers until `resume`.
        """
        self.advance(now)
        if self.silent_since is None:
            self.silent_since = now

    def resume(self, now: int) -> None:
        """The host is heard again; `seal` then gives every second of the silence."""
        self.advance(now)
        self.silent_since = None

    def crash(self, now: int) -> list[SealedReport]:
        """The host is down from *now* on; the reports are the last of this boot."""
        reports = self.seal(now)
        self.is_down = True
        return reports

    def recover(self, now: int, boot_id: str) -> None:
        """A new boot of a host that was down: what ran or loaded is confirmed `boot_seconds` later.

        No second of the outage is ever attested. What was desired meanwhile is carried out.
        """
        assert self.is_down
        self.advance(now)
        self.is_down = False
        self.chain.boot_id = boot_id
        self.sealed_until = now
        self._is_new_boot = True
        for container in self.containers.values():
            container.changes.clear()
            if container.is_active:
                self._load_image(container, now)
            else:
                container.record(now)
        if self._missed is not None:
            # What is no longer wanted must not be confirmed first.
            for wanted in self._missed.instances:
                self._obey(wanted, now)
            self._missed = None
        self.advance(now)

    def advance(self, now: int) -> None:
        """Let happen what falls due up to and including second *now*.

        Raises:
            ValueError: Time would go back.
        """
        if now < self.now:
            message = f"time goes back from {self.now} to {now}"
            raise ValueError(message)
        self.now = now
        if self.is_down:
            return
        for container in self.containers.values():
            ends_at = self._lease_end(container)
            ready_at = container.ready_at
            if ready_at is not None and ready_at <= now and (ends_at is None or ready_at < ends_at):
                self._run(container, ready_at)
            if ends_at is not None and ends_at <= now:
                self._stop(container, ends_at)

    def _run(self, container: Container, second: int) -> None:
        is_confirmed = container.state == "loading"
        container.ready_at = None
        container.become("running", second)
        if is_confirmed:
            self._observed.append(
                Observation(
                    instance=container.instance,
                    assignment=container.assignment,
                    state="running",
                    at=second,
                )
            )

    def _lease_end(self, container: Container) -> int | None:
        """Where a silent host stops the container; null while the server can be asked."""
        if self.silent_since is None or container.run_until is None or not container.is_active:
            return None
        return max(container.run_until, self.silent_since, container.since)

    def _load(self, instance: int) -> Load:
        load = self.loads.get(instance)
        if load is None:
            load = self.loads[instance] = Load(boot_seconds=self.boot_seconds)
        return load

    def _record(self, instance: int, now: int) -> None:
        container = self.containers.get(instance)
        if container is not None and not self.is_down:
            container.record(now)

    # --- what it attests -------------------------------------------------------------------------

    def next_report_at(self, now: int) -> int | None:
        """The next second after *now* at which the host seals by itself; null while it is down.

        That is the end of the running window, or the second of a confirmation before it.
        """
        if self.is_down:
            return None
        step = self.report_seconds if self.containers else self.idle_window_seconds
        due = [
            one.ready_at
            for one in self.containers.values()
            if one.ready_at is not None and one.ready_at > now
        ]
        return min([_next_multiple(now, step), *due])

    def seal(self, now: int) -> list[SealedReport]:
        """Reports of all finished seconds, cut at multiples of `report_seconds` of Unix time.

        Each observation is in the report whose window holds its second; those of second *now* are
        in the last one. Without a finished second they travel in a report that attests none, as
        does the news of a boot.
        """
        self.advance(now)
        if self.is_down:
            return []
        if len(self._observed) > 1:
            self._observed.sort(key=lambda one: one.at)
        reports = []
        while self.sealed_until < now:
            reports.append(self._seal_window(self._cut(now), now))
        if self._observed or self._is_new_boot:
            reports.append(self._seal_window(now, now))
        return reports

    def _cut(self, now: int) -> int:
        start = self.sealed_until
        first = min(
            [one.changes[0].second for one in (*self.containers.values(), *self._departed)],
            default=now,
        )
        if first <= start:
            return min(now, _next_multiple(start, self.report_seconds))
        return min(now, _next_multiple(start, self.idle_window_seconds), first)

    def _seal_window(self, until: int, now: int) -> SealedReport:
        start = self.sealed_until
        blocks: list[InstanceBlock] = []
        if until > start:
            for container in (*self.containers.values(), *self._departed):
                found = container.block(start, until)
                if found is not None:
                    blocks.append(found)
                container.forget(until)
            if self._departed:
                self._departed = [one for one in self._departed if (one.gone_at or 0) > until]
        sealed = self.chain.seal(
            start,
            until - start,
            blocks,
            self._take_observed(until, is_last=until == now),
            inventory=self.inventory if self._is_new_boot else None,
        )
        self.sealed_until = until
        self._is_new_boot = False
        return sealed

    def _take_observed(self, until: int, *, is_last: bool) -> list[Observation]:
        if not self._observed:
            return []
        taken = [one for one in self._observed if is_last or one.at < until]
        del self._observed[: len(taken)]
        return taken


def _next_multiple(second: int, step: int) -> int:
    """The first multiple of *step* after *second*."""
    return (second // step + 1) * step
