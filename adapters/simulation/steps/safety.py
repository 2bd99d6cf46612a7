"""Steps about what a renter limits: caps, and the consent to be charged."""

from __future__ import annotations

from typing import Any

from adapters.simulation.steps.readers import flag, money, name
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.services import caps, top_up


def auto_top_up(value: Any) -> dict[str, int]:
    """The three amounts of a consent, in nanos."""
    keys = {"below", "amount", "max_per_day"}
    if not isinstance(value, dict) or set(value) != keys:
        message = f"is a mapping of {', '.join(sorted(keys))}"
        raise ValueError(message)
    return {key: money(amount) for key, amount in value.items()}


def consent(run: Run, account: int, terms: dict[str, int]) -> None:
    """A recorded consent; charges settle at once."""
    given = top_up.Consent(f"mandate-{account}", **terms)
    with run.world.ledger.unit() as unit:
        top_up.consent(unit, account, given)


@step(
    "caps",
    required={"account": name},
    optional={"per_hour": money, "per_day": money, "hard": flag},
)
def set_caps(run: Run, step: Step, values: Values) -> None:
    """Spend caps; what is left out has no cap."""
    del step
    account = run.account(values["account"])
    wanted = caps.Caps(values.get("per_hour"), values.get("per_day"), values.get("hard", False))
    with run.world.ledger.unit() as unit:
        caps.set_caps(unit, account, wanted)
