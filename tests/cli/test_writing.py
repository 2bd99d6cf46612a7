"""Commands that write: keys and deposits."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from adapters.cli.main import run
from ledger.services.api_keys import authenticate
from tests.cli.conftest import Cli
from tests.support.market import Market


def test_a_key_opens_its_account_and_works(market: Market, own_cli: Cli) -> None:
    """A new name opens an account, and the key that is printed authenticates it in its role."""
    answer = own_cli("keys", "create", "--account", "alice", "--role", "renter")
    assert (answer.code, answer.err) == (0, "")
    with market.ledger.reading() as connection:
        found = authenticate(connection, answer.out.strip(), market.clock())
    assert (found.account_id, found.role) == (1, "renter")


def test_a_second_key_belongs_to_the_same_account(own_cli: Cli) -> None:
    """The same name, and the id of its account, give more keys of that account."""
    arguments = ["keys", "create", "--role", "host", "--json", "--account"]
    first = own_cli(*arguments, "bob").json
    second = own_cli(*arguments, first["account_id"]).json
    assert first["account_id"] == second["account_id"]
    listed = own_cli("keys", "list", "bob", "--json").json
    assert {one["key_id"] for one in listed} == {
        key["key"].split("_")[1] for key in (first, second)
    }
    assert first["key"].split("_", 2)[2] not in own_cli("keys", "list").out


def test_an_expiry_is_kept(own_cli: Cli) -> None:
    """--expires is the instant at which the key ends."""
    end = "2100-01-01T00:00:00Z"
    made = own_cli(
        "keys", "create", "--account", "a", "--role", "auditor", "--expires", end, "--json"
    )
    assert made.json["expires_at"] == end
    assert own_cli("keys", "list", "--json").json[0]["expires_at"] == end


def test_a_revoked_key_is_listed_as_such(own_cli: Cli) -> None:
    """Revoking ends a key of the account that was named, twice as well as once."""
    made = own_cli("keys", "create", "--account", "a", "--role", "admin").out
    key_id = made.split("_")[1]
    for _ in range(2):
        assert own_cli("keys", "revoke", "a", key_id).code == 0
    assert own_cli("keys", "list", "a", "--json").json[0]["revoked_at"] is not None


def test_a_deposit_is_booked_once(own_cli: Cli) -> None:
    """The same id again changes nothing; with another amount it is refused."""
    own_cli("keys", "create", "--account", "alice", "--role", "renter")
    deposit = ["deposit", "alice", "12.5", "--id", "bank-1"]
    assert own_cli(*deposit).out == "12.5 booked for alice as bank-1\n"
    assert own_cli(*deposit, "--json").json == {
        "account_id": 1,
        "id": "bank-1",
        "amount": "12.5",
    }
    assert own_cli("balance", "alice", "--json").json["posted"] == "12.5"
    other = own_cli("deposit", "alice", "13", "--id", "bank-1")
    assert other.code == 1
    assert other.err.startswith("error: ")


def test_a_home_holds_a_whole_ledger(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a database elsewhere, the first key makes a ledger in --home that questions find."""
    for variable in ("GPULEDGER_DATABASE_URL", "GPULEDGER_VAULT_KEY"):
        monkeypatch.delenv(variable, raising=False)
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-cli-"))
    os.chmod(folder, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    home = str(folder / "books")
    try:
        _whole_ledger(home, capsys, monkeypatch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _whole_ledger(
    home: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["keys", "create", "--account", "alice", "--role", "admin", "--home", home]) == 0
    assert capsys.readouterr().out.startswith("glk_")
    monkeypatch.setenv("GPULEDGER_HOME", home)
    assert run(["accounts"]) == 0
    assert "alice" in capsys.readouterr().out
