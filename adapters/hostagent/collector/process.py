"""The collector process from the outside: started, asked, listened to, let go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import adapters
from adapters.hostagent.collector.life import Waits
from adapters.hostagent.collector.protocol import Answer, Frames, Question, frame

_READ_BYTES: Final = 65_536
_ROOT: Final = Path(adapters.__file__).parent.parent


class ChildProcess:
    """One collector process. `fileno` is readable when it has said something, or has ended."""

    def __init__(self, waits: Waits) -> None:
        """Start it with the environment of this process: the driver's library is found by that."""
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        module = "adapters.hostagent.collector.child"
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", module, *map(str, waits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._frames = Frames()
        self.pid = self._process.pid

    def fileno(self) -> int:
        """What to wait on."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ask(self, question: Question) -> bool:
        """Put one question; false when the process is gone. Never waits: a question is small."""
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), frame(question))
        except BrokenPipeError:
            return False
        return True

    def answers(self) -> list[Answer] | None:
        """What it has said; null when it has ended. Call when `fileno` is readable.

        Raises:
            BrokenFrameError: It speaks nonsense.
        """
        data = os.read(self.fileno(), _READ_BYTES)
        return self._frames.answers(data) if data else None

    def let_go(self) -> None:
        """Ask it to end, and hear no more of it. It is never killed."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def has_ended(self) -> bool:
        """True once the process is gone; it is then reaped."""
        return self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Wait that long for its end; false when it is still there."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.has_ended()
