"""Connections to a Docker engine, in the oldest version of its interface that both speak."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

import docker

_API_VERSION: Final = "1.41"
"""Of Docker 20.10: the first with what is used here. Docker 29 refuses it, and asks for 1.44."""
_TIMEOUT_SECONDS: Final = 30
_PULL_SECONDS: Final = 1_500
"""Below the 1,800 s after which the server gives up on a launch."""


class DockerConnections:
    """Opened when first used: an engine that is away when the agent starts is no error."""

    def __init__(self, socket: str) -> None:
        """Talk to the engine behind *socket*, once something is asked."""
        self._socket = socket
        self._version: str | None = None
        self._open: dict[int, docker.APIClient] = {}
        self._lock = threading.Lock()

    @property
    def api(self) -> docker.APIClient:
        """For questions and orders.

        Raises:
            DockerException, RequestException: The engine does not say what it speaks.
        """
        return self._client(_TIMEOUT_SECONDS)

    @property
    def pull(self) -> docker.APIClient:
        """For what may take long; raises as `api`."""
        return self._client(_PULL_SECONDS)

    def close(self) -> None:
        """Close all; they open again when they are used."""
        with self._lock:
            self._version = None
            while self._open:
                self._open.popitem()[1].close()

    def _client(self, seconds: int) -> docker.APIClient:
        with self._lock:
            if seconds not in self._open:
                version = self._version = self._version or self._spoken()
                self._open[seconds] = docker.APIClient(
                    base_url=self._socket, version=version, timeout=seconds
                )
            return self._open[seconds]

    def _spoken(self) -> str:
        """The version to speak: what is known here, or the first that the engine still knows."""
        asking = docker.APIClient(
            base_url=self._socket, version=_API_VERSION, timeout=_TIMEOUT_SECONDS
        )
        with contextlib.closing(asking):
            least = str(asking.version(api_version=False).get("MinAPIVersion", _API_VERSION))
        return max(_API_VERSION, least, key=_order)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
