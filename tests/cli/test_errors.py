"""A mistake at the command line: one line, one code, what to do, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.cli.main import run
from tests.cli.conftest import Cli


def one_line(err: str) -> str:
    """The message of an error that is told in exactly one line."""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "wrong",
    [
        ["nonsense"],
        ["accounts", "--nonsense"],
        ["accounts", "--limit", "0"],
        ["accounts", "--limit", "many"],
        ["accounts", "--after", "-1"],
        ["ticks"],
        ["ticks", "x"],
        ["ticks", "0"],
        ["ticks", "9223372036854775808"],
        ["ticks", "1", "--from", "yesterday"],
        ["ticks", "1", "--from", "2026-03-01T10:00:00"],
        ["instances", "--status", "bogus"],
        ["charges", "--after", "1:2"],
        ["charges", "--after", "1:2:3:9999999999999999999"],
        ["anomalies", "--after", "x"],
        ["explain", "1", "--meter", "heat"],
        ["deposit", "alice", "1.0000000001", "--id", "a"],
        ["deposit", "alice", "-1", "--id", "a"],
        ["deposit", "alice", "nan", "--id", "a"],
        ["deposit", "alice", "0", "--id", "a"],
        ["deposit", "alice", "1", "--id", "spaces in it"],
        ["keys", "create", "--account", "x", "--role", "king"],
        ["keys", "create", "--account", "x", "--role", "host", "--expires", "2020-01-01T00:00:00Z"],
        ["keys", "create", "--account", "two\nlines", "--role", "host"],
        ["serve", "--port", "70000"],
        ["scenario", "run"],
        ["scenario", "run", "no-such-file.yaml"],
        ["trace", "no-such-nodes.csv", "no-such-pods.csv"],
        ["trace", "nodes.csv", "pods.csv", "--seconds", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(cli: Cli, wrong: list[str]) -> None:
    """What cannot be meant is refused in one line on standard error, with exit code 2."""
    answer = cli(*wrong)
    one_line(answer.err)
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        (["balance", "nobody"], "gpuledger accounts"),
        (["balance", "99999999999999999999"], "gpuledger accounts"),
        (["balance", "'; DROP TABLE accounts; --"], "gpuledger accounts"),
        (["explain", "99"], "gpuledger instances"),
        (["ticks", "99"], "gpuledger instances"),
        (["invoice", "USE-1"], "gpuledger invoice"),
        (["keys", "revoke", "alice", "nonsense"], "gpuledger keys list"),
        (["keys", "create", "--account", "77", "--role", "host"], "gpuledger accounts"),
    ],
)
def test_what_is_not_there_exits_1_and_says_where_to_look(
    cli: Cli, missing: list[str], hint: str
) -> None:
    """A name that leads nowhere is told with the command that lists what there is."""
    answer = cli(*missing)
    assert hint in one_line(answer.err)
    assert (answer.code, answer.out) == (1, "")


def test_a_home_that_does_not_exist_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question to a folder without a ledger says what to do and leaves no trace."""
    monkeypatch.delenv("GPULEDGER_DATABASE_URL", raising=False)
    home = tmp_path / "nowhere"
    assert run(["accounts", "--home", str(home)]) == 1
    assert "gpuledger serve --home" in one_line(capsys.readouterr().err)
    monkeypatch.setenv("GPULEDGER_HOME", str(home))
    assert run(["deposit", "alice", "1", "--id", "a"]) == 1
    assert str(home) in one_line(capsys.readouterr().err)
    assert not home.exists()


def test_a_database_without_its_vault_key_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, books: str
) -> None:
    """A question never makes a new vault key beside somebody else's database."""
    monkeypatch.setenv("GPULEDGER_DATABASE_URL", books)
    monkeypatch.delenv("GPULEDGER_VAULT_KEY", raising=False)
    assert run(["accounts", "--home", str(tmp_path / "nowhere")]) == 1
    assert "GPULEDGER_VAULT_KEY" in one_line(capsys.readouterr().err)
    assert not (tmp_path / "nowhere").exists()


def test_a_database_that_does_not_answer_is_told_in_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's many lines become one, with the variable to look at."""
    monkeypatch.setenv("GPULEDGER_DATABASE_URL", "host=127.0.0.1 port=1 user=x dbname=x")
    answer = cli("accounts")
    assert answer.code == 1
    assert "GPULEDGER_DATABASE_URL" in one_line(answer.err)


def test_debug_shows_where_an_error_arose(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback is shown when somebody asks for it, and only then."""
    assert "Traceback" not in cli("explain", 99).err
    assert "Traceback" in cli("explain", 99, "--debug").err
    monkeypatch.setenv("GPULEDGER_DEBUG", "1")
    answer = cli("explain", 99)
    assert "Traceback" in answer.err
    assert answer.code == 1


def test_a_defect_is_told_in_one_line_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw is named as a defect of the program."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ledger.services.questions.accounts.accounts", broken)
    answer = cli("accounts")
    assert answer.code == 1
    assert "ZeroDivisionError" in one_line(answer.err)
    assert "--debug" in answer.err


def test_ctrl_c_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command exits 130 and says nothing."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ledger.services.questions.accounts.accounts", interrupted)
    assert cli("accounts") == (130, "", "")


def test_a_reader_that_leaves_is_no_error(books: str) -> None:
    """Output into a closed pipe ends the command without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "adapters.cli.main", "events", "--limit", "9999"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "GPULEDGER_DATABASE_URL": books, "GPULEDGER_VAULT_KEY": "00" * 32},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
