"""A month of business for tests of the books, and the programs that check journals."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from adapters.export import JournalFormat, write_journal
from ledger.services import holds, rentals, transfers
from ledger.services.journal import RollUp, journal
from tests.support.market import DOLLAR, Market

MARCH: Final = 1_772_323_200
"""2026-03-01T00:00:00Z."""
APRIL: Final = 1_775_001_600
MAY: Final = 1_777_593_600
DAY: Final = 86_400


def second(text: str) -> int:
    """The Unix second of a UTC time such as 2026-03-01T10:00:00."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def business(market: Market) -> tuple[int, int, int]:
    """Deposits, a transfer, a captured hold, usage over a month end; (alice, bob, instance)."""
    alice, carol = market.account("alice", 100 * DOLLAR), market.account("carol", 7)
    machine = market.machine("bob", gpu_hour=333_333_333)
    bob = market.account("bob")
    with market.ledger.unit() as unit:
        transfers.transfer(unit, alice, carol, 12_345_678_901, "lunch")
        holds.place_hold(unit, carol, 3 * DOLLAR, "job-1")
        holds.capture_hold(unit, carol, "job-1", 1_000_000_001)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 14_400, up=1_500, down=250_000, report_seconds=300)
    market.clock.move_to(second("2026-03-31T23:30:00"))
    market.run(machine, [one], 3_601, up=1_500, down=250_000, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    market.project()
    return alice, bob, one


def written(
    market: Market, how: JournalFormat, start: int, until: int, roll_up: RollUp = "hour"
) -> str:
    """The journal of `[start, until)`."""
    out = io.StringIO()
    with market.ledger.reading() as connection:
        write_journal(out, how, "test", journal(connection, start, until, roll_up))
    return out.getvalue()


def checked(how: JournalFormat, text: str, folder: Path) -> str:
    """What the real program says of a journal: nothing when it is right."""
    file = folder / f"books.{how}"
    file.write_text(text, encoding="utf-8")
    if how == "beancount":
        program = Path(sys.executable).with_name("bean-check")
        command = [str(program), "--no-cache", str(file)]
    else:
        found = shutil.which("hledger")
        if found is None:
            pytest.skip("hledger is not installed: on Debian, `apt-get install hledger`")
        command = [found, "-f", str(file), "check", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode != 0) == bool(said.strip()), said
    return said
