"""Steps about the trust in machines."""

from __future__ import annotations

from typing import Final

from adapters.simulation.steps.readers import name, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.checks import PASSED, Verdict, judge_silence
from ledger.domain.reliability import SLOT_SECONDS, Result
from ledger.services import checks
from ledger.services.checks import PLATFORM_FAULT, Judgement
from ledger.services.ledger import Unit

_RESULTS: Final[tuple[Result, ...]] = ("passed", "failed", "inconclusive")


def _count(values: Values) -> int:
    return sum(values.get(result, 0) for result in _RESULTS)


@step(
    "checks",
    required={"machine": name},
    optional={"passed": whole, "failed": whole, "inconclusive": whole},
    lasts=lambda values: _count(values) * SLOT_SECONDS,
)
def checks_(run: Run, step: Step, values: Values) -> None:
    """That many health checks: the first one now, the next 300 s later; time goes on after each.

    Passed ones come first, then failed, then inconclusive ones. What falls due meanwhile happens at
    its second; the checks of a stretch in which nothing does are recorded together at its end.
    """
    del step
    machine, world = run.machine(values), run.world
    results = [result for result in _RESULTS for _ in range(values.get(result, 0))]
    waiting = [(world.now + SLOT_SECONDS * number, one) for number, one in enumerate(results)]
    end = world.now + SLOT_SECONDS * len(results)
    while world.now < end:
        world.advance(world.next_stop(end))
        due = [one for one in waiting if one[0] < world.now]
        del waiting[: len(due)]
        if due:
            with world.ledger.unit() as unit:
                _check(unit, machine, due)


def _check(unit: Unit, machine: int, due: list[tuple[int, Result]]) -> None:
    unit.append_all([checks.issued(machine, "ping", at, at) for at, _ in due])
    judged = [
        Judgement(machine, "ping", at, _verdict(unit, machine, at, result)) for at, result in due
    ]
    checks.conclude(unit, judged, promptly=True)


def _verdict(unit: Unit, machine: int, at: int, result: Result) -> Verdict:
    if result == "passed":
        return PASSED
    if result == "inconclusive":
        return PLATFORM_FAULT
    return judge_silence(rented=checks.was_rented(unit.connection, machine, at))
