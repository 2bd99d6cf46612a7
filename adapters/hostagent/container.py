"""A simulated container: its state and traffic over the seconds that are not yet sealed."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.hostagent.reports import Piece, block_of_pieces
from ledger.domain.usage import UNKNOWN_UTILISATION, InstanceBlock, TickState


@dataclass(slots=True)
class Workload:
    """What an instance does while it runs, and how long it takes to start."""

    boot_seconds: int | None
    """Null: it is confirmed by hand."""
    utilisation_percent: int
    """−1: no GPU answers."""
    up_bytes: int = 0
    """Bytes per second."""
    down_bytes: int = 0
    """Bytes per second."""


@dataclass(slots=True)
class Container:
    """One instance on one simulated host, from `since` until it is gone."""

    instance: int
    assignment: int
    since: int
    workload: Workload
    state: TickState = "stopped"
    wants_to_run: bool = False
    started_assignment: int | None = None
    """The last assignment that was started, whatever became of it."""
    lapsed: bool = False
    """Stopped at the end of its credit lease: the same assignment may start it again."""
    run_until: int | None = None
    gone_at: int | None = None
    due: int | None = None
    """The second from which it runs, while it is loading or rebooting."""
    quiet: bool = False
    """Whether running again is no news: it does so after a reboot in place."""
    _changes: list[tuple[int, Piece]] = field(default_factory=list)
    """Unsealed history: from which second on each piece holds; the lengths in it mean nothing."""

    def __post_init__(self) -> None:
        """Begin the history."""
        self._become(self.since, self.state)

    @property
    def up_bytes(self) -> int:
        """Bytes per second now."""
        return self._changes[-1][1].up_bytes

    @property
    def down_bytes(self) -> int:
        """Bytes per second now."""
        return self._changes[-1][1].down_bytes

    def alive(self, second: int) -> bool:
        """Whether any second from *second* on is, or may be, spent on the machine."""
        return self.gone_at is None or self.gone_at > max(second, self.since)

    def start(self, now: int, assignment: int) -> None:
        """Load under *assignment*; it runs when the boot is over."""
        self.assignment = self.started_assignment = assignment
        self.wants_to_run = True
        self.lapsed = False
        self._load(now)

    def boot(self, now: int) -> None:
        """The machine came up again: a new history begins, and what wants to run loads."""
        self._changes.clear()
        self.since = now
        if self.wants_to_run:
            self._load(now)
        else:
            self._become(now, self.state)

    def run(self, now: int) -> None:
        """Run from *now* on."""
        self.due = None
        self._become(now, "running")

    def reboot(self, now: int, seconds: int | None) -> None:
        """Restart in place for *seconds*; null: until it is confirmed by hand."""
        self.due = None if seconds is None else now + seconds
        self.quiet = True
        self._become(now, "rebooting")

    def end_run(self, now: int, state: TickState) -> None:
        """Stop running, or trying to, from *now* on."""
        self.wants_to_run = False
        self.due = None
        self._become(now, state)

    def refresh(self, now: int) -> None:
        """Take over a changed workload from *now* on."""
        self._become(now, self.state)

    def block(self, start: int, end: int) -> InstanceBlock | None:
        """Its seconds in `[start, end)`, or none; what lies before *end* is then forgotten."""
        first = max(start, self.since)
        last = end if self.gone_at is None else min(end, self.gone_at)
        if first >= last:
            return None
        if len(self._changes) == 1:
            pieces = [self._changes[0][1]._replace(seconds=last - first)]
            return block_of_pieces(self.instance, first, pieces)
        pieces = []
        ends = [second for second, _ in self._changes[1:]] + [last]
        for (second, piece), until in zip(self._changes, ends, strict=True):
            seconds = min(until, last) - max(second, first)
            if seconds > 0:
                pieces.append(piece._replace(seconds=seconds))
        while len(self._changes) > 1 and self._changes[1][0] <= last:
            del self._changes[0]
        return block_of_pieces(self.instance, first, pieces)

    def _load(self, now: int) -> None:
        boot_seconds = self.workload.boot_seconds
        self.due = None if boot_seconds is None else now + boot_seconds
        self.quiet = False
        self._become(now, "loading")

    def _become(self, now: int, state: TickState) -> None:
        """Be in *state* from *now* on; of several changes in one second the last one counts."""
        self.state = state
        if state == "running":
            work = self.workload
            percent = work.utilisation_percent
            piece = Piece(
                0,
                state,
                work.up_bytes,
                work.down_bytes,
                UNKNOWN_UTILISATION if percent < 0 else percent,
            )
        else:
            piece = Piece(0, state)
        while self._changes and self._changes[-1][0] >= now:
            self._changes.pop()
        if not self._changes or self._changes[-1][1] != piece:
            self._changes.append((now, piece))
