"""Books, reconciliation and findings at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.books import checked
from tests.support.market import DOLLAR, Market


@pytest.mark.parametrize("roll_up", ["hour", "month"])
def test_an_exported_file_is_proven(cli: Cli, tmp_path: Path, roll_up: str) -> None:
    """What is written to a file is what `bean-check` proves; an existing file is left alone."""
    file = tmp_path / "books.beancount"
    wanted = ["books", "export", "--roll-up", roll_up, "--output", file]
    answer = cli(*wanted, "--until", "2026-04-01")
    assert (answer.code, answer.out) == (0, "")
    assert "transactions" in answer.err
    assert checked("beancount", file.read_text(encoding="utf-8"), tmp_path) == ""
    before = file.read_bytes()
    again = cli(*wanted)
    assert again.code != 0
    assert file.read_bytes() == before or "exported" not in again.err


def test_an_export_of_hledger_goes_to_standard_output(cli: Cli) -> None:
    """Nothing but the journal is on standard output, with the window in its title."""
    answer = cli("books", "export", "--format", "hledger", "--from", "2026-03-01", "--until",
                 "2026-03-02")  # fmt: skip
    assert answer.code == 0
    assert answer.out.startswith("; gpuledger 2026-03-01 to 2026-03-02, log up to ")
    assert "commodity 1000.000000000 USD" in answer.out


@pytest.mark.parametrize("day", ["yesterday", "2026-03-01T10:00:00Z"])
def test_a_window_is_of_days(cli: Cli, day: str) -> None:
    """What is no day is refused with how to write one."""
    answer = cli("books", "export", "--from", day)
    assert answer.code == 2
    assert "--from" in answer.err


def test_books_as_of_an_instant(cli: Cli) -> None:
    """Before the first movement nothing was posted; the statement ends at the balance."""
    assert cli("books", "trial-balance", "--as-of", "2026-03-01T09:59:59Z").out == (
        "nothing was posted\ndifference 0\n"
    )
    found = cli("books", "statement", "alice", "--json").json
    now = cli("balance", "alice", "--json").json
    assert found["closing"] == "9.550626389"
    assert (now["posted"], now["charged"]) == ("10", "0.449373611")


def test_a_day_is_reconciled_and_the_exit_code_says_whether_it_is_clean(
    market: Market, own_cli: Cli
) -> None:
    """0 when everything agrees, 1 when a finding waits, 0 again when a person explained it."""
    admin = market.account("admin")
    market.account("alice", DOLLAR)
    day = ["--date", "2026-03-01"]
    clean = own_cli("reconcile", *day)
    assert (clean.code, clean.err) == (0, "")
    assert "no processor configured" in clean.out
    with market.ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute("UPDATE account_credit SET posted = posted + 1 WHERE account_id = 2")
    broken = own_cli("reconcile", "money", *day)
    assert broken.code == 1
    assert "credit account-2: 1000000000 nanos expected, 1000000001 found" in broken.out
    assert own_cli("reconcile", "money", *day, "--json").json[0]["open"] == 1
    assert own_cli("findings", "explain", 1, "--reason", "known", "--by", admin).code == 0
    assert own_cli("reconcile", "money", *day).code == 0
    (one,) = own_cli("findings", "list", "--state", "explained", "--json").json
    assert (one["reason"], one["actor"]) == ("known", f"account-{admin}")
    assert own_cli("findings", "correct", 9, "--reason", "x", "--by", "admin").code == 1
