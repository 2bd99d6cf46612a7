"""GPUs that exist in a file: the stub library of NVML under the real binding, fast and in reach."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pynvml
import pytest

from adapters.hostagent.collector.life import Waits
from adapters.hostagent.collector.port import Reading
from adapters.hostagent.collector.protocol import Answer, Cadence, Opened, Swept
from adapters.hostagent.collector.session import Session
from adapters.hostagent.collector.supervisor import NvmlCollector, Pace
from adapters.hostagent.nvml.build import LIBRARY, NoCompilerError, build

FAST: Final = Pace(
    second=0.05,
    deadline=2.5,
    open_deadline=10.0,
    grace=5.0,
    first_retry=0.05,
    last_retry=0.2,
    waits=Waits(0.05, 0.3),
)
"""Sweeps of 1, 5 and 60 s every 0.05, 0.25 and 3 s; a hang is noticed after 2.5 s."""
PATIENCE_SECONDS: Final = 20.0


def uuid(index: int) -> str:
    """What the stub calls its GPU with that index."""
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


class FakeGpus:
    """The control file of a stub; every change is seen by the next call."""

    def __init__(self, folder: Path) -> None:
        """Have one GPU, described in *folder*."""
        self.path = folder / "gpus.txt"
        self._lines: dict[str, str] = {}
        self.set()

    def set(self, lines: dict[str, object] | None = None, **more: object) -> None:
        """Change keys; null takes a key away."""
        for key, value in {**(lines or {}), **more}.items():
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = str(value)
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{key}={value}\n" for key, value in self._lines.items()))
        fresh.rename(self.path)


class Libraries:
    """The variants of the stub, each built once."""

    def __init__(self, folder: Path) -> None:
        """Build into *folder*."""
        self._folder = folder

    def path(self, variant: str) -> Path:
        """The library; skips the test on a machine without a compiler."""
        library = self._folder / variant / LIBRARY
        if not library.exists():
            try:
                build(library.parent, variant)
            except NoCompilerError as error:
                pytest.skip(str(error))
        return library


class InProcess:
    """A generation in this process: for what needs no supervisor."""

    def __init__(self, library: Path) -> None:
        """Load *library* in the place of the driver's."""
        pynvml.nvmlLib = ctypes.CDLL(str(library))
        pynvml._nvmlGetFunctionPointer_cache.clear()
        self.told: list[Answer] = []
        self.logged: list[str] = []
        self._open: list[Session] = []

    def open(self) -> tuple[Session, Opened]:
        """A new generation."""
        session = Session(self.told.append, self.logged.append, waits=FAST.waits)
        opened = session.open()
        assert isinstance(opened, Opened), opened
        self._open.append(session)
        return session, opened

    def sweep(self, cadence: Cadence) -> Swept:
        """One sweep of a new generation."""
        return self.open()[0].sweep(cadence)

    def close(self) -> None:
        """End all generations."""
        for session in self._open:
            session.close()
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()


def until(is_so: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until *is_so*; fails when it never is."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


def read(collector: NvmlCollector) -> Reading:
    """What the collector knows now."""
    return collector.reading(time.monotonic_ns())


@contextmanager
def collecting(
    registered: list[str] | None = None,
    *,
    pace: Pace = FAST,
    pci: int = 0,
    leaves_child: bool = False,
) -> Iterator[NvmlCollector]:
    """A real collector with its child, ended in order."""
    collector = NvmlCollector(registered, pace=pace, pci_gpus=lambda: pci)
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()
        if not leaves_child:
            until(lambda: collector.status().abandoned_children == 0)


def has_swept(collector: NvmlCollector, *, generation: int = 1) -> bool:
    """True once all three sweeps of a generation, or of a later one, are in."""
    reading = read(collector)
    if reading.state != "ok" or reading.generation < generation:
        return False
    return any("link_gen" in gpu.values for gpu in reading.gpus.values())


def threads_of(pid: int) -> int:
    """How many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def is_process(pid: int) -> bool:
    """True while a process with that pid is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def sleeper() -> subprocess.Popen[bytes]:
    """A process that is there until it is terminated."""
    return subprocess.Popen(["/bin/sleep", "60"], env={"PATH": os.environ["PATH"]})
