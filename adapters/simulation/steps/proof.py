"""Steps that look."""

from __future__ import annotations

from adapters.simulation.steps.readers import anything
from adapters.simulation.steps.registry import EXPECTATIONS, Run, Step, Values, step


@step("rebuild", required={})
def rebuild(run: Run, step: Step, values: Values) -> None:
    """All projections rebuilt from position 0 must equal the live ones."""
    del values
    result = run.world.rebuild()
    for table in result.tables:
        if not table.equal:
            run.differs(step, f"table {table.name}", "equal", table.first_difference)


@step("expect", required={}, optional=dict.fromkeys(EXPECTATIONS, anything))
def expect(run: Run, step: Step, values: Values) -> None:
    """What must be true in the middle."""
    run.compare(f"step {step.number} (line {step.line})", values["expect"])
