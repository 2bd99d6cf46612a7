"""The core that every use case works on: the log, the read models, the clock and the vault.

A command is one `unit`: a transaction that holds the log from its first moment, so that what it
reads cannot change under it, decides, appends facts and folds them. Two commands can never decide
on the same state, and no command has to be repeated because another was first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

import msgspec

from ledger.domain.events import (
    AnyFact,
    Compensation,
    Fact,
    InstanceFact,
    PolicyAdopted,
    topic_of,
)
from ledger.domain.ids import instance_stream
from ledger.domain.instance import Instance, fold
from ledger.errors import (
    ConflictError,
    DeclinedError,
    IdempotencyError,
    LedgerError,
    NotFoundError,
    RejectedError,
)
from ledger.projections import facts
from ledger.projections.runner import require_generation
from ledger.projections.usage.writing import CREDIT_LOCK
from ledger.store.codec import decode_fact, encode_fact
from ledger.store.database import Connection, Database, translating
from ledger.store.log import LogTransaction, Row, appending, ensure_partitions, read_stream
from ledger.store.vault import Vault, open_vault


class Clock(Protocol):
    """Says which Unix second it is; services and policies read no other clock."""

    def __call__(self) -> int:
        """The present second."""


class SystemClock:
    """The computer's clock."""

    def __call__(self) -> int:
        """The present second."""
        return int(time.time())


class SimulatedClock:
    """A clock that stands still until it is moved forward."""

    def __init__(self, now: int = 0) -> None:
        """Begin at second *now*."""
        self.now = now

    def __call__(self) -> int:
        """The present second."""
        return self.now

    def move_to(self, second: int) -> None:
        """Go forward to *second*; time never runs back."""
        assert second >= self.now, (second, self.now)
        self.now = second


@dataclass(frozen=True)
class Policy:
    """The platform's rules in force (`PolicyAdopted`)."""

    version: int
    fee_bp: int
    late_usage_seconds: int
    admission: bool
    offline_after_seconds: int | None
    admit_waiting_bids: bool = False
    displacement_margin: int = 0
    compensation: Compensation = "none"
    secure_requires_iso: bool = False


DEFAULT_POLICY = Policy(1, 1500, 259_200, admission=True, offline_after_seconds=60)


class Unit:
    """One command's transaction. `now` is its second; what it appends it also sees at once."""

    def __init__(self, log: LogTransaction, vault: Vault) -> None:
        """Work inside *log*, which holds the log's lock."""
        self.log = log
        self.connection: Connection = log.connection
        self.vault = vault
        self._versions: dict[str, int] = {}
        self._policy: Policy | None = None
        self.connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREDIT_LOCK])

    @property
    def now(self) -> int:
        """The second of this command."""
        return self.log.now

    def append(self, stream: str, *new: Fact) -> list[int]:
        """Append facts to one stream and fold them; returns their positions."""
        return self.append_all([(stream, fact) for fact in new])

    def append_all(self, new: list[tuple[str, Fact]]) -> list[int]:
        """Append facts to several streams, in this order, and fold them."""
        unknown = {stream for stream, _ in new} - self._versions.keys()
        if unknown:
            heads = self.log.heads(list(unknown))
            for stream in unknown:
                self._versions[stream] = heads[stream].version if stream in heads else 0
        rows = []
        for stream, fact in new:
            self._versions[stream] += 1
            rows.append(
                Row(stream, self._versions[stream], topic_of(fact), encode_fact(fact), self.now)
            )
        positions = self.log.append(rows)
        recorded: list[facts.Recorded] = []
        for (_, fact), position in zip(new, positions, strict=True):
            recorded.append(facts.Recorded(_known(fact), position))
        facts.apply(self.connection, recorded)
        return positions

    def next_id(self, kind: str) -> int:
        """The next id of this kind; the fact that uses it must be appended in this unit."""
        row = self.connection.execute(
            "SELECT last FROM id_counters WHERE kind = %s", [kind]
        ).fetchone()
        return 1 if row is None else int(row[0]) + 1

    def instance(self, instance_id: int) -> Instance:
        """The state of an instance, from its facts.

        Raises:
            NotFoundError: `no_such_instance`.
        """
        return load_instance(self.connection, instance_id)

    @property
    def policy(self) -> Policy:
        """The rules in force."""
        if self._policy is None:
            self._policy = read_policy(self.connection)
        return self._policy


def _known(fact: Fact) -> AnyFact:
    """Every concrete fact is one of the catalogue; the type checker needs to be told."""
    return fact  # type: ignore[return-value]  # `Fact` is the open base of the closed union


def load_instance(connection: Connection, instance_id: int) -> Instance:
    """The state of an instance, folded from its stream.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    history: list[InstanceFact] = []
    for stored in read_stream(connection, instance_stream(instance_id)):
        fact = decode_fact(stored.topic, stored.state)
        history.append(fact)  # type: ignore[arg-type]  # an instance's stream holds its facts
    if not history:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return fold(history)


def read_policy(connection: Connection) -> Policy:
    """The rules in force; the defaults before any were adopted."""
    row = connection.execute(
        "SELECT version, fee_bp, late_usage_seconds, admission, offline_after_seconds,"
        " admit_waiting_bids, displacement_margin, compensation, secure_requires_iso"
        " FROM policies ORDER BY version DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return DEFAULT_POLICY
    version, fee_bp, late, admission, silence, waiting, margin, compensation, iso = row
    return Policy(
        version, fee_bp, late, admission, silence, waiting, int(margin), compensation, iso
    )


_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Looking(threading.local):
    """The view that a thread's questions share, if they do."""

    connection: Connection | None = None
    is_stale = True
    changes = 0
    """Commands that this thread has begun."""


class Ledger:
    """An open ledger: hand it to the use cases of this package."""

    def __init__(self, database: Database, vault: Vault, clock: Clock) -> None:
        """Put the parts together; `open` does it for a home folder."""
        self.database = database
        self.vault = vault
        self.clock = clock
        self._looking = Looking()

    @classmethod
    def open(
        cls,
        home: Path | None,
        *,
        url: str | None = None,
        clock: Clock | None = None,
        any_generation: bool = False,
    ) -> Self:
        """Open the ledger in *home*, starting its database and bringing it up to date.

        Args:
            home: Where its database and keys are.
            url: A database elsewhere, instead of the embedded one.
            clock: The present second; the system's by default.
            any_generation: Also with read models that an older program has left, which only a
                rebuild or a backup can use.

        Raises:
            RejectedError: `rebuild_needed`.
        """
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
        database = Database.open(home, url)
        try:
            with database.pool.connection() as connection:
                vault = open_vault(connection, home)
                connection.commit()
                ensure_partitions(connection)
                if not any_generation:
                    require_generation(connection)
            ledger = cls(database, vault, clock or SystemClock())
        except BaseException:
            database.close()
            raise
        return ledger

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    @contextmanager
    def unit(self) -> Iterator[Unit]:
        """A command's transaction: all of it becomes durable at the end, or nothing does."""
        self._looking.is_stale = True
        self._looking.changes += 1
        with (
            translating(),
            self.database.pool.connection() as connection,
            appending(connection, self.clock) as log,
        ):
            yield Unit(log, self.vault)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of the read models, for a question."""
        looking = self._looking
        with translating():
            if looking.connection is not None:
                if looking.is_stale:
                    looking.connection.commit()
                    looking.connection.execute(_SNAPSHOT)
                    looking.is_stale = False
                yield looking.connection
                return
            with self.database.pool.connection() as connection:
                connection.execute(_SNAPSHOT)
                yield connection

    @contextmanager
    def looking(self) -> Iterator[Looking]:
        """Let this thread's questions share one view until it changes something itself.

        For whoever asks many small questions that mostly come to nothing: what others change
        meanwhile is seen the next time.
        """
        looking = self._looking
        if looking.connection is not None:
            yield looking
            return
        with translating(), self.database.pool.connection() as connection:
            looking.connection, looking.is_stale = connection, True
            try:
                yield looking
            finally:
                looking.connection = None

    def adopt_policy(self, policy: Policy | None = None) -> None:
        """Put rules in force; without an argument, the defaults where none ever were."""
        with self.unit() as unit:
            row = unit.connection.execute("SELECT max(version) FROM policies").fetchone()
            last = row[0] if row is not None else None
            if policy is None and last is not None:
                return
            adopted = policy or DEFAULT_POLICY
            unit.append(
                "platform",
                PolicyAdopted(
                    version=(last or 0) + 1,
                    fee_bp=adopted.fee_bp,
                    late_usage_seconds=adopted.late_usage_seconds,
                    admission=adopted.admission,
                    offline_after_seconds=adopted.offline_after_seconds,
                    admit_waiting_bids=adopted.admit_waiting_bids,
                    displacement_margin=adopted.displacement_margin,
                    compensation=adopted.compensation,
                    secure_requires_iso=adopted.secure_requires_iso,
                    adopted_at=unit.now,
                ),
            )

    def once(
        self,
        scope: str,
        key: str,
        request_hash: bytes,
        command: Callable[[Unit], tuple[int, bytes]],
        refused: Callable[[LedgerError], tuple[int, bytes]],
    ) -> tuple[int, bytes, bool]:
        """Carry out *command* under an Idempotency-Key: the first answer is kept for ever.

        The answer is written in the command's own transaction, so a crash loses both or neither; a
        refusal by a rule is an answer too, a failure of the database is not.

        Args:
            scope: Whose key it is.
            key: The key as the client sent it.
            request_hash: Hash of what the client sent.
            command: Does the work and returns (status, body).
            refused: Turns a refusal into the (status, body) to be kept.

        Returns:
            Status, body, and whether it is a replay.

        Raises:
            IdempotencyError: `idempotency_conflict`: the key was used for another request.
            ConflictError: `idempotency_in_flight`: the first such request is still running.
        """
        with translating(), self.database.pool.connection() as connection:
            _claim(connection, scope, key)
            try:
                return self._once(connection, scope, key, request_hash, command, refused)
            finally:
                if not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock_all()")
                    connection.commit()

    def _once(
        self,
        connection: Connection,
        scope: str,
        key: str,
        request_hash: bytes,
        command: Callable[[Unit], tuple[int, bytes]],
        refused: Callable[[LedgerError], tuple[int, bytes]],
    ) -> tuple[int, bytes, bool]:
        kept = _kept(connection, scope, key, request_hash)
        connection.commit()
        if kept is not None:
            return (*kept, True)
        try:
            with appending(connection, self.clock) as log:
                unit = Unit(log, self.vault)
                status, body = command(unit)
                _keep(connection, scope, key, request_hash, status, body, unit.now)
        except (RejectedError, DeclinedError, NotFoundError) as error:
            status, body = refused(error)
            with connection.transaction():
                _keep(connection, scope, key, request_hash, status, body, self.clock())
        return status, body, False


def _claim(connection: Connection, scope: str, key: str) -> None:
    row = connection.execute(
        "SELECT pg_try_advisory_lock(hashtextextended(%s, 7))", [f"{scope}/{key}"]
    ).fetchone()
    connection.commit()
    if row is None or not row[0]:
        message = "the first request with this Idempotency-Key is still being carried out"
        raise ConflictError("idempotency_in_flight", message)


def _kept(
    connection: Connection, scope: str, key: str, request_hash: bytes
) -> tuple[int, bytes] | None:
    row = connection.execute(
        "SELECT request_hash, status, answer FROM idempotency WHERE scope = %s AND key = %s",
        [scope, key],
    ).fetchone()
    if row is None:
        return None
    if row[0] != request_hash:
        message = "this Idempotency-Key was used for another request; use a new key"
        raise IdempotencyError("idempotency_conflict", message)
    return int(row[1]), bytes(row[2])


def _keep(
    connection: Connection,
    scope: str,
    key: str,
    request_hash: bytes,
    status: int,
    body: bytes,
    now: int,
) -> None:
    connection.execute(
        "INSERT INTO idempotency VALUES (%s, %s, %s, %s, %s, %s)",
        [scope, key, request_hash, status, body, now],
    )


def encode(value: Any) -> bytes:
    """JSON of an answer, as it is kept and sent."""
    return msgspec.json.encode(value)
