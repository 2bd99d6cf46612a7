"""The spool: signed reports on disk until the server has them, and what must be true with them.

A report, the head of its chain and whatever state its making used up are one transaction
(`host-agent.md` §8.2, §12.1). Nothing is handed out for sending before it is committed with
`synchronous=FULL`, so no moment of a kill or of a power cut can lose an acknowledged report, use a
`seq` twice, or count a byte twice.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from adapters.hostagent.reports import ReportChain, SealedReport, Signer, new_epoch
from ledger.domain.usage import GENESIS_HASH, body_hash
from ledger.errors import ConflictError, UnavailableError

CAP_BYTES: Final = 512 * 2**20
HIGH_PERCENT: Final = 80
"""From here on reports get longer, and the server is told (`spool_high`)."""
FULL_PERCENT: Final = 95
"""From here on nothing new is started, and reports lose samples and utilisation."""
KEPT_HASHES: Final = 30_000
"""Hashes of acknowledged bodies that are kept: enough to stand in for 72 h of reports."""

Stage = Literal["ok", "high", "full"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS reports (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    body      BLOB NOT NULL,
    signature BLOB NOT NULL,
    key_id    TEXT NOT NULL,
    sealed_at INTEGER NOT NULL,
    start     INTEGER NOT NULL,
    until     INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS dead_letters (
    epoch     TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    body      BLOB NOT NULL,
    signature BLOB NOT NULL,
    key_id    TEXT NOT NULL,
    start     INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    code      TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (epoch, seq)
);
CREATE TABLE IF NOT EXISTS hashes (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""


class Buried(NamedTuple):
    """A dead letter: a report that the server will never bill, and why."""

    report: SealedReport
    code: str
    reason: str


class SpoolFacts(NamedTuple):
    """What a person or a metric wants to know of a spool."""

    epoch: str
    waiting: int
    dead_letters: int
    sealed: int
    """The last `seq` that was sealed; 0 before the first."""
    acknowledged: int
    """The last `seq` that the server said it has."""
    file_bytes: int
    oldest_sealed_at: int | None
    sealed_until: int


class SqliteSpool:
    """The reports of one machine in one file; safe to use from several threads.

    The epoch is made together with the file, so a wiped disk cannot use a number again.
    """

    def __init__(self, path: Path, machine: int, *, cap_bytes: int = CAP_BYTES) -> None:
        """Open the spool of *machine* in *path*, or make it.

        Raises:
            ConflictError: `other_machine`, the file belongs to another machine.
            UnavailableError: `spool_unavailable`, the file cannot be opened or written.
        """
        self.path = path
        self.machine = machine
        self.cap_bytes = cap_bytes
        self._lock = threading.RLock()
        with _translating(path):
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self.epoch = self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> str:
        db = self._db
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA busy_timeout=5000")
        self.path.chmod(0o600)
        db.executescript(_SCHEMA)
        with self._transaction():
            epoch = self._get("epoch")
            if epoch is None:
                epoch = new_epoch().encode()
                self._put("epoch", epoch)
                self._put("machine", b"%d" % self.machine)
            owner = int(self._get("machine") or b"0")
        if owner != self.machine:
            message = f"{self.path} is the spool of machine {owner}, not {self.machine}"
            raise ConflictError("other_machine", message)
        self._waiting = int(db.execute("SELECT count(*) FROM reports").fetchone()[0])
        return epoch.decode()

    def close(self) -> None:
        """Close the file; what was committed stays."""
        with self._lock:
            self._db.close()

    # --- sealing ---------------------------------------------------------------------------------

    def seal(
        self,
        signer: Signer,
        boot_id: str,
        now: int,
        make: Callable[[ReportChain], SealedReport],
        states: Mapping[str, bytes] | None = None,
    ) -> SealedReport:
        """Seal the next report and commit it with *states*; all of it is on disk, or nothing.

        Args:
            signer: Holds the key.
            boot_id: The boot that the report speaks of.
            now: The second of sealing, for the age of the spool.
            make: Given the chain where it ended, calls `ReportChain.seal` once.
            states: Named values that belong to the report: counters, what was observed.

        Raises:
            ValueError: The server would refuse the report; nothing changed.
            UnavailableError: `spool_unavailable`; read `sealed_until` again before another try,
                since a commit may have reached the disk though its answer did not come back.
        """
        with self._lock, self._writing():
            chain = self._chain(signer, boot_id)
            sealed = make(chain)
            self._insert(sealed, now)
            self._put("prev", chain.prev.encode())
            self._put("sealed_until", b"%d" % chain.sealed_until)
            for name, value in (states or {}).items():
                self._put(f"agent.{name}", value)
        self._waiting += 1
        return sealed

    def _chain(self, signer: Signer, boot_id: str) -> ReportChain:
        return ReportChain(
            self.machine,
            signer,
            boot_id=boot_id,
            epoch=self.epoch,
            next_seq=self._last_seq() + 1,
            prev=(self._get("prev") or GENESIS_HASH.encode()).decode(),
            sealed_until=int(self._get("sealed_until") or b"0"),
        )

    def _last_seq(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'reports'").fetchone()
        return 0 if row is None else int(row[0])

    def _insert(self, one: SealedReport, now: int) -> None:
        self._db.execute(
            "INSERT INTO reports (seq, body, signature, key_id, sealed_at, start, until)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (one.seq, one.body, one.signature, one.key_id, now, one.start, one.until),
        )
        self._db.execute(
            "INSERT OR REPLACE INTO hashes VALUES (?, ?)", (one.seq, body_hash(one.body))
        )
        self._db.execute("DELETE FROM hashes WHERE seq <= ?", (one.seq - KEPT_HASHES,))

    def stand_in(
        self, signer: Signer, boot_id: str, first_waiting: SealedReport, seq: int
    ) -> SealedReport | None:
        """A signed empty report for a *seq* that is truly lost; null when its `prev` is unknown."""
        with self._lock:
            prev: bytes | None
            if seq == 1:
                prev = bytes.fromhex(GENESIS_HASH)
            else:
                row = self._db.execute(
                    "SELECT hash FROM hashes WHERE seq = ?", (seq - 1,)
                ).fetchone()
                prev = None if row is None else row[0]
            if prev is None or seq > self._last_seq():
                return None
            chain = self._chain(signer, boot_id)
            return chain.stand_in(seq, prev.hex(), first_waiting.start)

    @property
    def sealed_until(self) -> int:
        """The first second that no sealed report attests; 0 before the first."""
        with self._lock:
            return int(self._get("sealed_until") or b"0")

    # --- delivery (`courier.Spool`) --------------------------------------------------------------

    def put(self, report: SealedReport) -> None:
        """Keep *report*: one that stands in for a lost one, before the later ones."""
        with self._lock, self._writing():
            self._insert(report, report.until)
        self._waiting += 1

    def oldest(self, limit: int, without: Container[int]) -> Sequence[SealedReport]:
        """Up to *limit* waiting reports in the order of their `seq`."""
        if self.machine in without:
            return []
        with self._lock:
            rows = self._db.execute(
                "SELECT seq, start, until, key_id, signature, body FROM reports"
                " ORDER BY seq LIMIT ?",
                (limit,),
            ).fetchall()
        return [SealedReport(self.machine, self.epoch, *row) for row in rows]

    def holds(self, machine: int, epoch: str, seq: int) -> bool:
        """True while that report waits."""
        if not self._is_mine(machine, epoch):
            return False
        with self._lock:
            row = self._db.execute("SELECT 1 FROM reports WHERE seq = ?", (seq,)).fetchone()
        return row is not None

    def acknowledge(self, machine: int, epoch: str, through: int) -> int:
        """Forget the reports of one epoch up to and including *through*; returns how many."""
        if not self._is_mine(machine, epoch):
            return 0
        with self._lock:
            known = self._acknowledged()
            row = self._db.execute("SELECT min(seq) FROM reports").fetchone()
            if through <= known and (row[0] is None or row[0] > through):
                return 0
            with self._writing():
                gone = self._db.execute("DELETE FROM reports WHERE seq <= ?", (through,)).rowcount
                self._put("acknowledged", b"%d" % max(known, through))
            self._waiting -= gone
            return gone

    def bury(self, machine: int, epoch: str, seq: int, code: str, reason: str) -> bool:
        """Make a waiting report a dead letter; false for one that does not wait."""
        if not self._is_mine(machine, epoch):
            return False
        with self._lock, self._writing():
            self._db.execute(
                "INSERT OR IGNORE INTO dead_letters"
                " SELECT ?, seq, body, signature, key_id, start, until, ?, ? FROM reports"
                " WHERE seq = ?",
                (epoch, code, reason, seq),
            )
            gone = self._db.execute("DELETE FROM reports WHERE seq = ?", (seq,)).rowcount
        self._waiting -= gone
        return bool(gone)

    def is_behind(self) -> bool:
        """True when the server has a `seq` that was never sealed here.

        The file is an old copy: its next numbers are used already, by other bodies.
        """
        with self._lock:
            return self._acknowledged() > self._last_seq()

    def begin_epoch(self) -> None:
        """Go on under a new epoch, from seq 1; what still waits becomes dead letters."""
        epoch = new_epoch()
        with self._lock, self._writing():
            self._db.execute(
                "INSERT OR IGNORE INTO dead_letters SELECT ?, seq, body, signature, key_id, start,"
                " until, 'spool_behind', 'the spool was an old copy' FROM reports",
                (self.epoch,),
            )
            for table in ("reports", "hashes"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own
            self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'reports'")
            self._db.execute("DELETE FROM state WHERE name IN ('prev', 'acknowledged')")
            self._put("epoch", epoch.encode())
        self.epoch = epoch
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def _is_mine(self, machine: int, epoch: str) -> bool:
        return machine == self.machine and epoch == self.epoch

    # --- what is known ---------------------------------------------------------------------------

    def load(self, name: str) -> bytes | None:
        """The value that was last committed under *name*, with a report or by `save`."""
        with self._lock:
            return self._get(f"agent.{name}")

    def save(self, name: str, value: bytes) -> None:
        """Commit one named value by itself."""
        with self._lock, self._writing():
            self._put(f"agent.{name}", value)

    def dead_letters(self, limit: int = 100) -> list[Buried]:
        """The first dead letters, in the order of their `seq`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT epoch, seq, start, until, key_id, signature, body, code, reason"
                " FROM dead_letters ORDER BY rowid LIMIT ?",
                (limit,),
            ).fetchall()
        return [Buried(SealedReport(self.machine, *row[:7]), row[7], row[8]) for row in rows]

    def facts(self) -> SpoolFacts:
        """What there is to say about the spool now."""
        with self._lock:
            dead = self._db.execute("SELECT count(*) FROM dead_letters").fetchone()[0]
            oldest = self._db.execute(
                "SELECT sealed_at FROM reports ORDER BY seq LIMIT 1"
            ).fetchone()
            return SpoolFacts(
                epoch=self.epoch,
                waiting=self._waiting,
                dead_letters=dead,
                sealed=self._last_seq(),
                acknowledged=self._acknowledged(),
                file_bytes=self._used_bytes(),
                oldest_sealed_at=None if oldest is None else oldest[0],
                sealed_until=self.sealed_until,
            )

    @property
    def stage(self) -> Stage:
        """How full the spool is against its cap."""
        with self._lock:
            percent = 100 * self._used_bytes() // self.cap_bytes
        if percent >= FULL_PERCENT:
            return "full"
        return "high" if percent >= HIGH_PERCENT else "ok"

    def _acknowledged(self) -> int:
        return int(self._get("acknowledged") or b"0")

    def _used_bytes(self) -> int:
        """Bytes of pages in use; freed pages are used again before the file grows."""
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        free = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        size = self._db.execute("PRAGMA page_size").fetchone()[0]
        return int((pages - free) * size)

    # --- the file --------------------------------------------------------------------------------

    def _get(self, name: str) -> bytes | None:
        row: Any = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def _put(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with _translating(self.path), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A commit that failed may have ended the transaction by itself.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


@contextmanager
def _translating(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = f"the spool {path} cannot be used: {error}; free disk space or mend its folder"
        raise UnavailableError("spool_unavailable", message) from error
