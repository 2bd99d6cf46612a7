"""The agent's loop: hear what is wanted, see what runs, step, look, seal.

One thread decides everything; others only carry: steps (`crew`), reports (`delivery`), the wait for
news (`link`). Facts about instances are kept in the spool, in the transaction of the report that
tells of them, so a kill at any moment loses at most the seconds since the last report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.bell import Bell
from adapters.hostagent.acting.crew import Crew
from adapters.hostagent.acting.diary import Diary
from adapters.hostagent.acting.hearing import Hearing, Wish
from adapters.hostagent.acting.lookout import Lookout
from adapters.hostagent.acting.noticing import Noticing
from adapters.hostagent.acting.probes import Probes
from adapters.hostagent.acting.record import Record
from adapters.hostagent.acting.roll import Roll, lives
from adapters.hostagent.acting.running import Running
from adapters.hostagent.acting.sealing import Sealer
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.acting.steps import Steps
from adapters.hostagent.delivery import Heard
from adapters.hostagent.reports import Signer
from adapters.hostagent.runtime.port import Found, Runtime
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.acknowledgement import Desired
from ledger.errors import UnavailableError

_AGAIN_SECONDS: Final = 0.2
"""Until another turn, when what was due could not be done."""

log = structlog.get_logger("gpuledger.agent")


class Agent:
    """One machine's agent: `turn` is one pass of the loop, `run` repeats it until told to end.

    It leans on `wanted`, `roll` and `record`: the server's wish, the truth, its own memory.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        senses: Senses,
        spool: SqliteSpool,
        signer: Signer,
        answerer: Answerer,
        report_seconds: int = 10,
        lives: Callable[[Found], bool] = lives,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on where the spool says that the agent before ended.

        Args:
            runtime: Runs the instances.
            senses: Looks at the machine.
            spool: Keeps reports, and what this agent knows.
            signer: Holds the machine's key.
            answerer: Answers the platform's checks.
            report_seconds: Seconds in a report while all is well.
            lives: False when the first process of a container is gone; cheaper than a list.
            monotonic: Seconds that never go back.
        """
        self._runtime, self._senses, self._spool = runtime, senses, spool
        self._answerer, self._monotonic = answerer, monotonic
        self._bell = Bell()
        self._ending = threading.Event()
        self.sealer = Sealer(
            senses=senses,
            spool=spool,
            signer=signer,
            report_seconds=report_seconds,
            monotonic=monotonic,
        )
        self.record = Record(senses, self.sealer.kept, self.sealer.telling)
        self.hearing = Hearing(spool, senses, answerer, monotonic)
        self.wanted = self.hearing.wanted
        self.roll = Roll(runtime, lives, monotonic)
        self.crew = Crew(runtime, self._bell.ring)
        self.probes = Probes(runtime, self._bell.ring, monotonic)
        self.running = Running(runtime, self.wanted, self.roll, self.record)
        self._noticing = Noticing(
            wanted=self.wanted,
            roll=self.roll,
            crew=self.crew,
            running=self.running,
            record=self.record,
            senses=senses,
            monotonic=monotonic,
        )
        self._steps = Steps(
            hearing=self.hearing,
            roll=self.roll,
            crew=self.crew,
            probes=self.probes,
            running=self.running,
            record=self.record,
            senses=senses,
            monotonic=monotonic,
        )
        self._lookout = Lookout(senses, self.roll, self.crew, self.probes, self.record)

    @property
    def diary(self) -> Diary:
        """What was done with each instance, in words for its renter."""
        return self.record.diary

    @property
    def instances(self) -> int:
        """How many are on the machine."""
        return len(self.roll.found)

    # --- called from other threads ---------------------------------------------------------------

    def hear(self, heard: Heard) -> None:
        """The server answered a delivery."""
        self.hearing.put(heard)
        self._bell.ring()

    def want(self, desired: Desired, sent_ns: int = 0, received_ns: int = 0) -> None:
        """The server said what it wants, to a request that this machine signed.

        *sent_ns* and *received_ns* are when the request left and the answer came.
        """
        self.hearing.put(Wish(desired, sent_ns, received_ns))
        self._bell.ring()

    def hint(self) -> None:
        """Something may have happened to a container: the list is read at the next turn."""
        self.roll.hint()
        self._bell.ring()

    def end(self) -> None:
        """Let `run` return after the present turn."""
        self._ending.set()
        self._bell.ring()

    # --- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `end`; then seal what is finished. Instances go on without the agent."""
        self._senses.start()
        try:
            while not self._ending.is_set():
                try:
                    self.turn()
                except UnavailableError as error:
                    log.error("the spool fails", reason=error.message)  # noqa: TRY400 - no defect
                    self._ending.wait(1.0)
                self._bell.watch(self.roll.pids)
                if self._bell.wait(self._pause()):
                    self.roll.hint()
            self._seal(is_last=True)
        finally:
            self._senses.stop()

    def turn(self) -> None:
        """One pass: everything that is due now."""
        self.hearing.take()
        self._steps.conclude()
        listed = self.roll.read()
        if listed is not None:
            self._noticing.notice(listed)
        self._steps.begin(may_start=self.sealer.stage != "full")
        self._lookout.look()
        self.sealer.telling.answer(self._answerer.take_answers())
        self._seal()

    def _pause(self) -> float:
        """Seconds in which nothing falls due by itself; there is a look in every second."""
        due_in = self.sealer.due_in_seconds(
            silent_seconds=self.hearing.silent_seconds, is_idle=not self.roll.found
        )
        if due_in <= 0 or self.roll.gone:
            due_in = _AGAIN_SECONDS
        return min(self._lookout.due_in_seconds, due_in)

    def _seal(self, *, is_last: bool = False) -> None:
        self.sealer.seal(
            silent_seconds=self.hearing.silent_seconds,
            is_idle=not self.roll.found,
            is_last=is_last,
        )

    def status(self) -> dict[str, Any]:
        """What a person wants to know of the agent now."""
        contact = self.hearing.contact_at
        return {
            "machine": self._spool.machine,
            "runtime": self._runtime.name,
            "boot_id": self._senses.boot_id,
            "second": self._senses.second,
            "gpus": self._senses.gpu_count(),
            "desired_version": self.wanted.version,
            "instances": [
                {
                    "instance": one.instance,
                    "want": one.want,
                    "assignment": one.assignment,
                    "state": self._lookout.state(one.instance),
                    "step": step.kind if (step := self.crew.busy.get(one.instance)) else None,
                }
                for one in self.wanted.instances.values()
                if one.want != "gone" or one.instance in self.roll.found
            ],
            "strangers": sorted(self._noticing.strangers),
            "last_answer_seconds_ago": None
            if contact is None
            else round(self._monotonic() - contact, 1),
            "stage": self.sealer.stage,
            "sealed": self.sealer.sealed,
        }
