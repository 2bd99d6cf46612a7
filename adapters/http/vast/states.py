"""The core's states under the four names that these clients know (the contract's state table)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Final, NamedTuple, get_args

from ledger.domain.events import StopReason, WaitReason
from ledger.services.questions.fleet import LastTick, State

_FAILED_BY_HOST: Final = frozenset({"host_fault", "lost_by_host"})
_OUTBID: Final = frozenset({"outbid", "on_demand_arrival"})
_OF_TICKS: Final = {
    "running": frozenset({"running", "frozen", "rebooting"}),
    "loading": frozenset({"created", "loading"}),
}
_SILENT: Final = {1: "unknown", 2: "offline"}
_WAITING: Final = {
    "new": "the machine's GPUs are taken: it starts as soon as they are free",
    "no_capacity": "the machine's GPUs are taken: it resumes as soon as they are free",
    "outbid": "a higher bid runs: it resumes when its bid wins again",
    "on_demand_arrival": "an on-demand rental took the GPUs: it resumes when its bid wins again",
}
_STOPPED: Final = {
    "renter": "stopped by its renter",
    "admin": "stopped by the platform",
    "container_exit": "its process ended",
    "launch_failed": "its container could not be started",
    "host_fault": "the host's machine failed",
    "lost_by_host": "the host lost its disk",
    "zero_balance": "the account's credit is used up",
    "spend_cap": "the account's spending cap is reached",
    "idle_policy": "it was idle for longer than the account allows",
    "lease": "its lease has ended",
}


class Shown(NamedTuple):
    """A state as these clients read it; `actual` is none before there is a container."""

    actual: str | None
    intended: str
    current: str
    next: str


def shown(state: State, tick: LastTick | None = None) -> Shown:
    """The four fields of a state; the last tick tells which way of running or loading it is."""
    found = _shown(state, None if tick is None else tick.state)
    if state.silence:
        return found._replace(actual=_SILENT[state.silence])
    return found


def _shown(state: State, tick: str | None) -> Shown:
    match state.status:
        case "scheduling" if state.reason in _OUTBID:
            return Shown("exited", "stopped", "stopped", "stopped")
        case "scheduling":
            return Shown("exited" if state.has_run else None, "running", "stopped", "running")
        case "loading":
            actual = "loading" if tick == "loading" else "created"
            return Shown(actual, "running", "running", "running")
        case "running":
            actual = tick if tick in _OF_TICKS["running"] and tick is not None else "running"
            return Shown(actual, "running", "running", "running")
        case "stopped" if state.reason == "launch_failed":
            return Shown("created", "stopped", "stopped", "stopped")
        case "stopped" if state.reason != "container_exit" and state.reason not in _FAILED_BY_HOST:
            return Shown("stopped", "stopped", "stopped", "stopped")
        case _:
            return Shown("exited", "stopped", "stopped", "stopped")


def message(state: State) -> str:
    """What a person should know of a state, in one line."""
    match state.status:
        case "scheduling":
            return f"SCHEDULING: {_WAITING.get(state.reason, state.reason)}"
        case "loading":
            return "LOADING: the GPUs are assigned, and the container is being prepared"
        case "running":
            return "success, running"
        case "stopped":
            return _STOPPED.get(state.reason, state.reason)
        case _:
            return "the contract has ended; its disk is kept for two days"


def matches(actual: str | None, wanted: Collection[str | None]) -> bool:
    """Whether a state is one of those asked for; `exited` also finds what is `stopped`."""
    return actual in wanted or (actual == "stopped" and "exited" in wanted)


def states_with(wanted: Collection[str | None]) -> list[State]:
    """The core's states that can show one of these; ticks decide between the rest."""
    return [state for state in _EVERY if any(matches(one, wanted) for one in _possible(state))]


def _possible(state: State) -> Collection[str | None]:
    if not state.silence and state.status in _OF_TICKS:
        return _OF_TICKS[state.status]
    return (shown(state).actual,)


_EVERY: Final = [
    State(status, reason, has_run, silence)
    for status, reasons in (
        ("scheduling", get_args(WaitReason)),
        ("stopped", get_args(StopReason)),
        *((one, ("",)) for one in ("loading", "running", "expired")),
    )
    for reason, has_run, silence in product(reasons, (False, True), (0, 1, 2))
]
