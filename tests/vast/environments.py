"""Environments of their own for other people's clients, kept outside the checkout and made once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VASTAI: Final = ("vastai==1.9.1",)
ORCHESTRATORS: Final = ("gpuhunt==0.1.34", "dstack==0.22.5", "httpx")


def environment(name: str, packages: Sequence[str]) -> Path:
    """The `bin` folder of a virtual environment that holds *packages*; made where it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "gpuledger" / "clients" / name
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", *packages]
        subprocess.run(pip, check=True, capture_output=True)
        (folder / "complete").touch()
    return folder / "bin"
