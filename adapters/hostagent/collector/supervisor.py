"""The collector as the agent sees it: a child process that may hang, and is then left behind.

One thread asks, one thing at a time, and waits no longer than the deadline; what becomes of a child
that misses it is in `children`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from adapters.hostagent.collector.children import Children
from adapters.hostagent.collector.codes import NO_GPUS, UNKNOWN_XID, VERSION_MISMATCH
from adapters.hostagent.collector.findings import Inspector
from adapters.hostagent.collector.life import Waits
from adapters.hostagent.collector.port import CollectorStatus, Finding, NvmlState, Reading, Standing
from adapters.hostagent.collector.process import ChildProcess
from adapters.hostagent.collector.protocol import (
    Answer,
    BrokenFrameError,
    Cadence,
    Close,
    Closed,
    EventsFailed,
    GpuIdentity,
    Open,
    Opened,
    Question,
    Refused,
    Sweep,
    Swept,
    Versions,
    Xid,
)
from adapters.hostagent.collector.readings import SECOND_NS, Readings
from adapters.hostagent.kernel_gpus import pci_gpus

CADENCES: Final[tuple[Cadence, ...]] = (1, 5, 60)
MAX_ABANDONED: Final = 3
_SILENT_MISSES: Final = 3
"""After so many in a row NVML counts as unavailable: "cannot read" is a state of its own."""
_MISMATCH_RETRY_SECONDS: Final = 60.0


class Pace(NamedTuple):
    """How long things may take, in seconds."""

    second: float = 1.0
    """A sweep of cadence n is made every n of these."""
    deadline: float = 5.0
    open_deadline: float = 30.0
    """Initialising wakes every GPU; 24 s were seen."""
    grace: float = 30.0
    first_retry: float = 1.0
    last_retry: float = 60.0
    waits: Waits = Waits()


class _Pending(NamedTuple):
    question: Question
    deadline_ns: int


class NvmlCollector:
    """Reads GPUs through NVML in a child process. All methods return at once, but for `stop`."""

    def __init__(
        self,
        registered: Collection[str] | None = None,
        *,
        pace: Pace | None = None,
        pci_gpus: Callable[[], int] = pci_gpus,
    ) -> None:
        """Read nothing until `start`.

        Args:
            registered: UUIDs of the machine's GPUs; null: those that the first look finds.
            pace: How long things may take.
            pci_gpus: Counts GPUs on the PCI bus.
        """
        self._pace = pace or Pace()
        self._phase: Callable[[], int] = lambda: 0
        self._pci_gpus = pci_gpus
        self._lock = threading.RLock()
        """Held for dictionary work only, never over I/O."""
        self._readings = Readings()
        self._inspector = Inspector(registered, self._readings)
        self._xids: list[Xid] = []
        self._identities: list[GpuIdentity] = []
        self._versions: Versions | None = None
        self._last_sweeps: dict[int, Swept] = {}

        self._state: NvmlState = "down"
        self._generation = 0
        self._children = Children(self._pace.grace, self._pace.waits)
        self._pending: _Pending | None = None
        self._due: dict[Cadence, int] = {}
        self._retry_ns = 0
        self._attempt = 0
        self._misses = 0
        self._good_ns: int | None = None
        self._gap_since_ns: int | None = None
        self._is_told_unavailable = False
        self._is_release_wanted = False

        self._is_stopping = False
        self._wake_out, self._wake_in = os.pipe()
        self._thread: threading.Thread | None = None

    # --- what the agent calls --------------------------------------------------------------------

    def start(self, phase: Callable[[], int] | None = None) -> None:
        """Begin to read, in the middle of the seconds that *phase* makes of CLOCK_MONOTONIC."""
        assert self._thread is None
        self._phase = phase or self._phase
        self._gap_since_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End in order; a child that hangs in the driver is left behind after the grace."""
        self._is_stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def standing(self, now_ns: int) -> Standing:
        """What is true now, without what was measured; *now_ns* is now."""
        with self._lock:
            return Standing(self._state, self._generation, self._readings.lost)

    def reading(self, now_ns: int) -> Reading:
        """What is known at *now_ns*; what is too old is null and `stale`, never repeated."""
        with self._lock:
            return self._readings.at(now_ns, self._state, self._generation)

    def utilisation(self, gpu_uuids: Collection[str], from_ns: int, until_ns: int) -> int:
        """The highest utilisation measured of these GPUs in `[from_ns, until_ns)`; -1 for none."""
        with self._lock:
            return self._readings.utilisation(gpu_uuids, from_ns, until_ns)

    def take_findings(self) -> Sequence[Finding]:
        """What was found since the last call."""
        with self._lock:
            return self._inspector.take()

    def take_xids(self) -> Sequence[Xid]:
        """The driver's fault events since the last call."""
        with self._lock:
            taken, self._xids = self._xids, []
            return taken

    def release(self) -> None:
        """Let go of the driver until `acquire`; the state is `released` once that is done."""
        self._is_release_wanted = True
        self._wake()

    def acquire(self) -> None:
        """Read again after `release`."""
        self._is_release_wanted = False
        self._wake()

    def identities(self) -> Sequence[GpuIdentity]:
        """The GPUs of the last generation."""
        with self._lock:
            return list(self._identities)

    def versions(self) -> Versions | None:
        """Of the last generation; null before the first."""
        return self._versions

    def status(self) -> CollectorStatus:
        """How the collector itself is doing."""
        with self._lock:
            child = self._children.present
            newest = max(self._last_sweeps.values(), key=lambda one: one.ended_ns, default=None)
            return CollectorStatus(
                state=self._state,
                generation=self._generation,
                abandoned_children=self._children.hanging,
                last_good_sweep_ns=self._good_ns,
                sweep_seconds={
                    cadence: (one.ended_ns - one.began_ns) / SECOND_NS
                    for cadence, one in self._last_sweeps.items()
                },
                child_pid=None if child is None else child.pid,
                child_fds=0 if newest is None else newest.open_fds,
                child_rss_bytes=0 if newest is None else newest.rss_bytes,
                child_cpu_ns=0 if newest is None else newest.cpu_ns,
            )

    def _wake(self) -> None:
        os.write(self._wake_in, b"\0")

    # --- the supervising thread ------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            until_ns = self._step(time.monotonic_ns())
            self._wait(max(0, until_ns - time.monotonic_ns()))
        self._leave_all()

    def _wait(self, timeout_ns: int) -> None:
        """Until the child says something, somebody wakes us, or the time is over."""
        child = self._children.present
        watched = [self._wake_out, *([] if child is None else [child.fileno()])]
        readable, _, _ = select.select(watched, [], [], timeout_ns / SECOND_NS)
        if self._wake_out in readable:
            os.read(self._wake_out, 4096)
        if child is not None and child.fileno() in readable:
            self._listen(child)

    def _listen(self, child: ChildProcess) -> None:
        try:
            answers = child.answers()
        except BrokenFrameError:
            answers = None
        with self._lock:
            now_ns = time.monotonic_ns()
            if answers is None:
                self._missed("the collector ended", now_ns)
                return
            for answer in answers:
                self._take(answer, now_ns)

    def _step(self, now_ns: int) -> int:
        """Do what is due; when to look again at the latest."""
        with self._lock:
            self._children.bury(now_ns)
            pending = self._pending
            if pending is not None and now_ns >= pending.deadline_ns:
                self._missed("the driver does not answer", now_ns)
            if self._is_release_wanted:
                self._release()
            elif self._state == "released":
                self._state, self._retry_ns = "down", now_ns
            if self._children.present is None:
                self._start_child(now_ns)
            if self._children.present is not None and self._pending is None:
                self._ask_next(now_ns)
            return self._next_ns(now_ns)

    def _start_child(self, now_ns: int) -> None:
        children = self._children
        if children.is_leaving or now_ns < self._retry_ns or self._state == "released":
            return
        if children.hanging > MAX_ABANDONED:
            self._tell_unavailable(now_ns, None, f"{children.hanging} collectors hang")
            return
        children.start()

    def _ask_next(self, now_ns: int) -> None:
        if self._state in {"down", "stale", "reboot_required"}:
            if now_ns >= self._retry_ns:
                if self._state != "reboot_required":
                    self._state = "starting"
                self._ask(Open(), self._pace.open_deadline, now_ns)
        elif self._state == "ok":
            for cadence in CADENCES:
                if now_ns >= self._due[cadence]:
                    self._due[cadence] = self._middle(cadence, now_ns)
                    self._ask(Sweep(cadence), self._pace.deadline, now_ns)
                    return

    def _middle(self, cadence: Cadence, now_ns: int) -> int:
        """The next middle of a second, of every second that is a multiple of *cadence*."""
        second = int(self._pace.second * SECOND_NS)
        step, phase = second * cadence, self._phase() - second // 2
        return ((now_ns + phase) // step + 1) * step - phase

    def _ask(self, question: Question, seconds: float, now_ns: int) -> None:
        child = self._children.present
        assert child is not None
        self._pending = _Pending(question, now_ns + int(seconds * SECOND_NS))
        if not child.ask(question):
            self._missed("the collector ended", now_ns)

    def _next_ns(self, now_ns: int) -> int:
        """When something falls due by itself."""
        candidates = [now_ns + 60 * SECOND_NS]
        if self._pending is not None:
            candidates.append(self._pending.deadline_ns)
        elif self._state == "ok" and self._children.present is not None:
            candidates.append(min(self._due.values()))
        elif self._state != "released":
            candidates.append(max(self._retry_ns, now_ns + SECOND_NS // 100))
        again_ns = self._children.look_again_ns(int(self._pace.second * SECOND_NS))
        if again_ns is not None:
            candidates.append(now_ns + again_ns)
        return min(candidates)

    # --- answers ---------------------------------------------------------------------------------

    def _take(self, answer: Answer, now_ns: int) -> None:
        match answer:
            case Opened():
                self._pending = None
                self._opened(answer, now_ns)
            case Refused(code=code):
                self._pending = None
                self._failed(code, now_ns)
            case Swept():
                self._pending = None
                self._swept(answer, now_ns)
            case Closed(is_shut_down=is_shut_down):
                self._pending = None
                self._closed(is_shut_down=is_shut_down, now_ns=now_ns)
            case Xid():
                self._xids.append(answer)
            case EventsFailed(at_ns=at_ns):
                # What was missed may concern any GPU.
                self._xids.append(Xid(at_ns, UNKNOWN_XID, None))
                self._end_generation(now_ns)

    def _opened(self, opened: Opened, now_ns: int) -> None:
        if not self._inspector.opened(opened, self._pci_gpus(), now_ns):
            self._failed(NO_GPUS, now_ns)
            return
        self._generation += 1
        self._state = "ok"
        self._identities = opened.gpus
        self._versions = opened.versions
        self._readings.forget()
        self._due = dict.fromkeys(CADENCES, now_ns)

    def _swept(self, swept: Swept, now_ns: int) -> None:
        self._inspector.swept(swept)
        self._readings.take(swept.cadence, swept.ended_ns, swept.rows)
        if swept.ended == VERSION_MISMATCH:
            self._failed(VERSION_MISMATCH, now_ns)
            return
        self._last_sweeps[swept.cadence] = swept
        if swept.ended is None or swept.rows:
            self._good(now_ns)
        if swept.ended is not None:
            self._end_generation(now_ns)

    def _good(self, now_ns: int) -> None:
        if self._gap_since_ns is not None and self._good_ns is not None:
            seconds = (now_ns - self._gap_since_ns) // SECOND_NS
            self._inspector.find(
                Finding(now_ns, "telemetry_gap", seconds=seconds, detail="it is over")
            )
        self._good_ns = now_ns
        self._gap_since_ns = None
        self._attempt = self._misses = 0
        self._is_told_unavailable = False

    def _closed(self, *, is_shut_down: bool, now_ns: int) -> None:
        self._readings.forget()
        self._state = "released" if self._is_release_wanted else "down"
        if not is_shut_down:
            # Its handles are closed only by the end of the process.
            self._let_go(now_ns)

    # --- failures --------------------------------------------------------------------------------

    def _end_generation(self, now_ns: int) -> None:
        """The child has closed NVML, or will when it opens it again."""
        self._readings.forget()
        self._state = "down"
        self._back_off(now_ns)

    def _failed(self, code: int, now_ns: int) -> None:
        """NVML cannot be initialised, or not be used as it is."""
        self._readings.forget()
        self._begin_gap(now_ns)
        if code == VERSION_MISMATCH:
            if self._state != "reboot_required":
                self._inspector.find(Finding(now_ns, "reboot_required", code=code))
            self._state = "reboot_required"
            self._retry_ns = now_ns + int(_MISMATCH_RETRY_SECONDS * SECOND_NS)
            # This process keeps the old library; the next one loads the one that is there then.
            self._let_go(now_ns)
            return
        self._state = "down"
        self._tell_unavailable(now_ns, code, "no GPU is found" if code == NO_GPUS else None)
        self._back_off(now_ns)

    def _missed(self, reason: str, now_ns: int) -> None:
        """The child did not answer in time, or is gone."""
        self._state = "stale"
        self._readings.forget()
        since_ns = self._begin_gap(now_ns)
        seconds = (now_ns - since_ns) // SECOND_NS
        self._inspector.find(Finding(now_ns, "telemetry_gap", seconds=seconds, detail=reason))
        self._misses += 1
        if self._misses >= _SILENT_MISSES:
            self._tell_unavailable(now_ns, None, reason)
        self._let_go(now_ns)
        self._back_off(now_ns)

    def _begin_gap(self, now_ns: int) -> int:
        """Since when nothing is known."""
        if self._gap_since_ns is None:
            self._gap_since_ns = self._good_ns or now_ns
        return self._gap_since_ns

    def _tell_unavailable(self, now_ns: int, code: int | None, detail: str | None) -> None:
        if not self._is_told_unavailable:
            self._is_told_unavailable = True
            self._inspector.find(Finding(now_ns, "nvml_unavailable", code=code, detail=detail))

    def _back_off(self, now_ns: int) -> None:
        seconds = min(self._pace.last_retry, self._pace.first_retry * 2**self._attempt)
        self._attempt = min(self._attempt + 1, 30)
        self._retry_ns = now_ns + int(seconds * SECOND_NS)

    def _let_go(self, now_ns: int) -> None:
        self._pending = None
        self._children.let_go(now_ns)

    def _release(self) -> None:
        if self._state == "released" or self._pending is not None:
            return
        if self._children.present is None:
            self._state = "released"
            return
        self._ask(Close(), self._pace.deadline, time.monotonic_ns())

    def _leave_all(self) -> None:
        with self._lock:
            self._let_go(time.monotonic_ns())
            leaving = self._children.take_leaving()
        if leaving is not None and not leaving.ends_within(self._pace.grace):
            with self._lock:
                self._children.abandon(leaving)
        with self._lock:
            self._state = "down"
