"""Measure, print one table, and write it to `docs/performance.md`.

python -m tests.bench [--quick] [--no-write]
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen
from uuid import UUID

from adapters.hostagent.reports import SealedReport
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.usage import column_total, decode_stored
from ledger.projections.rebuild import check
from ledger.projections.runner import UsageRunner
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.services.usage import SignedReport, UsageService
from ledger.store.log import read_page
from tests.bench import agent, books, challenges, documents, market, offline, reliability
from tests.bench.load import drive
from tests.bench.prepare import Fleet, request
from tests.bench.row import Row

PORT = 8_997
QUICK = "--quick" in sys.argv
SECONDS = 10 if QUICK else 60
CONNECTIONS = 64
_SIZES = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = 'ledger' AND c.relkind = 'r'"
)


def main() -> int:
    """Run every measurement."""
    rows: list[Row] = []
    for measure in (
        ingest,
        keeping_up,
        small_reports,
        growth,
        the_market,
        the_agent,
        coming_back,
        the_books,
        the_documents,
    ):
        say(f"# {measure.__name__}")
        found = measure()
        rows += found
        for row in found:
            say(" | ".join(row))
    text = table(rows)
    sys.stdout.write(text)
    if "--no-write" not in sys.argv:
        Path("docs/performance.md").write_text(text, encoding="utf-8")
    return 0


# --- the rows ------------------------------------------------------------------------------------


def the_market() -> list[Row]:
    """Searches, auctions, ratings and challenges."""
    with home() as folder:
        found = market.searches(folder, 300 if QUICK else 3_000)
    auction = market.allocation(100 if QUICK else 500)
    judged = challenges.row(quick=QUICK)
    return [found, auction, *reliability.rows(quick=QUICK), judged]


def the_books() -> list[Row]:
    """Journals, and the programs that check them."""
    return books.rows(quick=QUICK)


def the_documents() -> list[Row]:
    """A month of usage invoices."""
    return documents.rows(quick=QUICK)


def the_agent() -> list[Row]:
    """What watching a machine costs that machine."""
    return agent.rows(quick=QUICK)


def coming_back() -> list[Row]:
    """Three days without network, and what they take afterwards."""
    return offline.rows(quick=QUICK)


def ingest() -> list[Row]:
    """Usage over HTTP, projections off, beside a bare bulk insert and the library one by one."""
    with home() as folder:
        fleet = Fleet(folder, 64, 8)
        bodies = list(fleet.reports(rounds(1_300_000, 480 * 64), 60))
        lines = lines_of(bodies, 1)
        sample = [one.body for one in bodies[:8_192]]
        del bodies
        with serving(folder, "api"):
            load = drive(PORT, lines, ticks_per_report=480, seconds=SECONDS)
        floor = bulk_insert(folder, sample)
        single = one_by_one(folder)
    rate = load.ticks / load.seconds
    latencies = sorted(load.latencies)
    p99 = latencies[int(len(latencies) * 0.99)]
    return [
        Row(
            "usage over HTTP, verified, durable before the answer: 8 × 60 s a report, one report a"
            f" request, {CONNECTIONS} connections, {load.seconds:.0f} s, projections off",
            f"{rate:,.0f} ticks/s ({load.reports / load.seconds:,.0f} reports/s,"
            f" p99 {p99 * 1000:.0f} ms)",
            "≥ 1,000,000 ticks/s",
            f"bulk insert of the same bytes {floor:,.0f} ticks/s ({rate / floor:.2f} of it); one"
            f" event per `Application.save` {single:,.0f} ticks/s ({rate / single:,.0f} ×)",
        )
    ]


def keeping_up() -> list[Row]:
    """The same with projections on; then size, memory, and the rebuild of what was stored."""
    wanted = 560_000
    with home() as folder:
        fleet = Fleet(folder, 64, 8)
        lines = lines_of(list(fleet.reports(rounds(wanted, 480 * 64), 60)), 1)
        with serving(folder, None) as tree:
            before = memory(tree)
            fresh = Freshness(folder)
            load = drive(
                PORT,
                lines,
                ticks_per_report=480,
                seconds=SECONDS,
                ticks_per_second=wanted,
                on_answer=fresh.answered,
            )
            fresh.finish()
            after = memory(tree)
        ledger = Ledger.open(folder)
        with ledger.database.connect("owner", autocommit=True) as connection:
            size = connection.execute(_SIZES).fetchone()
        assert size is not None
        per_tick = int(size[0]) / load.ticks
        result = check(ledger.database)
        assert result.equal, [one for one in result.tables if not one.equal]
        plain = plain_fold(ledger)
        ledger.close()
    rebuilt = result.ticks / result.seconds
    return [
        Row(
            "the same with projections keeping up; freshness from answer to visible balance",
            f"{load.ticks / load.seconds:,.0f} ticks/s, freshness p50 {fresh.quantile(0.5):.2f} s,"
            f" p99 {fresh.quantile(0.99):.2f} s",
            "≥ 500,000 ticks/s, p99 ≤ 2 s",
            f"offered {wanted:,} ticks/s",
        ),
        Row(
            f"rebuild of all projections and comparison, {result.ticks:,} ticks",
            f"{rebuilt:,.0f} ticks/s, equal",
            "≥ 3,000,000 ticks/s",
            f"plain Python fold of the same bytes {plain:,.0f} ticks/s"
            f" ({rebuilt / plain:.2f} of it)",
        ),
        Row(
            "disk, 8 × 60 s, bytes uniform in 0…65,535 each way: log, indexes, projections",
            f"{per_tick:.2f} bytes per tick",
            "≤ 14 bytes per tick",
            "signed body alone 8.7",
        ),
        Row(
            "memory of all Python processes (proportional set size)",
            f"{after / 1e6:,.0f} MB after, {before / 1e6:,.0f} MB before",
            "≤ 350 MB, not growing with the log",
            f"{load.ticks:,} ticks in between",
        ),
    ]


def small_reports() -> list[Row]:
    """One instance × 10 s a report: a relay with 100 machines a request, then one a request."""
    with home() as folder:
        fleet = Fleet(folder, 400, 1)
        seconds = min(SECONDS, 30)
        bodies = list(fleet.reports(rounds_of(seconds * 6_000, 400), 10))
        relays = relay_lines(bodies, 100, 400)
        with serving(folder, "api"):
            relay = drive(PORT, relays, ticks_per_report=10, seconds=seconds)
    with home() as folder:
        fleet = Fleet(folder, 400, 1)
        lines = lines_of(list(fleet.reports(rounds_of(seconds * 5_000, 400), 10)), 1)
        with serving(folder, "api"):
            single = drive(PORT, lines, ticks_per_report=10, seconds=seconds)
    relay_rate, single_rate = relay.reports / relay.seconds, single.reports / single.seconds
    return [
        Row(
            "1 instance × 10 s a report, 100 reports of different machines a request (a relay)",
            f"{relay_rate:,.0f} reports/s",
            "≥ 4,000 reports/s",
            f"{relay_rate / single_rate:.1f} × one report a request",
        ),
        Row(
            "the same, one report a request",
            f"{single_rate:,.0f} reports/s",
            "≥ 1,500 reports/s",
            f"{CONNECTIONS} connections",
        ),
    ]


def growth() -> list[Row]:
    """What a report costs at 10 million stored ticks and at 200 million."""
    small, large = (2_000_000, 10_000_000) if QUICK else (10_000_000, 200_000_000)
    with home() as folder:
        fleet = Fleet(folder, 700, 8)
        clock = SimulatedClock(int(time.time()))
        ledger = Ledger.open(folder, clock=clock)
        usage = UsageService(ledger)
        runner = UsageRunner()
        connection = ledger.database.connect()

        def push(reports: Iterator[SealedReport] | list[SealedReport]) -> float:
            batch = list(reports)
            began = time.perf_counter()
            for first in range(0, len(batch), 256):
                part = batch[first : first + 256]
                signed = [SignedReport(one.key_id, one.signature, one.body) for one in part]
                usage.deliver(signed, [clock.now] * len(signed))
            runner.catch_up(connection)
            return (time.perf_counter() - began) / len(batch)

        def probe() -> float:
            return statistics.median(push(fleet.reports(1, 60)) for _ in range(5))

        push(fleet.reports(-(-small // (700 * 2_400)), 300, constant=True))
        first = probe()
        stored = runner.ticks
        while runner.ticks < large:
            push(fleet.reports(1, 300, constant=True))
        last = probe()
        total = runner.ticks
        connection.close()
        usage.close()
        ledger.close()
    return [
        Row(
            "a report of 8 × 60 s, verified, stored and folded (in process, groups of 256)",
            f"{first * 1e6:,.0f} µs at {stored / 1e6:,.0f} M ticks, {last * 1e6:,.0f} µs at"
            f" {total / 1e6:,.0f} M",
            "equal within 20 %",
            f"ratio {last / first:.2f}",
        )
    ]


# --- floors --------------------------------------------------------------------------------------


def bulk_insert(folder: Path, bodies: list[bytes]) -> float:
    """Ticks per second of the same bytes inserted straight into a plain table, 256 a commit."""
    ledger = Ledger.open(folder)
    with ledger.database.connect("owner") as connection:
        connection.execute("CREATE TABLE bare (id bigint PRIMARY KEY, body bytea)")
        connection.execute("ALTER TABLE bare ALTER COLUMN body SET STORAGE EXTERNAL")
        connection.commit()
        began = time.perf_counter()
        for first in range(0, len(bodies), 256):
            part = bodies[first : first + 256]
            connection.execute(
                "INSERT INTO bare SELECT * FROM unnest(%b::int8[], %b::bytea[])",
                [list(range(first, first + len(part))), part],
            )
            connection.commit()
        seconds = time.perf_counter() - began
        connection.execute("DROP TABLE bare")
        connection.commit()
    ledger.close()
    return len(bodies) * 480 / seconds


def one_by_one(folder: Path) -> float:
    """Ticks per second through the library's `Application.save`, one event a call."""
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Instance(Aggregate):
        """Ticks as events of an aggregate."""

        @event("Ticked")
        def tick(self, second: int, up: int, down: int) -> None:
            """One second."""

    ledger = Ledger.open(folder)
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(ledger.database.owner_dsn)
    application: Application[UUID] = Application(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": str(given["dbname"]),
            "POSTGRES_HOST": str(given["host"]),
            "POSTGRES_PORT": str(given.get("port", 5432)),
            "POSTGRES_USER": str(given["user"]),
            "POSTGRES_PASSWORD": "none",
            "POSTGRES_SCHEMA": "public",
        }
    )
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < (2 if QUICK else 6):
        aggregate = Instance()
        application.save(aggregate)
        for second in range(200):
            aggregate.tick(second, 1, 2)
            application.save(aggregate)
            count += 1
    seconds = time.perf_counter() - began
    application.close()
    ledger.close()
    return count / seconds


def plain_fold(ledger: Ledger) -> float:
    """Ticks per second of a fold that only decodes the same bytes and sums their columns."""
    totals: dict[int, list[int]] = {}
    ticks = 0
    position = 0
    began = time.perf_counter()
    with ledger.reading() as connection:
        while time.perf_counter() - began < (3 if QUICK else 10):
            page = read_page(connection, position, 2_000)
            if not page:
                break
            position = page[-1].position
            for stored in page:
                if stored.topic != "usage.reported.v1":
                    continue
                for block in decode_stored(stored.state).instances:
                    row = totals.setdefault(block.instance, [0, 0, 0])
                    row[0] += block.count
                    row[1] += column_total(block.up)
                    row[2] += column_total(block.down)
                    ticks += block.count
    return ticks / (time.perf_counter() - began)


# --- machinery -----------------------------------------------------------------------------------


class Freshness:
    """How long after its answer a report shows in the balances."""

    def __init__(self, folder: Path) -> None:
        """Watch the projection's position from a thread."""
        self._ledger = Ledger.open(folder)
        self._answers: deque[tuple[int, float]] = deque()
        self._ages: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def answered(self, answer: UsageAnswer) -> None:
        """Note an answer."""
        position = answer.reports[-1].position
        assert position is not None
        self._answers.append((position, time.perf_counter()))

    def finish(self) -> None:
        """Wait until everything answered is visible."""
        deadline = time.perf_counter() + 60
        while self._answers and time.perf_counter() < deadline:
            time.sleep(0.05)
        self._done.set()
        self._thread.join()
        self._ledger.close()
        assert not self._answers, "the projection did not catch up within a minute"

    def quantile(self, share: float) -> float:
        """Seconds within which this share was visible."""
        return sorted(self._ages)[int(len(self._ages) * share)]

    def _watch(self) -> None:
        with self._ledger.database.connect(autocommit=True) as connection:
            while not self._done.is_set():
                row = connection.execute(
                    "SELECT position FROM projection_positions WHERE name = 'usage'"
                ).fetchone()
                now = time.perf_counter()
                folded = 0 if row is None else row[0]
                while self._answers and self._answers[0][0] <= folded:
                    self._ages.append(now - self._answers.popleft()[1])
                time.sleep(0.02)


@contextmanager
def home() -> Iterator[Path]:
    """A fresh folder for a ledger, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-bench-"))
    os.chmod(folder, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(folder: Path, only: str | None) -> Iterator[int]:
    """A real server in processes of its own; gives the parent's pid."""
    code = (
        "import sys; from pathlib import Path; from adapters.main import serve;"
        f"sys.exit(serve(Path({str(folder)!r}), '127.0.0.1', {PORT}, {only!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(300):
            try:
                with urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def memory(parent: int) -> int:
    """Bytes of the parent and its Python children, shared pages counted once (PSS)."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            ours = int(entry.name) == parent or os.getpgid(int(entry.name)) == parent
            ours = ours or _parent_of(entry) == parent
            if ours and b"python" in (entry / "cmdline").read_bytes().partition(b"\x00")[0]:
                rollup = (entry / "smaps_rollup").read_text()
                total += int(rollup.partition("\nPss:")[2].split()[0]) * 1024
        except (OSError, ProcessLookupError):
            continue
    return total


def _parent_of(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def rounds(ticks_per_second: int, ticks_per_round: int) -> int:
    """Rounds of reports that last for the measured seconds at this rate."""
    return -(-ticks_per_second * SECONDS // ticks_per_round)


def rounds_of(reports: int, machines: int) -> int:
    """Rounds that hold so many reports."""
    return -(-reports // machines)


def lines_of(reports: list[SealedReport], per_request: int) -> list[deque[bytes]]:
    """Requests per connection; a machine's reports stay on one connection, in order."""
    lines: list[deque[bytes]] = [deque() for _ in range(CONNECTIONS)]
    del per_request
    for one in reports:
        lines[one.machine % CONNECTIONS].append(request([one], PORT))
    return lines


def relay_lines(reports: list[SealedReport], size: int, machines: int) -> list[deque[bytes]]:
    """Requests of *size* reports of different machines; each relay has machines of its own."""
    relays = machines // size
    lines: list[deque[bytes]] = [deque() for _ in range(relays)]
    for first in range(0, len(reports), size):
        relay = first // size % relays
        lines[relay].append(request(reports[first : first + size], PORT))
    return lines


def table(rows: list[Row]) -> str:
    """The page `docs/performance.md`."""
    lines = [
        "# Measured",
        "",
        "Made by `make bench`; server, load generator and PostgreSQL share one machine. Report"
        " bodies are prepared before. Ratios are taken within one run.",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python"
        f" {platform.python_version()}, PostgreSQL 18 (embedded, fsync on), granian"
        f" {version('granian')}, litestar {version('litestar')}, msgspec {version('msgspec')},"
        f" psycopg {version('psycopg')}" + (", quick run" if QUICK else "") + ".",
        "",
        "| what | reached | wanted | beside |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.reached} | {row.target} | {row.beside} |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    """Tell a person what is going on."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
