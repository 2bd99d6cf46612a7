"""The container runtime port (`host-agent.md` §10): what the agent asks of whatever runs instances.

Events are hints, the list is truth. An instance has at most one container; its disk belongs to the
instance, not to the assignment, and ends with `remove`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from ledger.domain.hardware import ConnectionPort

INSTANCE_LABEL: Final = "ledger.instance_id"
ASSIGNMENT_LABEL: Final = "ledger.assignment_no"
GPUS_LABEL: Final = "ledger.gpu_uuids"
PROBE_SECONDS: Final = 5.0
LOG_BYTES: Final = 4 * 2**20
"""As much of an output as is read at once."""

ContainerState = Literal["created", "running", "paused", "exited"]


class PortWish(NamedTuple):
    """A port of the container that is to be reached from outside."""

    container_port: int
    protocol: Literal["tcp", "udp"] = "tcp"
    host_port: int | None = None
    """Where, if that is free; which port it became is told by `connection`."""


class Login(NamedTuple):
    """Who pulls a private image."""

    username: str
    password: str
    registry: str | None = None


class Mount(NamedTuple):
    """A volume of the host, and where the instance sees it."""

    volume: int
    path: str
    size: int = 0
    """Bytes that it may hold; 0 for no bound."""
    copy_of: Mount | None = None
    """The volume with whose contents it begins, which may be a copy itself."""
    state: Literal["kept", "gone", "elsewhere"] = "kept"
    """On this machine, about to be removed from it, or not known here."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one container is started from; holds secrets and is never logged."""

    instance: int
    assignment: int
    gpu_uuids: tuple[str, ...]
    disk_bytes: int = 0
    image: str | None = None
    digest: str | None = None
    env: dict[str, str] = {}
    onstart: str | None = None
    args: tuple[str, ...] = ()
    entrypoint: str | None = None
    """A program that is given `args`, in place of the image's own; never together with onstart."""
    login: Login | None = None
    user: str | None = None
    hostname: str | None = None
    has_ssh: bool = False
    """It is got into by ssh, with `ssh_keys`."""
    ssh_keys: tuple[str, ...] = ()
    jupyter: Literal["notebook", "lab"] | None = None
    jupyter_dir: str | None = None
    ports: tuple[PortWish, ...] = ()
    mounts: tuple[Mount, ...] = ()

    def __repr__(self) -> str:
        return f"LaunchSpec(instance={self.instance}, assignment={self.assignment})"


class Found(NamedTuple):
    """A container of the platform as the runtime shows it now."""

    id: str
    instance: int
    assignment: int
    state: ContainerState
    gpu_uuids: tuple[str, ...] = ()
    pid: int | None = None
    """Its first process, in the host's numbering; null when none runs."""
    started_at: int | None = None
    """Unix second of the last start."""
    exit_code: int | None = None
    disk: str | None = None
    """A path on the instance's disk, where the host can see one."""

    @property
    def is_alive(self) -> bool:
        """True while it has processes, paused ones too."""
        return self.state in {"running", "paused"}


class RuntimeEvent(NamedTuple):
    """Something that happened to a container; may be told twice, or never."""

    at: float
    """Unix seconds."""
    id: str
    instance: int
    kind: Literal["start", "exit", "remove"]


class Jupyter(NamedTuple):
    """A notebook server inside, by its port in the container, and what opens it."""

    container_port: int
    token: str


class Connection(NamedTuple):
    """How an instance is reached from outside, as far as the host knows."""

    ports: list[ConnectionPort]
    public_ip: str | None = None
    digest: str | None = None
    """Digest of the image that really runs."""
    jupyter: Jupyter | None = None


class RuntimeFault(NamedTuple):
    """Something that a runtime cannot do here, and what to do about it."""

    what: str
    way_out: str


class LaunchError(Exception):
    """A container could not be started; `reason` is the code that the server judges by."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep *reason* (a code such as `image_not_found`) and *message* for people."""
        super().__init__(message)
        self.reason = reason


class RuntimeUnavailableError(Exception):
    """The runtime did not answer; nothing is known about its containers now."""


class Runtime(ABC):
    """Runs containers; every operation may be repeated, and none trusts what it did before."""

    name: str

    @abstractmethod
    def list(self) -> list[Found]:
        """All containers that carry the platform's label, whatever their state.

        Raises:
            RuntimeUnavailableError: Nobody answered: that is not "no containers".
        """

    @abstractmethod
    def inspect(self, container: str) -> Found | None:
        """One container; null when there is none of this id."""

    @abstractmethod
    def start(self, spec: LaunchSpec) -> Found:
        """Let the instance run under *spec*; one that does already is left alone.

        A stopped container goes on with its disk; another assignment takes the disk over.

        Raises:
            LaunchError: It cannot be started.
            RuntimeUnavailableError: Nobody answered.
        """

    @abstractmethod
    def stop(self, container: str, grace_s: float) -> None:
        """End its processes, at once where *grace_s* is 0; the disk stays. Unknown is success.

        Returns when no process of it is left.
        """

    @abstractmethod
    def remove(self, container: str) -> None:
        """End its processes at once and destroy its disk. Unknown is success."""

    @abstractmethod
    def events(self, since: float) -> Sequence[RuntimeEvent]:
        """What happened from Unix second *since* on; may repeat and may miss."""

    @abstractmethod
    def probe(self, container: str) -> bool:
        """True when its GPUs can be seen from inside; asked for at most `PROBE_SECONDS`."""

    @abstractmethod
    def set_keys(self, container: str, keys: Sequence[str]) -> bool:
        """Let exactly these ssh keys in, besides what the renter put inside; true when changed.

        Unknown is success. Asked only of instances that are got into by ssh.

        Raises:
            LaunchError: What is inside does not allow it.
            RuntimeUnavailableError: Nobody answered.
        """

    @abstractmethod
    def logs(self, container: str, tail: int | None) -> bytes:
        """The last *tail* lines of its output, or all; empty when there is none.

        At most the last `LOG_BYTES`, of which the first line may be cut.
        """

    @abstractmethod
    def connection(self, container: str) -> Connection:
        """Where its ports are published."""

    @abstractmethod
    def make_copy(self, mount: Mount) -> None:
        """Let a volume begin as a copy of another; one that is whole is left alone.

        The files as they are when they are read; a copy that was broken off is begun anew, and an
        instance gets it only when it is whole.

        Raises:
            LaunchError: `volume_unavailable`, the other is not on this machine.
            RuntimeUnavailableError: Nobody answered.
        """

    @abstractmethod
    def remove_volume(self, volume: int) -> None:
        """Destroy a volume that no instance has any more. Unknown is success."""

    @abstractmethod
    def faults(self) -> Sequence[RuntimeFault]:
        """What of its contract the runtime cannot keep on this machine."""


def last_lines(output: bytes, tail: int | None) -> bytes:
    """The last *tail* lines of *output*, or all of them, within `LOG_BYTES`."""
    output = output[-LOG_BYTES:]
    if tail is None:
        return output
    return b"".join(output.splitlines(keepends=True)[-tail:]) if tail > 0 else b""
