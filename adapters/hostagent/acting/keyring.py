"""Ssh keys of running instances: what a renter attaches or detaches meanwhile is brought inside.

A level like all that is wanted: the newest word of the server is compared with what was last put
into the container as it runs now, and done again where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import structlog

from adapters.hostagent.acting.errand import Errand
from adapters.hostagent.runtime.launching import spec_of
from adapters.hostagent.runtime.port import Found, LaunchError, Runtime, RuntimeUnavailableError
from ledger.domain.acknowledgement import Desired
from ledger.domain.ssh import parse_public_key
from ledger.errors import RejectedError

log = structlog.get_logger("gpuledger.agent")


class _Done(NamedTuple):
    """Which keys were put into which run of a container."""

    container: str
    started_at: int | None
    keys: tuple[str, ...]


class KeyRing(Errand):
    """Brings keys into the instances that run, on a thread of its own."""

    def __init__(self, runtime: Runtime, note: Callable[[int, str], None]) -> None:
        """Work on *runtime*; *note* writes a line into the diary of an instance."""
        self._runtime = runtime
        self._note = note
        self._wanted: dict[int, tuple[str, ...]] = {}
        """Instance that is got into by ssh → its keys."""
        self._running: tuple[Found, ...] = ()
        self._done: dict[int, _Done] = {}
        super().__init__(
            "keyring", self.bring, "ssh keys could not be brought in", RuntimeUnavailableError
        )

    def take(self, desired: Desired) -> None:
        """The server says what it wants, with what instances are started from; returns at once."""
        wanted = {}
        for one in desired.instances:
            if one.want != "running" or one.spec is None:
                continue
            try:
                spec = spec_of(one, desired.volumes)
            except LaunchError:
                continue  # Its start says so.
            if spec.has_ssh:
                wanted[one.instance] = spec.ssh_keys
        if wanted != self._wanted:
            self._wanted = wanted
            self.call()

    def running(self, found: Collection[Found]) -> None:
        """These instances run now; called at every look, and cheap while nothing changed."""
        running = tuple(found)
        if running != self._running:
            self._running = running
            self.call()

    def bring(self) -> None:
        """Put into each instance that runs what it lacks, and take out what it should not have.

        Raises:
            RuntimeUnavailableError: The runtime did not answer; the others were brought theirs.
        """
        trouble: RuntimeUnavailableError | None = None
        running, wanted = self._running, self._wanted
        self._done = {
            key: one for key, one in self._done.items() if key in {one.instance for one in running}
        }
        for found in running:
            keys = wanted.get(found.instance)
            if keys is None:
                continue
            done = _Done(found.id, found.started_at, keys)
            if self._done.get(found.instance) == done:
                continue
            try:
                if self._runtime.set_keys(found.id, keys):
                    log.info("ssh keys changed", instance=found.instance, keys=len(keys))
                    self._note(found.instance, f"is open to these ssh keys now: {_named(keys)}")
            except LaunchError as error:
                self._note(found.instance, f"its ssh keys cannot be changed: {error}")
            except RuntimeUnavailableError as error:
                trouble = error
                continue
            self._done[found.instance] = done
        if trouble is not None:
            raise trouble


def _named(keys: Sequence[str]) -> str:
    """Keys by their fingerprints, as ssh shows them."""
    names = []
    for line in keys:
        try:
            key = parse_public_key(line)
        except RejectedError:
            names.append("one that is not understood")
        else:
            names.append(f"{key.fingerprint} ({key.kind})")
    return ", ".join(names) or "none"
