"""The container runtime port (`host-agent.md` §10): what the agent asks of whatever runs instances.

Events are hints, the list is truth. An instance has at most one container; its disk belongs to the
instance, not to the assignment, and ends with `remove`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ledger.domain.acknowledgement import DesiredInstance
from ledger.domain.hardware import ConnectionPort

INSTANCE_LABEL: Final = "ledger.instance_id"
ASSIGNMENT_LABEL: Final = "ledger.assignment_no"
GPUS_LABEL: Final = "ledger.gpu_uuids"
PROBE_SECONDS: Final = 5.0

ContainerState = Literal["created", "running", "paused", "exited"]


class PortWish(NamedTuple):
    """A port of the container that is to be reached from outside."""

    container_port: int
    protocol: Literal["tcp", "udp"] = "tcp"


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
    runtype: str = "args"
    ports: tuple[PortWish, ...] = ()
    ssh_keys: tuple[str, ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()

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


class Connection(NamedTuple):
    """How an instance is reached from outside, as far as the host knows."""

    ports: list[ConnectionPort]
    public_ip: str | None = None
    digest: str | None = None
    """Digest of the image that really runs."""


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
    def logs(self, container: str, tail: int) -> bytes:
        """The last *tail* lines of its output; empty when there is none."""

    @abstractmethod
    def connection(self, container: str) -> Connection:
        """Where its ports are published."""

    @abstractmethod
    def faults(self) -> Sequence[RuntimeFault]:
        """What of its contract the runtime cannot keep on this machine."""


def spec_of(wanted: DesiredInstance) -> LaunchSpec:
    """What the server wants run, in the runtime's terms.

    Raises:
        LaunchError: `bad_configuration`, the launch is not of a shape that can be run.
    """
    launch: Mapping[str, Any] = wanted.spec or {}
    digest = launch.get("digest")
    image = launch.get("image")
    try:
        return LaunchSpec(
            instance=wanted.instance,
            assignment=wanted.assignment,
            gpu_uuids=tuple(wanted.gpu_uuids),
            disk_bytes=wanted.disk_bytes,
            image=_text(image, "image"),
            digest=_text(digest, "digest"),
            env={str(name): str(value) for name, value in (launch.get("env") or {}).items()},
            onstart=_text(launch.get("onstart"), "onstart"),
            args=tuple(str(one) for one in launch.get("args") or ()),
            runtype=str(launch.get("runtype") or "args"),
            ports=tuple(_port(one) for one in launch.get("ports") or ()),
            ssh_keys=tuple(str(one) for one in launch.get("ssh_keys") or ()),
            volumes=tuple(dict(one) for one in launch.get("volumes") or ()),
        )
    except (AttributeError, TypeError, ValueError) as error:
        message = f"the launch of instance {wanted.instance} cannot be read: {error}"
        raise LaunchError("bad_configuration", message) from None


def _text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    message = f"`{name}` is not a text"
    raise ValueError(message)


def _port(value: object) -> PortWish:
    """A wish such as `8080`, `"8080/udp"`, or `{"container_port": 8080, "protocol": "udp"}`."""
    if isinstance(value, Mapping):
        text, protocol = str(value.get("container_port")), str(value.get("protocol", "tcp"))
    else:
        text, _, protocol = str(value).partition("/")
    number = int(text)
    if not 1 <= number <= 65_535 or protocol not in {"", "tcp", "udp"}:  # noqa: PLR2004
        message = f"{value!r} is no port"
        raise ValueError(message)
    return PortWish(number, "udp" if protocol == "udp" else "tcp")
