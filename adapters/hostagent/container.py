"""A simulated container: its state and its traffic, kept as changes since the last seal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from adapters.hostagent.reports import Run, constant_block, run_block
from ledger.domain.usage import InstanceBlock, TickState

_ACTIVE = frozenset({"loading", "running", "rebooting"})


class Change(NamedTuple):
    """What each second of a container is like from `second` on."""

    second: int
    state: TickState
    up: int
    down: int
    util: int


@dataclass(slots=True)
class Load:
    """What an instance does whenever it runs; it survives stop, start, crash and displacement."""

    up_bytes_per_second: int = 0
    down_bytes_per_second: int = 0
    util: int = 100
    """Percent; -1 for unknown."""
    boot_seconds: int | None = 0
    """From grant to confirmation; null: only when `confirm` is called."""


@dataclass(slots=True)
class Container:
    """One instance on the host, whatever its state; `since` is the first second of the state."""

    instance: int
    assignment: int
    state: TickState
    since: int
    load: Load
    ready_at: int | None = None
    """The second in which it begins to run, while it is loading or rebooting."""
    run_until: int | None = None
    """End of its credit lease."""
    gone_at: int | None = None
    changes: list[Change] = field(default_factory=list)
    """Since the last seal; the first one is in force at the first second not sealed."""

    @property
    def is_active(self) -> bool:
        """True while it holds GPUs and runs or is about to."""
        return self.state in _ACTIVE

    def become(self, state: TickState, second: int) -> None:
        """Be in *state* from *second* on."""
        self.state = state
        self.since = second
        self.record(second)

    def record(self, second: int) -> None:
        """Note what the seconds from *second* on are like."""
        changes, load = self.changes, self.load
        if self.state == "running":
            up, down = load.up_bytes_per_second, load.down_bytes_per_second
            change = Change(second, self.state, up, down, load.util)
        else:
            change = Change(second, self.state, 0, 0, -1)
        if changes and changes[-1].second == second:
            changes[-1] = change
        elif not changes or changes[-1][1:] != change[1:]:
            changes.append(change)

    def block(self, start: int, until: int) -> InstanceBlock | None:
        """Its ticks in `[start, until)`; null when it was not on the host then."""
        changes = self.changes
        start = max(start, changes[0].second)
        if self.gone_at is not None:
            until = min(until, self.gone_at)
        if start >= until:
            return None
        if len(changes) == 1 or changes[1].second >= until:
            _, state, up, down, util = changes[0]
            return constant_block(
                self.instance, start, until - start, state, up=up, down=down, util=util
            )
        runs = []
        for index, (second, state, up, down, util) in enumerate(changes):
            if second >= until:
                break
            end = changes[index + 1].second if index + 1 < len(changes) else until
            seconds = min(end, until) - max(second, start)
            runs.append(Run(seconds, state, up, down, util))
        return run_block(self.instance, start, runs)

    def forget(self, until: int) -> None:
        """Drop the changes that matter only before *until*."""
        changes = self.changes
        passed = 0
        while passed + 1 < len(changes) and changes[passed + 1].second <= until:
            passed += 1
        del changes[:passed]
