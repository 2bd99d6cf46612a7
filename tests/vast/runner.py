"""Runs the client's own console script again and again without its start-up.

A program of the client's environment, which it alone imports anything of: nothing of the ledger.
One line of JSON on standard input is one run (`program`, `argv`, `environment`, `stdin`), one line
on standard output what it left (`code`, `out`, `err`). The libraries under the client are imported
once. Each run is a fork that imports the client's own modules afresh, because those read home,
server and key while they are imported, and ends as the program would have.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
from typing import IO, Any, NoReturn

PACKAGE = "vastai"
LIBRARIES = ("vastai.serverless",)
"""Parts of the package that no command reads its surroundings with."""
PRELOADED = ("vastai.cli.main", "vastai.cli.commands.billing", "vastai.cli.commands.benchmarks")
MOST_SECONDS = 90


def main() -> None:
    """Carry out one request per line until there are no more."""
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for name in PRELOADED:
        importlib.import_module(name)
    forget()
    gc.freeze()
    for line in requests:
        answers.write(json.dumps(carried_out(json.loads(line))) + "\n")
        answers.flush()


def forget() -> None:
    """Let the next import run the client's modules again."""
    for name in list(sys.modules):
        is_its_own = name == PACKAGE or name.startswith(f"{PACKAGE}.")
        if is_its_own and not name.startswith(LIBRARIES):
            del sys.modules[name]


def carried_out(request: dict[str, Any]) -> dict[str, Any]:
    """What one run left on the screen, and how it ended."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(request["stdin"].encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            run(request, given, out, err)
        _, status = os.waitpid(child, 0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": contents(out),
            "err": contents(err),
        }


def contents(file: IO[bytes]) -> str:
    """All that was written to a file."""
    file.seek(0)
    return file.read().decode()


def run(request: dict[str, Any], given: IO[bytes], out: IO[bytes], err: IO[bytes]) -> NoReturn:
    """Be the program until its end; the exit code is the one an interpreter would give."""
    signal.alarm(MOST_SECONDS)
    for number, file in enumerate((given, out, err)):
        os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False)
        for number, mode in enumerate(("r", "w", "w"))
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["environment"]["HOME"])
    code = 1
    try:
        sys.argv = request["argv"]
        runpy.run_path(request["program"], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = ended(end.code)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def ended(code: object) -> int:
    """The exit code of `sys.exit(code)`; a text is printed, as an interpreter does."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
