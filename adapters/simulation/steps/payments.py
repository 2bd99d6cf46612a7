"""Steps about payments by card, what goes back of them, and payouts to hosts."""

from __future__ import annotations

from typing import Any

from adapters.simulation.steps.readers import flag, money, name
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.money import NANOS_PER_CENT
from ledger.services import deposits
from ledger.services.payments import inbox, orders, returns, runner
from ledger.services.payouts import onboarding
from ledger.services.questions import payments as ask

_ANSWERS = ("settled", "declined", "pending")


def answer(value: Any) -> str:
    """What a card does from now on."""
    if value not in _ANSWERS:
        message = f"{value!r} is none of {', '.join(_ANSWERS)}"
        raise ValueError(message)
    return str(value)


@step("pay", required={"account": name, "amount": money, "as": name})
def pay(run: Run, step: Step, values: Values) -> None:
    """Credit bought on the processor's page, paid at once; other steps name it by `as`."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        payment_id = orders.order_payment(unit, account, values["amount"])
    run.payments[values["as"]] = payment_id
    _go_on(run)
    run.world.gateway.pay(f"page-{payment_id}")
    _go_on(run)


@step("refund", required={"account": name, "amount": money, "of": name}, optional={"id": name})
def refund(run: Run, step: Step, values: Values) -> None:
    """Unspent credit back to the payer, through the processor if that took it."""
    account = run.account(values["account"])
    reference = values.get("id", f"step-{step.number}")
    payment_id = run.payments.get(values["of"])
    with run.world.ledger.unit() as unit:
        if payment_id is None:
            deposits.refund(unit, account, values["of"], values["amount"], reference)
            return
        returns.refund(unit, account, payment_id, values["amount"], reference)
    _go_on(run)


@step("card", required={"account": name, "answer": answer})
def card(run: Run, step: Step, values: Values) -> None:
    """What automatic charges of an account are answered from now on."""
    del step
    account = run.account(values["account"])
    run.world.gateway.answers.pop(account, None)
    if values["answer"] != "settled":
        run.world.gateway.answers[account] = values["answer"]


@step("chargeback", required={"payment": name, "amount": money, "as": name})
def chargeback(run: Run, step: Step, values: Values) -> None:
    """The payer's bank takes an amount, which may be more than the payment was."""
    del step
    with run.world.ledger.reading() as connection:
        paid = ask.payment(connection, _payment(run, values["payment"])).payment
    assert paid.processor_payment is not None, paid
    cents = values["amount"] // NANOS_PER_CENT
    made = run.world.gateway.dispute(paid.processor_payment, cents)
    run.chargebacks[values["as"]] = made
    _go_on(run)


@step("chargeback-closed", required={"chargeback": name, "won": flag})
def chargeback_closed(run: Run, step: Step, values: Values) -> None:
    """The bank decides: what it took comes back if we win."""
    del step
    if values["chargeback"] not in run.chargebacks:
        message = f"there is no chargeback `{values['chargeback']}`"
        raise run.fail(message)
    outcome = "won" if values["won"] else "lost"
    run.world.gateway.decide(run.chargebacks[values["chargeback"]], outcome)
    _go_on(run)


@step("payout-account", required={"account": name}, optional={"enabled": flag})
def payout_account(run: Run, step: Step, values: Values) -> None:
    """A host can be paid from now on (or no longer)."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        onboarding.order_payout_account(unit, account, "US")
    _go_on(run)
    run.world.gateway.enable(account, is_enabled=values.get("enabled", True))
    _go_on(run)


def _payment(run: Run, given: str) -> str:
    if given not in run.payments:
        message = f"there is no payment `{given}`"
        raise run.fail(message)
    return run.payments[given]


def _go_on(run: Run) -> None:
    """The processor's messages arrive, and what is open is asked for."""
    world = run.world
    for event in world.gateway.news():
        with world.ledger.database.pool.connection() as connection:
            inbox.receive(connection, event, world.now)
    runner.run(world.ledger, world.gateway)
