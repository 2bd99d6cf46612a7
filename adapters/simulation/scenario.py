"""Running scenarios: each step through the real services, each expectation against the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from adapters.hostagent.reports import ReportChain, constant_block
from adapters.simulation.scenario_file import Located, Scenario, ScenarioError, Step, read
from adapters.simulation.state import final_state
from adapters.simulation.world import World
from ledger.domain.events import MachineSpec
from ledger.domain.money import parse_fee
from ledger.domain.usage import MAX_WINDOW_SECONDS, TickState
from ledger.errors import LedgerError
from ledger.services import accounts, machines, rentals
from ledger.services.ledger import Policy, Unit
from ledger.services.usage import SignedReport

_MONEY: Final = {"balances", "held", "charges", "hosts", "platform", "invoices", "trial_balance"}


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


def run_files(files: list[Path], *, as_json: bool = False, keep: Path | None = None) -> int:
    """Run each file on a fresh ledger and print what does not hold.

    Returns:
        0 when all hold, 1 when one does not, 2 when a file is not a valid scenario.
    """
    code = 0
    for path in files:
        try:
            home = _kept_home(keep, path, many=len(files) > 1)
            outcome = run(read(path), home)
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
        self._world = world
        self._outcome = outcome
        self._machines: dict[str, int] = {}
        self._instances: dict[str, int] = {}
        self._boots = 1
        self._line = 1

    # --- steps -----------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Carry out one step and let the world come to rest."""
        self._line = step.line
        world = self._world
        name = step.do.replace("-", "_")
        action: Callable[[Step, Mapping[str, Any]], None] = getattr(self, f"_do_{name}")
        try:
            action(step, step.values)
        except LedgerError as error:
            if step.refused != error.code:
                self._differs(step, "refused", step.refused or "accepted", error.code)
        else:
            if step.refused is not None:
                self._differs(step, "refused", step.refused, "accepted")
        world.settle()

    def _differs(self, step: Step, what: str, expected: Any, actual: Any) -> None:
        where = f"step {step.number} (line {step.line}, {step.do})"
        self._outcome.differences.append(Difference(where, what, expected, actual))

    def _fail(self, message: str) -> ScenarioError:
        return ScenarioError(self._scenario.path, self._line, message)

    def _account(self, name: str) -> int:
        with self._world.ledger.unit() as unit:
            return self._world.account(unit, name)

    def _machine(self, values: Mapping[str, Any]) -> int:
        name = values["machine"]
        if name not in self._machines:
            message = f"there is no machine `{name}` yet"
            raise self._fail(message)
        return self._machines[name]

    def _instance(self, values: Mapping[str, Any]) -> int:
        name = values["instance"]
        if name not in self._instances:
            message = f"there is no instance `{name}` yet"
            raise self._fail(message)
        return self._instances[name]

    def _host_of(self, instance_id: int) -> int:
        row = self._world.connection.execute(
            "SELECT machine_id FROM instances WHERE instance_id = %s", [instance_id]
        ).fetchone()
        self._world.connection.commit()
        assert row is not None
        return int(row[0])

    def _unit(self) -> Any:
        return self._world.ledger.unit()

    def _do_open_account(self, step: Step, values: Mapping[str, Any]) -> None:
        name = values["account"]
        if name in self._world.names:
            message = f"the account `{name}` exists already"
            raise self._fail(message)
        account = self._account(name)
        if values.get("credit"):
            with self._unit() as unit:
                accounts.deposit(unit, account, values["credit"], f"opening-{step.number}")

    def _do_deposit(self, step: Step, values: Mapping[str, Any]) -> None:
        account = self._account(values["account"])
        with self._unit() as unit:
            reference = values.get("id", f"step-{step.number}")
            accounts.deposit(unit, account, values["amount"], reference)

    def _do_refund(self, step: Step, values: Mapping[str, Any]) -> None:
        account = self._account(values["account"])
        with self._unit() as unit:
            reference = values.get("id", f"step-{step.number}")
            accounts.refund(unit, account, values["of"], values["amount"], reference)

    def _do_transfer(self, step: Step, values: Mapping[str, Any]) -> None:
        sender, recipient = self._account(values["from"]), self._account(values["to"])
        with self._unit() as unit:
            reference = values.get("id", f"step-{step.number}")
            accounts.transfer(unit, sender, recipient, values["amount"], reference)

    def _do_hold(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        account = self._account(values["account"])
        with self._unit() as unit:
            accounts.place_hold(unit, account, values["amount"], values["id"])

    def _do_release(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        account = self._account(values["account"])
        with self._unit() as unit:
            accounts.release_hold(unit, account, values["id"])

    def _do_capture(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        account = self._account(values["account"])
        with self._unit() as unit:
            accounts.capture_hold(unit, account, values["id"], values.get("amount"))

    def _do_machine(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        name, gpus = values["machine"], values["gpus"]
        if name in self._machines:
            message = f"the machine `{name}` exists already"
            raise self._fail(message)
        host = self._account(values["host"])
        spec = MachineSpec(
            gpus=gpus,
            gpu_name=values["gpu_name"],
            gpu_ram_gb=values.get("gpu_ram_gb", 24),
            cpu_cores=values.get("cpu_cores", 8 * gpus),
            ram_gb=values.get("ram_gb", 64 * gpus),
            disk_gb=values.get("disk_gb", 2_000 * gpus),
            up_mbps=values.get("up_mbps", 10_000),
            down_mbps=values.get("down_mbps", 10_000),
        )
        with self._unit() as unit:
            machine = self._world.add_machine(unit, host, spec)
        self._machines[name] = machine

    def _do_list(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        machine = self._machine(values)
        discount = values.get("reserved_discount_max")
        with self._unit() as unit:
            machines.list_machine(
                unit,
                machine,
                machines.Prices(
                    values["gpu_hour"],
                    values["storage_gb_month"],
                    values.get("up_gb", 0),
                    values.get("down_gb", 0),
                    values.get("min_bid"),
                ),
                min_gpus=values.get("min_gpus", 1),
                until=values.get("until"),
                reserved_discount_max_bp=4_000 if discount is None else parse_fee(discount),
            )

    def _do_unlist(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        machine = self._machine(values)
        with self._unit() as unit:
            machines.unlist_machine(unit, machine)

    def _do_rent(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        name = values["as"]
        if name in self._instances:
            message = f"the instance `{name}` exists already"
            raise self._fail(message)
        account, machine = self._account(values["account"]), self._machine(values)
        with self._unit() as unit:
            instance = rentals.rent(
                unit,
                account,
                machine,
                gpus=values.get("gpus"),
                disk_gb=values["disk_gb"],
                label=values.get("label"),
                wait=values.get("wait", False),
            )
        self._instances[name] = instance
        if "boot" in values:
            self._world.hosts[machine].set_boot(instance, values["boot"])

    def _rental(self, values: Mapping[str, Any], do: Callable[[Unit, int], None]) -> None:
        instance = self._instance(values)
        with self._unit() as unit:
            do(unit, instance)

    def _do_start(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._rental(values, rentals.start)

    def _do_stop(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._rental(values, rentals.stop)

    def _do_destroy(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._rental(values, rentals.destroy)

    def _do_reboot(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._rental(values, rentals.reboot)
        instance = self._instance(values)
        host = self._world.hosts[self._host_of(instance)]
        seconds = host.loads[instance].boot_seconds or 0
        host.reboot(instance, self._world.now, seconds)

    def _do_traffic(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        instance = self._instance(values)
        host = self._world.hosts[self._host_of(instance)]
        host.set_traffic(instance, self._world.now, values.get("up", 0), values.get("down", 0))

    def _do_util(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        instance = self._instance(values)
        host = self._world.hosts[self._host_of(instance)]
        host.set_utilisation(instance, self._world.now, values["gpu"])

    def _do_exit(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        instance = self._instance(values)
        self._world.hosts[self._host_of(instance)].exit(instance, self._world.now)

    def _do_confirm(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        instance = self._instance(values)
        self._world.hosts[self._host_of(instance)].confirm(instance, self._world.now)

    def _do_silence(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._world.hosts[self._machine(values)].silence(self._world.now)

    def _do_resume(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._world.resume(self._machine(values))

    def _do_crash(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._world.crash(self._machine(values))

    def _do_recover(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        machine = self._machine(values)
        self._boots += 1
        self._world.recover(machine, f"boot-{machine}-{self._boots}")

    def _do_redeliver(self, step: Step, values: Mapping[str, Any]) -> None:
        del step
        self._world.redeliver(self._machine(values))

    def _do_ticks(self, step: Step, values: Mapping[str, Any]) -> None:
        instance = self._instance(values)
        machine = self._host_of(instance)
        host = self._world.hosts[machine]
        chain = ReportChain(
            machine, host.chain.signer, boot_id=host.chain.boot_id, epoch=f"{step.number:032x}"
        )
        state: TickState = "running" if values.get("running", True) else "stopped"
        second, until = values["from"], values["until"]
        while second < until:
            count = min(until - second, MAX_WINDOW_SECONDS)
            block = constant_block(
                instance,
                second,
                count,
                state,
                up=values.get("up", 0),
                down=values.get("down", 0),
                util=100,
            )
            one = chain.seal(second, count, [block])
            self._world.usage.deliver(
                [SignedReport(one.key_id, one.signature, one.body)], [self._world.now]
            )
            second += count

    def _do_rebuild(self, step: Step, values: Mapping[str, Any]) -> None:
        del values
        result = self._world.rebuild()
        for table in result.tables:
            if not table.equal:
                self._differs(step, f"table {table.name}", "equal", table.first_difference)

    def _do_expect(self, step: Step, values: Mapping[str, Any]) -> None:
        self.compare(f"step {step.number} (line {step.line})", values["expect"])

    # --- expectations ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The present state under the keys of `expect`, in the scenario's own names."""
        return final_state(self._world, self._machines, self._instances)

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
    try:
        return Decimal(str(expected)) == Decimal(str(actual))
    except InvalidOperation:
        return False
