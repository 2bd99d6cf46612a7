"""Personal data lies in the vault alone, opens with its key alone, and is erased for good."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import psycopg
import pytest

from ledger.errors import NotFoundError, UnavailableError
from ledger.services import accounts, erasure, rentals
from ledger.services.ledger import Ledger
from ledger.services.questions import accounts as questions
from ledger.store.vault import Vault, load_master_key
from tests.support.market import DOLLAR, Market

NAME = "Ada Lovelace"


def everything(market: Market) -> bytes:
    """Every byte of every table: the log, the read models, the keepers and the vault."""
    tables = [
        row[0]
        for row in market.connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'ledger' AND c.relkind = 'r' AND c.relname <> 'alembic_version'"
        )
    ]
    texts = []
    with market.ledger.database.connect(role="owner", autocommit=True) as owner:
        for table in tables:
            query = f"COPY (SELECT * FROM ledger.{table}) TO STDOUT (FORMAT binary)"  # noqa: S608
            with owner.cursor().copy(cast("psycopg.abc.Query", query)) as copy:
                texts += [bytes(part) for part in copy]
    return b"".join(texts)


def test_no_table_tells_a_name_or_a_launch_configuration(market: Market) -> None:
    """The name, the image and a secret of the environment are in no row in clear text."""
    ada = market.account(NAME, 10 * DOLLAR)
    machine = market.machine()
    launch = {"image": "registry.example/secret-image", "env": {"TOKEN": "hunter2-hunter2"}}
    one = market.rent(ada, machine, launch=launch)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.project()
    stored = everything(market)
    assert b"account.opened.v1" in stored
    for secret in (NAME, "Lovelace", "secret-image", "hunter2"):
        assert secret.encode() not in stored
        assert secret.encode().hex().encode() not in stored


def test_an_erased_subject_cannot_be_opened_and_its_books_stay(market: Market) -> None:
    """After erasing neither name nor launch opens; balances, charges and rebuild are unchanged."""
    ada, machine = market.account(NAME, 10 * DOLLAR), market.machine()
    one = market.rent(ada, machine, launch={"image": "x"})
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    before = market.charges(one)
    row = market.connection.execute(
        "SELECT a.subject, i.launch FROM accounts a JOIN instances i USING (account_id)"
    ).fetchone()
    assert row is not None
    subject, reference = row
    vault = market.ledger.vault
    assert vault.get(market.connection, subject, "name") == NAME.encode()
    assert vault.get(market.connection, *reference.split("/", 1)) == b'{"image":"x"}'
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, ada)
    head = market.head()
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, ada)
    assert market.head() == head
    for item in ("name", reference.split("/", 1)[1]):
        with pytest.raises(NotFoundError) as error:
            vault.get(market.connection, subject, item)
        assert error.value.code == "erased"
    assert vault.names(market.connection, [subject]) == {}
    kept = market.connection.execute(
        "SELECT (SELECT count(*) FROM vault_subjects WHERE subject = %s),"
        " (SELECT count(*) FROM vault_items WHERE subject = %s)",
        [subject, subject],
    ).fetchone()
    assert kept == (0, 0)
    assert market.charges(one) == before
    assert market.rebuild().equal


def test_erasing_somebody_who_is_not_there_is_told(market: Market) -> None:
    """An unknown account is `no_such_account`, and nothing is appended."""
    head = market.head()
    with market.ledger.unit() as unit, pytest.raises(NotFoundError) as error:
        erasure.erase_subject(unit, 99)
    assert error.value.code == "no_such_account"
    assert market.head() == head


def test_erasing_one_leaves_the_others(market: Market) -> None:
    """Each subject has a key of its own: another's name still opens."""
    ada, grace = market.account(NAME), market.account("Grace Hopper")
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, ada)
    subjects = [
        row[0]
        for row in market.connection.execute("SELECT subject FROM accounts ORDER BY account_id")
    ]
    names = market.ledger.vault.names(market.connection, subjects)
    assert names == {subjects[grace - 1]: "Grace Hopper"}


def test_another_master_key_opens_nothing_and_finds_nobody(market: Market) -> None:
    """With a wrong key a name is `vault_key_wrong`, never other text, and its hash is another."""
    market.account(NAME)
    row = market.connection.execute("SELECT subject, name_hash FROM accounts").fetchone()
    assert row is not None
    other = Vault(b"\x01" * 32)
    with pytest.raises(UnavailableError) as error:
        other.get(market.connection, row[0], "name")
    assert error.value.code == "vault_key_wrong"
    with pytest.raises(UnavailableError):
        other.names(market.connection, [row[0]])
    assert other.keyed_hash(NAME) != row[1] == market.ledger.vault.keyed_hash(NAME)
    with Ledger(market.ledger.database, other, market.clock).unit() as unit:
        assert accounts.find_account(unit, NAME) is None


def test_a_sealed_value_opens_only_in_its_place(market: Market) -> None:
    """A value moved to another name or subject does not open: the place is part of the seal."""
    market.account(NAME)
    market.account("Grace Hopper")
    first, second = [
        row[0]
        for row in market.connection.execute("SELECT subject FROM accounts ORDER BY account_id")
    ]
    vault, connection = market.ledger.vault, market.connection
    connection.execute(
        "INSERT INTO vault_items SELECT subject, 'street', sealed FROM vault_items"
        " WHERE subject = %s AND name = 'name'",
        [first],
    )
    connection.execute(
        "UPDATE vault_items SET sealed = (SELECT sealed FROM vault_items"
        " WHERE subject = %s AND name = 'name') WHERE subject = %s",
        [first, second],
    )
    for subject, name in [(first, "street"), (second, "name")]:
        with pytest.raises(UnavailableError):
            vault.get(connection, subject, name)
    assert vault.get(connection, first, "name") == NAME.encode()
    with pytest.raises(NotFoundError) as error:
        vault.get(connection, first, "nothing")
    assert error.value.code == "no_such_item"


def test_the_same_text_is_never_sealed_alike(market: Market) -> None:
    """Sealing the same value twice gives other bytes, so equal secrets cannot be told apart."""
    with market.ledger.unit() as unit:
        subject = unit.vault.new_subject(unit.connection)
        unit.vault.put(unit.connection, subject, "a", b"same")
        unit.vault.put(unit.connection, subject, "b", b"same")
        first = unit.connection.execute(
            "SELECT sealed FROM vault_items WHERE name IN ('a', 'b')"
        ).fetchall()
        unit.vault.put(unit.connection, subject, "a", b"other")
        assert unit.vault.get(unit.connection, subject, "a") == b"other"
    assert first[0] != first[1]


def test_a_refused_command_keeps_nothing_in_the_vault(market: Market) -> None:
    """What a refused rental wanted to seal is rolled back with it."""
    ada, machine = market.account(NAME, 10 * DOLLAR), market.machine()
    with market.ledger.unit() as unit, pytest.raises(Exception, match="64 KiB"):
        rentals.rent(unit, ada, machine, disk_gb=10, launch={"onstart": "x" * 70_000})
    row = market.connection.execute(
        "SELECT count(*) FROM vault_items WHERE name LIKE 'launch%'"
    ).fetchone()
    assert row == (0,)


# --- the master key ------------------------------------------------------------------------------


def test_a_home_makes_its_key_once_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key file is made with mode 0600 and read from then on; another home has another key."""
    monkeypatch.delenv("GPULEDGER_VAULT_KEY", raising=False)
    first = load_master_key(tmp_path)
    assert len(first) == 32
    assert (tmp_path / "vault.key").stat().st_mode & 0o777 == 0o600
    assert load_master_key(tmp_path) == first
    (tmp_path / "other").mkdir()
    assert load_master_key(tmp_path / "other") != first


def test_the_environment_s_key_goes_first_and_must_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given key is used and no file is made; half a key, no key or no hex is refused."""
    monkeypatch.setenv("GPULEDGER_VAULT_KEY", "ab" * 32)
    assert load_master_key(tmp_path) == b"\xab" * 32
    assert not (tmp_path / "vault.key").exists()
    for wrong in ("ab" * 16, "", "zz" * 32, "ab" * 33):
        monkeypatch.setenv("GPULEDGER_VAULT_KEY", wrong)
        with pytest.raises(UnavailableError) as error:
            load_master_key(tmp_path)
        assert error.value.code == "vault_key_missing"
        assert wrong not in error.value.message or not wrong
    monkeypatch.delenv("GPULEDGER_VAULT_KEY")
    with pytest.raises(UnavailableError):
        load_master_key(None)
    (tmp_path / "vault.key").write_text("ab" * 31 + "\n")
    with pytest.raises(UnavailableError):
        load_master_key(tmp_path)


def test_a_lost_key_is_never_replaced_by_a_new_one(dsn: str, tmp_path: Path) -> None:
    """A vault that holds something opens locked without its key: books yes, names no."""
    ledger = Ledger.open(tmp_path, url=dsn)
    with ledger.unit() as unit:
        account = accounts.open_account(unit, "alice")
    ledger.close()
    (tmp_path / "vault.key").rename(tmp_path / "elsewhere")
    locked = Ledger.open(tmp_path, url=dsn)
    assert not (tmp_path / "vault.key").exists()
    with locked.reading() as connection:
        assert questions.account(connection, locked.vault, account).name is None
    with pytest.raises(UnavailableError, match="put it back"), locked.unit() as unit:
        accounts.open_account(unit, "bob")
    locked.close()
    (tmp_path / "elsewhere").rename(tmp_path / "vault.key")
    again = Ledger.open(tmp_path, url=dsn)
    with again.reading() as connection:
        assert questions.account(connection, again.vault, account).name == "alice"
    again.close()
