"""A generation: from one initialisation of NVML to its end, with everything that dies with it."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pynvml

from adapters.hostagent.collector.codes import (
    GPU_LOST,
    GPU_NOT_FOUND,
    SET_CHANGED,
    TIMEOUT,
    VERSION_MISMATCH,
)
from adapters.hostagent.collector.driver import (
    Facts,
    GenerationEndedError,
    GpuLostError,
    Handle,
    address,
    way,
)
from adapters.hostagent.collector.life import LifeCycle, Waits
from adapters.hostagent.collector.protocol import (
    Answer,
    Cadence,
    EventsFailed,
    GpuIdentity,
    GpuRow,
    Opened,
    Refused,
    Swept,
    Versions,
    Xid,
)
from adapters.hostagent.collector.sweeps import Gpu

SLOWEST: Final = 60
"""The cadence in which GPUs are counted anew, and lost ones tried again."""


class Session:
    """One generation of NVML. Not used again once a sweep says that it ended."""

    def __init__(
        self,
        tell: Callable[[Answer], None],
        log: Callable[[str], None],
        known_lost: frozenset[str] = frozenset(),
        waits: Waits | None = None,
    ) -> None:
        """Begin closed.

        Args:
            tell: Sends what comes by itself: faults of GPUs.
            log: Told once what a card cannot do.
            known_lost: GPUs that ended an earlier generation; losing them again ends nothing, or
                the others would never be read.
            waits: How long to wait inside the driver, and for it.
        """
        self._waits = waits or Waits()
        self.life = LifeCycle(self._waits.close)
        self._is_open = False
        self._tell = tell
        self._log = log
        self._known_lost = known_lost
        self._facts = Facts()
        self._gpus: list[Gpu] = []
        self._lost: set[str] = set()
        self._addresses: dict[int, str] = {}
        self._events: Any = None

    def open(self) -> Opened | Refused:
        """Initialise, look which GPUs there are and listen for their faults."""
        try:
            pynvml.nvmlInitWithFlags(0)
        except pynvml.NVMLError as error:
            return Refused(int(error.value))
        self._is_open = True
        try:
            identities, unreadable = self._enumerate()
        except (GenerationEndedError, pynvml.NVMLError) as error:
            self.close()
            code = error.code if isinstance(error, GenerationEndedError) else int(error.value)
            return Refused(code)
        has_events = self._listen()
        self._log_impossible()
        return Opened(
            versions=self._versions(), gpus=identities, unreadable=unreadable, events=has_events
        )

    def sweep(self, cadence: Cadence) -> Swept:
        """What belongs to *cadence*, of all GPUs that answer."""
        began = time.monotonic_ns()
        rows: list[GpuRow] = []
        lost: list[str] = []
        present: list[str] | None = None
        ended: int | None = None
        with self.life.calling():
            try:
                for gpu in self._gpus:
                    if gpu.uuid in self._lost and cadence != SLOWEST:
                        lost.append(gpu.uuid)
                        continue
                    try:
                        rows.append(gpu.sweep(cadence))
                        self._lost.discard(gpu.uuid)
                    except GpuLostError:
                        lost.append(gpu.uuid)
                        self._lost.add(gpu.uuid)
                if cadence == SLOWEST:
                    present = self._present()
                    if self._is_changed(present):
                        ended = SET_CHANGED
            except (GenerationEndedError, pynvml.NVMLError) as error:
                ended = error.code if isinstance(error, GenerationEndedError) else int(error.value)
            if ended is None and set(lost) - self._known_lost:
                ended = GPU_LOST
            swept_ns = time.monotonic_ns()
            if ended is not None:
                self._shut_down(is_caller_inside=True)
        self._log_impossible()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Swept(
            cadence=cadence,
            began_ns=began,
            ended_ns=swept_ns,
            rows=rows,
            lost=lost,
            present=present,
            ended=ended,
            open_fds=len(os.listdir("/proc/self/fd")),
            rss_bytes=resident_bytes(),
            cpu_ns=int((usage.ru_utime + usage.ru_stime) * 1e9),
        )

    def _log_impossible(self) -> None:
        found = self._facts.take_news()
        if found:
            self._log(f"not answered by this driver or some GPU: {found}")

    def close(self) -> bool:
        """Let go of the driver; false when the event thread or a sweep would not let go of it."""
        return self._shut_down(is_caller_inside=False)

    def _shut_down(self, *, is_caller_inside: bool) -> bool:
        if not self._is_open:
            return True
        self._is_open = False
        if not self.life.close(is_caller_inside=is_caller_inside):
            return False
        with contextlib.suppress(pynvml.NVMLError):
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        return True

    # --- which GPUs there are --------------------------------------------------------------------

    def _enumerate(self) -> tuple[list[GpuIdentity], list[int]]:
        found: list[GpuIdentity] = []
        unreadable: list[int] = []
        for slot in range(int(pynvml.nvmlDeviceGetCount())):
            try:
                uuid = str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(slot)))
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                identity = self._identity(uuid, slot, handle)
            except GpuLostError:
                unreadable.append(GPU_LOST)
                continue
            except pynvml.NVMLError as error:
                if error.value in {VERSION_MISMATCH, GPU_NOT_FOUND}:
                    raise
                unreadable.append(int(error.value))
                continue
            found.append(identity)
            self._addresses[address(handle)] = uuid
            self._gpus.append(Gpu(uuid, handle, self._facts, is_mig=identity.mig is True))
        return found, unreadable

    def _identity(self, uuid: str, slot: int, handle: Handle) -> GpuIdentity:
        def ask(symbol: str, *arguments: Any) -> Any:
            return self._facts.ask(uuid, handle, way(symbol, *arguments))[0]

        pci = ask("nvmlDeviceGetPciInfo_v3")
        capability = ask("nvmlDeviceGetCudaComputeCapability")
        memory = ask("nvmlDeviceGetMemoryInfo")
        bits = ask("nvmlDeviceGetMemoryBusWidth")
        mhz = ask("nvmlDeviceGetMaxClockInfo", 2)
        mig = ask("nvmlDeviceGetMigMode")
        persistence = ask("nvmlDeviceGetPersistenceMode")
        return GpuIdentity(
            uuid=uuid,
            slot=slot,
            name=ask("nvmlDeviceGetName"),
            serial=ask("nvmlDeviceGetSerial"),
            pci=None if pci is None else pci_address(pci.busId),
            minor=ask("nvmlDeviceGetMinorNumber"),
            vbios=ask("nvmlDeviceGetVbiosVersion"),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            memory_bytes=int(memory.total) if memory is not None and memory.total else None,
            # Two transfers a clock, eight bits a byte.
            memory_bandwidth_mb_s=None if bits is None or mhz is None else bits * mhz * 2 // 8,
            pcie_gen_max=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth"),
            power_limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit"),
            mig=None if mig is None else mig[0] == 1,
            persistence=None if persistence is None else persistence == 1,
        )

    def _versions(self) -> Versions:
        cuda = _or_null(pynvml.nvmlSystemGetCudaDriverVersion)
        return Versions(
            driver=_or_null(pynvml.nvmlSystemGetDriverVersion),
            nvml=_or_null(pynvml.nvmlSystemGetNVMLVersion),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _present(self) -> list[str]:
        found = []
        for slot in range(int(pynvml.nvmlDeviceGetCount())):
            with contextlib.suppress(pynvml.NVMLError):
                found.append(str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(slot))))
        return found

    def _is_changed(self, present: list[str]) -> bool:
        """True when other GPUs are there than at the start, or a handle means another one now."""
        expected = {gpu.uuid for gpu in self._gpus} - self._lost
        if set(present) - self._lost != expected or self._lost & set(present) - self._known_lost:
            return True
        for gpu in self._gpus:
            if gpu.uuid in self._lost:
                continue
            if address(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)) != address(gpu.handle):
                return True
        return False

    # --- faults ----------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """True when the driver tells of faults of at least one GPU."""
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._log(f"no event set (NVML code {error.value}); XIDs come from the kernel's log")
            return False
        is_heard = False
        for gpu in self._gpus:
            try:
                supported = pynvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
                mask = pynvml.nvmlEventTypeXidCriticalError & supported
                if mask:
                    pynvml.nvmlDeviceRegisterEvents(gpu.handle, mask, self._events)
                    is_heard = True
            except pynvml.NVMLError as error:
                self._log(f"{gpu.uuid}: no events (NVML code {error.value})")
        if is_heard:
            threading.Thread(target=self._wait_for_events, name="events", daemon=True).start()
        return is_heard

    def _wait_for_events(self) -> None:
        while not self.life.is_closing:
            with self.life.waiting():
                if self.life.is_closing:
                    return
                try:
                    event = pynvml.nvmlEventSetWait_v2(self._events, int(self._waits.events * 1000))
                except pynvml.NVMLError as error:
                    if error.value == TIMEOUT:
                        continue
                    if not self.life.is_closing:
                        self._tell(EventsFailed(time.monotonic_ns(), int(error.value)))
                    return
                if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
                    continue
                self._tell(Xid(time.monotonic_ns(), int(event.eventData), self._uuid(event.device)))

    def _uuid(self, handle: Handle) -> str | None:
        known = self._addresses.get(address(handle))
        if known is not None:
            return known
        with contextlib.suppress(pynvml.NVMLError):
            return str(pynvml.nvmlDeviceGetUUID(handle))
        return None


def _or_null(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except pynvml.NVMLError:
        return None


def pci_address(bus_id: str | bytes) -> str:
    """NVML's `00000000:01:00.0` as the kernel writes it: `0000:01:00.0`."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def resident_bytes(process: str = "self") -> int:
    """Memory of a process that is not shared away: its resident set."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
