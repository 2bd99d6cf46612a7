"""Instances as Docker containers, over the engine's Unix socket.

GPUs are given by UUID, never by index; the labels on a container are what a new agent rebuilds its
map from. Network is the engine's bridge, never the host's, whose bytes nobody could count.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils.socket import frames_iter
from requests.exceptions import RequestException

from adapters.hostagent.runtime import docker_keys
from adapters.hostagent.runtime.docker_client import DockerConnections
from adapters.hostagent.runtime.docker_launch import (
    creation,
    host_options,
    jupyter_of,
    volume_of,
)
from adapters.hostagent.runtime.docker_volumes import DockerVolumes, keeps_quotas
from adapters.hostagent.runtime.docker_words import (
    PortTakenError,
    answering,
    found_of,
    is_port_taken,
    kind_of,
    pull_reason,
    said,
    start_reason,
)
from adapters.hostagent.runtime.port import (
    INSTANCE_LABEL,
    LOG_BYTES,
    PROBE_SECONDS,
    Connection,
    Found,
    LaunchError,
    LaunchSpec,
    Mount,
    Runtime,
    RuntimeEvent,
    RuntimeFault,
    RuntimeUnavailableError,
    last_lines,
)
from ledger.domain.hardware import ConnectionPort

DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_SOON_SECONDS: Final = 5
"""How long a stop waits beyond its grace before the engine is taken to be stuck."""
_CONFLICT: Final = 409
"""The engine's word for "is not running", and for "is in use"."""
_PROBE: Final = ["sh", "-c", "ls /dev/nvidiactl && nvidia-smi -L"]


class DockerRuntime(Runtime):
    """One container per instance, named `ledger-<instance>-<assignment>`."""

    name = "docker"

    def __init__(self, socket: str = DEFAULT_SOCKET) -> None:
        """Talk to the engine behind *socket*; nothing is asked before it is needed."""
        self._connections = DockerConnections(socket)
        self._volumes = DockerVolumes(self._connections)
        self._quota_refused = False
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        """Containers whose probe has not been answered."""

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # --- the port --------------------------------------------------------------------------------

    def list(self) -> list[Found]:
        """All containers that carry the platform's label, running or not."""
        with self._answering():
            rows = self._api.containers(all=True, filters={"label": INSTANCE_LABEL})
            found = [self.inspect(row["Id"]) for row in rows]
        return [one for one in found if one is not None]

    def inspect(self, container: str) -> Found | None:
        """One container; null for none, and for one that is not the platform's."""
        with self._answering():
            try:
                return found_of(self._api.inspect_container(container))
            except NotFound:
                return None

    def start(self, spec: LaunchSpec) -> Found:
        """Start the instance's container, or make it.

        Its first image is what the renter named. On other GPUs, or for a new assignment, it goes on
        from what the container before had become: the whole file system is the instance's disk.
        """
        with self._answering():
            before = self._of(spec.instance)
            known = before[-1] if before else None
            if known is not None and known.assignment == spec.assignment:
                for one in before[:-1]:  # A kill came between the next one and their removal.
                    self._api.remove_container(one.id, force=True)
                if not known.is_alive:
                    self._open(known.id, spec)
                    self._begin(known.id)
                return self._require(known.id)
            image = self._pulled(spec) if known is None else self._become(known.id, spec)
            created = self._create(spec, image)
            # Not before there is the next one: between the two the agent may be killed.
            for one in before:
                self._api.remove_container(one.id, force=True)
            try:
                self._begin(created)
            except PortTakenError:
                # A wished port is somebody's already: any other will do, and it is told which.
                self._api.remove_container(created, force=True)
                created = self._create(spec, image, as_wished=False)
                self._begin(created)
            return self._require(created)

    def stop(self, container: str, grace_s: float) -> None:
        """Ask the container to end, and kill it after *grace_s*; its file system stays."""
        with self._answering(), contextlib.suppress(NotFound):
            if grace_s > 0:
                self._api.stop(container, timeout=int(grace_s))
                return
            try:
                self._api.kill(container, "SIGKILL")
            except APIError:
                # Engines say in different ways that it is not running; what is so is looked at.
                found = self.inspect(container)
                if found is not None and found.is_alive:
                    raise
                return
            self._api.wait(container, timeout=_SOON_SECONDS)

    def remove(self, container: str) -> None:
        """Kill the container and delete it, its volumes and the images it became."""
        with self._answering(), contextlib.suppress(NotFound):
            found = self.inspect(container)
            self._api.remove_container(container, v=True, force=True)
            if found is None:
                return
            self._volumes.remove(volume_of(found.instance))
            for image in self._api.images(filters={"label": f"{INSTANCE_LABEL}={found.instance}"}):
                with contextlib.suppress(NotFound):
                    self._api.remove_image(image["Id"], force=True)

    def events(self, since: float) -> Sequence[RuntimeEvent]:
        """What the engine remembers of the platform's containers from *since* up to now."""
        found: list[RuntimeEvent] = []
        until = int(time.time()) + 1
        if since >= until:
            return found  # The engine would wait until then.
        with self._answering():
            # To the end of the present second, for which an engine may wait: no fraction of one is
            # understood by all. Nor is a filter by label, so labels are looked at here.
            for one in self._api.events(
                since=int(since), until=until, filters={"type": "container"}, decode=True
            ):
                kind = kind_of(one.get("Action", ""))
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

    def set_keys(self, container: str, keys: Sequence[str]) -> bool:
        """Write the file that sshd reads at every login."""
        with self._answering(), contextlib.suppress(NotFound):
            try:
                return docker_keys.install(self._api, container, keys)
            except docker_keys.KeysError as error:
                raise LaunchError("bad_configuration", str(error)) from error
        return False

    def logs(self, container: str, tail: int | None) -> bytes:
        """The last lines of its output."""
        if tail is not None and tail <= 0:
            return b""
        kept: deque[bytes] = deque()
        size = 0
        with self._answering():
            try:
                for chunk in self._api.logs(
                    container, tail="all" if tail is None else tail, stream=True, follow=False
                ):
                    kept.append(chunk)
                    size += len(chunk)
                    # The log may be longer than what may be held of it: its end counts.
                    while size - len(kept[0]) >= LOG_BYTES:
                        size -= len(kept.popleft())
            except NotFound:
                return b""
        return last_lines(b"".join(kept), tail)

    def connection(self, container: str) -> Connection:
        """Where the engine published its ports, and the digest of its image."""
        with self._answering():
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
        return Connection(ports=ports, digest=digest, jupyter=jupyter_of(shown))

    def make_copy(self, mount: Mount) -> None:
        """Through a container that never runs; see `docker_volumes`."""
        with self._answering():
            self._volumes.make_rented(mount)

    def remove_volume(self, volume: int) -> None:
        """Delete a rented volume with everything in it."""
        with self._answering():
            try:
                self._volumes.remove_rented(volume)
            except APIError as error:
                if error.status_code != _CONFLICT:
                    raise
                # The container that had it is on its way out.
                raise RuntimeUnavailableError(said(error)) from error

    def faults(self) -> Sequence[RuntimeFault]:
        """What the engine cannot do on this machine."""
        try:
            with self._answering():
                info = self._api.info()
        except RuntimeUnavailableError as error:
            way_out = "start the engine, and let the agent open its socket"
            return [RuntimeFault(f"the Docker engine does not answer: {error}", way_out)]
        found = []
        if "nvidia" not in info.get("Runtimes", {}):
            way_out = "install nvidia-container-toolkit and run `nvidia-ctk runtime configure`"
            found.append(RuntimeFault("the engine has no runtime for NVIDIA GPUs", way_out))
        if not keeps_quotas(info):
            way_out = "put /var/lib/docker on XFS mounted with pquota"
            found.append(RuntimeFault("the size of an instance's disk is not enforced", way_out))
        return found

    # --- the engine ------------------------------------------------------------------------------

    @property
    def _api(self) -> docker.APIClient:
        return self._connections.api

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """As `answering`; an engine that was replaced by a newer one is asked what it speaks."""
        try:
            with answering():
                yield
        except RuntimeUnavailableError as error:
            if "version" in str(error) and "too old" in str(error):
                self._connections.close()
            raise

    def _of(self, instance: int) -> Sequence[Found]:
        """Its containers, the latest assignment last; more than one after a kill in between."""
        rows = self._api.containers(all=True, filters={"label": f"{INSTANCE_LABEL}={instance}"})
        found = [one for row in rows if (one := self.inspect(row["Id"])) is not None]
        return sorted(found, key=lambda one: one.assignment)

    def _require(self, container: str) -> Found:
        found = self.inspect(container)
        if found is None:
            raise LaunchError("runtime_failed", "the container was gone as soon as it was made")
        return found

    def _begin(self, container: str) -> None:
        try:
            self._api.start(container)
        except APIError as error:
            if is_port_taken(error):
                raise PortTakenError(said(error)) from error
            raise LaunchError(start_reason(error), said(error)) from error

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
        login = None if spec.login is None else spec.login._asdict()
        try:
            for line in self._connections.pull.pull(
                repository, tag=digest or tag, stream=True, decode=True, auth_config=login
            ):
                if "error" in line:
                    raise LaunchError(pull_reason(line["error"]), line["error"])
        except APIError as error:
            raise LaunchError(pull_reason(said(error)), said(error)) from error
        return name

    def _become(self, container: str, spec: LaunchSpec) -> str:
        """An image of what the instance's file system has become; its container is stopped."""
        self.stop(container, 0)
        repository, tag = f"ledger/instance-{spec.instance}", str(spec.assignment)
        change = f"LABEL {INSTANCE_LABEL}={spec.instance}"
        self._api.commit(container, repository=repository, tag=tag, changes=[change])
        return f"{repository}:{tag}"

    def _create(self, spec: LaunchSpec, image: str, *, as_wished: bool = True) -> str:
        self._volumes.make(volume_of(spec.instance), spec.disk_bytes)
        for mount in spec.mounts:
            self._volumes.make_rented(mount)
        with_quota = bool(spec.disk_bytes) and not self._quota_refused
        options = host_options(spec, with_quota=with_quota, as_wished=as_wished)
        try:
            created = self._api.create_container(
                **creation(spec, image), host_config=self._api.create_host_config(**options)
            )
        except APIError as error:
            if not with_quota or "storage" not in said(error).lower():
                raise LaunchError(start_reason(error), said(error)) from error
            # The file system has no quotas; `faults` says so, and the instance runs without.
            self._quota_refused = True
            return self._create(spec, image, as_wished=as_wished)
        self._open(str(created["Id"]), spec)
        return str(created["Id"])

    def _open(self, container: str, spec: LaunchSpec) -> None:
        """Before it starts: nobody whose key was detached meanwhile is let in for a moment."""
        if spec.has_ssh:
            self.set_keys(container, spec.ssh_keys)

    def _digest(self, image: str) -> str | None:
        with contextlib.suppress(DockerException):
            for one in self._api.inspect_image(image).get("RepoDigests") or ():
                return str(one).partition("@")[2] or None
        return None
