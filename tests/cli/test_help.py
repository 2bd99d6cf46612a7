"""Help: there for every command, with an example, and quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adapters.cli.main import run

COMMANDS = [
    *(
        ["accounts"],
        ["anomalies"],
        ["backup"],
        ["balance"],
        ["charges"],
        ["demo"],
        ["deposit"],
        ["events"],
        ["grant"],
        ["grants"],
    ),
    *(["explain"], ["instances"], ["volumes"], ["invoice"], ["keys", "create"], ["keys", "list"]),
    *(
        ["keys", "revoke"],
        ["machines"],
        ["policy"],
        ["rebuild"],
        ["restore"],
        ["scenario", "run"],
        ["serve"],
    ),
    *(["calc", "useful-hour"], ["calc", "memory"], ["calc", "transfer"], ["calc", "budget"]),
    *(["offers"], ["allocations"], ["supervise"], ["reconcile"]),
    *(["books", "export"], ["books", "trial-balance"], ["books", "balances"]),
    *(["books", "statement"], ["books", "ledger"]),
    *(["findings", "list"], ["findings", "explain"], ["findings", "correct"]),
    *(["ticks"], ["trace"], ["transfers"], ["trial-balance"]),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_an_example(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """The help of a command begins with its usage and holds a line to copy."""
    assert run([*command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"Usage: gpuledger {' '.join(command)}")
    assert f"Example: gpuledger {' '.join(command)}" in shown


def test_the_program_s_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """No command is missing from the first page, and the exit codes are explained there."""
    assert run([]) == 0
    bare = capsys.readouterr().out
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown == bare
    for command in COMMANDS:
        assert f" {command[0]} " in shown
    assert "Exit codes" in shown


def test_the_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints one line that starts with a digit."""
    assert run(["--version"]) == 0
    shown = capsys.readouterr().out
    assert shown[0].isdigit()
    assert shown.count("\n") == 1


def test_help_loads_nothing_heavy() -> None:
    """Asking for help imports no driver, no server and no projection."""
    heavy = ["psycopg", "sqlalchemy", "alembic", "litestar", "granian", "httpx", "eventsourcing"]
    code = (
        "import sys; from adapters.cli.main import run; run(['--help']);"
        f"sys.stderr.write(' '.join(name for name in {heavy} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stderr == ""
