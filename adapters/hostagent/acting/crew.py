"""The threads that carry out steps: a slow image or a stubborn process holds up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

import structlog

from adapters.hostagent.acting.plan import GRACE_SECONDS, Step
from adapters.hostagent.runtime.port import (
    Connection,
    Found,
    LaunchError,
    LaunchSpec,
    Runtime,
    RuntimeUnavailableError,
)

log = structlog.get_logger("gpuledger.agent")


class Done(NamedTuple):
    """What became of a step."""

    step: Step
    found: Found | None = None
    """The container that a start or a reboot came to."""
    connection: Connection | None = None
    refused: LaunchError | None = None
    """It cannot be started."""
    trouble: str | None = None
    """The runtime did not answer or failed; the step is tried again if it is still wanted."""


class Crew:
    """One thread per instance and step; `busy` are the instances at work."""

    def __init__(self, runtime: Runtime, on_done: Callable[[], None]) -> None:
        """Work on *runtime*; *on_done* is called, on any thread, when something ended."""
        self._runtime = runtime
        self._on_done = on_done
        self._done: SimpleQueue[Done] = SimpleQueue()
        self.busy: dict[int, Step] = {}

    def begin(self, step: Step, spec: LaunchSpec | None) -> None:
        """Carry out *step* beside; a start and a reboot need *spec*."""
        assert step.instance not in self.busy, step
        self.busy[step.instance] = step
        threading.Thread(
            target=self._run, args=[step, spec], name=f"{step.kind}-{step.instance}", daemon=True
        ).start()

    def take_done(self) -> list[Done]:
        """What ended since the last call; their instances are free again."""
        found: list[Done] = []
        while True:
            try:
                done = self._done.get_nowait()
            except Empty:
                return found
            del self.busy[done.step.instance]
            found.append(done)

    def _run(self, step: Step, spec: LaunchSpec | None) -> None:
        try:
            done = self._carried_out(step, spec)
        except LaunchError as error:
            done = Done(step, refused=error)
        except RuntimeUnavailableError as error:
            done = Done(step, trouble=str(error))
        except Exception as error:
            log.exception("a step failed", kind=step.kind, instance=step.instance)
            done = Done(step, trouble=f"{type(error).__name__}: {error}")
        self._done.put(done)
        self._on_done()

    def _carried_out(self, step: Step, spec: LaunchSpec | None) -> Done:
        runtime = self._runtime
        match step.kind:
            case "stop":
                assert step.container is not None
                runtime.stop(step.container, step.grace_s)
                return Done(step, runtime.inspect(step.container))
            case "remove":
                assert step.container is not None
                runtime.stop(step.container, step.grace_s)
                runtime.remove(step.container)
                return Done(step)
            case "reboot":
                assert step.container is not None
                runtime.stop(step.container, GRACE_SECONDS)
            case "start":
                pass
        if spec is None:
            # Whatever it is started from was not heard since this agent began.
            return Done(step, trouble="the launch is not known yet")
        found = runtime.start(spec)
        return Done(step, found, runtime.connection(found.id))
