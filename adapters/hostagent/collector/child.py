"""The process that may hang in the driver.

    python -m adapters.hostagent.collector.child [WAIT CLOSE]

It reads questions from standard input and writes answers to what was standard output when it
started; libraries that print go to standard error. It ends with its parent or at SIGTERM, in at
most `life.CLOSE_SECONDS`, unless a call is stuck inside the kernel.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from types import FrameType
from typing import Final, NoReturn

from adapters.hostagent.collector.codes import SET_CHANGED
from adapters.hostagent.collector.life import Waits
from adapters.hostagent.collector.protocol import (
    Answer,
    BrokenFrameError,
    Close,
    Closed,
    Frames,
    Open,
    Opened,
    Question,
    Sweep,
    Swept,
    frame,
)
from adapters.hostagent.collector.session import Session

_READ_BYTES: Final = 65_536


class Child:
    """Answers questions one after the other, on a thread that may hang; the main thread may not."""

    def __init__(self, answers: int, waits: Waits) -> None:
        """Write answers to the file descriptor *answers*."""
        self._waits = waits
        self._answers = answers
        self._writing = threading.Lock()
        self._questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
        self._session: Session | None = None
        self._known_lost: frozenset[str] = frozenset()

    def run(self, questions: int) -> NoReturn:
        """Serve until the descriptor *questions* ends or SIGTERM arrives; never returns."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._work, name="sweeps", daemon=True).start()
        frames = Frames()
        try:
            while data := os.read(questions, _READ_BYTES):
                for question in frames.questions(data):
                    self._questions.put(question)
        except BrokenFrameError as error:
            log(f"the agent sent what cannot be read: {error}")
        self._leave()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._leave()

    def _leave(self) -> NoReturn:
        """Close the driver if nobody is stuck in it, and end whatever the other threads do."""
        if self._session is not None:
            self._session.close()
        os._exit(0)

    def _work(self) -> None:
        while True:
            question = self._questions.get()
            try:
                self._tell(self._answer(question))
            except BrokenPipeError:
                self._leave()  # Whoever asked let go, and hears no more of it.
            except BaseException as error:
                # A sweeping thread that died would look like a driver that hangs.
                log(f"the collector fails: {error!r}")
                os._exit(1)

    def _answer(self, question: Question) -> Answer:
        match question:
            case Open():
                return self._open()
            case Sweep(cadence=cadence):
                if self._session is None:
                    return Closed(is_shut_down=True)
                swept = self._session.sweep(cadence)
                self._end(swept)
                return swept
            case Close():
                is_shut_down = self._session is None or self._session.close()
                self._session = None
                return Closed(is_shut_down)

    def _open(self) -> Answer:
        if self._session is not None:
            self._session.close()
        session = Session(self._tell, log, self._known_lost, self._waits)
        opened = session.open()
        if isinstance(opened, Opened):
            self._session = session
        return opened

    def _end(self, swept: Swept) -> None:
        if swept.ended is None:
            return
        self._session = None
        # When the set of GPUs changed, one that was lost may have come back.
        is_new = swept.ended == SET_CHANGED
        self._known_lost = frozenset(swept.lost) if is_new else self._known_lost | {*swept.lost}

    def _tell(self, answer: Answer) -> None:
        data = frame(answer)
        with self._writing:
            while data:
                data = data[os.write(self._answers, data) :]


_logged: set[str] = set()


def log(line: str) -> None:
    """A line for whoever reads the agent's journal, once, however many generations say it."""
    if line in _logged:
        return
    _logged.add(line)
    sys.stderr.write(f"collector: {line}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> NoReturn:
    """Talk over standard input and output; the arguments are the seconds of `Waits`."""
    answers = os.dup(1)
    os.dup2(2, 1)
    Child(answers, Waits(*map(float, arguments))).run(0)


if __name__ == "__main__":
    main(sys.argv[1:])
