"""A lost connection and a full disk: nothing half written, and a repeat finds out (LEDG-04/05)."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from adapters.hostagent.reports import SealedReport
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.ids import usage_stream
from ledger.errors import DeclinedError, UnavailableError
from ledger.services import accounts, api_keys, deposits, transfers
from ledger.services.usage import SignedReport
from ledger.store.database import Connection, translating
from tests.e2e.agents import Flood
from tests.e2e.serving import (
    Serving,
    books_equal_a_rebuild,
    gap_free,
    stored_once,
    wait_for,
)
from tests.support.market import DOLLAR, Market

DISK_BYTES = 320_000_000
_LEAST_BYTES = 4_096


def everything(connection: Connection) -> dict[str, tuple[int, str]]:
    """Rows and a hash of every table of the ledger."""
    names = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'ledger'::regnamespace"
        " AND relkind IN ('r', 'p') ORDER BY relname"
    ).fetchall()
    found = {}
    for (name,) in names:
        row = connection.execute(
            f"SELECT count(*), coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '')"  # noqa: S608 - names of this program's tables
            f" FROM ledger.{name} t"
        ).fetchone()
        assert row is not None
        found[name] = (int(row[0]), str(row[1]))
    connection.commit()
    return found


@pytest.fixture
def owner(market: Market) -> Iterator[Connection]:
    """Give a connection that may look at everything and end the others."""
    with market.ledger.database.connect("owner", autocommit=True) as connection:
        yield connection


def submit(market: Market, *reports: SealedReport) -> Future[UsageAnswer]:
    """Hand reports to the group commit."""
    return market.usage.submit(
        [SignedReport(one.key_id, one.signature, one.body) for one in reports]
    )


def end_waiting(owner: Connection, event: str) -> None:
    """End the one backend of this database that waits for *event*."""
    query = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND wait_event_type = %s"
    )
    wait_for(lambda: len(owner.execute(query, [event]).fetchall()) == 1, 10, "a waiting backend")
    row = owner.execute(query, [event]).fetchone()
    assert row is not None
    assert owner.execute("SELECT pg_terminate_backend(%s, 5000)", [row[0]]).fetchone() == (True,)


def reports_of(market: Market, machine: int, count: int) -> list[SealedReport]:
    """So many reports of 10 s each, whose seconds are over."""
    sealed = [market.seal(machine, market.clock() + 10 * number, 10) for number in range(count)]
    market.clock.move_to(market.clock() + 10 * count)
    return sealed


def test_connection_lost_inside_a_group_stores_nothing(market: Market, owner: Connection) -> None:
    """A group whose backend ends before its commit is unavailable, unstored, and welcome again."""
    machine = market.machine()
    reports = reports_of(market, machine, 3)
    before = everything(owner)
    with market.ledger.database.connect("owner") as holding:
        holding.execute("SELECT 1 FROM log_position FOR UPDATE")
        future = submit(market, *reports)
        end_waiting(owner, "Lock")
        holding.rollback()
    with pytest.raises(UnavailableError) as caught:
        future.result(10)
    assert caught.value.code == "database_unavailable"
    assert everything(owner) == before
    answer = submit(market, *reports).result(10)
    assert [one.status for one in answer.reports] == ["accepted"] * 3
    stored_once(owner, stream_of(market, machine), bodies(reports))


def test_connection_lost_during_the_commit_stores_nothing(
    market: Market, owner: Connection
) -> None:
    """A backend that ends while it commits leaves no trace, and the repeat is accepted once."""
    machine = market.machine()
    reports = reports_of(market, machine, 3)
    owner.execute(
        "CREATE FUNCTION ledger.linger() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(30); RETURN NULL; END $$"
    )
    owner.execute(
        "CREATE CONSTRAINT TRIGGER lingers AFTER INSERT ON ledger.stream_heads"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger.linger()"
    )
    before = everything(owner)
    future = submit(market, *reports)
    end_waiting(owner, "Timeout")
    with pytest.raises(UnavailableError):
        future.result(10)
    assert everything(owner) == before
    owner.execute("DROP TRIGGER lingers ON ledger.stream_heads")
    answer = submit(market, *reports).result(10)
    assert [one.status for one in answer.reports] == ["accepted"] * 3
    stored_once(owner, stream_of(market, machine), bodies(reports))


def test_connection_lost_after_the_commit_is_a_duplicate_later(
    market: Market, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group whose backend ends after its commit is unavailable; its repeat is a duplicate."""
    machine = market.machine()
    reports = reports_of(market, machine, 3)
    desired = market.usage._desired
    asked = desired.of

    def lose(connection: Connection, *arguments: object) -> object:
        pid = connection.info.backend_pid
        owner.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        connection.execute("SELECT 1")
        return asked(connection, *arguments)  # type: ignore[arg-type]  # never reached

    with monkeypatch.context() as patch:
        patch.setattr(desired, "of", lose)
        with pytest.raises(UnavailableError):
            submit(market, *reports).result(10)
    stored_once(owner, stream_of(market, machine), bodies(reports))
    before = everything(owner)
    answer = submit(market, *reports).result(10)
    assert [one.status for one in answer.reports] == ["duplicate"] * 3
    assert answer.acks[0].acked_through == 3
    assert everything(owner) == before
    gap_free(owner)


def test_connection_lost_inside_a_command_changes_nothing(
    market: Market, owner: Connection
) -> None:
    """A command whose backend ends midway is unavailable and leaves no row behind it."""
    before = everything(owner)

    def open_and_lose() -> None:
        with market.ledger.unit() as unit:
            account = accounts.open_account(unit, "rita")
            deposits.deposit(unit, account, DOLLAR, "first")
            owner.execute(
                "SELECT pg_terminate_backend(%s, 5000)", [unit.connection.info.backend_pid]
            )
            deposits.deposit(unit, account, DOLLAR, "second")

    with pytest.raises(UnavailableError):
        open_and_lose()
    assert everything(owner) == before
    account = market.account("rita", DOLLAR)
    assert account == 1
    assert market.rebuild().equal


def test_failed_command_leaves_nothing_of_its_first_half(market: Market, owner: Connection) -> None:
    """LEDG-04, LEDG-05: what a command did before it was refused is visible in no table."""
    payer = market.account("payer", DOLLAR)
    before = everything(owner)

    def pay_too_much() -> None:
        with market.ledger.unit() as unit:
            payee = accounts.open_account(unit, "payee")
            api_keys.create_key(unit, payee, "renter")
            transfers.transfer(unit, payer, payee, DOLLAR // 2, "first")
            transfers.transfer(unit, payer, payee, DOLLAR, "second")

    with pytest.raises(DeclinedError):
        pay_too_much()
    assert everything(owner) == before
    assert market.rebuild().equal


def stream_of(market: Market, machine: int) -> str:
    """The log's name for the reports of *machine*."""
    return usage_stream(machine, market.chains[machine].epoch)


def bodies(reports: list[SealedReport]) -> list[bytes]:
    """What the log must hold of *reports*."""
    return [one.body for one in reports]


# --- a full disk ---------------------------------------------------------------------------------


@contextmanager
def small_disk(size: int) -> Iterator[Path]:
    """Mount a file system of so many bytes; skip where that is not allowed."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root can mount the small file system that this test fills")
    folder = Path(tempfile.mkdtemp(prefix="gl-disk-"))
    options = f"size={size},mode=0755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "gpuledger-test", str(folder)],  # noqa: S607 - found in PATH above
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - as `mount`
        folder.rmdir()


def fill(disk: Path) -> Path:
    """Write a file that takes all the space that is left."""
    ballast = disk / "ballast"
    piece = 1 << 20
    with ballast.open("wb", buffering=0) as file:
        while piece >= _LEAST_BYTES:
            try:
                if file.write(bytes(piece)) < piece:
                    piece //= 2
            except OSError:
                piece //= 2
    return ballast


def fill_data(disk: Path, _serving: Serving) -> Path:
    """Leave no space for a page of a table."""
    return fill(disk)


def fill_log(disk: Path, serving: Serving) -> Path:
    """Leave no space for a write-ahead log: the database server itself goes down over it."""
    ballast = fill(disk)
    with serving.database() as database, suppress(UnavailableError), translating():
        for _ in range(20):
            with database.connect("owner", autocommit=True) as connection:
                connection.execute("SELECT pg_logical_emit_message(true, 'test', repeat('x', 100))")
                connection.execute("SELECT pg_switch_wal()")
    return ballast


@pytest.mark.parametrize("fill_up", [fill_data, fill_log])
def test_full_disk_is_unavailable_until_there_is_space(
    fill_up: Callable[[Path, Serving], Path],
) -> None:
    """On a full disk reports get 503 and nothing is half written; with space all of it succeeds."""
    with small_disk(DISK_BYTES) as disk, Serving(disk / "home") as serving:
        flood = Flood(serving, serving.machine(serving.person("hannah", "host")))
        try:
            flood.begin()
            wait_for(lambda: len(flood.stored) >= 20, 20, "acknowledged reports")
            ballast = fill_up(disk, serving)
            wait_for(lambda: len(flood.failures) >= 3, 60, "the disk to be full")
            stored = len(flood.stored)
            ballast.unlink()
            seconds = wait_for(lambda: len(flood.stored) > stored, 60, "space to be used")
            print(f"seconds to recover: {seconds:.2f}")
            print(*{error.message for error in flood.failures}, sep="\n")
            flood.end()
            assert flood.surprises == []
            assert {error.detail["status"] for error in flood.failures} == {503}
            flood.resend()
            with serving.database() as database:
                with database.connect() as connection:
                    stored_once(connection, flood.stream, flood.bodies)
                books_equal_a_rebuild(database)
        finally:
            flood.close()
