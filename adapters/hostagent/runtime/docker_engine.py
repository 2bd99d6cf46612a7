"""Instances as Docker containers, over the engine's Unix socket.

GPUs are given by UUID, never by index; the labels on a container are what a new agent rebuilds its
map from. Network is the engine's bridge, never the host's, whose bytes nobody could count.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest
from docker.utils.socket import frames_iter
from requests.exceptions import RequestException

from adapters.hostagent.runtime.port import (
    ASSIGNMENT_LABEL,
    GPUS_LABEL,
    INSTANCE_LABEL,
    PROBE_SECONDS,
    Connection,
    ContainerState,
    Found,
    LaunchError,
    LaunchSpec,
    Runtime,
    RuntimeEvent,
    RuntimeFault,
    RuntimeUnavailableError,
)
from ledger.domain.hardware import ConnectionPort

DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_API_VERSION: Final = "1.41"
"""Of Docker 20.10: the first with what is used here, and all later engines still speak it."""
_TIMEOUT_SECONDS: Final = 30
_PULL_SECONDS: Final = 1_500
"""Below the 1,800 s after which the server gives up on a launch."""
_SOON_SECONDS: Final = 5
"""How long a stop waits beyond its grace before the engine is taken to be stuck."""
_PIDS_MAX: Final = 32_768
_LOG_OPTIONS: Final = {"max-size": "8m", "max-file": "2"}
_WORKSPACE: Final = "/workspace"
_PROBE: Final = ["sh", "-c", "ls /dev/nvidiactl && nvidia-smi -L"]

_STATES: Final[dict[str, ContainerState]] = {
    "created": "created",
    "running": "running",
    "restarting": "running",
    "paused": "paused",
    "removing": "exited",
    "exited": "exited",
    "dead": "exited",
}


class DockerRuntime(Runtime):
    """One container per instance, named `ledger-<instance>`."""

    name = "docker"

    def __init__(self, socket: str = DEFAULT_SOCKET) -> None:
        """Talk to the engine behind *socket*; nothing is asked before it is needed."""
        self._api = docker.APIClient(
            base_url=socket, version=_API_VERSION, timeout=_TIMEOUT_SECONDS
        )
        self._pull = docker.APIClient(base_url=socket, version=_API_VERSION, timeout=_PULL_SECONDS)
        self._quota_refused = False
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        """Containers whose probe has not been answered."""

    def close(self) -> None:
        """Close the connections."""
        self._api.close()
        self._pull.close()

    # --- the port --------------------------------------------------------------------------------

    def list(self) -> list[Found]:
        """All containers that carry the platform's label, running or not."""
        with _answering():
            rows = self._api.containers(all=True, filters={"label": INSTANCE_LABEL})
            found = [self.inspect(row["Id"]) for row in rows]
        return [one for one in found if one is not None]

    def inspect(self, container: str) -> Found | None:
        """One container; null for none, and for one that is not the platform's."""
        with _answering():
            try:
                return _found(self._api.inspect_container(container))
            except NotFound:
                return None

    def start(self, spec: LaunchSpec) -> Found:
        """Start the instance's container, or make it.

        Its first image is what the renter named. On other GPUs, or for a new assignment, it goes on
        from what the container before had become: the whole file system is the instance's disk.
        """
        with _answering():
            known = self._of(spec.instance)
            if known is not None and known.is_alive and known.assignment == spec.assignment:
                return known
            if known is not None and known.assignment == spec.assignment:
                self._begin(known.id)
                return self._require(known.id)
            if known is None:
                image = self._pulled(spec)
            else:
                self.stop(known.id, 0)
                image = self._kept(known.id, spec)
                self._api.remove_container(known.id, force=True)
            created = self._create(spec, image)
            self._begin(created)
            return self._require(created)

    def stop(self, container: str, grace_s: float) -> None:
        """Ask the container to end, and kill it after *grace_s*; its file system stays."""
        with _answering(), contextlib.suppress(NotFound):
            if grace_s > 0:
                self._api.stop(container, timeout=int(grace_s))
                return
            try:
                self._api.kill(container, "SIGKILL")
            except APIError as error:
                if error.status_code != 409:  # noqa: PLR2004 - the engine's "is not running"
                    raise
                return
            self._api.wait(container, timeout=_SOON_SECONDS)

    def remove(self, container: str) -> None:
        """Kill the container and delete it, its volumes and the images it became."""
        with _answering(), contextlib.suppress(NotFound):
            found = self.inspect(container)
            self._api.remove_container(container, v=True, force=True)
            if found is None:
                return
            with contextlib.suppress(NotFound):
                self._api.remove_volume(_volume(found.instance), force=True)
            for image in self._api.images(filters={"label": f"{INSTANCE_LABEL}={found.instance}"}):
                with contextlib.suppress(NotFound):
                    self._api.remove_image(image["Id"], force=True)

    def events(self, since: float) -> Sequence[RuntimeEvent]:
        """What the engine remembers of the platform's containers from *since* up to now."""
        filters = {"type": "container", "label": INSTANCE_LABEL}
        found = []
        with _answering():
            until = int(since) + 1
            until = max(until, int(datetime.now().astimezone().timestamp()))
            for one in self._api.events(
                since=int(since), until=until, filters=filters, decode=True
            ):
                kind = _kind(one.get("Action", ""))
                label = one.get("Actor", {}).get("Attributes", {}).get(INSTANCE_LABEL, "")
                if kind is not None and label.isdigit():
                    at = one.get("timeNano", 0) / 1e9
                    found.append(RuntimeEvent(at, one["Actor"]["ID"], int(label), kind))
        return found

    def probe(self, container: str) -> bool:
        """List the GPUs inside; false when they are not all there, or when nobody answers in 5 s.

        A reload of the init system can take a container's GPUs away while the host sees them still.
        A driver that hangs inside hangs whoever reads from it, and the client has no deadline for
        that: so it is asked on a thread that may be left behind, one per container at most.
        """
        with self._lock:
            if container in self._asked:
                return False
            self._asked.add(container)
        answer: SimpleQueue[bool] = SimpleQueue()

        def ask() -> None:
            try:
                answer.put(self._sees_gpus(container))
            except (DockerException, RequestException, RuntimeUnavailableError):
                answer.put(False)
            finally:
                with self._lock:
                    self._asked.discard(container)

        threading.Thread(target=ask, name="probe", daemon=True).start()
        try:
            return answer.get(timeout=PROBE_SECONDS)
        except Empty:
            return False

    def _sees_gpus(self, container: str) -> bool:
        found = self.inspect(container)
        if found is None or found.state != "running":
            return False
        if not found.gpu_uuids:
            return True
        created = self._api.exec_create(container, _PROBE)
        # Read here, because the client's own reading never closes its connection.
        connection = self._api.exec_start(created["Id"], socket=True)
        try:
            output = b"".join(chunk for _, chunk in frames_iter(connection, tty=False))
        finally:
            # The file around the socket, and the socket that the engine took over from HTTP.
            taken_over = getattr(connection, "_sock", None)
            connection.close()
            if taken_over is not None:
                taken_over.close()
        ended = self._api.exec_inspect(created["Id"])
        return ended.get("ExitCode") == 0 and all(
            uuid.encode() in output for uuid in found.gpu_uuids
        )

    def logs(self, container: str, tail: int) -> bytes:
        """The last lines of its output."""
        if tail <= 0:
            return b""
        with _answering():
            try:
                found: bytes = self._api.logs(container, tail=tail, stdout=True, stderr=True)
            except NotFound:
                return b""
        return found

    def connection(self, container: str) -> Connection:
        """Where the engine published its ports, and the digest of its image."""
        with _answering():
            try:
                shown = self._api.inspect_container(container)
            except NotFound:
                return Connection(ports=[])
            digest = self._digest(shown.get("Image", ""))
        published = (shown.get("NetworkSettings") or {}).get("Ports") or {}
        ports = []
        for name, places in sorted(published.items()):
            number, _, protocol = name.partition("/")
            ports += [
                ConnectionPort(
                    container_port=int(number), host_port=int(place["HostPort"]), protocol=protocol
                )
                for place in places or ()
                if ":" not in place.get("HostIp", "")
            ]
        return Connection(ports=ports, digest=digest)

    def faults(self) -> Sequence[RuntimeFault]:
        """What the engine cannot do on this machine."""
        try:
            with _answering():
                info = self._api.info()
        except RuntimeUnavailableError as error:
            way_out = "start the engine, and let the agent open its socket"
            return [RuntimeFault(f"the Docker engine does not answer: {error}", way_out)]
        found = []
        if "nvidia" not in info.get("Runtimes", {}):
            way_out = "install nvidia-container-toolkit and run `nvidia-ctk runtime configure`"
            found.append(RuntimeFault("the engine has no runtime for NVIDIA GPUs", way_out))
        backing = dict(info.get("DriverStatus") or [])
        if info.get("Driver") != "overlay2" or backing.get("Backing Filesystem") != "xfs":
            way_out = "put /var/lib/docker on XFS mounted with pquota"
            found.append(RuntimeFault("the size of an instance's disk is not enforced", way_out))
        return found

    # --- the engine ------------------------------------------------------------------------------

    def _of(self, instance: int) -> Found | None:
        rows = self._api.containers(all=True, filters={"label": f"{INSTANCE_LABEL}={instance}"})
        found = [one for row in rows if (one := self.inspect(row["Id"])) is not None]
        return max(found, key=lambda one: one.assignment, default=None)

    def _require(self, container: str) -> Found:
        found = self.inspect(container)
        if found is None:
            raise LaunchError("runtime_failed", "the container was gone as soon as it was made")
        return found

    def _begin(self, container: str) -> None:
        try:
            self._api.start(container)
        except APIError as error:
            raise LaunchError(_start_reason(error), _said(error)) from error

    def _pulled(self, spec: LaunchSpec) -> str:
        """The name of the image, present on this machine; the digest decides where one is given."""
        if not spec.image:
            raise LaunchError("bad_configuration", "the launch names no image")
        repository, _, tag = spec.image.partition("@")[0].rpartition(":")
        if not repository or "/" in tag:
            repository, tag = spec.image.partition("@")[0], "latest"
        digest = spec.digest or spec.image.partition("@")[2]
        name = f"{repository}@{digest}" if digest else f"{repository}:{tag}"
        with contextlib.suppress(ImageNotFound):
            self._api.inspect_image(name)
            return name
        try:
            for line in self._pull.pull(repository, tag=digest or tag, stream=True, decode=True):
                if "error" in line:
                    raise LaunchError(_pull_reason(line["error"]), line["error"])
        except APIError as error:
            raise LaunchError(_pull_reason(_said(error)), _said(error)) from error
        return name

    def _kept(self, container: str, spec: LaunchSpec) -> str:
        """An image of what the instance's file system has become."""
        repository, tag = f"ledger/instance-{spec.instance}", str(spec.assignment)
        change = f"LABEL {INSTANCE_LABEL}={spec.instance}"
        self._api.commit(container, repository=repository, tag=tag, changes=[change])
        return f"{repository}:{tag}"

    def _create(self, spec: LaunchSpec, image: str) -> str:
        options: dict[str, Any] = {
            "binds": {_volume(spec.instance): {"bind": _WORKSPACE, "mode": "rw"}},
            "network_mode": "bridge",
            "port_bindings": {f"{one.container_port}/{one.protocol}": None for one in spec.ports},
            "privileged": False,
            "init": True,
            "pids_limit": _PIDS_MAX,
            "restart_policy": {"Name": "no"},
            "log_config": docker.types.LogConfig(type="json-file", config=_LOG_OPTIONS),
        }
        if spec.gpu_uuids:
            options["device_requests"] = [
                DeviceRequest(
                    driver="nvidia", device_ids=list(spec.gpu_uuids), capabilities=[["gpu"]]
                )
            ]
        if spec.disk_bytes and not self._quota_refused:
            options["storage_opt"] = {"size": str(spec.disk_bytes)}
        arguments: dict[str, Any] = {
            "image": image,
            "command": _command(spec),
            "environment": spec.env,
            "labels": {
                INSTANCE_LABEL: str(spec.instance),
                ASSIGNMENT_LABEL: str(spec.assignment),
                GPUS_LABEL: ",".join(spec.gpu_uuids),
            },
            "ports": [(one.container_port, one.protocol) for one in spec.ports],
            "name": f"ledger-{spec.instance}",
        }
        try:
            created = self._api.create_container(
                **arguments, host_config=self._api.create_host_config(**options)
            )
        except APIError as error:
            if "storage_opt" not in options or "storage" not in _said(error).lower():
                raise LaunchError(_start_reason(error), _said(error)) from error
            # The file system has no quotas; `faults` says so, and the instance runs without.
            self._quota_refused = True
            return self._create(spec, image)
        return str(created["Id"])

    def _digest(self, image: str) -> str | None:
        with contextlib.suppress(DockerException):
            for one in self._api.inspect_image(image).get("RepoDigests") or ():
                return str(one).partition("@")[2] or None
        return None


# --- what the engine's words mean -----------------------------------------------------------------


def _found(shown: dict[str, Any]) -> Found | None:
    labels = (shown.get("Config") or {}).get("Labels") or {}
    instance, assignment = labels.get(INSTANCE_LABEL, ""), labels.get(ASSIGNMENT_LABEL, "")
    if not (instance.isdigit() and assignment.isdigit()):
        return None
    state = shown.get("State") or {}
    status = _STATES.get(state.get("Status", ""), "exited")
    is_alive = status in {"running", "paused"}
    return Found(
        id=shown["Id"],
        instance=int(instance),
        assignment=int(assignment),
        state=status,
        gpu_uuids=tuple(one for one in labels.get(GPUS_LABEL, "").split(",") if one),
        pid=state.get("Pid") or None if is_alive else None,
        started_at=_second(state.get("StartedAt", "")),
        exit_code=None if is_alive or status == "created" else state.get("ExitCode"),
        disk=((shown.get("GraphDriver") or {}).get("Data") or {}).get("MergedDir"),
    )


def _second(text: str) -> int | None:
    """The Unix second of an RFC 3339 time with nanoseconds; year 1 means never."""
    if not text or text.startswith("0001-"):
        return None
    return int(datetime.fromisoformat(text[:19] + "+00:00").timestamp())


def _kind(action: str) -> Literal["start", "exit", "remove"] | None:
    match action:
        case "start" | "restart" | "unpause":
            return "start"
        case "die" | "oom" | "kill":
            return "exit"
        case "destroy":
            return "remove"
        case _:
            return None


def _command(spec: LaunchSpec) -> list[str] | None:
    if spec.onstart:
        return ["/bin/sh", "-c", spec.onstart, "onstart", *spec.args]
    return list(spec.args) or None


def _volume(instance: int) -> str:
    return f"ledger-{instance}"


def _said(error: APIError) -> str:
    return str(error.explanation or error)[:256]


def _pull_reason(said: str) -> str:
    text = said.lower()
    if "denied" in text or "unauthorized" in text or "authentication" in text:
        return "image_denied"
    if "not found" in text or "manifest unknown" in text or "does not exist" in text:
        return "image_not_found"
    if "invalid reference" in text or "unsupported" in text:
        return "image_invalid"
    return "image_pull_failed"


def _start_reason(error: APIError) -> str:
    text = _said(error).lower()
    if "executable file not found" in text or "no such file or directory" in text:
        return "bad_command"
    if "could not select device driver" in text or "nvidia" in text:
        return "gpu_unavailable"
    if "invalid" in text or "bad parameter" in text:
        return "bad_configuration"
    return "runtime_failed"


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Tell an engine that does not answer apart from one that says no."""
    try:
        yield
    except RequestException as error:
        raise RuntimeUnavailableError(str(error)) from error
    except APIError as error:
        if error.is_server_error():
            raise RuntimeUnavailableError(_said(error)) from error
        raise
    except DockerException as error:
        raise RuntimeUnavailableError(str(error)) from error
