"""A real container engine, where one can be reached, and an image that is made on the spot.

Nothing is pulled and no engine is started: the image is this machine's own shell and a few programs
with the libraries that they need.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import docker
import pytest
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from adapters.hostagent.runtime.port import INSTANCE_LABEL

VARIABLE: Final = "GPULEDGER_TEST_ENGINE"
"""Names the engine's address, such as `unix:///run/podman/podman.sock`; empty for none."""
IMAGE: Final = "ledger-contract:latest"
_PROGRAMS: Final = (
    "sh",
    "sleep",
    "cat",
    "ls",
    "mkdir",
    "chmod",
    "touch",
    "id",
    "sync",
    "dd",
    "ln",
    "chown",
)
_SOCKETS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
_TIMEOUT_SECONDS: Final = 60
_READS: Final = 2


class Engine(NamedTuple):
    """An engine that answers, and what of the port's contract it can show here."""

    url: str
    api: docker.APIClient
    has_gpus: bool
    """Containers may ask for GPUs."""
    is_podman: bool
    """It passes over the wish for GPUs, and gives the files of an archive to root."""
    no_start: str | None
    """Why it can start no container; null when it can."""

    def require_start(self) -> None:
        """Skip where no container can be started."""
        if self.no_start is not None:
            pytest.skip(f"the engine starts no container: {self.no_start}")

    def read(self, container: str, path: str) -> bytes:
        """A file inside a container that runs; empty when there is none."""
        found = b""
        for _ in range(_READS):  # Podman loses the output of some that end at once.
            made = self.api.exec_create(container, ["cat", path], stderr=False)
            found = found or bytes(self.api.exec_start(made["Id"]))
        return found

    def run(self, container: str, text: str) -> bytes:
        """What a line of shell says inside a container that runs."""
        made = self.api.exec_create(container, ["sh", "-c", text])
        return bytes(self.api.exec_start(made["Id"]))

    def platform_volumes(self) -> list[str]:
        """Names of the volumes that the runtime made."""
        return _volumes(self.api)

    def platform_images(self) -> list[str]:
        """Images that instances became."""
        return [str(one["Id"]) for one in self.api.images(filters={"label": INSTANCE_LABEL})]


@contextlib.contextmanager
def reachable_engine() -> Iterator[Engine]:
    """The engine with the image in it; the test is skipped where there is none.

    An engine that runs the platform's instances is left alone: its agent would tell of ours.
    """
    url = _address()
    api = docker.APIClient(base_url=url, version="1.41", timeout=_TIMEOUT_SECONDS)
    with contextlib.closing(api):
        try:
            info = api.info()
        except (DockerException, RequestException) as error:
            pytest.skip(f"no container engine answers at {url}: {error}")
        if api.containers(all=True, filters={"label": INSTANCE_LABEL}) or _volumes(api):
            pytest.skip(f"the engine at {url} has disks of the platform: it is left alone")
        api.import_image_from_data(_image(), *IMAGE.split(":"))
        has_gpus = "nvidia" in info.get("Runtimes", {})
        try:
            is_podman = any(one["Name"] == "Podman Engine" for one in api.version()["Components"])
            yield Engine(url, api, has_gpus, is_podman, _refusal(api))
        finally:
            _clear(api)


def _address() -> str:
    """Where an engine may be, in the order in which its own tools look."""
    for name in (VARIABLE, "DOCKER_HOST"):
        if name in os.environ:
            if not os.environ[name]:
                break
            return os.environ[name]
    else:
        for path in _SOCKETS:
            if Path(path).is_socket():
                return f"unix://{path}"
    pytest.skip(f"no container engine: none at {' or '.join(_SOCKETS)}, and {VARIABLE} names none")


def _refusal(api: docker.APIClient) -> str | None:
    """What the engine says when it is asked to start the simplest container there is."""
    options = api.create_host_config(network_mode="bridge", init=True)
    made = api.create_container(IMAGE, ["sleep", "60"], host_config=options)
    try:
        api.start(made["Id"])
    except APIError as error:
        return str(error.explanation or error)
    finally:
        api.remove_container(made["Id"], force=True)
    return None


def _volumes(api: docker.APIClient) -> list[str]:
    found = [str(one["Name"]) for one in api.volumes().get("Volumes") or []]
    return [one for one in found if one.startswith("ledger-")]


def _clear(api: docker.APIClient) -> None:
    for row in api.containers(all=True, filters={"label": INSTANCE_LABEL}):
        api.remove_container(row["Id"], v=True, force=True)
    for volume in _volumes(api):
        api.remove_volume(volume, force=True)
    for row in api.images(filters={"label": INSTANCE_LABEL}):
        api.remove_image(row["Id"], force=True)
    for image in (IMAGE, "ledger/copier:latest"):
        with contextlib.suppress(APIError):
            api.remove_image(image, force=True)


def _image() -> bytes:
    """A root file system as a tar archive."""
    files: dict[str, Path] = {}
    for name in _PROGRAMS:
        program = shutil.which(name)
        assert program is not None, name
        files[f"bin/{name}"] = Path(program).resolve()
        shown = subprocess.run(["ldd", program], check=False, capture_output=True, text=True)  # noqa: S607
        for word in shown.stdout.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = Path(word).resolve()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for folder in ("root", "tmp", "workspace"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(made)
        account = b"root:x:0:0:root:/root:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size, entry.mode = len(account), 0o644
        tar.addfile(entry, io.BytesIO(account))
        for place, path in sorted(files.items()):
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode = path.stat().st_size, 0o755
            with path.open("rb") as file:
                tar.addfile(entry, file)
    return archive.getvalue()
