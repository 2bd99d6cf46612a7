"""The suite in a process of its own: started for one check, ended when it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Literal

import structlog

from adapters.hostagent.suite.port import Measured, SuiteKind, not_able

_LOOK_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 30.0
_ROOT: Final = Path(__file__).parents[3]
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from adapters.hostagent.suite.__main__ import main; sys.exit(main())"
)
"""This code comes last on the path: the Python may be another one, with packages of its own."""

log = structlog.get_logger("gpuledger.agent")


class ChildSuite:
    """Runs one check at a time; gives the GPUs back at once when somebody rents them."""

    def __init__(
        self,
        gpu_uuids: Sequence[str],
        python: str = sys.executable,
        is_rented: Callable[[], bool] = lambda: False,
        grace_seconds: float = _GRACE_SECONDS,
    ) -> None:
        """Compute on *gpu_uuids* with the framework of *python*, until *is_rented*."""
        self._gpu_uuids = tuple(gpu_uuids)
        self._python = python
        self._is_rented = is_rented
        self._grace_seconds = grace_seconds
        self._alone = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def pids(self) -> frozenset[int]:
        """The suite's process, as long as there is one."""
        child = self._child
        return frozenset() if child is None or child.poll() is not None else frozenset([child.pid])

    def run(self, kind: SuiteKind | Literal["framework"], nonce: str, seconds: float) -> Measured:
        """Carry out one check; `framework` only looks whether one could be."""
        if not self._alone.acquire(blocking=False):
            return not_able("busy")
        try:
            if self.pids():
                return Measured("failed", {"reason": "gpu_hangs"})
            if self._is_rented():
                return not_able("rented")
            return self._run({"kind": kind, "nonce": nonce, "seconds": seconds}, seconds)
        finally:
            self._alone.release()

    def _run(self, request: dict[str, str | float], seconds: float) -> Measured:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": ",".join(self._gpu_uuids),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        try:
            child = subprocess.Popen(  # noqa: S603 - the Python that the operator named
                [self._python, "-c", _START, str(_ROOT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        except OSError as error:
            log.warning("the suite's Python does not start", python=self._python, reason=str(error))
            return not_able("no_framework")
        self._child = child
        lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=_read, args=[child, lines], name="suite", daemon=True).start()
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            return self._answer(lines, time.monotonic() + seconds)
        except BrokenPipeError:
            return not_able("suite_ended")
        finally:
            self._end(child)

    def _answer(self, lines: SimpleQueue[str], deadline: float) -> Measured:
        while True:
            try:
                line = lines.get(timeout=_LOOK_SECONDS)
            except Empty:
                if self._is_rented():
                    return not_able("rented")
                if time.monotonic() >= deadline:
                    return Measured("failed", {"reason": "too_slow"})
                continue
            if not line:
                return not_able("suite_ended")
            found = json.loads(line)
            return Measured(found["result"], found["measures"])

    def _end(self, child: subprocess.Popen[str]) -> None:
        """Ask it to end; one that a hung driver holds is left behind, and never killed."""
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(self._grace_seconds)
        except subprocess.TimeoutExpired:
            log.warning("the suite does not end", pid=child.pid)


def _read(child: subprocess.Popen[str], lines: SimpleQueue[str]) -> None:
    """Hand on the first line; it is empty when the process ends without one."""
    assert child.stdout is not None
    with child.stdout:
        lines.put(child.stdout.readline())
