"""The spool on disk: nothing acknowledged is lost, no number has two bodies, whatever is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.hostagent.courier import Courier
from adapters.hostagent.pace import seal_seconds
from adapters.hostagent.reports import ReportChain, SealedReport
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.usage import GENESIS_HASH, body_hash, decode_report
from ledger.errors import ConflictError, UnavailableError
from tests.support.examples import examples
from tests.unit.hostagent.server import IDENTITY, START, FakeLedger

MACHINE = 4001
ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the spool lies."""
    return tmp_path / "spool.db"


@pytest.fixture
def spool(path: Path) -> Iterator[SqliteSpool]:
    """Give an empty spool."""
    one = SqliteSpool(path, MACHINE)
    yield one
    one.close()


def seal(
    spool: SqliteSpool, count: int = 1, states: dict[str, bytes] | None = None
) -> list[SealedReport]:
    """So many reports of ten seconds."""
    return [spool.seal(IDENTITY, "b1", START, ten_seconds, states) for _ in range(count)]


def ten_seconds(chain: ReportChain) -> SealedReport:
    """The next ten seconds of a machine without instances."""
    return chain.seal(max(chain.sealed_until, START), 10)


def waiting(spool: SqliteSpool) -> list[int]:
    """The `seq`s that wait."""
    return [one.seq for one in spool.oldest(10**6, ())]


def test_reports_come_back_byte_for_byte_in_order(path: Path) -> None:
    """What was sealed is there after a restart: the same bytes, signatures and places."""
    first = SqliteSpool(path, MACHINE)
    sealed = seal(first, 3)
    first.close()
    again = SqliteSpool(path, MACHINE)
    assert list(again.oldest(10, ())) == sealed
    again.close()


def test_the_chain_goes_on_where_it_ended(path: Path) -> None:
    """After a restart the next report has the next number and names the hash of the last body."""
    first = SqliteSpool(path, MACHINE)
    (last,) = seal(first)
    first.close()
    again = SqliteSpool(path, MACHINE)
    report = decode_report(seal(again)[0].body)
    assert (report.seq, report.prev, report.epoch) == (2, body_hash(last.body).hex(), first.epoch)
    again.close()


def test_numbers_go_on_after_everything_was_pruned(path: Path) -> None:
    """An empty spool does not begin at 1 again, also after a restart."""
    spool = SqliteSpool(path, MACHINE)
    seal(spool, 5)
    assert spool.acknowledge(MACHINE, spool.epoch, 5) == 5
    spool.close()
    again = SqliteSpool(path, MACHINE)
    assert (len(again), seal(again)[0].seq) == (0, 6)
    again.close()


def test_a_wiped_disk_begins_a_new_epoch(tmp_path: Path) -> None:
    """Two spool files never share an epoch, so no number is used twice."""
    one, two = (SqliteSpool(tmp_path / name, MACHINE) for name in ("a.db", "b.db"))
    assert one.epoch != two.epoch
    assert decode_report(seal(two)[0].body).prev == GENESIS_HASH
    one.close()
    two.close()


def test_a_spool_of_another_machine_is_refused(path: Path, spool: SqliteSpool) -> None:
    """A copied folder cannot report under another machine's numbers."""
    with pytest.raises(ConflictError) as refused:
        SqliteSpool(path, MACHINE + 1)
    assert refused.value.code == "other_machine"
    assert spool.path.stat().st_mode & 0o077 == 0


def test_state_is_committed_with_its_report_or_not_at_all(spool: SqliteSpool) -> None:
    """A report that cannot be sealed leaves counters and chain as they were."""
    seal(spool, 1, {"counters": b"one"})

    def overlapping(chain: ReportChain) -> SealedReport:
        return chain.seal(START, 10)

    with pytest.raises(ValueError, match="attested already"):
        spool.seal(IDENTITY, "b1", START, overlapping, {"counters": b"two"})
    assert (spool.load("counters"), waiting(spool)) == (b"one", [1])
    assert seal(spool, 1, {"counters": b"three"})[0].seq == 2
    assert spool.load("counters") == b"three"


def test_a_full_disk_is_said_and_loses_nothing(path: Path, spool: SqliteSpool) -> None:
    """A file that cannot grow refuses the report, keeps those before, and takes it again later."""
    seal(spool, 2)
    pages = spool._db.execute("PRAGMA page_count").fetchone()[0]
    spool._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(UnavailableError) as refused:
        seal(spool, 200)
    assert refused.value.code == "spool_unavailable"
    before = waiting(spool)
    spool._db.execute("PRAGMA max_page_count=1000000")
    assert seal(spool)[0].seq == before[-1] + 1
    assert waiting(spool) == list(range(1, before[-1] + 2))


def test_stages_follow_the_pages_in_use() -> None:
    """At 80 % of its cap a spool is high, at 95 % full, and pruning makes it ok again."""
    with tempfile.TemporaryDirectory() as folder:
        spool = SqliteSpool(Path(folder) / "spool.db", MACHINE, cap_bytes=400_000)
        seen = [spool.stage]
        for _ in range(3_000):
            seal(spool)
            if spool.stage != seen[-1]:
                seen.append(spool.stage)
            if seen[-1] == "full":
                break
        assert seen == ["ok", "high", "full"]
        spool.acknowledge(MACHINE, spool.epoch, 3_000)
        assert spool.stage == "ok"
        spool.close()


def test_a_dead_letter_leaves_the_queue_and_is_kept(spool: SqliteSpool) -> None:
    """A buried report waits no more, and its bytes and the reason are there for a person."""
    sealed = seal(spool, 3)
    assert spool.bury(MACHINE, spool.epoch, 2, "bad_columns", "no")
    assert not spool.bury(MACHINE, spool.epoch, 2, "bad_columns", "no")
    assert not spool.bury(MACHINE, "0" * 32, 1, "bad_columns", "another epoch's")
    (dead,) = spool.dead_letters()
    assert (dead.report, dead.code, waiting(spool)) == (sealed[1], "bad_columns", [1, 3])


def test_a_lost_row_is_replaced_by_a_signed_empty_one(spool: SqliteSpool) -> None:
    """What the server asks for and the spool lost is stood in for, with the right `prev`."""
    sealed = seal(spool, 3)
    spool.acknowledge(MACHINE, spool.epoch, 2)
    empty = spool.stand_in(IDENTITY, "b1", sealed[2], 2)
    assert empty is not None
    report = decode_report(empty.body)
    assert (report.seq, report.count, report.prev) == (2, 0, body_hash(sealed[0].body).hex())
    spool.put(empty)
    assert waiting(spool) == [2, 3]
    assert spool.stand_in(IDENTITY, "b1", sealed[2], 9) is None


def test_an_old_copy_of_the_spool_goes_on_under_a_new_epoch(path: Path, tmp_path: Path) -> None:
    """A restored backup, whose next numbers the server has, never sends other bodies for them."""
    spool = SqliteSpool(path, MACHINE)
    seal(spool, 2)
    spool._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = tmp_path / "old.db"
    copy.write_bytes(path.read_bytes())
    seal(spool, 3)
    old = SqliteSpool(copy, MACHINE)
    assert not old.is_behind()
    old.acknowledge(MACHINE, old.epoch, 5)
    assert old.is_behind()
    before, attested = old.epoch, old.sealed_until
    old.begin_epoch()
    (first,) = seal(old)
    assert (first.seq, first.epoch != before, first.start) == (1, True, attested)
    assert not old.is_behind()
    assert decode_report(first.body).prev == GENESIS_HASH
    spool.close()
    old.close()


@pytest.mark.parametrize("hours", [7, pytest.param(72, marks=pytest.mark.soak)])
def test_days_offline_are_caught_up_while_live_reports_are_sealed(
    spool: SqliteSpool, hours: int
) -> None:
    """The backlog leaves in order, and a report sealed meanwhile waits for one batch at most."""
    backlog = hours * 360
    seal(spool, backlog)
    server = FakeLedger()
    courier = Courier(server.client(), spool, sleep=lambda _: None)
    live = 0
    while courier.step() is not None:
        if live < 100:
            live += 1
            seal(spool)
    (stored,) = server.stored.values()
    assert [decode_report(one).seq for one in stored] == list(range(1, backlog + live + 1))
    # While there is a backlog every request is full: live reports ride along at its end.
    assert all(len(one) == 100 for one in server.requests[: backlog // 100])
    assert (len(spool), courier.attempt) == (0, 0)


@given(
    normal=st.integers(1, 60),
    stage=st.sampled_from(["ok", "high", "full"]),
    silent=st.floats(0, 10**7),
    is_idle=st.booleans(),
)
def test_reports_are_never_shorter_than_asked_nor_longer_than_allowed(
    normal: int, stage: str, silent: float, is_idle: bool
) -> None:
    """The pace lies between what is normal and 300 s, and never falls when it gets worse."""
    pace = seal_seconds(normal, stage, silent, is_idle=is_idle)  # type: ignore[arg-type]
    assert normal <= pace <= 300
    assert pace <= seal_seconds(normal, "full", silent, is_idle=is_idle)
    assert pace <= seal_seconds(normal, stage, silent + 10**6, is_idle=is_idle)  # type: ignore[arg-type]


class SpoolLaws(RuleBasedStateMachine):
    """Sealing, sending, lost answers, restarts: against a server that takes each number once."""

    def __init__(self) -> None:
        """Begin with an empty spool and an empty server."""
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "spool.db"
        self.spool = SqliteSpool(self._path, MACHINE)
        self.server: dict[int, bytes] = {}
        self.sealed: dict[int, bytes] = {}

    @rule(seconds=st.integers(0, 300))
    def seal(self, seconds: int) -> None:
        """Seal a window."""
        one = self.spool.seal(
            IDENTITY,
            "b1",
            START,
            lambda chain: chain.seal(max(chain.sealed_until, START), seconds),
            {"sealed": b"%d" % (len(self.sealed) + 1)},
        )
        assert one.seq not in self.sealed
        self.sealed[one.seq] = one.body

    @rule(limit=st.integers(1, 5), is_heard=st.booleans())
    def send(self, limit: int, is_heard: bool) -> None:
        """The server stores a batch; its answer may be lost."""
        for one in self.spool.oldest(limit, ()):
            stored = self.server.setdefault(one.seq, one.body)
            assert stored == one.body
        if is_heard and self.server:
            self.spool.acknowledge(MACHINE, self.spool.epoch, max(self.server))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def hear_late(self, data: st.DataObject) -> None:
        """An old acknowledgement comes once more."""
        through = data.draw(st.sampled_from(sorted(self.server)))
        self.spool.acknowledge(MACHINE, self.spool.epoch, through)

    @rule()
    def restart(self) -> None:
        """Another agent opens the same file."""
        self.spool.close()
        self.spool = SqliteSpool(self._path, MACHINE)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each sealed report waits or is at the server; numbers have no gap; the state fits."""
        held = {one.seq: one.body for one in self.spool.oldest(10**6, ())}
        assert {**self.server, **held} == self.sealed
        assert len(held) == len(self.spool)
        assert sorted(self.sealed) == list(range(1, len(self.sealed) + 1))
        assert int(self.spool.load("sealed") or b"0") == len(self.sealed)

    def teardown(self) -> None:
        """Close the file."""
        self.spool.close()
        self._folder.cleanup()


TestSpoolLaws = SpoolLaws.TestCase
TestSpoolLaws.settings = settings(max_examples=examples(10), deadline=None)

_SEALING = """
import sys
from pathlib import Path
from adapters.hostagent.spool import SqliteSpool
from tests.unit.hostagent.test_spool import MACHINE, seal
spool = SqliteSpool(Path(sys.argv[1]), MACHINE)
print("ready", flush=True)
while True:
    (one,) = seal(spool, 1, {"last": b"%d" % (spool.facts().sealed + 1)})
    print(one.seq, flush=True)
"""


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_kill_loses_no_committed_report_and_leaves_no_gap(path: Path, rounds: int) -> None:
    """After kill -9 at random moments every told number is there, each with its own state."""
    chance = random.Random(20270102)  # noqa: S311 - when to kill, not a secret
    told = 0
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", _SEALING, str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.random() / 10)
        os.kill(process.pid, signal.SIGKILL)
        # A line that the kill cut is no promise.
        lines = [line for line in process.stdout.read().split("\n")[:-1] if line]
        process.stdout.close()
        process.wait()
        told = max([told, *(int(line) for line in lines)])
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    spool = SqliteSpool(path, MACHINE)
    held = spool.oldest(10**6, ())
    assert [one.seq for one in held] == list(range(1, len(held) + 1))
    assert len(held) >= told > rounds
    assert int(spool.load("last") or b"0") == len(held)
    prev = GENESIS_HASH
    for one in held:
        assert decode_report(one.body).prev == prev
        prev = body_hash(one.body).hex()
    spool.close()
