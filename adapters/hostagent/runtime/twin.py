"""A runtime that exists only in memory, under a clock that is set.

For what tests must provoke (`host-agent.md` §10): lost and repeated events, failing probes, refused
starts, stops that do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.hostagent.runtime.port import (
    Connection,
    Found,
    LaunchError,
    LaunchSpec,
    Mount,
    PortWish,
    Runtime,
    RuntimeEvent,
    RuntimeFault,
    RuntimeUnavailableError,
    last_lines,
)
from ledger.domain.hardware import ConnectionPort

_KILLED = 137
_TERMINATED = 143
_FIRST_HOST_PORT = 40_000


class RuntimeTwin(Runtime):
    """Containers as values; `now` is its clock, in Unix seconds.

    `started` and `stopped` say in order what was really done, the grace of each stop included.
    """

    name = "twin"

    def __init__(self, now: float = 0.0) -> None:
        """Begin without containers."""
        self.now = now
        self.containers: dict[str, Found] = {}
        self.started: list[tuple[int, int]] = []
        self.stopped: list[tuple[int, float]] = []
        self.removed: list[int] = []
        self.keys: dict[str, tuple[str, ...]] = {}
        """Container → the ssh keys that were let in."""
        self.removed_volumes: list[int] = []
        self.volume_steps: list[tuple[str, int]] = []
        """Copies and removals of volumes, in order."""
        self.is_away = False
        """Nobody answers."""
        self.refuses: dict[int, str] = {}
        """Instance → the reason for which its start fails."""
        self.fails_probe: set[int] = set()
        self.loses_events = False
        self.repeats_events = False
        self.ignores_stop = False
        """A stop returns, and the container runs on."""
        self._events: list[RuntimeEvent] = []
        self._ports: dict[int, tuple[PortWish, ...]] = {}
        self._next_pid = 1000

    # --- what happens by itself ------------------------------------------------------------------

    def exit(self, instance: int, code: int) -> None:
        """The container ends by itself."""
        self._end(str(instance), code)

    def reboot_host(self) -> None:
        """Everything that ran is dead; nothing tells how it ended."""
        for key, one in self.containers.items():
            if one.is_alive:
                self.containers[key] = one._replace(state="exited", pid=None, exit_code=None)

    def adopt(self, found: Found) -> None:
        """A container that somebody else started."""
        self.containers[found.id] = found

    # --- the port --------------------------------------------------------------------------------

    def list(self) -> list[Found]:
        """All containers."""
        self._require()
        return list(self.containers.values())

    def inspect(self, container: str) -> Found | None:
        """One container."""
        self._require()
        return self.containers.get(container)

    def start(self, spec: LaunchSpec) -> Found:
        """Run the instance's container."""
        self._require()
        if spec.instance in self.refuses:
            raise LaunchError(self.refuses[spec.instance], "the twin was told to refuse")
        key = str(spec.instance)
        known = self.containers.get(key)
        if known is not None and known.is_alive:
            if known.assignment == spec.assignment:
                return known
            self._end(key, _KILLED)
        held = {
            gpu
            for one in self.containers.values()
            if one.is_alive and one.instance != spec.instance
            for gpu in one.gpu_uuids
        }
        assert not held & set(spec.gpu_uuids), "a GPU is given to two containers at once"
        self._next_pid += 1
        found = Found(
            id=key,
            instance=spec.instance,
            assignment=spec.assignment,
            state="running",
            gpu_uuids=spec.gpu_uuids,
            pid=self._next_pid,
            started_at=int(self.now),
        )
        self.containers[key] = found
        self._ports[spec.instance] = spec.ports
        self.started.append((spec.instance, spec.assignment))
        self._tell(key, spec.instance, "start")
        return found

    def stop(self, container: str, grace_s: float) -> None:
        """End the container."""
        self._require()
        one = self.containers.get(container)
        if one is None or not one.is_alive:
            return
        self.stopped.append((one.instance, grace_s))
        if not self.ignores_stop:
            self._end(container, _TERMINATED if grace_s > 0 else _KILLED)

    def remove(self, container: str) -> None:
        """Forget the container."""
        self._require()
        one = self.containers.pop(container, None)
        if one is not None:
            self.removed.append(one.instance)
            self._tell(container, one.instance, "remove")

    def events(self, since: float) -> Sequence[RuntimeEvent]:
        """What happened, or what the twin was told to make of it."""
        self._require()
        if self.loses_events:
            return []
        found = [one for one in self._events if one.at >= since]
        return found * 2 if self.repeats_events else found

    def probe(self, container: str) -> bool:
        """Whether the GPUs are seen inside."""
        one = self.inspect(container)
        return one is not None and one.is_alive and one.instance not in self.fails_probe

    def set_keys(self, container: str, keys: Sequence[str]) -> bool:
        """Note them."""
        self._require()
        is_new = self.keys.get(container) != tuple(keys)
        self.keys[container] = tuple(keys)
        return is_new

    def logs(self, container: str, tail: int | None) -> bytes:
        """One line for each start."""
        lines = [
            b"assignment %d started\n" % assignment
            for instance, assignment in self.started
            if str(instance) == container
        ]
        return last_lines(b"".join(lines), tail)

    def connection(self, container: str) -> Connection:
        """Ports counted from 40000."""
        one = self.inspect(container)
        wishes = () if one is None else self._ports.get(one.instance, ())
        return Connection(
            ports=[
                ConnectionPort(
                    container_port=wish.container_port,
                    host_port=wish.host_port or _FIRST_HOST_PORT + index,
                    protocol=wish.protocol,
                )
                for index, wish in enumerate(wishes)
            ]
        )

    def make_copy(self, mount: Mount) -> None:
        """Note it."""
        self._require()
        self.volume_steps.append(("copy", mount.volume))

    def remove_volume(self, volume: int) -> None:
        """Note it."""
        self._require()
        self.removed_volumes.append(volume)
        self.volume_steps.append(("remove", volume))

    def faults(self) -> Sequence[RuntimeFault]:
        """Nothing is missing here."""
        return []

    def _require(self) -> None:
        if self.is_away:
            raise RuntimeUnavailableError("the twin was told to be away")

    def _end(self, key: str, code: int) -> None:
        one = self.containers[key]
        self.containers[key] = one._replace(state="exited", pid=None, exit_code=code)
        self._tell(key, one.instance, "exit")

    def _tell(self, key: str, instance: int, kind: str) -> None:
        match kind:
            case "start" | "exit" | "remove":
                self._events.append(RuntimeEvent(self.now, key, instance, kind))
            case _:
                raise AssertionError(kind)
