"""The unmodified `vastai` command line client, as somebody runs it in a shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

RUNNER: Final = Path(__file__).with_name("runner.py")
_TIMEOUT_SECONDS: Final = 90


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


class Runner:
    """One process that runs the client's console script as often as it is asked to.

    A start of the client costs half a second, nearly all of it imports of libraries; here they are
    imported once, and each run is a fork of that.
    """

    def __init__(self, programs: Path) -> None:
        """Use the client in the folder *programs*."""
        self.programs = programs
        self._process = subprocess.Popen(
            [str(programs / "python"), str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=_TIMEOUT_SECONDS)

    def __call__(
        self, environment: dict[str, str], program: Path, *words: str, stdin: str = ""
    ) -> Printed:
        """Run a Python program of the client's environment."""
        request = {"program": str(program), "argv": [program.name, *words], "stdin": stdin}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"environment": environment, **request})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return Printed(**json.loads(self._process.stdout.readline()))


class Client:
    """The client with a home, a key and a server of its own."""

    def __init__(self, runner: Runner, home: Path, url: str, key: str | None) -> None:
        """Let *runner* run the client, which keeps its files in *home*."""
        home.mkdir(parents=True, exist_ok=True)
        self._runner, self._home = runner, home
        self._environment = surroundings(runner.programs, home, url, key)
        self.ran: list[tuple[str, ...]] = []
        """The words of every command so far."""

    def __call__(self, *words: str, stdin: str = "") -> Printed:
        """Run one command."""
        self.ran.append(words)
        program = self._runner.programs / "vastai"
        return self._runner(self._environment, program, *words, stdin=stdin)

    def raw(self, *words: str, stdin: str = "") -> Any:
        """What one command prints with `--raw`."""
        return self(*words, "--raw", stdin=stdin).json()

    def python(self, script: str) -> Printed:
        """Run a script with the SDK of the same package."""
        program = self._home / "script.py"
        program.write_text(script)
        return self._runner(self._environment, program)

    def process(self, script: str) -> Printed:
        """Run a script in a process of its own, which finds the client on its path."""
        return in_a_process(self._runner.programs, self._environment, script)


def surroundings(programs: Path, home: Path, url: str, key: str | None) -> dict[str, str]:
    """An environment made from nothing, so that nothing of the developer's leaks in."""
    found = {
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "VAST_URL": url,
        "VASTAI_NO_UPDATE_CHECK": "1",
        "COLUMNS": "400",
    }
    return found if key is None else {**found, "VAST_API_KEY": key}


def in_a_process(programs: Path, environment: dict[str, str], script: str) -> Printed:
    """What a script prints that the Python of an environment runs in a process of its own."""
    done = subprocess.run(
        [str(programs / "python"), "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    return Printed(done.returncode, done.stdout, done.stderr)
