"""Steps about keeping machines up."""

from __future__ import annotations

from typing import Any, get_args

from adapters.simulation.steps.readers import instant, name, span_seconds, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.events import MaintenanceCategory
from ledger.services import maintenance as use_cases


def duration(value: Any) -> int:
    """Seconds, written as a number or as a span such as ``2h``."""
    seconds = span_seconds(value if str(value).startswith("+") else f"+{value}")
    return whole(value) if seconds is None else seconds


def category(value: Any) -> MaintenanceCategory:
    """What is worked on."""
    for known in get_args(MaintenanceCategory):
        if value == known:
            return known  # type: ignore[no-any-return]  # an argument of the Literal itself
    message = f"{value!r} is none of {', '.join(get_args(MaintenanceCategory))}"
    raise ValueError(message)


@step(
    "maintenance",
    required={"machine": name, "start": instant, "duration": duration, "category": category},
)
def maintenance(run: Run, step: Step, values: Values) -> None:
    """The host says in advance that it will work on its machine."""
    machine, start = run.machine(values), values["start"]
    ahead = span_seconds(start)
    with run.world.ledger.unit() as unit:
        use_cases.schedule(
            unit,
            machine,
            start if ahead is None else step.at + ahead,
            values["duration"],
            values["category"],
        )
