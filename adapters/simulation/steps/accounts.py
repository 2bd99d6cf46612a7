"""Steps about accounts and their money."""

from __future__ import annotations

from adapters.simulation.steps.readers import cycle, fraction, instant, money, name, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from adapters.simulation.steps.safety import auto_top_up, consent
from ledger.services import billing, deposits, grants, holds, transfers


@step(
    "open-account",
    required={"account": name},
    optional={
        "credit": money,
        "tax": fraction,
        "timezone": name,
        "billing": cycle,
        "anchor_day": whole,
        "auto_top_up": auto_top_up,
    },
)
def open_account(run: Run, step: Step, values: Values) -> None:
    """An account, with a settled deposit if it begins with credit."""
    name = values["account"]
    if name in run.world.names:
        message = f"the account `{name}` exists already"
        raise run.fail(message)
    account = run.account(name)
    _bill(run, account, values)
    if values.get("credit"):
        with run.world.ledger.unit() as unit:
            deposits.deposit(unit, account, values["credit"], f"opening-{step.number}")
    if "auto_top_up" in values:
        consent(run, account, values["auto_top_up"])


def _bill(run: Run, account: int, values: Values) -> None:
    """The account's own periods and tax, where the step or the settings say anything of them."""
    often = values.get("billing", run.settings["billing"])
    with run.world.ledger.unit() as unit:
        if often != "monthly" or "timezone" in values or "anchor_day" in values:
            billing.choose(
                unit,
                account,
                zone_name=values.get("timezone", "UTC"),
                cycle=often,
                anchor=values.get("anchor_day"),
            )
        if "tax" in values:
            billing.set_tax(unit, account, rate_bp=values["tax"])


@step("deposit", required={"account": name, "amount": money}, optional={"id": name})
def deposit(run: Run, step: Step, values: Values) -> None:
    """A settled payment; the same id twice is one payment."""
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        reference = values.get("id", f"step-{step.number}")
        deposits.deposit(unit, account, values["amount"], reference)


@step("grant", required={"account": name, "amount": money, "until": instant}, optional={"id": name})
def grant(run: Run, step: Step, values: Values) -> None:
    """Promotional credit."""
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        reference = values.get("id", f"step-{step.number}")
        grants.grant(unit, account, values["amount"], values["until"], reference, "promotion")


@step("transfer", required={"from": name, "to": name, "amount": money}, optional={"id": name})
def transfer(run: Run, step: Step, values: Values) -> None:
    """Credit between accounts."""
    sender, recipient = run.account(values["from"]), run.account(values["to"])
    with run.world.ledger.unit() as unit:
        reference = values.get("id", f"step-{step.number}")
        transfers.transfer(unit, sender, recipient, values["amount"], reference)


@step("hold", required={"account": name, "amount": money, "id": name})
def hold(run: Run, step: Step, values: Values) -> None:
    """Credit set aside."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        holds.place_hold(unit, account, values["amount"], values["id"])


@step("release", required={"account": name, "id": name}, optional={"amount": money})
def release(run: Run, step: Step, values: Values) -> None:
    """A hold given back."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        holds.release_hold(unit, account, values["id"])


@step("capture", required={"account": name, "id": name}, optional={"amount": money})
def capture(run: Run, step: Step, values: Values) -> None:
    """A hold spent."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        holds.capture_hold(unit, account, values["id"], values.get("amount"))
