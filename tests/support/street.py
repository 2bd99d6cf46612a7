"""Two network namespaces with a link between them: the world, and the host of an agent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

WORLD: Final = "198.51.100.1"
HOST: Final = "198.51.100.2"
_CLONE_NEWNET: Final = 0x40000000


class Street(NamedTuple):
    """Names of both namespaces."""

    world: str
    host: str

    @contextlib.contextmanager
    def world_runs(self, code: str) -> Iterator[subprocess.Popen[str]]:
        """A program of the world, once it says that it is ready; it ends with its input."""
        with subprocess.Popen(
            ["ip", "netns", "exec", self.world, sys.executable, "-I", "-S", "-c", code],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
            process.kill()

    def world_says(self, code: str) -> str:
        """What a program of the world prints."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.world, sys.executable, "-I", "-S", "-c", code],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return done.stdout + done.stderr


@contextlib.contextmanager
def street() -> Iterator[Street]:
    """With the calling thread, and all that it starts, in the host's namespace.

    Skipped where the kernel or the user forbids namespaces.
    """
    names = Street(f"glw{os.getpid()}", f"glh{os.getpid()}")
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        link = ["type", "veth", "peer", "name", "eth0", "netns", names.host]
        ip("-n", names.world, "link", "add", "eth0", *link)
        for name, address in zip(names, (WORLD, HOST), strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        with _inside(names.host):
            yield names
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    finally:
        for name in made:
            ip("netns", "delete", name)


def ip(*arguments: str) -> str:
    """What iproute2 says."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout


@contextlib.contextmanager
def _inside(name: str) -> Iterator[None]:
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(here)
        os.close(here)
        os.close(there)


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "the namespace cannot be entered")
