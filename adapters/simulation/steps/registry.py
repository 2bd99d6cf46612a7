"""What a step is: its keys, and what it does to a running scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from adapters.simulation.steps.readers import Reader
from adapters.simulation.world import World

Values = Mapping[str, Any]
EXPECTATIONS: Final = {
    "balances", "held", "states", "running", "billed_seconds", "charges", "hosts", "platform",
    "invoices", "documents", "anomalies", "notices", "reliability", "min_bid", "offers",
    "trial_balance", "payments", "payouts", "clearing",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step, its values read: instants are Unix seconds, amounts and rates nanos."""

    number: int
    line: int
    at: int
    do: str
    values: Values
    refused: str | None


class Run(Protocol):
    """A scenario in progress, as its steps see it: the world, and the names in it."""

    world: World
    machines: dict[str, int]
    instances: dict[str, int]
    volumes: dict[str, int]
    disputes: dict[str, int]
    payments: dict[str, str]
    chargebacks: dict[str, str]
    boots: int
    settings: Mapping[str, Any]

    def account(self, name: str) -> int:
        """The id of an account, opened when first named."""

    def machine(self, values: Values) -> int:
        """The id of the machine that a step names."""

    def instance(self, values: Values) -> int:
        """The id of the instance that a step names."""

    def volume(self, name: str) -> int:
        """The id of the volume with this name."""

    def take_name(self, name: str) -> None:
        """Refuse a name that an instance or a volume of the scenario has already."""

    def host_of(self, instance_id: int) -> int:
        """The machine of an instance."""

    def fail(self, message: str) -> Exception:
        """The error of a step that cannot be meant."""

    def differs(self, step: Step, what: str, expected: Any, actual: Any) -> None:
        """Note what does not hold."""

    def compare(self, where: str, expected: Values) -> None:
        """Note every expectation that does not hold."""


class Kind(NamedTuple):
    """A kind of step: the keys it needs, those it may have, and what it does."""

    required: Mapping[str, Reader]
    optional: Mapping[str, Reader]
    act: Callable[[Run, Step, Values], None]
    lasts: Callable[[Values], int] | None = None
    """Seconds by which the step itself moves the clock; the next step is at its end or later."""


STEPS: Final[dict[str, Kind]] = {}


def step(
    do: str,
    required: Mapping[str, Reader],
    optional: Mapping[str, Reader] | None = None,
    lasts: Callable[[Values], int] | None = None,
) -> Callable[[Callable[[Run, Step, Values], None]], Callable[[Run, Step, Values], None]]:
    """Register what `do: <do>` does, with the keys it takes and how each is read."""

    def register(
        act: Callable[[Run, Step, Values], None],
    ) -> Callable[[Run, Step, Values], None]:
        assert do not in STEPS, do
        STEPS[do] = Kind(required, optional or {}, act, lasts)
        return act

    return register
