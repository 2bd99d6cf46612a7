"""What it takes to export 100,000 transactions, and that both checkers prove them."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from adapters.export import JournalFormat, write_journal
from ledger.services import accounts
from ledger.services.journal import RollUp, journal
from ledger.services.ledger import Ledger, SimulatedClock
from tests.bench.row import Row

START: Final = 1_772_323_200
DAYS: Final = 90
DAY: Final = 86_400
TRANSACTIONS: Final = 100_000
FORMATS: Final[tuple[JournalFormat, ...]] = ("beancount", "hledger")
PEOPLE: Final = 1_000


def rows(*, quick: bool = False) -> list[Row]:
    """Three months of movements of 1,000 accounts: exported, then checked by both programs."""
    count = TRANSACTIONS // 20 if quick else TRANSACTIONS
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-bench-"))
    os.chmod(folder, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    ledger = Ledger.open(folder, url="", clock=SimulatedClock(START))
    try:
        ledger.adopt_policy()
        _fill(ledger, count)
        until = START + (DAYS + 5) * DAY
        return [
            proven(ledger, folder, how, (START, until), "hour", f"{count:,} movements")
            for how in FORMATS
        ]
    finally:
        ledger.close()
        shutil.rmtree(folder, ignore_errors=True)


def _fill(ledger: Ledger, count: int) -> None:
    """Movements of odd amounts over three months, as the fold would leave them."""
    with ledger.unit() as unit:
        for number in range(PEOPLE):
            accounts.open_account(unit, f"person {number}")
    with ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute(
            "INSERT INTO movements SELECT 1000000 + n, 1, 'transfer', 'bench-' || n,"
            " 'renter_credit', 1 + n %% %(people)s, 'renter_credit', 1 + (n * 7 + 1) %% %(people)s,"
            " 1 + (n::numeric * 7919) %% 99999999977, %(start)s + n * %(span)s / %(count)s"
            " FROM generate_series(0::bigint, %(count)s - 1) AS n",
            {"people": PEOPLE, "start": START, "span": DAYS * DAY, "count": count},
        )
        owner.execute("VACUUM ANALYZE movements")


def proven(
    ledger: Ledger,
    folder: Path,
    how: JournalFormat,
    window: tuple[int, int],
    roll_up: RollUp,
    what: str,
) -> Row:
    """Write the journal of *window*, and let the program it is for prove it."""
    file = folder / f"books.{how}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    with ledger.reading() as connection, file.open("w", encoding="utf-8") as out:
        items = journal(connection, *window, roll_up)
        written = write_journal(out, how, "bench", items)
    spent = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert written, what
    checked = _check(how, file)
    file.unlink()
    return Row(
        f"{how} journal of {what}: {written:,} transactions, one per {roll_up}, nine decimals,"
        " balances asserted each month",
        f"{written / spent:,.0f} transactions/s, {grown / 1024:,.0f} MB more memory",
        "every balance proven; memory does not grow with the journal",
        checked,
    )


def _check(how: JournalFormat, file: Path) -> str:
    """How long the real program took to find nothing wrong."""
    if how == "beancount":
        command = [str(Path(sys.executable).with_name("bean-check")), "--no-cache", str(file)]
    else:
        found = shutil.which("hledger")
        if found is None:
            return "hledger is not installed here"
        command = [found, "-f", str(file), "check", "--strict"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:2_000]
    return f"`{Path(command[0]).name}` proves it in {time.perf_counter() - began:.1f} s"
