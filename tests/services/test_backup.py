"""A backup that was never restored is a hope; this one is restored and proven."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import RejectedError
from ledger.projections.rebuild import check
from ledger.store.backup import backup, restore
from ledger.store.database import Database
from tests.support.market import DOLLAR, Market


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the database's own user can enter."""
    path = Path(tempfile.mkdtemp(prefix="gpuledger-backup-"))
    os.chmod(path, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_restored_ledger_is_the_same_ledger(market: Market, folder: Path) -> None:
    """After backup and restore the log has the same head and a rebuild is equal."""
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 600, up=1_000)
    market.project()
    assert backup(market.ledger.database, folder / "books.dump") > 0
    with pytest.raises(RejectedError, match="never overwrites"):
        backup(market.ledger.database, folder / "books.dump")
    restore(folder / "books.dump", folder / "home")
    with Database.open(folder / "home", "") as database:
        result = check(database)
        assert result.equal
        assert result.ticks == 600
        with database.connect() as connection:
            head = connection.execute("SELECT next - 1 FROM log_position").fetchone()
        assert head == (market.head(),)
        with database.connect("owner") as connection, pytest.raises(Exception, match="append only"):
            connection.execute("DELETE FROM events")
    with pytest.raises(RejectedError, match="holds a ledger"):
        restore(folder / "books.dump", folder / "home")
