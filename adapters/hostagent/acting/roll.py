"""The roll of what runs: the runtime's own list, read when it is due or somebody is missing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from adapters.hostagent.runtime.port import Found, Runtime, RuntimeUnavailableError

LIST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
"""After a failure of the runtime."""
_HAS_PROCESSES: Final = Path("/proc/self").exists()

log = structlog.get_logger("gpuledger.agent")


class Roll:
    """Knows the containers of the last list.

    `found` is by instance: of two containers of one instance, the one of the later assignment.
    """

    def __init__(
        self,
        runtime: Runtime,
        lives: Callable[[Found], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """List by *runtime*; *lives* is false when a container's first process is gone."""
        self._runtime, self._lives = runtime, lives
        self._monotonic = monotonic
        self._due_at = 0.0
        self._is_hinted = False
        self.found: dict[int, Found] = {}
        self.is_read = False
        """Whether it was ever read: before that nobody knows what runs."""
        self.gone: frozenset[int] = frozenset()
        """Instances whose process is gone, while the runtime still says that it is there."""

    def hint(self) -> None:
        """Something may have happened to a container; on any thread."""
        self._is_hinted = True

    def read(self) -> list[Found] | None:
        """All containers, if they were listed now; null when there was no reason, or no answer."""
        now = self._monotonic()
        self.gone = self._gone()
        is_due = self._is_hinted or now >= self._due_at
        if not (is_due or self.gone):
            return None
        self._is_hinted = False
        try:
            listed = self._runtime.list()
        except RuntimeUnavailableError as error:
            # Not "nothing runs": what was seen last is kept, and looked at again soon.
            log.warning("the runtime does not answer", reason=str(error))
            self._due_at = now + RETRY_SECONDS
            return None
        self._due_at = now + LIST_SECONDS
        self.found = {one.instance: one for one in sorted(listed, key=lambda one: one.assignment)}
        self.is_read = True
        self.gone = self._gone()
        return listed

    def _gone(self) -> frozenset[int]:
        return frozenset(one.instance for one in self.found.values() if not self._lives(one))

    @property
    def pids(self) -> list[int]:
        """First processes of what runs."""
        return [one.pid for one in self.found.values() if one.pid is not None]


def lives(found: Found) -> bool:
    """False when the process that should be there is not; true where nothing is known of one."""
    if found.pid is None or not _HAS_PROCESSES:
        return True
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
