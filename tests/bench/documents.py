"""A month of charges of many accounts, invoiced: minutes, and memory of the process."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from ledger.domain.events import AccountOpened, Fact
from ledger.domain.ids import account_stream, parse_rfc3339
from ledger.projections.runner import UsageRunner
from ledger.services import invoicing, policies
from ledger.services.journal import RollUp
from ledger.services.ledger import Ledger, SimulatedClock
from tests.bench import books
from tests.bench.row import Row

ACCOUNTS: Final = 100_000
HOURS: Final = 720
"""Of a whole month."""
SOME_HOURS: Final = 48
"""What most renters use in a month."""
START: Final = parse_rfc3339("2026-04-01T00:00:00Z")
END: Final = parse_rfc3339("2026-05-01T00:00:00Z")
_BATCH: Final = 5_000
_MIB: Final = 1_048_576


def rows(*, quick: bool = False) -> list[Row]:
    """A month of one instance an account: closed, invoiced, and kept as books."""
    many, few = (1_000, 10) if quick else (ACCOUNTS, 100)
    return [
        *_month(many, SOME_HOURS, "month", invoiced=True),
        *_month(few, HOURS, "hour", invoiced=True),
    ]


def _month(count: int, hours: int, roll_up: RollUp, *, invoiced: bool = False) -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-bench-"))
    os.chmod(folder, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    clock = SimulatedClock(START)
    ledger = Ledger.open(folder, url="", clock=clock)
    try:
        ledger.adopt_policy()
        _open(ledger, count)
        _fill(ledger, count, hours)
        clock.move_to(END + policies.ISSUE_AFTER_SECONDS)
        found = [_invoiced(ledger, count, hours)] if invoiced else []
        what = f"a month of {count:,} accounts × {hours} hours"
        for how in books.FORMATS:
            found.append(books.proven(ledger, folder, how, (START, END), roll_up, what))
    finally:
        ledger.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _invoiced(ledger: Ledger, count: int, hours: int) -> Row:
    began = time.perf_counter()
    policies.close_periods(ledger)
    closed = time.perf_counter() - began
    with ledger.database.connect(autocommit=True) as connection:
        UsageRunner().catch_up(connection)
    began = time.perf_counter()
    issued = invoicing.issue_due(ledger)
    spent = time.perf_counter() - began
    assert issued == count, (issued, count)
    return Row(
        f"one month closed and invoiced, {count:,} accounts × {hours} hours",
        f"{(closed + spent) / 60:.1f} min",
        "≤ 60 min for 100,000 accounts",
        f"{spent / count * 1e3:.1f} ms an invoice, {closed / count * 1e3:.2f} ms a close;"
        f" {_peak_mib():,.0f} MiB at most in the process",
    )


def _open(ledger: Ledger, count: int) -> None:
    for first in range(1, count + 1, _BATCH):
        with ledger.unit() as unit:
            new: list[tuple[str, Fact]] = []
            for number in range(first, min(first + _BATCH, count + 1)):
                fact = AccountOpened(
                    account_id=number,
                    subject=f"s-{number}",
                    name_hash=f"h-{number}",
                    currency="USD",
                    opened_at=unit.now,
                )
                new.append((account_stream(number), fact))
            unit.append_all(new)


def _fill(ledger: Ledger, count: int, hours: int) -> None:
    """The read models as a month of metering would leave them: one row an hour and instance."""
    with ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute(
            "INSERT INTO instances (instance_id, account_id, machine_id, host_id, listing_id, kind,"
            " gpus, disk_bytes, gpu_rate, storage_rate, up_rate, down_rate, fee_bp, status, reason,"
            " wants_run, requested_position, assignment_no, slots, gpu_uuids, created_at,"
            " changed_position) SELECT n, n, 1, 1, 1, 'on_demand', 1, 100000000000, 400000000,"
            " 150000000, 3000000, 2000000, 1500, 'stopped', 'renter', false, 1, 1, '{0}', '{}',"
            " %(at)s, 1 FROM generate_series(1, %(count)s) AS n",
            {"at": START, "count": count},
        )
        owner.execute(
            "INSERT INTO rate_segments (instance_id, terms_no, since, kind, fee_bp, gpu_rate,"
            " storage_rate, up_rate, down_rate)"
            " SELECT n, 1, %(at)s, 'on_demand', 1500, 400000000, 150000000, 3000000, 2000000"
            " FROM generate_series(1, %(count)s) AS n",
            {"at": START, "count": count},
        )
        owner.execute(
            "INSERT INTO usage_hours SELECT n, %(hour)s + h, 1, %(at)s, n, 1,"
            " 3600, 400000000, 60000000, 3600, 20833333, 3125000, 1000, 3, 0, 1000, 2, 0, 0, 0, 0,"
            " (%(hour)s + h) * 3600, (%(hour)s + h + 1) * 3600, 1"
            " FROM generate_series(1, %(count)s) AS n, generate_series(0, %(hours)s - 1) AS h",
            {"at": START, "hour": START // 3_600, "count": count, "hours": hours},
        )
        owner.execute("VACUUM ANALYZE usage_hours")
        owner.execute("VACUUM ANALYZE rate_segments")


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _MIB if sys.platform == "darwin" else peak / 1_024
