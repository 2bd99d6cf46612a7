"""What the demo's hosts run on: the real agent where the system allows it, and with which GPUs."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from adapters.hostagent.nvml.build import NoCompilerError, build

_GIB: Final = 2**30


class Machines(NamedTuple):
    """How hosts are started, and what to say about it."""

    module: str
    """Run with `python -m`."""
    said: str
    driver: Path | None = None
    """Folder of the stub of the driver; null where GPUs are names only."""

    @property
    def is_real(self) -> bool:
        """Whether the agent runs, and renters' commands with it."""
        return self.module == "adapters.demo.host"

    def arguments(self, url: str, token: str, gpus: int, seed: int, folder: Path) -> Sequence[str]:
        """The words after the module's name."""
        return [url, token, str(gpus), str(folder) if self.is_real else str(seed)]

    def environment(self, model: str, gpus: int, folder: Path) -> Mapping[str, str]:
        """What a host with so many GPUs of *model* finds in its environment."""
        if self.driver is None:
            return os.environ
        lines = [f"gpus={gpus}"]
        for index in range(gpus):
            lines += [
                f"gpu{index}.name=NVIDIA {model}",
                f"gpu{index}.uuid=GPU-{secrets.token_hex(16)}",
                f"gpu{index}.mem_total={24 * _GIB}",
                f"gpu{index}.util={90 + index}",
            ]
        control = folder.with_suffix(".gpus")
        control.write_text("".join(f"{line}\n" for line in lines))
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.driver),
            "FAKE_NVML_CONTROL": str(control),
        }


def machines(folder: Path) -> Machines:
    """The best that this system allows; the stub of the driver is built in *folder*."""
    if sys.platform != "linux":
        said = "simulated hosts: the agent runs on Linux only"
        return Machines("adapters.demo.simulated_host", said)
    real = "the real agent and plain processes"
    if importlib.util.find_spec("pynvml") is None:
        return Machines("adapters.demo.host", f"{real}, GPUs by name: nvidia-ml-py is not here")
    try:
        build(folder)
    except NoCompilerError as error:
        return Machines("adapters.demo.host", f"{real}, GPUs by name: {error}")
    return Machines("adapters.demo.host", f"{real}, GPUs from a stub of NVML", folder)
