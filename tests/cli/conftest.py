"""A small market that only questions are asked of, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from adapters.cli.main import run
from ledger.services import rentals
from tests.support.databases import Server
from tests.support.market import DOLLAR, Market


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture(scope="package")
def books(server: Server) -> Iterator[str]:
    """Alice's instance 1 loads, runs 600 s, is silent 40 s, runs on, and is stopped; as a DSN."""
    dsn = server.copy()
    market = Market(dsn)
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    one = market.rent(alice, machine, label="train [red] 1")
    market.run(machine, [one], 30, state="loading")
    market.confirm(machine, one)
    market.run(machine, [one], 600, up=1_000_000, down=2_000_000)
    market.clock.move_to(market.clock() + 40)
    market.run(machine, [one], 3_600)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.run(machine, [one], 20)
    market.run(machine, [one], 100, state="stopped")
    market.project()
    market.close()
    yield dsn
    server.drop(dsn)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, books: str) -> Cli:
    """Run a command against those books."""
    return command_line(capsys, monkeypatch, books)


@pytest.fixture
def own_cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dsn: str) -> Cli:
    """Run a command against a fresh database, which it may change."""
    return command_line(capsys, monkeypatch, dsn)


def command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dsn: str
) -> Cli:
    """The command line on one database."""
    monkeypatch.setenv("GPULEDGER_DATABASE_URL", dsn)
    monkeypatch.setenv("GPULEDGER_VAULT_KEY", "00" * 32)
    monkeypatch.delenv("GPULEDGER_DEBUG", raising=False)

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(one) for one in arguments])
        return Result(code, *capsys.readouterr())

    return call
