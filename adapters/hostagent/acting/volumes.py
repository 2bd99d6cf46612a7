"""Volumes that nobody rents any more are removed from the machine, beside everything else."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from adapters.hostagent.runtime.port import Runtime, RuntimeUnavailableError
from ledger.domain.acknowledgement import DesiredVolume

log = structlog.get_logger("gpuledger.agent")


class Volumes:
    """Removes what is wanted gone, once; what fails is tried at the next word of the server."""

    def __init__(self, runtime: Runtime) -> None:
        """Remove from *runtime*."""
        self._runtime = runtime
        self._removed: set[int] = set()
        self._busy = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether something is being removed."""
        return self._busy.locked()

    def take(self, wanted: Sequence[DesiredVolume]) -> None:
        """The server says which volumes are kept and which are gone; returns at once."""
        gone = {one.volume for one in wanted if one.want == "gone"}
        self._removed &= gone
        if gone - self._removed and self._busy.acquire(blocking=False):
            threading.Thread(
                target=self._remove, args=[sorted(gone - self._removed)], daemon=True
            ).start()

    def _remove(self, volumes: Sequence[int]) -> None:
        try:
            for one in volumes:
                self._runtime.remove_volume(one)
                self._removed.add(one)
                log.info("volume removed", volume=one)
        except RuntimeUnavailableError as error:
            log.warning("a volume could not be removed", reason=str(error))
        finally:
            self._busy.release()
