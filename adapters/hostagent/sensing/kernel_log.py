"""The kernel's log as a second source of GPU faults: some never arrive through NVML.

The words of these lines are no interface and change with the driver; they are read tolerantly, and
a line about a fault that is not understood is passed on as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

KMSG: Final = Path("/dev/kmsg")
_RECORD_BYTES: Final = 8192
"""The kernel gives one whole record per read, never longer than this."""
_XID: Final = re.compile(r"\bXid\b(?:\s*\((?:PCI:)?([0-9a-fA-F:.]+)\))?\s*:?\s*(\d+)?")
_PCI: Final = re.compile(r"\b(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?\b")
_OFF_THE_BUS: Final = re.compile(r"fallen\s+off\s+the\s+bus", re.IGNORECASE)
_CONTEXT_LINES: Final = 6
"""A sentence of the driver is spread over no more lines than that."""
OFF_THE_BUS: Final = 79


class KernelFault(NamedTuple):
    """A line about a fault. `pci` as `0000:01:00`; null parts could not be read."""

    at_ns: int
    pci: str | None
    code: int | None
    is_xid: bool
    """False: the words about the bus, which carry no number of their own."""
    raw: str


class Parser:
    """Reads lines in their order: a sentence may span some of them."""

    def __init__(self) -> None:
        """Begin without context."""
        self._pci: str | None = None
        self._age = 0
        self._words = ""

    def line(self, text: str, at_ns: int) -> KernelFault | None:
        """The fault that this line completes; null when it is about something else."""
        is_driver = "NVRM" in text
        if not is_driver and "off the bus" not in text:
            return None
        self._age += 1
        if self._age > _CONTEXT_LINES:
            self._pci, self._words = None, ""
        pci = _pci(text)
        if pci is not None:
            self._pci, self._age, self._words = pci, 0, ""
        found = _XID.search(text)
        if found is not None and is_driver:
            self._words = ""
            code = None if found.group(2) is None else int(found.group(2))
            own = _pci(found.group(1) or "") or pci
            return KernelFault(at_ns, own, code, is_xid=True, raw=text.strip()[:256])
        self._words = f"{self._words} {text.partition('NVRM:')[2] or text}".strip()
        if _OFF_THE_BUS.search(self._words) is None:
            return None
        self._words = ""
        return KernelFault(at_ns, self._pci, OFF_THE_BUS, is_xid=False, raw=text.strip()[:256])


def _pci(text: str) -> str | None:
    """The bus address without its function, in the kernel's spelling."""
    found = _PCI.search(text)
    if found is None:
        return None
    domain, bus, device = found.group(1).split(":")
    return f"{int(domain, 16):04x}:{bus.lower()}:{device.lower()}"


class KernelLog:
    """Follows the kernel's log on a thread of its own; lines from before the start are not read."""

    def __init__(self, path: Path = KMSG) -> None:
        """Follow *path*: a file that gives one record per read, or lines."""
        self._path = path
        self._parser = Parser()
        self._faults: list[KernelFault] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake_out, self._wake_in = os.pipe()
        self.is_followed = False
        """False: not permitted, or there is none; faults then come from the driver alone."""

    def start(self) -> None:
        """Begin to follow; where that is not permitted, nothing will be found."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return
        with contextlib.suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_END)
        self.is_followed = True
        self._thread = threading.Thread(
            target=self._follow, args=(descriptor,), name="kernel log", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        os.write(self._wake_in, b"\0")
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def take(self) -> list[KernelFault]:
        """The faults since the last call."""
        with self._lock:
            taken, self._faults = self._faults, []
            return taken

    def _follow(self, descriptor: int) -> None:
        try:
            while True:
                readable, _, _ = select.select([descriptor, self._wake_out], [], [])
                if self._wake_out in readable:
                    return
                try:
                    data = os.read(descriptor, _RECORD_BYTES)
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    continue  # Records were overwritten before we read them; go on with the next.
                if not data:
                    return
                self._take(data.decode(errors="replace"))
        finally:
            self.is_followed = False
            os.close(descriptor)

    def _take(self, text: str) -> None:
        now_ns = time.monotonic_ns()
        for line in text.splitlines():
            # A record is `priority,sequence,time,flags;words`; lines behind it describe its device.
            if line.startswith(" "):
                continue
            head, _, words = line.partition(";")
            found = self._parser.line(words if words and "," in head else line, now_ns)
            if found is not None:
                with self._lock:
                    self._faults.append(found)
