"""Volumes of the engine: bounded where the machine can, and copies that are whole or not there.

A copy is made through the engine, so its folders need not be within reach of the agent: out of one
volume and into the other, each in a container that never runs. That it is whole is said by a second
volume, which is made after the last byte: without it a copy begins anew, and nobody gets it.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator
from typing import Any, Final

import docker
from docker.errors import APIError, ImageNotFound, NotFound

from adapters.hostagent.runtime.docker_client import DockerConnections
from adapters.hostagent.runtime.docker_launch import rented_volume
from adapters.hostagent.runtime.port import LaunchError, Mount

_COPIER: Final = "ledger/copier"
"""An image with nothing in it."""
_PLACE: Final = "/volume"
_CHUNK_BYTES: Final = 2**20


class DockerVolumes:
    """Makes, copies and removes volumes; may be used by several threads."""

    def __init__(self, connections: DockerConnections) -> None:
        """Work over *connections*."""
        self._connections = connections
        self._copying = threading.Lock()
        self.is_unbounded: bool | None = None
        """The engine keeps no sizes; null while nobody asked it."""

    @property
    def _api(self) -> docker.APIClient:
        return self._connections.api

    def make(self, name: str, size: int) -> None:
        """Let there be a volume, of at most *size* bytes where the file system keeps quotas.

        One that exists stays as it is; 0 bounds nothing.
        """
        if self._has(name):
            return
        options = {"size": str(size)} if size and self._is_bounded() else None
        try:
            self._api.create_volume(name, driver_opts=options)
        except APIError as error:
            if options is None or "quota" not in str(error.explanation).lower():
                raise
            # `faults` says so, and the volume is used without.
            self.is_unbounded = True
            self._api.create_volume(name)

    def _is_bounded(self) -> bool:
        """Whether it is worth asking: what keeps no quotas may take a size for something else."""
        if self.is_unbounded is None:
            self.is_unbounded = not keeps_quotas(self._api.info())
        return not self.is_unbounded

    def make_rented(self, mount: Mount) -> None:
        """Let there be a volume that is rented by itself, whole where it begins as a copy.

        Raises:
            LaunchError: `volume_unavailable`, what it is to begin with is not on this machine.
        """
        if mount.copy_of is None:
            self.make(rented_volume(mount.volume), mount.size)
            return
        with self._copying:
            self._make_whole(mount)

    def remove_rented(self, volume: int) -> None:
        """Destroy a volume that is rented by itself; unknown is success.

        Raises:
            APIError: A container has it.
        """
        name = rented_volume(volume)
        with self._copying:
            self._remove(name)
            self._remove(_whole(name))

    def remove(self, name: str) -> None:
        """Destroy a volume; unknown is success."""
        self._remove(name)

    def _make_whole(self, mount: Mount) -> None:
        name = rented_volume(mount.volume)
        if mount.copy_of is None:
            self.make(name, mount.size)
            return
        if self._has(_whole(name)):
            return
        source = rented_volume(mount.copy_of.volume)
        # An empty volume that nobody ever had need not exist; one that is gone has nothing to copy.
        is_lost = mount.copy_of.state == "gone" and not self._has(source)
        if is_lost or mount.copy_of.state == "elsewhere":
            message = (
                f"volume {mount.volume} is to begin as a copy of volume {mount.copy_of.volume},"
                " which is not on this machine: rent with an empty one and copy the files yourself"
            )
            raise LaunchError("volume_unavailable", message)
        self._make_whole(mount.copy_of)
        self._remove(name)  # Half of a copy is none.
        self.make(name, mount.size)
        self._copy(source, name)
        self._api.create_volume(_whole(name))

    def _copy(self, source: str, target: str) -> None:
        # One container each: an engine lets nobody write into one that is being read.
        with (
            self._holding(f"{target}-from", source, "ro") as reading,
            self._holding(f"{target}-to", target, "rw") as writing,
        ):
            # Days of files may pass through here, a piece at a time.
            slow = self._connections.pull
            stream, _ = slow.get_archive(reading, f"{_PLACE}/.", chunk_size=_CHUNK_BYTES)
            with contextlib.closing(stream):
                slow.put_archive(writing, _PLACE, stream)

    @contextlib.contextmanager
    def _holding(self, name: str, volume: str, mode: str) -> Iterator[str]:
        """A container that has *volume*, and is never started."""
        with contextlib.suppress(NotFound):
            self._api.remove_container(name, force=True)  # of a copy that was killed
        options = self._api.create_host_config(
            binds={volume: {"bind": _PLACE, "mode": mode}}, network_mode="none"
        )
        made = self._api.create_container(self._image(), ["none"], name=name, host_config=options)
        try:
            yield str(made["Id"])
        finally:
            self._api.remove_container(made["Id"], force=True)

    def _image(self) -> str:
        try:
            self._api.inspect_image(f"{_COPIER}:latest")
        except ImageNotFound:
            empty = io.BytesIO()
            tarfile.open(fileobj=empty, mode="w").close()
            self._api.import_image_from_data(empty.getvalue(), _COPIER, "latest")
        return f"{_COPIER}:latest"

    def _has(self, name: str) -> bool:
        try:
            self._api.inspect_volume(name)
        except NotFound:
            return False
        return True

    def _remove(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            self._api.remove_volume(name, force=True)


def keeps_quotas(info: dict[str, Any]) -> bool:
    """Whether an engine that says *info* of itself may keep the sizes of disks."""
    backing = dict(info.get("DriverStatus") or [])
    return info.get("Driver") == "overlay2" and backing.get("Backing Filesystem") == "xfs"


def _whole(name: str) -> str:
    """The volume whose existence says that the copy in *name* is whole."""
    return f"{name}-whole"
