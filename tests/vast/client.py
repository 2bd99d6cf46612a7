"""The unmodified `vastai` command line client, as somebody runs it in a shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """What one run of the client left on the screen."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON; what the client said is shown where it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            message = f"exit {self.code}, stdout {self.out!r}, stderr {self.err!r}"
            raise AssertionError(message) from None


class Client:
    """The client with a home, a key and a server of its own."""

    def __init__(self, programs: Path, home: Path, url: str, key: str | None) -> None:
        """Use the client in the folder *programs*; it keeps its files in *home*."""
        home.mkdir(parents=True, exist_ok=True)
        self._programs = programs
        self._environment = {
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HOME": str(home),
            "VAST_URL": url,
            "VASTAI_NO_UPDATE_CHECK": "1",
            "COLUMNS": "400",
        }
        if key is not None:
            self._environment["VAST_API_KEY"] = key

    def __call__(self, *words: str, stdin: str = "") -> Printed:
        """Run one command."""
        return self.run(str(self._programs / "vastai"), *words, stdin=stdin)

    def raw(self, *words: str, stdin: str = "") -> Any:
        """What one command prints with `--raw`."""
        return self(*words, "--raw", stdin=stdin).json()

    def python(self, script: str) -> Printed:
        """Run a script with the SDK of the same package."""
        return self.run(str(self._programs / "python"), "-c", script)

    def run(self, *command: str, stdin: str = "") -> Printed:
        """Run a program in the client's environment."""
        done = subprocess.run(
            command,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return Printed(done.returncode, done.stdout, done.stderr)
