"""Running scenarios: each step through the real services, each expectation against the ledger."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from adapters.simulation.scenario_file import Located, Scenario, ScenarioError, read
from adapters.simulation.state import final_state
from adapters.simulation.steps import STEPS
from adapters.simulation.steps.registry import Step, Values
from adapters.simulation.world import World
from ledger.errors import LedgerError
from ledger.services.ledger import Policy

_MONEY: Final = {
    "balances", "held", "charges", "hosts", "platform", "invoices", "documents", "min_bid",
    "trial_balance", "payments", "payouts", "clearing",
    "reliability",  # A share and no money; it is compared as a number too, however it is written.
}  # fmt: skip


_DOCUMENT: Final = re.compile(r"([A-Z]{2,4})-0*([0-9]+)")


class Difference(NamedTuple):
    """An expectation that does not hold."""

    where: str
    what: str
    expected: Any
    actual: Any


@dataclass
class Outcome:
    """How a scenario went."""

    path: Path
    name: str
    differences: list[Difference] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """True when every expectation holds."""
        return not self.differences


def run_files(
    files: list[Path], *, as_json: bool = False, keep: Path | None = None, url: str = ""
) -> int:
    """Run each file on a fresh ledger and print what does not hold.

    One file may be run in the empty database at *url*.

    Returns:
        0 when all hold, 1 when one does not, 2 when a file is not a valid scenario.
    """
    code = 0
    for path in files:
        try:
            home = _kept_home(keep, path, many=len(files) > 1)
            outcome = run(read(path), home, url=url)
        except ScenarioError as error:
            sys.stderr.write(f"error: {error}\n")
            code = 2
            continue
        if not outcome.holds:
            code = max(code, 1)
        sys.stdout.write(_shown(outcome, as_json=as_json))
        sys.stdout.flush()
    return code


def _kept_home(keep: Path | None, path: Path, *, many: bool) -> Path | None:
    if keep is None:
        return None
    home = keep / path.stem if many else keep
    if home.exists() and any(home.iterdir()):
        raise ScenarioError(path, 1, f"--keep {home} is not empty; give a new folder")
    return home


def _shown(outcome: Outcome, *, as_json: bool) -> str:
    if as_json:
        document = {
            "file": str(outcome.path),
            "scenario": outcome.name,
            "holds": outcome.holds,
            "differences": [one._asdict() for one in outcome.differences],
            **outcome.state,
        }
        return msgspec.json.encode(document).decode() + "\n"
    lines = [f"{'ok' if outcome.holds else 'FAILED':6} {outcome.path}: {outcome.name}"]
    for one in outcome.differences:
        lines.append(f"       {one.where}: {one.what}")
        lines.append(f"           expected {one.expected}")
        lines.append(f"           actual   {one.actual}")
    return "\n".join(lines) + "\n"


def run(scenario: Scenario, home: Path | None = None, *, url: str = "") -> Outcome:
    """Run one scenario on a fresh ledger, in *home* or in the empty database at *url*.

    Raises:
        ScenarioError: A step names something that was never made.
    """
    settings = scenario.settings
    policy = Policy(
        version=1,
        fee_bp=settings["fee_bp"],
        late_usage_seconds=settings["late_usage_hours"] * 3_600,
        admission=settings["admission"] == "on",
        offline_after_seconds=60,
        admit_waiting_bids=settings["admit_waiting_bids"] == "on",
    )
    outcome = Outcome(scenario.path, scenario.name)
    with World(
        scenario.steps[0].at,
        policy,
        home=home,
        url=url,
        report_seconds=settings["report_seconds"],
        boot_seconds=settings["boot"],
    ) as world:
        run_ = _Run(scenario, world, outcome)
        for step in scenario.steps:
            world.advance(step.at)
            run_.take(step)
        world.settle()
        outcome.state = run_.state()
        expected = Located(scenario.expect)
        expected.lines = scenario.expect.lines
        expected.setdefault("trial_balance", "0")
        run_.compare("at the end", expected)
    return outcome


class _Run:
    """One scenario in progress: its names, and what each step does."""

    def __init__(self, scenario: Scenario, world: World, outcome: Outcome) -> None:
        self._scenario = scenario
        self.world = world
        self._outcome = outcome
        self.machines: dict[str, int] = {}
        self.instances: dict[str, int] = {}
        self.volumes: dict[str, int] = {}
        self.disputes: dict[str, int] = {}
        self.payments: dict[str, str] = {}
        self.chargebacks: dict[str, str] = {}
        self.boots = 1
        self.settings = scenario.settings
        self._line = 1

    # --- steps -----------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Carry out one step and let the world come to rest."""
        self._line = step.line
        world = self.world
        try:
            STEPS[step.do].act(self, step, step.values)
        except LedgerError as error:
            if step.refused != error.code:
                self.differs(step, "refused", step.refused or "accepted", error.code)
        else:
            if step.refused is not None:
                self.differs(step, "refused", step.refused, "accepted")
        world.settle()

    def differs(self, step: Step, what: str, expected: Any, actual: Any) -> None:
        where = f"step {step.number} (line {step.line}, {step.do})"
        self._outcome.differences.append(Difference(where, what, expected, actual))

    def fail(self, message: str) -> ScenarioError:
        return ScenarioError(self._scenario.path, self._line, message)

    def account(self, name: str) -> int:
        with self.world.ledger.unit() as unit:
            return self.world.account(unit, name)

    def machine(self, values: Values) -> int:
        name = values["machine"]
        if name not in self.machines:
            message = f"there is no machine `{name}` yet"
            raise self.fail(message)
        return self.machines[name]

    def instance(self, values: Values) -> int:
        name = values["instance"]
        if name not in self.instances:
            message = f"there is no instance `{name}` yet"
            raise self.fail(message)
        return self.instances[name]

    def volume(self, name: str) -> int:
        if name not in self.volumes:
            message = f"there is no volume `{name}` yet"
            raise self.fail(message)
        return self.volumes[name]

    def take_name(self, name: str) -> None:
        for what, taken in (("instance", self.instances), ("volume", self.volumes)):
            if name in taken:
                message = f"the {what} `{name}` exists already"
                raise self.fail(message)

    def host_of(self, instance_id: int) -> int:
        row = self.world.connection.execute(
            "SELECT machine_id FROM instances WHERE instance_id = %s", [instance_id]
        ).fetchone()
        self.world.connection.commit()
        assert row is not None
        return int(row[0])

    # --- expectations ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The present state under the keys of `expect`, in the scenario's own names."""
        return final_state(self.world, self.machines, self.instances, self.volumes)

    def compare(self, where: str, expected: Mapping[str, Any]) -> None:
        """Note every key that is written and does not hold."""
        actual = self.state()
        for key, value in expected.items():
            found = actual[key]
            if key == "running":
                if set(value) != set(found):
                    self._note(where, key, sorted(value), sorted(found))
            else:
                self._walk(where, key, value, found, is_money=key in _MONEY)

    def _walk(self, where: str, what: str, expected: Any, actual: Any, *, is_money: bool) -> None:
        if isinstance(expected, Mapping):
            for key, value in expected.items():
                if not isinstance(actual, Mapping) or key not in actual:
                    empty: Any = {} if isinstance(value, Mapping) else None
                    found = 0 if what.startswith("anomalies.") else empty
                else:
                    found = actual[key]
                self._walk(where, f"{what}.{key}", value, found, is_money=is_money)
        elif isinstance(expected, list):
            found = actual if isinstance(actual, list) else []
            if len(expected) != len(found):
                self._note(where, what, expected, found)
                return
            for index, (left, right) in enumerate(zip(expected, found, strict=True)):
                self._walk(where, f"{what}[{index}]", left, right, is_money=is_money)
        elif not _same(expected, actual, is_money=is_money):
            self._note(where, what, expected, actual)

    def _note(self, where: str, what: str, expected: Any, actual: Any) -> None:
        self._outcome.differences.append(Difference(where, what, expected, actual))


def _same(expected: Any, actual: Any, *, is_money: bool) -> bool:
    if expected == actual:
        return True
    if not is_money:
        return False
    left, right = _DOCUMENT.fullmatch(str(expected)), _DOCUMENT.fullmatch(str(actual))
    if left and right:  # `INV-1` is INV-00000001
        return left.groups() == right.groups()
    try:
        return Decimal(str(expected)) == Decimal(str(actual))
    except InvalidOperation:
        return False
