"""Volumes: copies are made as soon as they are wanted, and what nobody rents any more is removed.

Beside everything else, and copies first: what a copy begins with may be among what is to go.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from adapters.hostagent.runtime.launching import mount_of
from adapters.hostagent.runtime.port import LaunchError, Mount, Runtime, RuntimeUnavailableError
from ledger.domain.acknowledgement import DesiredVolume

log = structlog.get_logger("gpuledger.agent")


class Volumes:
    """Copies and removes, once each; what fails is tried at the next word of the server."""

    def __init__(self, runtime: Runtime) -> None:
        """Work on *runtime*."""
        self._runtime = runtime
        self._copied: set[int] = set()
        self._removed: set[int] = set()
        self._busy = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether something is being copied or removed."""
        return self._busy.locked()

    def take(self, wanted: Sequence[DesiredVolume]) -> None:
        """The server says which volumes are kept and which are gone; returns at once."""
        gone = {one.volume for one in wanted if one.want == "gone"}
        copies = [
            mount_of(one, wanted)
            for one in wanted
            if one.want == "kept" and one.cloned_from is not None
        ]
        self._removed &= gone
        self._copied &= {one.volume for one in copies}
        copies = [one for one in copies if one.volume not in self._copied]
        gone -= self._removed
        if (gone or copies) and self._busy.acquire(blocking=False):
            threading.Thread(
                target=self._carry_out, args=[copies, sorted(gone)], name="volumes", daemon=True
            ).start()

    def _carry_out(self, copies: Sequence[Mount], gone: Sequence[int]) -> None:
        try:
            for mount in copies:
                self._copy(mount)
            for one in gone:
                self._runtime.remove_volume(one)
                self._removed.add(one)
                log.info("volume removed", volume=one)
        except RuntimeUnavailableError as error:
            # Nothing that a copy still needs has been removed: copies come first.
            log.warning("a volume could not be copied or removed", reason=str(error))
        finally:
            self._busy.release()

    def _copy(self, mount: Mount) -> None:
        try:
            self._runtime.make_copy(mount)
            log.info(
                "volume is a whole copy",
                volume=mount.volume,
                of=mount.copy_of and mount.copy_of.volume,
            )
        except LaunchError as error:
            # An instance that wants it is refused with these words.
            log.warning("a volume cannot be copied", volume=mount.volume, reason=str(error))
        self._copied.add(mount.volume)
