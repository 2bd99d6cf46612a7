"""Going round: look, judge, act, tell; until the job ends, the money does, or somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import httpx

from adapters.supervise.api import Api, StopAskedError
from adapters.supervise.job import Job
from adapters.supervise.journal import Journal
from adapters.supervise.judge import DONE, NOT_RUNNING, OUT_OF_MONEY, End, Verdict, judge
from adapters.supervise.records import Charge, Instance
from adapters.supervise.renting import Renter
from ledger.domain.ids import parse_rfc3339
from ledger.domain.money import SECONDS_PER_HOUR, format_dollars, parse_dollars
from ledger.errors import UnavailableError

_LONGEST_PAUSE_SECONDS: Final = 300.0
_ONCE_PATIENCE_SECONDS: Final = 60.0
_LAST_LOOK_SECONDS: Final = 5.0
_LAST_DESTROY_SECONDS: Final = 60.0
_UNMETERED_SECONDS_MAX: Final = 120
"""Usage on its way to the meters, at most; beyond it the host is silent and bills nothing."""


class Pace(NamedTuple):
    """How often the supervisor looks, and what it does at its end."""

    poll_seconds: float = 15.0
    once: bool = False
    destroy_on_exit: bool = False


def supervise(
    job: Job,
    url: str,
    key: str,
    journal: Journal,
    stop: threading.Event,
    *,
    pace: Pace,
    transport: httpx.BaseTransport | None = None,
) -> int:
    """Keep *job* alive on the server at *url* until it ends or *stop* is set.

    Returns:
        0 when it was asked to end, or the job ended by itself, or with `once` the job runs; 3 when
        the budget or the credit is used up; 4 with `once` when nothing runs; 5 when somebody else
        stopped or destroyed the job.

    Raises:
        LedgerError: What the server refuses for ever, such as a bad key.
    """

    def trouble(error: UnavailableError | None) -> None:
        if error is None:
            journal("reachable", "the server answers again")
        else:
            journal("no answer", f"{error.message}; trying again", code=error.code)

    patience = _ONCE_PATIENCE_SECONDS if pace.once else None
    api = Api(url, key, stop, patience=patience, on_trouble=trouble, transport=transport)
    try:
        return _Keeper(job, api, journal).run(stop, pace)
    finally:
        api.close()


class _Keeper:
    """What one program remembers beside what the server tells it: nothing that it may not lose."""

    def __init__(self, job: Job, api: Api, journal: Journal) -> None:
        self._job = job
        self._api = api
        self._journal = journal
        self._renter = Renter(job, api, journal)
        self._kept: Instance | None = None
        self._told: tuple[object, ...] = ()

    # --- rounds ----------------------------------------------------------------------------------

    def run(self, stop: threading.Event, pace: Pace) -> int:
        """Go round until it is over; returns the exit code."""
        pause = pace.poll_seconds
        code = None
        try:
            while code is None:
                code = self._round()
                if code is None and pace.once:
                    is_up = self._kept is not None and self._kept.idle_since is None
                    return DONE if is_up else NOT_RUNNING
                # The market is asked less and less often while it has nothing.
                longest = max(_LONGEST_PAUSE_SECONDS, pace.poll_seconds)
                pause = min(pause * 2, longest) if self._kept is None else pace.poll_seconds
                if code is None and stop.wait(pause):
                    return self._leave(destroy=pace.destroy_on_exit)
        except StopAskedError:
            return self._leave(destroy=pace.destroy_on_exit)
        if code == DONE and pace.destroy_on_exit and self._kept is not None:
            self._destroy(self._kept)
        return code

    def _round(self) -> int | None:
        """One look and what follows; the exit code when it is over."""
        verdict, mine = self._look()
        if verdict.end is not None:
            return self._ended(verdict.end)
        self._settle(verdict)
        if self._is_spent(mine, verdict.keep):
            for one in mine:
                if one.is_alive:
                    self._release(one)
            self._kept = None
            return OUT_OF_MONEY
        if verdict.rent is None:
            return None
        newest = max((one.instance_id for one in mine), default=0)
        made = self._renter.rent(verdict.rent, verdict.avoid, newest)
        if self._renter.is_broke and verdict.keep is None:
            return OUT_OF_MONEY
        if made is None:
            return None
        self._told = (made.instance_id, made.shown)
        # What it replaced must not run beside it until the next round.
        verdict, _ = self._look()
        if verdict.end is not None:
            return self._ended(verdict.end)
        self._settle(verdict)
        return None

    def _look(self) -> tuple[Verdict, list[Instance]]:
        mine = self._api.instances(self._job.label)
        known = None if self._kept is None else self._kept.instance_id
        return judge(mine, self._api.now, self._job.stuck_seconds, known), mine

    def _settle(self, verdict: Verdict) -> None:
        """Take note of what is kept, tell it where it is news, and let go of the rest."""
        kept = self._kept = verdict.keep
        if kept is not None and (state := (kept.instance_id, kept.shown)) != self._told:
            action = "waits" if kept.status == "scheduling" else kept.status
            self._say(action if self._told else "found", f"it is {kept.shown}", kept)
            self._told = state
        for one in verdict.release:
            self._release(one)

    # --- letting go ------------------------------------------------------------------------------

    def _release(self, one: Instance) -> None:
        """End what was replaced: destroy it, or keep its disk and end the rest."""
        self._renter.avoid(one.machine_id)
        if not self._job.keep_disk:
            self._destroy(one)
        elif one.has_gpus or one.status == "scheduling":
            stopped = self._api.stop(one.instance_id)
            rate = stopped.storage_rate_per_hour
            self._tell_cost("stopped", f"its disk goes on at {rate} an hour", stopped)

    def _destroy(self, one: Instance) -> None:
        gone = self._api.destroy(one.instance_id)
        self._tell_cost("destroyed", "nothing of it is billed any longer", gone)

    def _ended(self, end: End) -> int:
        sentence = end.why
        self._kept = None
        if end.instance.is_alive:
            self._kept = end.instance
            rate = end.instance.storage_rate_per_hour
            sentence += f"; its disk costs {rate} an hour until it is destroyed"
        self._tell_cost("ended", sentence, end.instance, exit_code=end.code)
        return end.code

    def _leave(self, *, destroy: bool) -> int:
        """Asked to end: leave things as they are, or destroy what runs."""
        self._api.last_words(_LAST_DESTROY_SECONDS if destroy else _LAST_LOOK_SECONDS)
        try:
            # A request without an answer may have been carried out: the server knows.
            verdict, _ = self._look()
            kept = verdict.keep
            if kept is None:
                self._journal("leaves", "nothing runs under this label")
            elif destroy:
                for one in (kept, *verdict.release):
                    self._destroy(one)
            else:
                sentence = f"it is {kept.shown} and goes on, at {kept.dph_total} an hour of running"
                self._tell_cost("leaves", sentence, kept)
        except UnavailableError as error:
            if destroy:
                raise
            last = "nothing" if self._kept is None else f"instance {self._kept.instance_id}"
            sentence = f"{error.message}; the last it told of was {last}, which goes on"
            self._journal("leaves", sentence, code=error.code)
        return DONE

    # --- money -----------------------------------------------------------------------------------

    def _is_spent(self, mine: Sequence[Instance], kept: Instance | None) -> bool:
        """Whether the budget is used up, as far as is metered and is on its way to the meters."""
        budget = self._job.budget
        if budget is None:
            return False
        spent = sum(one.cost for one in mine)
        if kept is not None and kept.has_gpus:
            spent += self._unmetered(kept, self._api.charges(kept.instance_id))
        if spent < budget:
            return False
        shown = {"spent": format_dollars(spent), "budget": format_dollars(budget)}
        sentence = f"{shown['spent']} of {shown['budget']} is spent, or about to be: the job ends"
        self._journal("budget", sentence, **shown)
        return True

    def _unmetered(self, kept: Instance, lines: Sequence[Charge]) -> int:
        """What an instance may have cost in the seconds that the meters do not show yet."""
        until = max([kept.created_at, *(line.used_until for line in lines)])
        seconds = min(max(int(self._api.now) - parse_rfc3339(until), 0), _UNMETERED_SECONDS_MAX)
        return parse_dollars(kept.dph_total) * seconds // SECONDS_PER_HOUR

    def _tell_cost(self, action: str, sentence: str, one: Instance, **more: Any) -> None:
        """Tell an action and what the instance cost, item by item, as metered so far."""
        items: dict[str, int] = {}
        for line in self._api.charges(one.instance_id):
            items[line.item] = items.get(line.item, 0) + parse_dollars(line.amount)
        total = format_dollars(sum(items.values()))
        shown = {item: format_dollars(amount) for item, amount in items.items()}
        parts = ", ".join(f"{item} {amount}" for item, amount in shown.items())
        cost = f"cost so far {total}" + (f" ({parts})" if parts else "")
        self._say(action, f"{sentence}; {cost}", one, cost=total, cost_by_item=shown, **more)

    def _say(self, action: str, sentence: str, one: Instance, **more: Any) -> None:
        self._journal(
            action,
            f"instance {one.instance_id}: {sentence}",
            instance_id=one.instance_id,
            machine_id=one.machine_id,
            status=one.status,
            reason=one.reason or None,
            **more,
        )
