"""Sealing: finished seconds become signed reports, each one naming the hash of the one before.

A report is fixed when it is sealed: its bytes are what is signed, sent, kept and hashed, and no
code ever encodes it a second time (`host-agent.md` §11).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ledger.domain.hardware import Inventory
from ledger.domain.usage import (
    GENESIS_HASH,
    MAX_BODY_BYTES,
    MAX_INSTANCES,
    MAX_WINDOW_SECONDS,
    UNKNOWN_UTILISATION,
    CheckAnswer,
    Column,
    GpuSample,
    HealthEvent,
    HostClock,
    InstanceBlock,
    Observation,
    TickState,
    UsageReport,
    body_hash,
    compress_column,
    encode_report,
)

AGENT_VERSION: Final = "0.1.0"


class Signer(Protocol):
    """Whatever holds a key: `HostIdentity`, or a stand-in where nobody verifies."""

    @property
    def key_id(self) -> str:
        """Names the key that signs."""

    def sign(self, body: bytes) -> bytes:
        """The signature of a report's body."""


class SealedReport(NamedTuple):
    """A report as it is kept and sent, with the place and the window that its body names."""

    machine: int
    epoch: str
    seq: int
    start: int
    until: int
    """The first second after the window; equal to `start` when no second is attested."""
    key_id: str
    signature: bytes
    body: bytes


class Run(NamedTuple):
    """Seconds in a row with the same tick: bytes per second, utilisation in percent or -1."""

    seconds: int
    state: TickState
    up: int
    down: int
    util: int


def new_epoch() -> str:
    """16 random bytes in hex: a name under which no `seq` was ever used."""
    return secrets.token_hex(16)


class ReportChain:
    """The reports of one machine in one epoch: `seq` without gaps, `prev` without forks.

    `boot_id` may be set anew; the epoch goes on over boots. `next_seq`, `prev` and `sealed_until`
    are what a spool keeps in order to go on after a restart.
    """

    def __init__(
        self,
        machine: int,
        signer: Signer,
        *,
        boot_id: str,
        epoch: str | None = None,
        agent: str = AGENT_VERSION,
        next_seq: int = 1,
        prev: str = GENESIS_HASH,
        sealed_until: int = 0,
    ) -> None:
        """Begin a chain, or continue one whose last report had `next_seq - 1` and hash *prev*."""
        self.machine = machine
        self.signer = signer
        self.boot_id = boot_id
        self.epoch = epoch or new_epoch()
        self.agent = agent
        self.next_seq = next_seq
        self.prev = prev
        self.sealed_until = sealed_until

    def seal(
        self,
        start: int,
        count: int,
        blocks: Sequence[InstanceBlock] = (),
        observed: Sequence[Observation] = (),
        *,
        health: Sequence[HealthEvent] = (),
        gpus: Sequence[GpuSample] = (),
        inventory: Inventory | None = None,
        answers: Sequence[CheckAnswer] = (),
        clock: HostClock | None = None,
    ) -> SealedReport:
        """The next report of the chain, attesting `[start, start + count)`.

        Raises:
            ValueError: The server would refuse it: the window overlaps an earlier one or is too
                long, a block lies outside it, or there are too many blocks or bytes. The chain is
                unchanged.
        """
        self._check(start, count, blocks)
        report = UsageReport(
            v=1,
            machine=self.machine,
            epoch=self.epoch,
            seq=self.next_seq,
            prev=self.prev,
            boot_id=self.boot_id,
            agent=self.agent,
            start=start,
            count=count,
            clock=clock,
            instances=list(blocks),
            observed=list(observed),
            health=list(health),
            gpus=list(gpus),
            inventory=inventory,
            answers=list(answers),
        )
        sealed = self._sign(report)
        self.next_seq += 1
        self.prev = body_hash(sealed.body).hex()
        self.sealed_until = start + count
        return sealed

    def stand_in(self, seq: int, prev: str, start: int) -> SealedReport:
        """A signed empty report for a *seq* whose own report is lost: the loss is on record.

        Args:
            seq: The sequence number that the server waits for.
            prev: Hash of the report before it.
            start: First second of the report after it.
        """
        assert 0 < seq < self.next_seq, (seq, self.next_seq)
        report = UsageReport(
            v=1,
            machine=self.machine,
            epoch=self.epoch,
            seq=seq,
            prev=prev,
            boot_id=self.boot_id,
            agent=self.agent,
            start=start,
            count=0,
        )
        return self._sign(report)

    def _check(self, start: int, count: int, blocks: Sequence[InstanceBlock]) -> None:
        if start < self.sealed_until:
            message = f"second {start} is attested already, up to {self.sealed_until}"
            raise ValueError(message)
        if not 0 <= count <= MAX_WINDOW_SECONDS:
            message = f"a window has 0 to {MAX_WINDOW_SECONDS} seconds, not {count}"
            raise ValueError(message)
        if len(blocks) > MAX_INSTANCES:
            message = f"a report has at most {MAX_INSTANCES} instances, not {len(blocks)}"
            raise ValueError(message)
        for one in blocks:
            if one.start < start or one.start + one.count > start + count:
                message = f"the block of instance {one.instance} lies outside the window"
                raise ValueError(message)

    def _sign(self, report: UsageReport) -> SealedReport:
        body = encode_report(report)
        if len(body) > MAX_BODY_BYTES:
            message = f"a report has at most {MAX_BODY_BYTES} bytes, not {len(body)}"
            raise ValueError(message)
        return SealedReport(
            machine=report.machine,
            epoch=report.epoch,
            seq=report.seq,
            start=report.start,
            until=report.start + report.count,
            key_id=self.signer.key_id,
            signature=self.signer.sign(body),
            body=body,
        )


def block(
    instance: int,
    start: int,
    states: Sequence[TickState],
    *,
    up: Sequence[int],
    down: Sequence[int],
    util: Sequence[int],
) -> InstanceBlock:
    """The block of one instance from one value per second; utilisation -1 means unknown."""
    count = len(states)
    assert len(up) == len(down) == len(util) == count, (count, len(up), len(down), len(util))
    return InstanceBlock(
        instance=instance,
        start=start,
        count=count,
        state=_state_runs((state, 1) for state in states),
        up=compress_column(list(up)),
        down=compress_column(list(down)),
        util=bytes([UNKNOWN_UTILISATION if percent < 0 else percent for percent in util]),
    )


def run_block(instance: int, start: int, runs: Sequence[Run]) -> InstanceBlock:
    """The block of one instance from *runs*, with the same bytes that `block` gives."""
    return InstanceBlock(
        instance=instance,
        start=start,
        count=sum([run.seconds for run in runs]),
        state=_state_runs((run.state, run.seconds) for run in runs),
        up=_column([(run.up, run.seconds) for run in runs]),
        down=_column([(run.down, run.seconds) for run in runs]),
        util=b"".join([_utilisation(run.util, run.seconds) for run in runs]),
    )


def constant_block(
    instance: int, start: int, count: int, state: TickState, *, up: int, down: int, util: int
) -> InstanceBlock:
    """The block of an instance whose tick was the same in all *count* seconds."""
    return InstanceBlock(
        instance=instance,
        start=start,
        count=count,
        state=[(state, count)],
        up=[up] if count == 1 else [[up, count]],
        down=[down] if count == 1 else [[down, count]],
        util=_utilisation(util, count),
    )


def _utilisation(percent: int, seconds: int) -> bytes:
    return bytes([UNKNOWN_UTILISATION if percent < 0 else percent]) * seconds


def _state_runs(states: Iterable[tuple[TickState, int]]) -> list[tuple[TickState, int]]:
    runs: list[tuple[TickState, int]] = []
    for state, seconds in states:
        if runs and runs[-1][0] == state:
            runs[-1] = (state, runs[-1][1] + seconds)
        else:
            runs.append((state, seconds))
    return runs


def _column(values: Sequence[tuple[int, int]]) -> Column:
    """What `compress_column` makes of the same values, written out."""
    runs: list[list[int]] = []
    for value, seconds in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += seconds
        else:
            runs.append([value, seconds])
    if 2 * len(runs) > sum([seconds for _, seconds in runs]):
        return [value for value, seconds in runs for _ in range(seconds)]
    return list(runs)
